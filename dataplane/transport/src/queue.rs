//! The work queues inside a QP: a ring of WQEs, and an array of their scatter/gather elements.
//!
//! Invariants
//! - The elements of a WQE are contiguous, at a place that its slot determines.

use crate::env::{AccessKind, Accessor, Key, Memory, MemoryFault, Region};
use crate::gather::Sges;
use crate::ring::Ring;
use crate::wqe::{MAX_MESSAGE_LEN, PostError, Sge};
use uroce_wire::{Lkey, Va};

/// Largest number of bytes of inline data in a send work request.
pub const MAX_INLINE_DATA: u32 = 1024;

/// Capacities of a QP's queues, fixed at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Number of send work requests outstanding at once, 1 to 2^16.
    pub max_send_wr: u32,
    /// Number of receive work requests outstanding at once, 0 to 2^16.
    pub max_recv_wr: u32,
    /// Number of scatter/gather elements of one send work request, 1 to 32.
    pub max_send_sge: u32,
    /// Number of scatter/gather elements of one receive work request, 1 to 32.
    pub max_recv_sge: u32,
    /// Inline data of one send work request, in bytes, 0 to 1024.
    pub max_inline_data: u32,
}

/// A queue of WQEs `W` with their SGEs.
#[derive(Debug)]
pub(crate) struct WorkQueue<W> {
    pub(crate) wqes: Ring<W>,
    /// `max_sge` elements for each slot of the ring.
    sges: Box<[Sge]>,
    depth: u32,
    max_sge: u8,
    /// The WQEs come from an SRQ, one at a time.
    pub(crate) is_shared: bool,
}

impl<W: Copy> WorkQueue<W> {
    /// Creates a queue with room for `depth` WQEs of `max_sge` elements each.
    pub(crate) fn new(depth: u32, max_sge: u32) -> WorkQueue<W> {
        const NONE: Sge = Sge { va: Va(0), len: 0, lkey: Lkey(0) };
        let wqes = Ring::new(depth);
        let sges = vec![NONE; wqes.slots() * max_sge as usize].into_boxed_slice();
        // The cast is exact: `max_sge` is at most 32.
        WorkQueue { wqes, sges, depth, max_sge: max_sge as u8, is_shared: false }
    }

    /// Checks that a work request with these elements may be pushed. Returns its length in bytes.
    pub(crate) fn check(&self, sges: &[Sge]) -> Result<u32, PostError> {
        if sges.len() > usize::from(self.max_sge) {
            return Err(PostError::TooManySges);
        }
        self.check_room()?;
        let len: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        match u32::try_from(len) {
            Ok(len) if len <= MAX_MESSAGE_LEN => Ok(len),
            _ => Err(PostError::TooLong),
        }
    }

    pub(crate) fn check_room(&self) -> Result<(), PostError> {
        if self.wqes.len() >= self.depth { Err(PostError::QueueFull) } else { Ok(()) }
    }

    /// Appends a WQE with its elements, for which [`check`](WorkQueue::check) has passed.
    #[inline]
    pub(crate) fn push(&mut self, wqe: W, sges: &[Sge]) {
        let at = self.wqes.push(wqe);
        let first = self.wqes.slot(at) * usize::from(self.max_sge);
        self.sges[first..][..sges.len()].copy_from_slice(sges);
    }

    /// The places of the next `count` WQEs and of their elements, as far as they are contiguous.
    #[inline]
    pub(crate) fn next_slots(&self, count: usize) -> (&[Option<W>], &[Sge]) {
        let wqes = self.wqes.next_slots(count);
        let (first, len) = (self.wqes.slot(self.wqes.tail()), wqes.len());
        let max_sge = usize::from(self.max_sge);
        (wqes, &self.sges[first * max_sge..][..len * max_sge])
    }

    /// The first `count` elements of the WQE at position `at`.
    #[inline]
    pub(crate) fn sges(&self, at: u32, count: u8) -> &[Sge] {
        let first = self.wqes.slot(at) * usize::from(self.max_sge);
        &self.sges[first..][..usize::from(count)]
    }
}

/// Writes `data` to the memory of a scatter list, from byte `offset` of the list on.
pub(crate) fn scatter(
    sges: &[Sge],
    offset: u32,
    data: &[u8],
    by: Accessor,
    memory: &mut impl Memory,
) -> Result<(), MemoryFault> {
    let mut rest = data;
    for region in Sges::new(sges, offset, data.len() as u32) {
        let (bytes, after) = rest.split_at(region.len as usize);
        rest = after;
        memory.write(by, region, bytes)?;
    }
    Ok(())
}

/// Checks `access` to the memory of every element of a list.
pub(crate) fn check_sges(
    sges: &[Sge],
    by: Accessor,
    access: AccessKind,
    memory: &impl Memory,
) -> Result<(), MemoryFault> {
    for sge in sges.iter().filter(|sge| sge.len > 0) {
        let region = Region { key: Key::Local(sge.lkey), va: sge.va, len: sge.len };
        memory.check(by, region, access)?;
    }
    Ok(())
}
