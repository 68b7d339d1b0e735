//! Who drives an lcore: its own thread, one that polls, one that has adopted it, or the control
//! plane.
//!
//! ```text
//!            adopt                               LcoreGuard::turn
//!   RUN ───────────────▶ PARKED ──────────────▶ (any number of turns)
//!    ▲   own thread lets go      │
//!    └────── LcoreGuard dropped ─┘         stop: RUN or PARKED ─▶ STOPPED
//! ```
//!
//! Invariants
//! - Whoever drives holds the lock. The lcore's thread takes it once and keeps it while it runs, so
//!   there is no lock on its way. An adopter or poller takes it for a turn at a time, with one
//!   uncontended exchange, and never waits for it.
//! - Between an adopter's turns the control plane may drive the lcore. So a thread that has adopted
//!   an lcore may ask the control plane for something that needs this very lcore.
//! - A stopped lcore never runs again.
//! - While the lcore's thread sleeps it does not hold the lock. Another thread that makes a turn
//!   meanwhile wakes it ([`rest`]): there may be a new deadline.
//!
//! Not here: a turn ([`crate::lcore`]); how pollers and the lcore's thread make room for each other
//! ([`pollers`]).

mod pollers;
mod rest;

use crate::bed::Bed;
use crate::bell::Bell;
use crate::eal::{Eal, EalError, ThreadGuard, ThreadNumber};
use crate::idle::{Driver, Idle, IdlePolicy};
use crate::lcore::Lcore;
use crate::sync::{AtomicBool, AtomicU8, Mutex, Ordering, Thread, park};
use pollers::Pollers;
use rest::Rest;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

const RUN: u8 = 0;
const PARKED: u8 = 1;
const STOPPED: u8 = 2;

/// An lcore and who may drive it.
#[derive(Debug)]
pub(crate) struct Slot {
    held: Mutex<Held>,
    wanted: AtomicU8,
    adopted: AtomicBool,
    thread: OnceLock<Thread>,
    settled: AtomicBool,
    pollers: Pollers,
    /// Wakes the thread where it sleeps.
    bell: Arc<Bell>,
    /// Where the thread sleeps, if it can.
    bed: Option<Bed>,
}

/// What is whose who drives.
#[derive(Debug)]
struct Held {
    /// None once it has been stopped and taken apart.
    lcore: Option<Lcore>,
    /// The EAL number of the lcore's own thread, for pollers; valid until that ends.
    number: Option<ThreadNumber>,
    /// The lcore's ports are armed and its thread sleeps, or is about to.
    is_asleep: bool,
}

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Turn {
    /// There was something to do, so there may be more.
    Busy,
    /// There was nothing to do.
    Idle,
    /// The engine has been shut down; no turn will ever do anything.
    Stopped,
}

/// What there was to do in a turn, and whether any of it was done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Work {
    /// There was nothing to do.
    Nothing,
    /// All that there was found no room. Whoever makes room may need the core for it.
    Blocked,
    /// Some of it was done.
    Done,
}

/// Why an lcore could not be adopted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The engine has fewer lcores.
    #[error("no lcore {0}")]
    NoSuchLcore(usize),
    /// Another [`LcoreGuard`] has it.
    #[error("lcore {0} is adopted already")]
    Adopted(usize),
    /// The engine has been shut down, or the lcore has panicked.
    #[error("lcore {0} does not run any more")]
    Stopped(usize),
    /// EAL does not take the thread.
    #[error(transparent)]
    Eal(#[from] EalError),
}

impl From<bool> for Work {
    /// Of a duty that is never refused.
    #[inline]
    fn from(any: bool) -> Work {
        if any { Work::Done } else { Work::Nothing }
    }
}

impl Work {
    /// Was anything done? If not, a thread that only turns may rest.
    #[inline]
    fn is_done(work: impl Into<Work>) -> bool {
        work.into() == Work::Done
    }

    /// Was there nothing to do?
    fn is_nothing(work: impl Into<Work>) -> bool {
        work.into() == Work::Nothing
    }
}

impl Turn {
    /// What came of a turn with this work; without, there is no lcore.
    fn of(work: Option<impl Into<Work>>) -> Turn {
        match work.map(Into::into) {
            Some(Work::Nothing) => Turn::Idle,
            Some(_) => Turn::Busy,
            None => Turn::Stopped,
        }
    }
}

impl Slot {
    /// For an lcore that is woken by this bell, and sleeps if it has a bed.
    pub(crate) fn new(lcore: Lcore, bell: Arc<Bell>, bed: Option<Bed>) -> Slot {
        Slot {
            held: Mutex::new(Held { lcore: Some(lcore), number: None, is_asleep: false }),
            wanted: AtomicU8::new(RUN),
            adopted: AtomicBool::new(false),
            thread: OnceLock::new(),
            settled: AtomicBool::new(false),
            pollers: Pollers::default(),
            bell,
            bed,
        }
    }

    /// Says which thread it is that calls [`run`](Slot::run), before anybody can adopt the lcore.
    pub(crate) fn set_thread(&self, thread: &Thread) {
        // The first and only one: a slot has one thread.
        let _ = self.thread.set(thread.clone());
    }

    /// The lcore's own thread is about to run it, and has this number.
    pub(crate) fn tell_settled(&self, number: ThreadNumber) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).number = Some(number);
        self.settled.store(true, Ordering::Release);
    }

    /// Has the lcore's own thread done everything that comes before running it?
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// The body of the lcore's own thread: ends when the lcore is stopped.
    pub(crate) fn run(&self, idle: IdlePolicy, driver: Driver) {
        loop {
            match self.wanted.load(Ordering::Acquire) {
                RUN => {
                    let has_lcore = match driver {
                        Driver::Lcore => self.run_turns(Idle::new(idle)),
                        Driver::Poller => self.run_beside_pollers(idle),
                    };
                    if !has_lcore {
                        break;
                    }
                }
                PARKED => park(),
                _ => break,
            }
        }
        // A poller's turn may be under way, by the number that this thread is about to give back.
        self.held.lock().unwrap_or_else(PoisonError::into_inner).number = None;
    }

    /// Turns as long as they are wanted; false if there is no lcore to turn.
    fn run_turns(&self, mut idle: Idle) -> bool {
        let Ok(mut held) = self.held.lock() else { return false };
        while self.wanted.load(Ordering::Relaxed) == RUN {
            let Some(lcore) = held.lcore.as_mut() else { return false };
            if !idle.is_due(Work::is_done(lcore.turn())) {
                continue;
            }
            match self.lie_down(&mut held, || false) {
                Rest::Work => {}
                Rest::Nap => idle.rest(),
                Rest::Sleep(time) => {
                    drop(held);
                    self.sleep(time, &mut idle);
                    let Ok(again) = self.held.lock() else { return false };
                    held = again;
                    held.get_up();
                }
            }
        }
        true
    }

    /// One turn by whoever calls, unless somebody else drives right now.
    pub(crate) fn try_turn(&self) -> Turn {
        match self.held.try_lock() {
            Ok(mut held) => {
                self.beside_thread(&mut held, |held| Turn::of(held.lcore.as_mut().map(Lcore::turn)))
            }
            Err(TryLockError::WouldBlock) => Turn::Idle,
            Err(TryLockError::Poisoned(_)) => Turn::Stopped,
        }
    }

    /// Runs something while nobody can turn the lcore.
    #[cfg(test)]
    pub(crate) fn while_held(&self, run: impl FnOnce()) {
        let _held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        run();
    }

    /// Does a guard drive it?
    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted.load(Ordering::Acquire)
    }

    /// Has it panicked in a turn, or been stopped?
    pub(crate) fn is_dead(&self) -> bool {
        self.held.is_poisoned() || self.wanted.load(Ordering::Acquire) == STOPPED
    }

    /// It shall not turn any more. Its thread ends soon.
    pub(crate) fn stop(&self) {
        self.wanted.store(STOPPED, Ordering::Release);
        self.wake();
    }

    /// Takes a stopped lcore out. Waits for a turn that is under way.
    pub(crate) fn take(&self) -> Option<Lcore> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).lcore.take()
    }

    fn wake(&self) {
        self.bell.ring();
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn park(&self) -> bool {
        let parked = self.wanted.compare_exchange(RUN, PARKED, Ordering::AcqRel, Ordering::Acquire);
        // The thread lets go at the end of its turn; nobody else keeps the lock for longer.
        parked.is_ok() && self.held.lock().is_ok_and(|held| held.lcore.is_some())
    }

    fn unpark(&self) {
        let _ = self.wanted.compare_exchange(PARKED, RUN, Ordering::AcqRel, Ordering::Acquire);
        self.wake();
    }
}

/// An lcore in the hands of the thread that made this; it turns when that thread says so.
///
/// The lcore's own thread sleeps meanwhile, and continues when the guard is dropped. Made by
/// [`Engine::adopt`](crate::Engine::adopt).
#[derive(Debug)]
pub struct LcoreGuard {
    slot: Arc<Slot>,
    /// The thread has a mempool cache as long as it drives. Also keeps the guard on its thread.
    _thread: ThreadGuard,
}

impl LcoreGuard {
    pub(crate) fn adopt(slot: &Arc<Slot>, number: usize) -> Result<LcoreGuard, AdoptError> {
        if slot.adopted.swap(true, Ordering::AcqRel) {
            return Err(AdoptError::Adopted(number));
        }
        let release = |error| {
            slot.adopted.store(false, Ordering::Release);
            error
        };
        // The lcore's port proves that EAL runs.
        let eal = Eal::running().ok_or_else(|| release(AdoptError::Stopped(number)))?;
        let thread = eal.register_thread().map_err(|error| release(error.into()))?;
        if !slot.park() {
            slot.unpark();
            return Err(release(AdoptError::Stopped(number)));
        }
        Ok(LcoreGuard { slot: Arc::clone(slot), _thread: thread })
    }

    /// Runs the lcore once: takes what was posted and received, sends, completes.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.slot.try_turn()
    }
}

impl Drop for LcoreGuard {
    fn drop(&mut self) {
        self.slot.unpark();
        self.slot.adopted.store(false, Ordering::Release);
    }
}
