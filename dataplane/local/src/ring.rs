//! Ring: frames of one queue on their way to one member, in shared memory.
//!
//! ```text
//!        head                     tail
//!          ▼                        ▼
//!   ───────┬────────┬───────────────┬──────────        a record begins at a multiple of 64 bytes:
//!          │ record │ record        │ free             length (4 bytes) │ 0 (4) │ frame │ gap
//!   ───────┴────────┴───────────────┴──────────        a record that does not fit before the end
//!                                                      begins anew; the length before is WRAP
//! ```
//!
//! Positions count bytes and wrap at 2^32; a ring's length is a power of two. The sender writes
//! `tail` and the receiver `head`, each to a line of its own, and each keeps its own position in
//! private memory and a copy of the other's.
//!
//! Invariants
//! - `tail` is published with Release after the bytes before it, and read with Acquire before them;
//!   so is `head` after they were read. A published byte is not written again before `head` has
//!   passed it.
//! - Each end believes only its private position. The other's is a number that must lie where a
//!   correct end can have put it; else the ring is malformed, for good.
//! - A record's length is read once. A wrapping record is followed by one at the ring's begin, so a
//!   receiver passes at most one for each frame.
//!
//! Not here: the consequences of a malformed ring (`queue`).

use crate::layout::{LINE, Place};
use crate::memory::Memory;
use crate::{FRAME_MAX, FRAME_MIN};
use std::sync::Arc;
use uroce_shared::sync::Ordering;

/// Bytes before a frame in its record.
const HEADER: usize = 8;
/// Length that stands where the rest of the ring up to its end is not used.
const WRAP: u32 = u32::MAX;

/// The other end has broken the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// The sender's end of a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    memory: Arc<Memory>,
    place: Place,
    /// End of what was written.
    tail: u32,
    /// End of what was published.
    published: u32,
    /// The receiver's position as last read.
    head: u32,
}

/// Result of [`Producer::push`] where the frame was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotPushed {
    /// There is no room. Tells whether the receiver has moved since the position was last read.
    Full {
        /// Whether it has.
        has_moved: bool,
    },
    /// The receiver's position is out of range.
    Malformed,
}

/// Returns the bytes of the record of a frame of `len` bytes.
fn record_len(len: usize) -> usize {
    (HEADER + len).next_multiple_of(LINE)
}

impl Producer {
    /// Makes the sender's end of an unused ring.
    pub(crate) fn new(memory: Arc<Memory>, place: Place) -> Producer {
        Producer { memory, place, tail: 0, published: 0, head: 0 }
    }

    /// Returns the bytes from the position's place to the ring's end.
    fn to_end(&self, position: u32) -> usize {
        self.place.ring_len - self.at(position)
    }

    /// Returns the place in the ring of a position.
    fn at(&self, position: u32) -> usize {
        position as usize & (self.place.ring_len - 1)
    }

    /// Writes a frame of [`FRAME_MIN`] to [`FRAME_MAX`] bytes, if there is room.
    #[inline]
    pub(crate) fn push(&mut self, frame: &[u8]) -> Result<(), NotPushed> {
        debug_assert!((FRAME_MIN..=FRAME_MAX).contains(&frame.len()));
        let record = record_len(frame.len());
        let to_end = self.to_end(self.tail);
        let skipped = if record > to_end { to_end } else { 0 };
        self.make_room(skipped + record)?;
        if skipped > 0 {
            let at = self.place.ring_at + self.at(self.tail);
            self.memory.word(at).store(WRAP, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(skipped as u32);
        }
        let at = self.place.ring_at + self.at(self.tail);
        self.memory.word(at).store(frame.len() as u32, Ordering::Relaxed);
        self.memory.write(at + HEADER, frame);
        self.tail = self.tail.wrapping_add(record as u32);
        Ok(())
    }

    /// Checks that `len` bytes are free; reads the receiver's position only if it has to.
    #[inline]
    fn make_room(&mut self, len: usize) -> Result<(), NotPushed> {
        if self.free() >= len {
            return Ok(());
        }
        let has_moved = self.observe_head().map_err(|Malformed| NotPushed::Malformed)?;
        if self.free() >= len { Ok(()) } else { Err(NotPushed::Full { has_moved }) }
    }

    fn free(&self) -> usize {
        self.place.ring_len - self.tail.wrapping_sub(self.head) as usize
    }

    /// Reads the receiver's position. Returns whether it has moved. Pairs with
    /// [`Consumer::release`]: what is free now has been read.
    #[cold]
    fn observe_head(&mut self) -> Result<bool, Malformed> {
        let head = self.memory.word(self.place.head_at).load(Ordering::Acquire);
        let moved = head.wrapping_sub(self.head);
        // A receiver passes nothing that was not published.
        let outstanding = self.published.wrapping_sub(self.head);
        if moved > outstanding || !(moved as usize).is_multiple_of(LINE) {
            return Err(Malformed);
        }
        self.head = head;
        Ok(moved > 0)
    }

    /// Makes all written frames visible. Returns whether there were any.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.memory.word(self.place.tail_at).store(self.tail, Ordering::Release);
        self.published = self.tail;
        true
    }
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    memory: Arc<Memory>,
    place: Place,
    /// End of what was read.
    head: u32,
    /// End of what the sender was told to be free.
    released: u32,
    /// The sender's position as last read.
    tail: u32,
    /// Whether the sender has ended: its position is not read any more.
    is_closed: bool,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Offset of the frame in the memory.
    pub(crate) at: usize,
    /// Bytes of the frame; inside of the ring with `at`.
    pub(crate) len: usize,
    /// Position after the record.
    next: u32,
}

impl Consumer {
    /// Makes the receiver's end of an unused ring.
    pub(crate) fn new(memory: Arc<Memory>, place: Place) -> Consumer {
        Consumer { memory, place, head: 0, released: 0, tail: 0, is_closed: false }
    }

    /// Returns the memory of the ring.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns whether there is a frame that was not taken. A sender that breaks the rules may make
    /// it true without a frame.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.head != self.tail || (!self.is_closed && self.load_tail() != self.tail)
    }

    /// Reads the sender's position a last time: what it publishes from now on is never read.
    pub(crate) fn close(&mut self) -> Result<(), Malformed> {
        let result = self.observe_tail();
        self.is_closed = true;
        result
    }

    fn load_tail(&self) -> u32 {
        self.memory.word(self.place.tail_at).load(Ordering::Acquire)
    }

    /// Reads the sender's position. Pairs with [`Producer::publish`]: the records before it can be
    /// read.
    #[inline]
    fn observe_tail(&mut self) -> Result<(), Malformed> {
        if self.is_closed {
            return Ok(());
        }
        let tail = self.load_tail();
        let len = tail.wrapping_sub(self.head) as usize;
        let moved = tail.wrapping_sub(self.tail) as usize;
        // The sender's position does not go back, and stays within a ring of ours.
        if len > self.place.ring_len || moved > len || !len.is_multiple_of(LINE) {
            return Err(Malformed);
        }
        self.tail = tail;
        Ok(())
    }

    /// Returns the next frame, of at most `frame_max` bytes, if there is one.
    #[inline]
    pub(crate) fn next(&mut self, frame_max: usize) -> Result<Option<Slot>, Malformed> {
        if self.head == self.tail {
            self.observe_tail()?;
            if self.head == self.tail {
                return Ok(None);
            }
        }
        let (mut offset, mut len) = self.header(self.head);
        if len == WRAP {
            let to_end = self.place.ring_len - offset;
            // At the begin, or as the last of what was published, it wraps for no record.
            if offset == 0 || to_end >= self.tail.wrapping_sub(self.head) as usize {
                return Err(Malformed);
            }
            self.head = self.head.wrapping_add(to_end as u32);
            (offset, len) = self.header(self.head);
        }
        let len = len as usize;
        if !(FRAME_MIN..=frame_max).contains(&len) {
            return Err(Malformed);
        }
        let record = record_len(len);
        let published = self.tail.wrapping_sub(self.head) as usize;
        if record > published || record > self.place.ring_len - offset {
            return Err(Malformed);
        }
        let at = self.place.ring_at + offset + HEADER;
        Ok(Some(Slot { at, len, next: self.head.wrapping_add(record as u32) }))
    }

    /// Returns the place in the ring of a position, and the length that stands there.
    #[inline]
    fn header(&self, position: u32) -> (usize, u32) {
        let offset = position as usize & (self.place.ring_len - 1);
        let word = self.memory.word(self.place.ring_at + offset);
        (offset, word.load(Ordering::Relaxed))
    }

    /// Passes a frame that [`next`](Consumer::next) has returned.
    #[inline]
    pub(crate) fn pass(&mut self, slot: Slot) {
        self.head = slot.next;
    }

    /// Tells the sender that everything passed is free.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.released != self.head {
            self.memory.word(self.place.head_at).store(self.head, Ordering::Release);
            self.released = self.head;
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;
