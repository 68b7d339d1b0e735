//! What may happen to a frame on its way: at random by [`Rates`], or on purpose by a [`Rule`].

use core::time::Duration;

use fastrand::Rng;
use uroce_wire::{Bth, OpCode, Psn, Qpn};

/// Chances of the random faults of one direction, each 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// The frame vanishes.
    pub loss: f64,
    /// It comes twice, the second time at once or up to [`Rates::MAX_LATE`] later.
    pub duplicate: f64,
    /// Frames sent up to a few microseconds later overtake it.
    pub reorder: f64,
    /// One to three bits, or a burst of up to 32, are flipped.
    pub corrupt: f64,
    /// It comes up to [`Rates::MAX_DELAY`] later.
    pub delay: f64,
}

impl Rates {
    /// A perfect link.
    pub const NONE: Rates =
        Rates { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, delay: 0.0 };

    /// The most that a second copy lags behind.
    pub const MAX_LATE: Duration = Duration::from_millis(20);

    /// The most that a delayed frame lags behind.
    pub const MAX_DELAY: Duration = Duration::from_millis(1);

    /// Each fault off, or between 0.01 % and 10 % with small chances as likely as large ones.
    pub fn swarm(rng: &mut Rng) -> Rates {
        let mut chance = || match rng.bool() {
            true => 1e-4 * 1000_f64.powf(rng.f64()),
            false => 0.0,
        };
        Rates {
            loss: chance(),
            duplicate: chance(),
            reorder: chance(),
            corrupt: chance(),
            delay: chance(),
        }
    }

    /// Is there any chance of a fault?
    pub fn is_any(&self) -> bool {
        *self != Rates::NONE
    }
}

/// Faults that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Frames lost.
    pub lost: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Frames overtaken or delayed.
    pub delayed: u64,
    /// Frames corrupted.
    pub corrupted: u64,
    /// Times that a sink was full on purpose.
    pub refused: u64,
}

impl FaultCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &FaultCounts) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
        self.refused += other.refused;
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.lost + self.duplicated + self.delayed + self.corrupted + self.refused
    }
}

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
}

/// A fault for the frames that fit all of what is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The sending node.
    pub from: Option<usize>,
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
        Rule { from: None, qpn: None, psn: None, opcode: None, nth: None, action, seen: 0 }
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

    /// Only frames that node `from` sends.
    pub const fn from(self, from: usize) -> Rule {
        Rule { from: Some(from), ..self }
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
    pub(super) fn apply(&mut self, from: usize, bth: &Bth) -> Option<Action> {
        let fits = self.from.is_none_or(|node| node == from)
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

/// Flips one to three bits, or some bits of a 32-bit window, the outermost of them included.
///
/// The invariant CRC finds all of these, wherever it covers them.
pub(super) fn corrupt(frame: &mut [u8], rng: &mut Rng) {
    let bits = frame.len() * 8;
    if rng.bool() {
        let first = rng.usize(..bits);
        flip(frame, first);
        for _ in 0..rng.usize(..3) {
            let bit = rng.usize(..bits);
            if bit != first {
                flip(frame, bit);
            }
        }
        return;
    }
    let width = rng.usize(2..=32);
    let start = rng.usize(..=bits - width);
    flip(frame, start);
    flip(frame, start + width - 1);
    for bit in start + 1..start + width - 1 {
        if rng.bool() {
            flip(frame, bit);
        }
    }
}

fn flip(frame: &mut [u8], bit: usize) {
    frame[bit / 8] ^= 0x80 >> (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_is_one_to_three_bits_or_a_burst_of_at_most_32() {
        let mut rng = Rng::with_seed(1);
        for _ in 0..10_000 {
            let mut frame = [0; 80];
            corrupt(&mut frame, &mut rng);
            let flipped: Vec<usize> =
                (0..640).filter(|bit| frame[bit / 8] & 0x80 >> (bit % 8) != 0).collect();
            let span = flipped.last().unwrap_or(&0) - flipped.first().unwrap_or(&0);
            assert!(flipped.len() <= 3 || span < 32, "{flipped:?}");
            assert!(!flipped.is_empty());
        }
    }

    #[test]
    fn a_rule_counts_only_what_fits() {
        let mut rule = Rule::drop().from(1).psn(Psn::new(5)).nth(2);
        let mut apply = |from, psn| rule.apply(from, &Bth { psn: Psn::new(psn), ..Bth::default() });
        assert_eq!(apply(1, 5), None);
        assert_eq!(apply(0, 5), None);
        assert_eq!(apply(1, 6), None);
        assert_eq!(apply(1, 5), Some(Action::Drop));
        assert_eq!(apply(1, 5), None);
    }
}
