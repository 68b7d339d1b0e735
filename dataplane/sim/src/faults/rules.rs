//! Scripted faults: a [`Rule`] selects frames by direction, rail, QPN, PSN, opcode and count.

use core::time::Duration;

use uroce_wire::{Bth, Frame, OpCode, Psn, Qpn};

/// Effect of a rule on a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The frame is lost.
    Drop,
    /// A copy arrives this much later.
    Duplicate(Duration),
    /// The frame arrives this much later.
    Delay(Duration),
    /// The bits of `mask` are flipped in the byte at `at`, counted from the start of the frame.
    Flip {
        /// Offset of the byte.
        at: usize,
        /// Bits to flip.
        mask: u8,
    },
    /// Only this many bytes arrive.
    Truncate(usize),
    /// A switch marks the frame with Congestion Experienced, whether it is ECN-capable or not.
    Mark,
}

/// A fault for the frames that match all fields that are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Number of the sending node.
    pub from: Option<usize>,
    /// Rail that the frame is sent on.
    pub rail: Option<usize>,
    /// Destination QPN.
    pub qpn: Option<Qpn>,
    /// PSN of the packet.
    pub psn: Option<Psn>,
    /// UDP source port of the frame.
    pub port: Option<u16>,
    /// Opcode of the packet.
    pub opcode: Option<OpCode>,
    /// Applies only to the n-th matching frame, counted from 1; to all if not given.
    pub nth: Option<u32>,
    /// Effect on the frame.
    pub action: Action,
    pub(crate) seen: u32,
}

impl Rule {
    /// A rule that applies `action` to every frame.
    pub const fn new(action: Action) -> Rule {
        Rule {
            from: None,
            rail: None,
            qpn: None,
            psn: None,
            port: None,
            opcode: None,
            nth: None,
            action,
            seen: 0,
        }
    }

    /// A rule that loses frames.
    pub const fn drop() -> Rule {
        Rule::new(Action::Drop)
    }

    /// A rule that lets a copy of each frame arrive after `lag`.
    pub const fn duplicate(lag: Duration) -> Rule {
        Rule::new(Action::Duplicate(lag))
    }

    /// A rule that delays frames by `lag`.
    pub const fn delay(lag: Duration) -> Rule {
        Rule::new(Action::Delay(lag))
    }

    /// A rule that cuts frames to their first `len` bytes.
    pub const fn truncate(len: usize) -> Rule {
        Rule::new(Action::Truncate(len))
    }

    /// A rule that marks frames with Congestion Experienced.
    pub const fn mark() -> Rule {
        Rule::new(Action::Mark)
    }

    /// Restricts the rule to frames that node `from` sends.
    pub const fn from(self, from: usize) -> Rule {
        Rule { from: Some(from), ..self }
    }

    /// Restricts the rule to frames on rail `rail`.
    pub const fn on(self, rail: usize) -> Rule {
        Rule { rail: Some(rail), ..self }
    }

    /// Restricts the rule to packets to QP `qpn`.
    pub const fn to(self, qpn: Qpn) -> Rule {
        Rule { qpn: Some(qpn), ..self }
    }

    /// Restricts the rule to packets with this PSN.
    pub const fn psn(self, psn: Psn) -> Rule {
        Rule { psn: Some(psn), ..self }
    }

    /// Restricts the rule to frames with this UDP source port.
    pub const fn port(self, port: u16) -> Rule {
        Rule { port: Some(port), ..self }
    }

    /// Restricts the rule to packets with this opcode.
    pub const fn opcode(self, opcode: OpCode) -> Rule {
        Rule { opcode: Some(opcode), ..self }
    }

    /// Restricts the rule to the `nth` matching frame, counted from 1.
    pub const fn nth(self, nth: u32) -> Rule {
        Rule { nth: Some(nth), ..self }
    }

    /// The action, if the rule applies to this frame.
    pub(crate) fn apply(
        &mut self,
        from: usize,
        rail: usize,
        bth: &Bth,
        frame: &[u8],
    ) -> Option<Action> {
        let fits = self.from.is_none_or(|node| node == from)
            && self.rail.is_none_or(|one| one == rail)
            && self.qpn.is_none_or(|qpn| qpn == bth.dest_qpn)
            && self.psn.is_none_or(|psn| psn == bth.psn)
            && self.port.is_none_or(|port| source_port(frame) == Some(port))
            && self.opcode.is_none_or(|opcode| opcode == bth.opcode);
        if !fits {
            return None;
        }
        self.seen += 1;
        self.nth.is_none_or(|nth| nth == self.seen).then_some(self.action)
    }
}

/// UDP source port of a frame; `None` if it is no RoCE frame.
fn source_port(frame: &[u8]) -> Option<u16> {
    match Frame::parse(frame) {
        Ok(Frame::Roce(datagram)) => Some(datagram.src_port),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_counts_only_what_fits() {
        let mut rule = Rule::drop().from(1).psn(Psn::new(5)).nth(2);
        let mut apply =
            |from, psn| rule.apply(from, 0, &Bth { psn: Psn::new(psn), ..Bth::default() }, &[]);
        assert_eq!(apply(1, 5), None);
        assert_eq!(apply(0, 5), None);
        assert_eq!(apply(1, 6), None);
        assert_eq!(apply(1, 5), Some(Action::Drop));
        assert_eq!(apply(1, 5), None);
    }
}
