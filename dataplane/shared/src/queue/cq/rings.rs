//! The entries of a completion queue: one ring, and after each growth a larger one behind it.
//!
//! ```text
//!   lcores put in ──▶ the last ring            │ first │ ──▶ │ larger │
//!   pollers take  ◀── the first that has any     sealed        alone
//! ```
//!
//! A ring is *alone* until there is a larger one; then it has *grown*. Lcores add entries to the
//! larger ring, except that an lcore in the middle of a turn may still use the old one. When each
//! lcore has ended its turn the ring is *sealed*: no entry is added to it any more, so a poller
//! that finds it empty goes on to the next ring.
//!
//! Invariants
//! - Entries of one lcore are taken in the order in which it added them: entries behind a ring that
//!   is not sealed wait, at most for a turn.
//! - A ring stays until the queue is dropped, since a poller may be looking into it. Each is at
//!   least twice as large as the one before, so all together are less than twice as large as the
//!   last.

use crate::sync::{ArrayQueue, AtomicU8, Ordering};
use crate::table::qsbr::Turns;
use std::sync::OnceLock;
use uroce_transport::Cqe;

const ALONE: u8 = 0;
const GROWN: u8 = 1;
const SEALED: u8 = 2;

/// A ring, and the larger one behind it.
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

    /// Adds an entry, in a turn of an lcore. Returns false if there is no room.
    #[inline]
    pub(super) fn push(&self, cqe: Cqe) -> bool {
        // Ordered by the wait in `grow`: a turn that begins after its beginning reads `GROWN`.
        match self.state.load(Ordering::Relaxed) {
            ALONE => self.entries.push(cqe).is_ok(),
            _ => self.last().entries.push(cqe).is_ok(),
        }
    }

    /// Takes the oldest entry. `None` if there is none, or none that can be taken yet.
    #[inline]
    pub(super) fn pop(&self) -> Option<Cqe> {
        let mut ring = self;
        loop {
            // Read before the entries: a ring that is sealed and then found empty stays empty.
            // Pairs with `grow`: a thread that reads `SEALED` sees all entries.
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

    /// Returns the number of entries that can be taken now or soon.
    pub(super) fn len(&self) -> usize {
        self.all().map(|ring| ring.entries.len()).sum()
    }

    /// Returns the number of entries that fit into the last ring.
    pub(super) fn capacity(&self) -> usize {
        self.last().entries.capacity()
    }

    /// Adds a larger ring behind the last one; returns when pollers go on to it. One thread at a
    /// time may call this.
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
        // Pairs with `grow`: a thread that reads `GROWN` sees the next ring initialized.
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
