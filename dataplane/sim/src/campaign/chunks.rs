//! Buffers for received messages, taken from one region in turn, with canaries where nothing may be
//! written.
//!
//! Invariants
//! - A byte outside the pieces of all live buffers is [`CANARY`].
//! - Buffers are returned in the order in which they were taken.

use fastrand::Rng;

use crate::campaign::pieces::{MAX_GAP, MAX_PIECES, Pieces, is_same};
use crate::world::memory::{Mr, Regions};

/// Value of a byte that nothing has written to.
pub(crate) const CANARY: u8 = 0xa5;

/// A block of canaries for fast comparison.
const CANARIES: [u8; 4096] = [CANARY; 4096];

/// Returns whether nothing has been written to these bytes.
fn is_untouched(bytes: &[u8]) -> bool {
    bytes.chunks(CANARIES.len()).all(|part| *part == CANARIES[..part.len()])
}

/// One buffer, in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) pieces: Pieces,
    start: u32,
    end: u32,
}

/// A region from which buffers are taken in a circle.
#[derive(Debug)]
pub(crate) struct Chunks {
    pub(crate) mr: Mr,
    /// Start of the oldest live buffer, or the end of the last buffer returned.
    head: u32,
    tail: u32,
    live: u32,
}

impl Chunks {
    /// Bytes that a region needs so that a buffer of `len` bytes can always be taken if it is
    /// empty.
    pub(crate) const fn room_for(len: u32) -> u32 {
        len + MAX_PIECES as u32 * MAX_GAP
    }

    pub(crate) fn new(mr: Mr) -> Chunks {
        Chunks { mr, head: 0, tail: 0, live: 0 }
    }

    /// Takes a buffer of `len` bytes in `count` pieces, if there is room.
    pub(crate) fn take(&mut self, rng: &mut Rng, len: u32, count: usize) -> Option<Chunk> {
        let start = self.place(len)?;
        let (pieces, end) = Pieces::in_a_row(rng, len, count, start);
        if self.live == 0 {
            self.head = start;
        }
        self.tail = end;
        self.live += 1;
        Some(Chunk { pieces, start, end })
    }

    /// Returns whether a buffer of `len` bytes can be taken.
    pub(crate) fn has_room(&self, len: u32) -> bool {
        self.place(len).is_some()
    }

    /// The start of the next buffer of `len` bytes, if there is room.
    fn place(&self, len: u32) -> Option<u32> {
        let span = Chunks::room_for(len);
        let (head, tail) = if self.live == 0 { (0, 0) } else { (self.head, self.tail) };
        if self.live > 0 && tail <= head {
            (head - tail >= span).then_some(tail)
        } else if self.mr.len() - tail >= span {
            Some(tail)
        } else {
            (head >= span).then_some(0)
        }
    }

    /// Checks that the buffer begins with the `len` bytes of `expected`.
    pub(crate) fn check<'a>(
        &self,
        chunk: &Chunk,
        memory: &'a Regions,
        expected: impl IntoIterator<Item = &'a [u8]>,
        len: u32,
    ) -> Result<(), String> {
        if is_same(chunk.pieces.slices(memory.bytes(self.mr)), expected, len as usize) {
            Ok(())
        } else {
            Err(format!("{len} bytes in {:?} are not those that were sent", chunk.pieces))
        }
    }

    /// Returns the oldest buffer, of which `len` bytes were written. Checks that the bytes shortly
    /// after them are canaries; the whole region is checked when the run ends.
    pub(crate) fn release(
        &mut self,
        chunk: &Chunk,
        memory: &mut Regions,
        len: u32,
    ) -> Result<(), String> {
        self.head = chunk.end;
        self.live -= 1;
        let bytes = memory.bytes_mut(self.mr);
        let mut left = len;
        for (offset, piece) in chunk.pieces.iter() {
            let used = piece.min(left) as usize;
            bytes[offset as usize..][..used].fill(CANARY);
            left -= used as u32;
        }
        let looked = &bytes[chunk.start as usize..chunk.end as usize];
        let looked = &looked[..looked.len().min(len as usize + 128)];
        if is_untouched(looked) {
            Ok(())
        } else {
            Err(format!("{chunk:?} was written beyond {len} bytes or between its pieces"))
        }
    }

    /// Returns whether the whole region is canaries: nothing was written outside of checked
    /// buffers.
    pub(crate) fn is_untouched(&self, memory: &Regions) -> bool {
        is_untouched(memory.bytes(self.mr))
    }
}
