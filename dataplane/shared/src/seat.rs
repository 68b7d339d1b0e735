//! Seat: decides which thread drives an lcore. That is its own thread, a thread that polls, a
//! thread that has adopted it, or the control plane.
//!
//! ```text
//!            adopt                               SeatGuard::turn
//!   RUN ───────────────▶ PARKED ──────────────▶ (any number of turns)
//!    ▲   own thread lets go      │
//!    └────── SeatGuard dropped  ─┘         stop: RUN or PARKED ─▶ STOPPED
//! ```
//!
//! Invariants
//! - The driving thread holds the lock. The lcore's own thread keeps it from turn to turn, so its
//!   turns take no lock. An adopter or poller takes it for one turn at a time, with one uncontended
//!   exchange, and never waits for it.
//! - Between an adopter's turns the control plane may drive the lcore. So a thread that has adopted
//!   an lcore may call the control plane for something that needs this lcore.
//! - A stopped lcore never starts again. Once it is taken out of the seat, no thread can turn it.
//! - While the lcore's thread sleeps it does not hold the lock. Another thread that makes a turn
//!   meanwhile wakes it (`rest`), because the turn may have set a new deadline.
//!
//! Not here: the turn itself, which is the lcore's ([`Drive`]); how pollers and the lcore's thread
//! take turns (`pollers`).

pub mod contention;
pub mod idle;
mod pollers;
mod rest;

use crate::seat::idle::{Driver, Idle, IdlePolicy};
use crate::sync::{AtomicBool, AtomicU8, Mutex, Ordering, Thread, park};
use crate::wake::bed::Bed;
use crate::wake::bell::Bell;
use pollers::Pollers;
use rest::Rest;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

const RUN: u8 = 0;
const PARKED: u8 = 1;
const STOPPED: u8 = 2;

/// An lcore, as its seat sees it.
pub trait Drive: fmt::Debug {
    /// The number under which the lcore's own thread is registered. A poller borrows it for a turn.
    type Number: fmt::Debug;

    /// Runs one turn: does the work that there is, and returns without waiting for more.
    fn turn(&mut self) -> Work;

    /// Makes a turn on a thread that borrows the number of the lcore's own thread.
    fn turn_as(&mut self, number: &mut Self::Number) -> Work;

    /// Returns whether no work is left that needs a further turn. Only then may the lcore sleep.
    fn is_at_rest(&self) -> bool;

    /// Arms the ports: from now on a frame that arrives wakes the thread in the lcore's bed.
    /// Returns false if a port cannot do so now.
    fn arm(&mut self) -> bool;

    /// Disarms the ports: they are polled again.
    fn disarm(&mut self);

    /// Returns how long the lcore may sleep.
    fn time_left(&self) -> Duration;
}

/// An lcore, and the state that decides which thread drives it.
#[derive(Debug)]
pub struct Seat<D: Drive> {
    held: Mutex<SeatState<D>>,
    /// What the lcore's own thread is to do: `RUN`, `PARKED` or `STOPPED`.
    wanted: AtomicU8,
    adopted: AtomicBool,
    /// Whether the adopted lcore is turned by its adopter only, not by the control plane.
    exclusive: AtomicBool,
    thread: OnceLock<Thread>,
    /// Whether the lcore's own thread is ready to run the lcore.
    settled: AtomicBool,
    pollers: Pollers,
    /// Wakes the thread while it sleeps.
    bell: Arc<Bell>,
    /// The place where the thread sleeps; `None` if it cannot.
    bed: Option<Bed>,
}

/// State that the current driver owns while it holds the lock.
#[derive(Debug)]
struct SeatState<D: Drive> {
    /// `None` after the lcore was stopped and taken out.
    lcore: Option<D>,
    /// The number of the lcore's own thread, for pollers; valid until that thread ends.
    number: Option<D::Number>,
    /// The lcore's ports are armed, and its thread sleeps or is about to.
    is_asleep: bool,
}

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Turn {
    /// Something was done, and there may be more to do.
    Busy,
    /// There was something to do, but no room to do any of it, for example because a peer of the
    /// same machine has taken nothing from its ring. It may need this CPU to do so.
    Blocked,
    /// There was nothing to do.
    Idle,
    /// The engine has been shut down; further turns do nothing.
    Stopped,
}

/// The work that a turn found, and whether any of it was done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Work {
    /// There was nothing to do.
    Nothing,
    /// There was work, but no room to do any of it, for example because a queue was full. The
    /// thread that makes room may need this core.
    Blocked,
    /// There was work, and some of it was done.
    Done,
}

impl From<bool> for Work {
    /// Converts the result of a part of a turn that is never blocked: whether it did anything.
    #[inline]
    fn from(any: bool) -> Work {
        if any { Work::Done } else { Work::Nothing }
    }
}

impl Work {
    /// Returns whether any work was done. If not, the lcore's own thread may rest.
    #[inline]
    fn is_done(self) -> bool {
        self == Work::Done
    }

    /// Returns whether there was nothing to do.
    fn is_nothing(self) -> bool {
        self == Work::Nothing
    }
}

impl Turn {
    /// Converts the work of a turn; `None` means that there is no lcore.
    fn of(work: Option<Work>) -> Turn {
        match work {
            Some(Work::Nothing) => Turn::Idle,
            Some(Work::Blocked) => Turn::Blocked,
            Some(Work::Done) => Turn::Busy,
            None => Turn::Stopped,
        }
    }
}

impl<D: Drive> Seat<D> {
    /// Makes the seat of an lcore. `bell` wakes the lcore, which can sleep if it has a bed.
    pub fn new(lcore: D, bell: Arc<Bell>, bed: Option<Bed>) -> Seat<D> {
        Seat {
            held: Mutex::new(SeatState { lcore: Some(lcore), number: None, is_asleep: false }),
            wanted: AtomicU8::new(RUN),
            adopted: AtomicBool::new(false),
            exclusive: AtomicBool::new(false),
            thread: OnceLock::new(),
            settled: AtomicBool::new(false),
            pollers: Pollers::default(),
            bell,
            bed,
        }
    }

    /// Sets the thread that will call [`run`](Seat::run). Call it before the lcore can be adopted.
    pub fn set_thread(&self, thread: &Thread) {
        // This cannot fail: a seat has one thread, which is set once.
        let _ = self.thread.set(thread.clone());
    }

    /// Called by the lcore's own thread just before it runs the lcore; `number` is the thread's.
    pub fn tell_settled(&self, number: D::Number) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).number = Some(number);
        self.settled.store(true, Ordering::Release);
    }

    /// Returns whether the lcore's own thread has done everything that comes before running the
    /// lcore.
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// The body of the lcore's own thread. Returns when the lcore is stopped.
    pub fn run(&self, idle: IdlePolicy, driver: Driver) {
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
        // Waits for a poller's turn, which may use the number that this thread is about to give
        // back.
        self.held.lock().unwrap_or_else(PoisonError::into_inner).number = None;
    }

    /// Runs turns while the state is `RUN`. Returns false if there is no lcore.
    fn run_turns(&self, mut idle: Idle) -> bool {
        let Ok(mut held) = self.held.lock() else { return false };
        held.get_up();
        while self.wanted.load(Ordering::Relaxed) == RUN {
            let Some(lcore) = held.lcore.as_mut() else { return false };
            if !idle.is_due(lcore.turn().is_done()) {
                continue;
            }
            match self.lie_down(&mut held, || false) {
                Rest::Work => {}
                Rest::Nap => idle.rest(),
                Rest::Sleep(time) => {
                    drop(held);
                    self.sleep(time, &mut idle);
                    if self.wanted.load(Ordering::Relaxed) != RUN {
                        // The lock is the adopter's, even for a short look.
                        return true;
                    }
                    let Ok(again) = self.held.lock() else { return false };
                    held = again;
                    held.get_up();
                }
            }
        }
        true
    }

    /// Runs one turn on the calling thread. Returns `Idle` at once if another thread drives right
    /// now.
    pub fn try_turn(&self) -> Turn {
        match self.held.try_lock() {
            Ok(mut held) => {
                self.beside_thread(&mut held, |held| Turn::of(held.lcore.as_mut().map(D::turn)))
            }
            Err(TryLockError::WouldBlock) => Turn::Idle,
            Err(TryLockError::Poisoned(_)) => Turn::Stopped,
        }
    }

    /// Runs a closure while no thread can turn the lcore, for tests of replies that come late.
    #[doc(hidden)]
    pub fn while_held(&self, run: impl FnOnce()) {
        let _held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        run();
    }

    /// Returns whether a [`SeatGuard`] has adopted the lcore.
    pub fn is_adopted(&self) -> bool {
        self.adopted.load(Ordering::Acquire)
    }

    /// Returns whether the control plane turns the lcore while its adopter does not.
    pub fn is_served(&self) -> bool {
        self.is_adopted() && !self.exclusive.load(Ordering::Acquire)
    }

    /// Returns whether the lcore has panicked in a turn or was stopped.
    pub fn is_dead(&self) -> bool {
        self.held.is_poisoned() || self.wanted.load(Ordering::Acquire) == STOPPED
    }

    /// Stops the lcore for good. Its thread ends soon after.
    pub fn stop(&self) {
        self.wanted.store(STOPPED, Ordering::Release);
        self.wake();
    }

    /// Takes a stopped lcore out of the seat. Waits for a turn that is under way.
    pub fn take(&self) -> Option<D> {
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
        // The lcore's thread unlocks at the end of its turn; no other thread holds the lock for
        // longer.
        parked.is_ok() && self.held.lock().is_ok_and(|held| held.lcore.is_some())
    }

    fn unpark(&self) {
        let _ = self.wanted.compare_exchange(PARKED, RUN, Ordering::AcqRel, Ordering::Acquire);
        self.wake();
    }
}

/// An adopted seat: the thread that holds this guard runs the lcore's turns, by
/// [`turn`](Self::turn).
///
/// The lcore's own thread sleeps meanwhile, and continues when the guard is dropped.
#[derive(Debug)]
pub struct SeatGuard<D: Drive>(Arc<Seat<D>>);

impl<D: Drive> SeatGuard<D> {
    /// Claims the seat for the calling thread, which has to [`park`](Self::park) the lcore's own
    /// thread next. Returns `None` if another guard has the seat.
    pub fn claim(seat: &Arc<Seat<D>>) -> Option<SeatGuard<D>> {
        let is_free = !seat.adopted.swap(true, Ordering::AcqRel);
        is_free.then(|| SeatGuard(Arc::clone(seat)))
    }

    /// Parks the lcore's own thread. Returns false if the lcore is stopped or has panicked.
    pub fn park(&self) -> bool {
        self.0.park()
    }

    /// Runs one turn of the lcore: it takes what was posted and received, sends, and completes.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        self.0.try_turn()
    }

    /// Sets whether the control plane leaves the lcore alone between the guard's turns. If it does,
    /// peers are answered in those turns only, which makes runs of a program reproducible.
    pub fn set_exclusive(&self, exclusive: bool) {
        self.0.exclusive.store(exclusive, Ordering::Release);
    }
}

impl<D: Drive> Drop for SeatGuard<D> {
    fn drop(&mut self) {
        self.set_exclusive(false);
        self.0.unpark();
        self.0.adopted.store(false, Ordering::Release);
    }
}
