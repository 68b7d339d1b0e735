//! Application threads that poll drive the lcore; its own thread looks after it when they do not.
//!
//! ```text
//!            somebody polls                     naps, ≤ 1 ms each, while they go on polling
//!   drives ────────────────▶ steps back ──────────────────────────────────┐
//!     ▲                          ▲────────────────────────────────────────┘
//!     └───── too few polls in a nap, or a poller says that it goes to sleep
//! ```
//!
//! Where lcores and applications share cores, a thread of the lcore's own takes the core from the
//! very thread that waits for it. A program that only posts and polls has no call to say that it
//! would drive; its polls that find nothing say so.
//!
//! Invariants
//! - A poller never waits: if somebody else drives, its poll is just a poll. Nor does the lcore's
//!   thread wait for a poller, so that a poller never finds that it has to wake somebody.
//! - Nobody drives for longer than a nap's time only if nobody polls, and no longer than that.
//! - A poller drives as the lcore's own thread: with its EAL number, which lies under the lock. So
//!   threads may come and go as they like, without being known to EAL.
//! - A thread in the middle of a turn is not cancelled before its end. A signal handler may poll:
//!   it finds somebody driving. One that never returns leaves the lcore driven for ever, as it
//!   would leave any lock that was held below it.
//!
//! Not here: which polls these are ([`crate::poller`]).

use super::rest::Rest;
use super::{Held, RUN, Slot, Turn, Work};
use crate::idle::{Idle, IdlePolicy, Nap};
use crate::lcore::Lcore;
use crate::sync::{AtomicBool, AtomicU64, Ordering, park_timeout};
use crossbeam_utils::CachePadded;
use std::sync::TryLockError;
use std::time::Duration;

/// What pollers tell the lcore's own thread.
#[derive(Debug, Default)]
pub(super) struct Pollers {
    /// Moves while they come. It counts them only about.
    polls: CachePadded<AtomicU64>,
    /// The lcore's thread has left it to them.
    is_away: AtomicBool,
}

/// Why the lcore's thread stopped turning.
enum Pause {
    /// It is somebody else's turn.
    Yield,
    /// There was nothing to do for a while, and the lcore cannot be woken by all that may come.
    Idle,
    /// There was nothing to do for a while: the thread sleeps, for this long at most.
    Sleep(Duration),
    /// There is no lcore any more.
    Gone,
}

impl Slot {
    /// A turn by a thread that has polled and found nothing; `None` if another thread drives right
    /// now. If the poller `stays`, it will poll again soon, and the lcore's thread steps back for it.
    #[inline]
    pub(crate) fn turn_for_poller(&self, stays: bool) -> Option<Turn> {
        if stays {
            let polls = &self.pollers.polls;
            polls.store(polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        match self.held.try_lock() {
            Ok(mut held) => Some(self.turn_as_lcore(&mut held)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => Some(Turn::Stopped),
        }
    }

    #[inline]
    fn turn_as_lcore(&self, held: &mut Held) -> Turn {
        // Under the lock: once its thread has ended, its number may be another's.
        if self.wanted.load(Ordering::Relaxed) != RUN {
            return Turn::Idle;
        }
        self.beside_thread(held, |Held { lcore, number, .. }| {
            let _bearing = number.as_mut().map(|number| number.bear());
            Turn::of(lcore.as_mut().map(Lcore::turn))
        })
    }

    /// A poller goes to sleep and may want to be woken: the lcore's thread goes on at once.
    pub(crate) fn leave_to_thread(&self) {
        let is_away = &self.pollers.is_away;
        if is_away.load(Ordering::Relaxed) && is_away.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Turns whenever no poller does; false if there is no lcore to turn.
    pub(super) fn run_beside_pollers(&self, policy: IdlePolicy) -> bool {
        let mut idle = Idle::new(policy);
        while self.wanted.load(Ordering::Relaxed) == RUN {
            let before = self.polls();
            match self.turn_until_polled(&mut idle, before) {
                Pause::Gone => return false,
                Pause::Idle => idle.rest(),
                Pause::Sleep(time) => self.sleep(time, &mut idle),
                Pause::Yield => {}
            }
            if self.polls() != before {
                self.step_back();
            }
        }
        true
    }

    /// Turns while there is something to do and nobody polls.
    fn turn_until_polled(&self, idle: &mut Idle, before: u64) -> Pause {
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => {
                // A poller whose turn is as good as ours.
                return if idle.is_due(false) { Pause::Idle } else { Pause::Yield };
            }
            Err(TryLockError::Poisoned(_)) => return Pause::Gone,
        };
        held.get_up();
        loop {
            let Some(lcore) = held.lcore.as_mut() else { return Pause::Gone };
            let is_due = idle.is_due(Work::is_done(lcore.turn()));
            if self.polls() != before || self.wanted.load(Ordering::Relaxed) != RUN {
                return Pause::Yield;
            }
            if is_due {
                match self.lie_down(&mut held, || self.polls() != before) {
                    Rest::Work => {}
                    Rest::Nap => return Pause::Idle,
                    Rest::Sleep(time) => return Pause::Sleep(time),
                }
            }
        }
    }

    /// Naps while pollers come often enough.
    fn step_back(&self) {
        let mut nap = Nap::new();
        self.pollers.is_away.store(true, Ordering::Relaxed);
        loop {
            let before = self.polls();
            park_timeout(nap.time());
            let is_wanted = self.wanted.load(Ordering::Relaxed) == RUN;
            let is_away = self.pollers.is_away.load(Ordering::Relaxed);
            let come_often = nap.lengthen(self.polls().wrapping_sub(before));
            if !is_wanted || !is_away || !come_often {
                return;
            }
        }
    }

    fn polls(&self) -> u64 {
        self.pollers.polls.load(Ordering::Relaxed)
    }
}
