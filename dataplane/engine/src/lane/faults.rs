//! Injected faults: a port's RoCEv2 frames are lost, corrupted, duplicated, reordered or delayed,
//! for tests of programs and of the transport.
//!
//! ```text
//!   frame ─▶ lost? ─▶ corrupted? ─▶ duplicated? ─▶ overtaken? ─▶ delayed? ─▶ passes
//!                                       └── copy ─▶ late ◀─────────┘
//! ```
//!
//! Faults concern RoCEv2 frames only; of sent frames, only those of QPs and forwarded ones. Address
//! resolution makes a few attempts only, and its failure would say nothing about the transport.
//! With the same seed and the same traffic the same frames are chosen.
//!
//! Invariants
//! - The number of held frames is bounded, and the control plane allocates their places. A frame
//!   for which there is no place is lost, and is counted as lost.
//! - A corrupted frame has one wrong bit, which its invariant CRC covers.
//!
//! Not here: frames of a direction without faults; bottlenecks ([`super::bottleneck`]).

use super::loss::{Loss, LossConfig};
use super::random::{Random, chance_of, seed_at};
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::{Mbuf, Mempool};
use std::collections::VecDeque;
use std::time::Duration;
use uroce_transport::Instant;
use uroce_wire::{Frame, Qpn};

/// Longest delay, in microseconds.
const DELAY_MAX: u32 = 1_000_000;
/// Largest number of frames that a lane delays: a millisecond's at four million packets a second.
const LATE_MAX: usize = 4096;
/// Largest number of frames of a lane that wait to be overtaken.
const OVERTAKEN: usize = 64;
/// Largest number of frames that overtake one.
const PASSES: u64 = 8;
/// Time after which an overtaken frame follows, whether or not others have passed.
const PATIENCE: Duration = Duration::from_millis(1);

/// Faults of one direction of a port. The shares are from 0.0 to 1.0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FaultConfig {
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share of frames that are duplicated.
    pub duplicate: f64,
    /// Share of frames that 1 to 8 later ones overtake, for at most a millisecond.
    pub reorder: f64,
    /// Share of frames with a wrong bit.
    pub corrupt: f64,
    /// Delay of each frame in microseconds, up to a second.
    pub delay_us: u32,
    /// Seed of the random choice.
    pub seed: u64,
    /// The QP of which frames are concerned, and no forwarded ones; `None` for all.
    pub qp: Option<Qpn>,
}

/// Faults of both directions of a port.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PortFaults {
    /// Faults of received frames.
    pub rx: FaultConfig,
    /// Faults of frames that are sent.
    pub tx: FaultConfig,
}

impl FaultConfig {
    /// Returns the name of the first field that is out of its range.
    pub fn wrong_field(&self) -> Option<&'static str> {
        let shares = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        let is_wrong = |(_, share): &&(_, f64)| !(0.0..=1.0).contains(share);
        let share = shares.iter().find(is_wrong).map(|(name, _)| *name);
        share.or((self.delay_us > DELAY_MAX).then_some("delay"))
    }

    /// Returns whether any frame may have a fault.
    pub fn is_on(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().any(|share| *share > 0.0)
            || self.delay_us > 0
    }
}

impl PortFaults {
    /// Sets the loss of both directions, of all frames.
    pub(crate) fn set_loss(&mut self, loss: LossConfig) {
        self.rx = FaultConfig { loss: loss.rx, seed: loss.seed, qp: None, ..self.rx };
        self.tx = FaultConfig { loss: loss.tx, seed: loss.seed, qp: None, ..self.tx };
    }

    /// Makes the faults of lcore number `lcore` of `lcores` for received and sent frames. Copies
    /// are taken from `pool`, which the lcores share. The random choices differ between lcores.
    pub(crate) fn at_queue(
        &self,
        lcore: usize,
        lcores: usize,
        pool: &Mempool,
    ) -> [Option<Box<Faults>>; 2] {
        // Ports and their peers need most of a mempool, and each lcore holds frames both ways.
        let late_max = LATE_MAX.min(pool.count() as usize / (8 * lcores.max(1)));
        let loss = LossConfig { rx: self.rx.loss, tx: 0.0, seed: self.rx.seed };
        let (rx_loss, _) = loss.at_queue(lcore);
        let loss = LossConfig { rx: 0.0, tx: self.tx.loss, seed: self.tx.seed };
        let (_, tx_loss) = loss.at_queue(lcore);
        let rx = self.rx.is_on().then(|| Faults::new(&self.rx, RX, rx_loss, lcore, late_max, pool));
        let tx = self.tx.is_on().then(|| Faults::new(&self.tx, TX, tx_loss, lcore, late_max, pool));
        [rx, tx]
    }
}

/// The counters of a direction.
#[derive(Clone, Copy, Debug)]
struct Counted {
    lost: EngineCounter,
    duplicated: EngineCounter,
    reordered: EngineCounter,
    corrupted: EngineCounter,
    delayed: EngineCounter,
}

const RX: Counted = Counted {
    lost: EngineCounter::RxLost,
    duplicated: EngineCounter::RxDuplicated,
    reordered: EngineCounter::RxReordered,
    corrupted: EngineCounter::RxCorrupted,
    delayed: EngineCounter::RxDelayed,
};
const TX: Counted = Counted {
    lost: EngineCounter::TxLost,
    duplicated: EngineCounter::TxDuplicated,
    reordered: EngineCounter::TxReordered,
    corrupted: EngineCounter::TxCorrupted,
    delayed: EngineCounter::TxDelayed,
};

/// A frame that is held, to follow later ones.
#[derive(Debug)]
struct Held {
    /// The latest time at which the frame follows.
    due: Instant,
    /// The frame follows at the latest when this many frames have passed.
    after: u64,
    /// The frame's QP; `None` for a forwarded frame.
    by: Option<Qpn>,
    frame: Mbuf,
}

/// The faults of one direction of a lane.
#[derive(Debug)]
pub(crate) struct Faults {
    qp: Option<Qpn>,
    loss: Loss,
    /// Chances, as shares of 2^32.
    duplicate: u64,
    reorder: u64,
    corrupt: u64,
    delay: Duration,
    random: Random,
    counted: Counted,
    pool: Mempool,
    /// Frames that are delayed, and copies, in the order of their times.
    late: VecDeque<Held>,
    late_max: usize,
    overtaken: VecDeque<Held>,
    /// Frames that have passed since the start.
    passed: u64,
    /// Frames that were to be delayed and found no place.
    crowded_out: u64,
}

impl Faults {
    fn new(
        config: &FaultConfig,
        counted: Counted,
        loss: Loss,
        lcore: usize,
        late_max: usize,
        pool: &Mempool,
    ) -> Box<Faults> {
        Box::new(Faults {
            qp: config.qp,
            loss,
            duplicate: chance_of(config.duplicate),
            reorder: chance_of(config.reorder),
            corrupt: chance_of(config.corrupt),
            delay: Duration::from_micros(config.delay_us.into()),
            // The stream differs from that of losses.
            random: Random::new(seed_at(!config.seed, lcore)),
            counted,
            pool: pool.clone(),
            late: VecDeque::with_capacity(late_max),
            late_max,
            overtaken: VecDeque::with_capacity(OVERTAKEN),
            passed: 0,
            crowded_out: 0,
        })
    }

    /// Returns whether the next frame is lost. `qp` is the QP that sends or receives it; `None` for
    /// a forwarded frame that is sent.
    pub(super) fn loses(&mut self, qp: Option<Qpn>, counters: &CounterBlock) -> bool {
        let loses = self.concerns(qp) && self.loss.loses();
        if loses {
            counters.count(self.counted.lost);
        }
        loses
    }

    fn concerns(&self, qp: Option<Qpn>) -> bool {
        self.qp.is_none() || self.qp == qp
    }

    /// Applies all faults but loss to a frame of a QP, or a forwarded one. Returns it if it passes
    /// now.
    pub(super) fn detour(
        &mut self,
        mut frame: Mbuf,
        qp: Option<Qpn>,
        now: Instant,
        counters: &CounterBlock,
    ) -> Option<Mbuf> {
        if !self.concerns(qp) {
            return Some(frame);
        }
        if self.random.hits(self.corrupt) && corrupt(frame.as_mut_slice(), &mut self.random) {
            counters.count(self.counted.corrupted);
        }
        let is_twice = self.random.hits(self.duplicate);
        let copy = if is_twice { self.copy_of(&frame) } else { None };
        let passes = self.hold_back(frame, qp, now, counters);
        if let Some(copy) = copy
            && self.late.len() < self.late_max
        {
            counters.count(self.counted.duplicated);
            self.late.push_back(Held { due: now + self.delay, after: 0, by: qp, frame: copy });
        }
        passes
    }

    /// Returns the frame unless it follows later.
    fn hold_back(
        &mut self,
        frame: Mbuf,
        by: Option<Qpn>,
        now: Instant,
        counters: &CounterBlock,
    ) -> Option<Mbuf> {
        let due = now + self.delay;
        if self.random.hits(self.reorder) && self.overtaken.len() < OVERTAKEN {
            counters.count(self.counted.reordered);
            let after = self.passed + 1 + self.random.next() % PASSES;
            self.overtaken.push_back(Held { due: due + PATIENCE, after, by, frame });
            return None;
        }
        if self.delay.is_zero() {
            self.passed += 1;
            return Some(frame);
        }
        if self.late.len() < self.late_max {
            counters.count(self.counted.delayed);
            self.late.push_back(Held { due, after: 0, by, frame });
        } else {
            self.crowded_out += 1;
            counters.count(self.counted.lost);
        }
        None
    }

    /// Returns how many frames were to be delayed and were lost, because there was no place.
    pub(super) fn crowded_out(&self) -> u64 {
        self.crowded_out
    }

    /// Takes the next held frame that is due, and its QP if it has one.
    pub(super) fn release(&mut self, now: Instant) -> Option<(Option<Qpn>, Mbuf)> {
        let passed = self.passed;
        let is_due = |held: &Held| held.after <= passed || held.due <= now;
        if let Some(at) = self.overtaken.iter().position(is_due) {
            return self.overtaken.remove(at).map(|held| (held.by, held.frame));
        }
        if self.late.front().is_none_or(|held| held.due > now) {
            return None;
        }
        self.passed += 1;
        self.late.pop_front().map(|held| (held.by, held.frame))
    }

    /// Returns whether no frame is held.
    pub(super) fn is_empty(&self) -> bool {
        self.late.is_empty() && self.overtaken.is_empty()
    }

    /// Drops the frames that are held. Returns how many.
    pub(super) fn drop_held(&mut self) -> u64 {
        let count = self.late.len() + self.overtaken.len();
        self.late.clear();
        self.overtaken.clear();
        count as u64
    }

    /// Called when other faults, or none, take the place of these: drops and counts the frames that
    /// are held.
    pub(super) fn end(&mut self, counters: &CounterBlock) {
        counters.add(self.counted.lost, self.drop_held());
    }

    fn copy_of(&self, frame: &Mbuf) -> Option<Mbuf> {
        let mut copy = self.pool.alloc().ok()?;
        copy.set_len(frame.len()).ok()?;
        copy.as_mut_slice().copy_from_slice(frame.as_slice());
        Some(copy)
    }
}

/// Inverts a bit of a frame, from its BTH on, that the invariant CRC covers. Returns false if the
/// frame is not RoCEv2.
fn corrupt(frame: &mut [u8], random: &mut Random) -> bool {
    /// Place in the BTH of the one byte that the invariant CRC does not cover.
    const UNCOVERED: usize = 4;
    let Ok(Frame::Roce(datagram)) = Frame::parse(frame) else { return false };
    let transport = datagram.transport;
    let (begin, len) = (transport.as_ptr().addr() - frame.as_ptr().addr(), transport.len());
    if len <= UNCOVERED {
        return false;
    }
    // A frame has less than 2^16 bytes.
    let mut at = (random.next() % (len as u64 - 1)) as usize;
    if at >= UNCOVERED {
        at += 1;
    }
    frame[begin + at] ^= 1 << (random.next() % 8);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_their_ranges_name_themselves() {
        let fine = FaultConfig { delay_us: DELAY_MAX, loss: 1.0, ..FaultConfig::default() };
        assert_eq!((fine.wrong_field(), fine.is_on()), (None, true));
        assert!(!FaultConfig { seed: 1, ..FaultConfig::default() }.is_on());
        for (wrong, name) in [
            (FaultConfig { loss: 1.1, ..fine }, "loss"),
            (FaultConfig { duplicate: -0.1, ..fine }, "duplicate"),
            (FaultConfig { reorder: f64::NAN, ..fine }, "reorder"),
            (FaultConfig { corrupt: f64::INFINITY, ..fine }, "corrupt"),
            (FaultConfig { delay_us: DELAY_MAX + 1, ..fine }, "delay"),
        ] {
            assert_eq!(wrong.wrong_field(), Some(name));
        }
    }

    #[test]
    fn frames_that_are_not_roce_are_not_corrupted() {
        let mut frame = [0; 60];
        assert!(!corrupt(&mut frame, &mut Random::new(1)));
        assert_eq!(frame, [0; 60]);
    }
}
