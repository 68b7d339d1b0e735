//! An lcore without work sleeps until its bell, a port or its next deadline wakes it.
//!
//! ```text
//!   own thread:   arm ports and bell ── heavy fence ── a turn finds nothing ── unlock ── sleep
//!   another one:  lock ── disarm ports ── a turn ── ring the bell
//! ```
//!
//! Invariants
//! - What comes in after the ports and the bell are armed wakes the thread, and what came in before is
//!   found by the turn in between: no wake-up is lost.
//! - Ports are armed only while the thread sleeps or is about to: no peer enters the kernel for an
//!   lcore that turns.
//! - The thread sleeps no longer than until the earliest deadline that any turn has set: a turn by
//!   another thread wakes it.
//!
//! Not here: what the thread sleeps on ([`crate::bed`]); how long it polls before ([`crate::idle`]).

use super::{Held, RUN, Slot, Turn, Work};
use crate::barrier::heavy_fence;
use crate::idle::Idle;
use crate::sync::Ordering;
use std::time::Duration;

/// What the thread of an lcore without work does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// There was something to do after all.
    Work,
    /// It naps: something it cannot be woken for is waiting, or may come.
    Nap,
    /// It sleeps, for this long at most; the bell and the ports are armed.
    Sleep(Duration),
}

impl Slot {
    /// The last look of the lcore's own thread before it sleeps, which it is not to do if something
    /// `has_come` for it beside the lcore's work.
    #[cold]
    pub(super) fn lie_down(&self, held: &mut Held, has_come: impl Fn() -> bool) -> Rest {
        let (Some(bed), Some(lcore)) = (&self.bed, held.lcore.as_mut()) else { return Rest::Nap };
        if !lcore.is_at_rest() {
            return Rest::Nap;
        }
        // In this order: who finds the ports armed finds the bell armed.
        bed.arm();
        let can_wake = lcore.arm();
        // Pairs with the light fences of those who ring, and of peers between a frame and its look at
        // the port.
        heavy_fence();
        let found = lcore.turn();
        if can_wake
            && Work::is_nothing(found)
            && lcore.is_at_rest()
            && self.wanted.load(Ordering::Relaxed) == RUN
            && !has_come()
        {
            held.is_asleep = true;
            return Rest::Sleep(lcore.time_left());
        }
        bed.disarm();
        lcore.disarm();
        if Work::is_done(found) || can_wake { Rest::Work } else { Rest::Nap }
    }

    /// Sleeps after [`lie_down`](Slot::lie_down), without the lock.
    pub(super) fn sleep(&self, time: Duration, idle: &mut Idle) {
        match self.bed.as_ref().is_some_and(|bed| bed.sleep(time)) {
            true => idle.slept(),
            false => idle.rest(),
        }
    }

    /// A `turn` by another thread than the lcore's own, which is woken if it sleeps.
    #[inline]
    pub(super) fn beside_thread(
        &self,
        held: &mut Held,
        turn: impl FnOnce(&mut Held) -> Turn,
    ) -> Turn {
        let was_asleep = held.get_up();
        let turn = turn(held);
        if was_asleep {
            self.bell.ring();
        }
        turn
    }
}

impl Held {
    /// The ports of an lcore whose thread sleeps are polled again. Says whether it sleeps.
    #[inline]
    pub(super) fn get_up(&mut self) -> bool {
        let was_asleep = std::mem::take(&mut self.is_asleep);
        if was_asleep && let Some(lcore) = &self.lcore {
            lcore.disarm();
        }
        was_asleep
    }
}
