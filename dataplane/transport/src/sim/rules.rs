//! Faults on purpose: a [`Rule`] is keyed by direction, rail, QPN, PSN, opcode and the n-th time.

use core::time::Duration;

use uroce_wire::{Bth, OpCode, Psn, Qpn};

/// What is done to a frame on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It vanishes.
    Drop,
    /// A copy comes this much later.
    Duplicate(Duration),
    /// It comes this much later.
    Delay(Duration),
    /// The bits of `mask` are flipped in the byte at `at`, counted from the start of the frame.
    Flip {
        /// Position of the byte.
        at: usize,
        /// Bits to flip.
        mask: u8,
    },
    /// Only so many bytes of it come.
    Truncate(usize),
}

/// A fault for the frames that fit all of what is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The sending node.
    pub from: Option<usize>,
    /// The rail it takes.
    pub rail: Option<usize>,
    /// The QP addressed.
    pub qpn: Option<Qpn>,
    /// The packet's PSN.
    pub psn: Option<Psn>,
    /// The packet's opcode.
    pub opcode: Option<OpCode>,
    /// Only the n-th frame that fits, from 1; all if not given.
    pub nth: Option<u32>,
    /// What happens to it.
    pub action: Action,
    pub(super) seen: u32,
}

impl Rule {
    /// `action` for every frame.
    pub const fn new(action: Action) -> Rule {
        let (from, rail, qpn, psn, opcode, nth) = (None, None, None, None, None, None);
        Rule { from, rail, qpn, psn, opcode, nth, action, seen: 0 }
    }

    /// Frames vanish.
    pub const fn drop() -> Rule {
        Rule::new(Action::Drop)
    }

    /// Frames come again after `lag`.
    pub const fn duplicate(lag: Duration) -> Rule {
        Rule::new(Action::Duplicate(lag))
    }

    /// Frames come `lag` later.
    pub const fn delay(lag: Duration) -> Rule {
        Rule::new(Action::Delay(lag))
    }

    /// Frames lose what is behind their first `len` bytes.
    pub const fn truncate(len: usize) -> Rule {
        Rule::new(Action::Truncate(len))
    }

    /// Only frames that node `from` sends.
    pub const fn from(self, from: usize) -> Rule {
        Rule { from: Some(from), ..self }
    }

    /// Only frames that take this rail.
    pub const fn on(self, rail: usize) -> Rule {
        Rule { rail: Some(rail), ..self }
    }

    /// Only packets to QP `qpn`.
    pub const fn to(self, qpn: Qpn) -> Rule {
        Rule { qpn: Some(qpn), ..self }
    }

    /// Only packets with this PSN.
    pub const fn psn(self, psn: Psn) -> Rule {
        Rule { psn: Some(psn), ..self }
    }

    /// Only packets with this opcode.
    pub const fn opcode(self, opcode: OpCode) -> Rule {
        Rule { opcode: Some(opcode), ..self }
    }

    /// Only the `nth` of the frames that fit, from 1.
    pub const fn nth(self, nth: u32) -> Rule {
        Rule { nth: Some(nth), ..self }
    }

    /// The action, if it is this frame's turn.
    pub(super) fn apply(&mut self, from: usize, rail: usize, bth: &Bth) -> Option<Action> {
        let fits = self.from.is_none_or(|node| node == from)
            && self.rail.is_none_or(|one| one == rail)
            && self.qpn.is_none_or(|qpn| qpn == bth.dest_qpn)
            && self.psn.is_none_or(|psn| psn == bth.psn)
            && self.opcode.is_none_or(|opcode| opcode == bth.opcode);
        if !fits {
            return None;
        }
        self.seen += 1;
        self.nth.is_none_or(|nth| nth == self.seen).then_some(self.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_counts_only_what_fits() {
        let mut rule = Rule::drop().from(1).psn(Psn::new(5)).nth(2);
        let mut apply =
            |from, psn| rule.apply(from, 0, &Bth { psn: Psn::new(psn), ..Bth::default() });
        assert_eq!(apply(1, 5), None);
        assert_eq!(apply(0, 5), None);
        assert_eq!(apply(1, 6), None);
        assert_eq!(apply(1, 5), Some(Action::Drop));
        assert_eq!(apply(1, 5), None);
    }
}
