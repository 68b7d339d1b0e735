//! An lcore without work sleeps until its bell, a port or its next deadline wakes it.
//!
//! ```text
//!   own thread:   arm ports and bell ── heavy fence ── a turn finds nothing ── unlock ── sleep
//!   another one:  lock ── disarm ports ── a turn ── ring the bell
//! ```
//!
//! Invariants
//! - No wake-up is lost: what arrives after the ports and the bell are armed wakes the thread, and
//!   what arrived before is found by the turn in between.
//! - Ports are armed only while the thread sleeps or is about to, so no peer enters the kernel to
//!   wake an lcore that is awake.
//! - The thread sleeps at most until the earliest deadline that any turn has set: a turn by another
//!   thread wakes it.
//!
//! Not here: what the thread sleeps on ([`crate::wake::bed`]); how long it polls before it sleeps
//! ([`crate::seat::idle`]).

use super::{Drive, RUN, Seat, SeatState, Turn};
use crate::seat::idle::Idle;
use crate::sync::Ordering;
use crate::sync::barrier::heavy_fence;
use std::time::Duration;

/// The next step of a thread when its lcore has no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// The last look found work, or another reason not to sleep: the thread continues.
    Work,
    /// Work is waiting, or may arrive without waking the thread: it naps.
    Nap,
    /// The thread sleeps, at most for this time; the bell and the ports are armed.
    Sleep(Duration),
}

impl<D: Drive> Seat<D> {
    /// Looks for work a last time before the lcore's own thread sleeps, with ports and bell armed.
    /// The thread does not sleep if `has_come` returns true, for example because a poller has come.
    #[cold]
    pub(super) fn lie_down(&self, held: &mut SeatState<D>, has_come: impl Fn() -> bool) -> Rest {
        let (Some(bed), Some(lcore)) = (&self.bed, held.lcore.as_mut()) else { return Rest::Nap };
        if !lcore.is_at_rest() {
            return Rest::Nap;
        }
        // The order matters: a thread that finds the ports armed must also find the bell armed.
        bed.arm();
        let can_wake = lcore.arm();
        // Pairs with the light fence in `Bell::ring`, and with a peer's fence between adding a
        // frame and looking whether the port is armed.
        heavy_fence();
        let found = lcore.turn();
        if can_wake
            && found.is_nothing()
            && lcore.is_at_rest()
            && self.wanted.load(Ordering::Relaxed) == RUN
            && !has_come()
        {
            held.is_asleep = true;
            return Rest::Sleep(lcore.time_left());
        }
        bed.disarm();
        lcore.disarm();
        if found.is_done() || can_wake { Rest::Work } else { Rest::Nap }
    }

    /// Sleeps after [`lie_down`](Seat::lie_down) has returned [`Rest::Sleep`]. The lock must not be
    /// held.
    pub(super) fn sleep(&self, time: Duration, idle: &mut Idle) {
        match self.bed.as_ref().is_some_and(|bed| bed.sleep(time)) {
            true => idle.slept(),
            false => idle.rest(),
        }
    }

    /// Runs `turn` on a thread other than the lcore's own, and wakes the lcore's own thread if it
    /// sleeps.
    #[inline]
    pub(super) fn beside_thread(
        &self,
        held: &mut SeatState<D>,
        turn: impl FnOnce(&mut SeatState<D>) -> Turn,
    ) -> Turn {
        let was_asleep = held.get_up();
        let turn = turn(held);
        if was_asleep {
            self.bell.ring();
        }
        turn
    }
}

impl<D: Drive> SeatState<D> {
    /// Disarms the ports if the lcore's own thread is asleep: they are polled again. Returns
    /// whether it was asleep.
    #[inline]
    pub(super) fn get_up(&mut self) -> bool {
        let was_asleep = std::mem::take(&mut self.is_asleep);
        if was_asleep && let Some(lcore) = &mut self.lcore {
            lcore.disarm();
        }
        was_asleep
    }
}
