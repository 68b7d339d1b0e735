//! Notices: events of QPs for the control plane itself; one word of kinds per QP, and marks of the
//! words to look at.
//!
//! ```text
//!   lcore ── raise ──▶ kinds[QP] ──▶ marks (a bit per QP) ──▶ any ──▶ waker
//!   control plane                    take: any ─▶ marks ─▶ kinds
//! ```
//!
//! Invariants
//! - Each kind of a QP that was raised is taken, once for all raises before. Kinds are written
//!   before their mark, and marks before `any`; they are read in the other order, each by an
//!   exchange that clears it.
//! - Raising neither allocates nor waits, and always has room.
//!
//! Not here: the choice of QPs (`QpSpec::notices` of the engine); the application's own events
//! ([`crate::wake::events`]).

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::wake::events::EventKind;
use crate::wake::waker::Waker;
use std::sync::Arc;

/// Bytes per QP: its word of kinds, and at most one for its mark, which is one bit.
pub const BYTES_PER_QP: usize = size_of::<AtomicU32>() + 1;

/// The notices of all QPs of an engine.
#[derive(Debug)]
pub struct Notices {
    kinds: Box<[AtomicU32]>,
    marks: Box<[AtomicU64]>,
    any: AtomicBool,
    waker: Arc<Waker>,
}

impl Notices {
    /// Makes notices for QPs in slots 0 to `qps − 1`.
    pub fn new(qps: u32, waker: Arc<Waker>) -> Notices {
        Notices {
            kinds: (0..qps).map(|_| AtomicU32::new(0)).collect(),
            marks: (0..qps.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect(),
            any: AtomicBool::new(false),
            waker,
        }
    }

    /// Adds a notice of the QP in slot `index`. Any thread may call this.
    #[cold]
    pub fn raise(&self, index: u32, kind: EventKind) {
        self.kinds[index as usize].fetch_or(kind.bit(), Ordering::AcqRel);
        let mark = 1 << (index % u64::BITS);
        self.marks[(index / u64::BITS) as usize].fetch_or(mark, Ordering::AcqRel);
        // Not a plain store: the exchange in `take` must acquire the marks of all earlier raises.
        self.any.swap(true, Ordering::AcqRel);
        self.waker.wake();
    }

    /// Wakes the control plane even though there may be no notice.
    #[cold]
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Returns whether there is no notice.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Gives all notices to `give`, with the slots of their QPs. Only one thread may call this.
    /// Returns how many slots were marked.
    pub fn take(&self, mut give: impl FnMut(u32, EventKind)) -> u32 {
        if !self.any.swap(false, Ordering::AcqRel) {
            return 0;
        }
        let mut slots = 0;
        for (mark, first) in self.marks.iter().zip((0..).step_by(u64::BITS as usize)) {
            let mut marked = match mark.load(Ordering::Relaxed) {
                0 => 0,
                _ => mark.swap(0, Ordering::AcqRel),
            };
            slots += marked.count_ones();
            while marked != 0 {
                let index = first + marked.trailing_zeros();
                marked &= marked - 1;
                let mut kinds = self.kinds[index as usize].swap(0, Ordering::AcqRel);
                while let Some(kind) = EventKind::lowest_of(kinds) {
                    kinds &= !kind.bit();
                    give(index, kind);
                }
            }
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(notices: &Notices) -> Vec<(u32, EventKind)> {
        let mut all = Vec::new();
        notices.take(|index, kind| all.push((index, kind)));
        all
    }

    #[test]
    fn what_happened_again_before_it_was_taken_is_one_notice() {
        let notices = Notices::new(130, Waker::new().unwrap());
        assert!(notices.is_empty());
        assert_eq!(taken(&notices), []);
        for index in [129, 64, 0, 129] {
            notices.raise(index, EventKind::CommEst);
        }
        notices.raise(129, EventKind::QpFatal);
        assert!(!notices.is_empty());
        let expected = [
            (0, EventKind::CommEst),
            (64, EventKind::CommEst),
            (129, EventKind::CommEst),
            (129, EventKind::QpFatal),
        ];
        assert_eq!(taken(&notices), expected);
        assert_eq!(taken(&notices), []);
        notices.raise(64, EventKind::CommEst);
        assert_eq!(taken(&notices), [(64, EventKind::CommEst)]);
    }

    /// Two lcores raise while the control plane takes: the last notice of each is not lost.
    #[test]
    fn no_notice_is_lost() {
        const ROUNDS: u32 = 20_000;
        let notices = Notices::new(2, Waker::new().unwrap());
        let seen = [AtomicU32::new(0), AtomicU32::new(0)];
        let raised = [AtomicU32::new(0), AtomicU32::new(0)];
        std::thread::scope(|scope| {
            for index in 0..2 {
                let (notices, raised, seen) = (&notices, &raised, &seen);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        raised[index].store(round, Ordering::Release);
                        notices.raise(index as u32, EventKind::CommEst);
                        // From time to time the taker must have seen the last notice before the
                        // next is raised.
                        while round % 1000 == 0 && seen[index].load(Ordering::Acquire) < round {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while seen.iter().any(|seen| seen.load(Ordering::Relaxed) < ROUNDS) {
                notices.take(|index, _| {
                    let at = index as usize;
                    seen[at].store(raised[at].load(Ordering::Acquire), Ordering::Release);
                });
                std::thread::yield_now();
            }
        });
    }
}
