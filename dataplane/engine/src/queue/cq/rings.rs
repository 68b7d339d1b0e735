//! The entries of a completion queue: one ring, and after each growth a larger one behind it.
//!
//! ```text
//!   lcores put in ──▶ the last ring            │ first │ ──▶ │ larger │
//!   pollers take  ◀── the first that has any     sealed        alone
//! ```
//!
//! A ring is *alone*; once there is a larger one it has *grown*: lcores put into the larger one,
//! but one that is in the middle of a turn may not know yet. When each has ended its turn the ring
//! is *sealed*: nothing comes into it any more, so whoever finds it empty goes on to the next.
//!
//! Invariants
//! - Entries of one lcore are taken in the order in which it put them in: those behind a ring that
//!   is not sealed wait, for a turn at most.
//! - A ring stays until the queue goes, since a poller may be looking into it. Each is at least
//!   twice as large as the one before, so all together are less than twice the last.

use crate::qsbr::Turns;
use crate::sync::{ArrayQueue, AtomicU8, Ordering};
use std::sync::OnceLock;
use uroce_transport::Cqe;

const ALONE: u8 = 0;
const GROWN: u8 = 1;
const SEALED: u8 = 2;

/// A ring and what came after it.
#[derive(Debug)]
pub(super) struct Ring {
    entries: ArrayQueue<Cqe>,
    state: AtomicU8,
    next: OnceLock<Box<Ring>>,
}

impl Ring {
    pub(super) fn new(depth: u32) -> Ring {
        Ring {
            entries: ArrayQueue::new(depth as usize),
            state: AtomicU8::new(ALONE),
            next: OnceLock::new(),
        }
    }

    /// Puts an entry in, in a turn of an lcore. False: there is no room.
    #[inline]
    pub(super) fn push(&self, cqe: Cqe) -> bool {
        // Turns order it: one that begins after `grow` has begun to wait sees that there is more.
        match self.state.load(Ordering::Relaxed) {
            ALONE => self.entries.push(cqe).is_ok(),
            _ => self.last().entries.push(cqe).is_ok(),
        }
    }

    /// Takes the oldest entry. `None`: there is none, or none that can be taken yet.
    #[inline]
    pub(super) fn pop(&self) -> Option<Cqe> {
        let mut ring = self;
        loop {
            // Before the look at the entries: what is empty and was sealed stays empty. Pairs with
            // `grow`: who sees it sealed sees all that was put in.
            let state = ring.state.load(Ordering::Acquire);
            // Popping an empty ring costs a fence, which a polling loop would pay each time.
            if !ring.entries.is_empty()
                && let Some(cqe) = ring.entries.pop()
            {
                return Some(cqe);
            }
            if state != SEALED {
                return None;
            }
            ring = ring.next.get()?;
        }
    }

    /// Entries that can be taken now or soon.
    pub(super) fn len(&self) -> usize {
        self.all().map(|ring| ring.entries.len()).sum()
    }

    /// Entries that fit into the last ring.
    pub(super) fn capacity(&self) -> usize {
        self.last().entries.capacity()
    }

    /// Puts a larger ring behind the last one, and returns when pollers go on to it. One thread at
    /// a time.
    pub(super) fn grow(&self, depth: u32, turns: Option<&Turns>) {
        let last = self.last();
        if last.next.set(Box::new(Ring::new(depth))).is_err() {
            debug_assert!(false, "the last ring has no next one");
            return;
        }
        last.state.store(GROWN, Ordering::Release);
        if let Some(turns) = turns {
            turns.wait();
        }
        last.state.store(SEALED, Ordering::Release);
    }

    fn last(&self) -> &Ring {
        let mut ring = self;
        // Pairs with `grow`: who sees that it has grown sees the next ring whole.
        while let (true, Some(next)) =
            (ring.state.load(Ordering::Acquire) != ALONE, ring.next.get())
        {
            ring = next;
        }
        ring
    }

    fn all(&self) -> impl Iterator<Item = &Ring> + '_ {
        std::iter::successors(Some(self), |ring| ring.next.get().map(|next| &**next))
    }
}
