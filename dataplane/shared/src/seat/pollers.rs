//! Application threads that poll drive the lcore; its own thread takes over when they do not poll.
//!
//! ```text
//!            a thread polls                     naps, ≤ 1 ms each, while they go on polling
//!   drives ────────────────▶ steps back ──────────────────────────────────┐
//!     ▲                          ▲────────────────────────────────────────┘
//!     └───── too few polls in a nap, or a poller is about to sleep
//! ```
//!
//! Where lcores and applications share cores, the lcore's own thread would take the core from the
//! thread that waits for it. A program that only posts and polls makes no call that offers to
//! drive, so a poll that finds nothing counts as such an offer.
//!
//! Invariants
//! - A poller never waits: if another thread drives, its poll only reads the queue. The lcore's
//!   thread does not wait for a poller either, so no poller ever has to wake a thread.
//! - If no application polls for one nap interval, the lcore's own thread takes over driving.
//! - A poller drives with the number of the lcore's own thread, which the lock guards. So
//!   application threads may come and go without numbers of their own.
//! - A thread in the middle of a turn is not cancelled before the turn's end. A signal handler may
//!   poll: it finds the lock taken. A handler that never returns keeps the lcore locked for ever,
//!   like any other lock that the interrupted thread holds.
//!
//! Not here: which polls run a turn (`control::poller` in `uroce-engine`).

use super::rest::Rest;
use super::{Drive, RUN, Seat, SeatState, Turn};
use crate::seat::idle::{Idle, IdlePolicy, Nap};
use crate::sync::{AtomicBool, AtomicU64, Ordering, park_timeout};
use crossbeam_utils::CachePadded;
use std::sync::TryLockError;
use std::time::Duration;

/// State that pollers share with the lcore's own thread.
#[derive(Debug, Default)]
pub(super) struct Pollers {
    /// Approximate number of polls: increments may be lost, but it changes while pollers come.
    polls: CachePadded<AtomicU64>,
    /// The lcore's thread has stepped back for pollers.
    is_away: AtomicBool,
}

/// The reason why the lcore's thread stopped turning.
enum Pause {
    /// A poller drives or has come, or the thread is to stop running the lcore.
    Yield,
    /// There was nothing to do for a while, but the thread cannot sleep: it would not be woken for
    /// everything that may need it.
    Idle,
    /// There was nothing to do for a while: the thread sleeps, at most for this time.
    Sleep(Duration),
    /// The lcore was taken out, or has panicked.
    Gone,
}

impl<D: Drive> Seat<D> {
    /// Runs one turn on a thread that has polled and found nothing. Returns `None` if another
    /// thread drives right now. `stays` says that the calling thread will poll again soon; then the
    /// lcore's own thread steps back.
    #[inline]
    pub fn turn_for_poller(&self, stays: bool) -> Option<Turn> {
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
    fn turn_as_lcore(&self, held: &mut SeatState<D>) -> Turn {
        // Checked under the lock: after the lcore's thread has ended, its number may be another
        // thread's.
        if self.wanted.load(Ordering::Relaxed) != RUN {
            return Turn::Idle;
        }
        self.beside_thread(held, |SeatState { lcore, number, .. }| {
            Turn::of(lcore.as_mut().map(|lcore| match number {
                Some(number) => lcore.turn_as(number),
                None => lcore.turn(),
            }))
        })
    }

    /// Called when a poller is about to sleep, so that it may need to be woken: the lcore's own
    /// thread drives again at once.
    pub fn leave_to_thread(&self) {
        let is_away = &self.pollers.is_away;
        if is_away.load(Ordering::Relaxed) && is_away.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Runs turns whenever no poller does. Returns false if there is no lcore.
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

    /// Runs turns while there is work and no poller comes.
    fn turn_until_polled(&self, idle: &mut Idle, before: u64) -> Pause {
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => {
                // A poller drives: its turn does the work of the one left out here.
                return if idle.is_due(false) { Pause::Idle } else { Pause::Yield };
            }
            Err(TryLockError::Poisoned(_)) => return Pause::Gone,
        };
        held.get_up();
        loop {
            let Some(lcore) = held.lcore.as_mut() else { return Pause::Gone };
            let is_due = idle.is_due(lcore.turn().is_done());
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
