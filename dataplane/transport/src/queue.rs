//! The work queues inside a QP: WQEs in one ring, their scatter/gather elements in another.

use crate::env::{Access, Accessor, Key, Memory, MemoryFault, Region};
use crate::gather::Sges;
use crate::ring::Ring;
use crate::wqe::{MAX_MESSAGE_LEN, PostError, Sge};

/// Most inline data of a send work request, in bytes.
pub const MAX_INLINE_DATA: u32 = 1024;

/// How large a QP's queues are; fixed at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Send work requests outstanding at once, 1 to 2^16.
    pub max_send_wr: u32,
    /// Receive work requests outstanding at once, 0 to 2^16.
    pub max_recv_wr: u32,
    /// Scatter/gather elements of one send work request, 1 to 32.
    pub max_send_sge: u32,
    /// Scatter/gather elements of one receive work request, 1 to 32.
    pub max_recv_sge: u32,
    /// Bytes of one send work request's inline data, 0 to 1024.
    pub max_inline_data: u32,
}

/// A queue of WQEs `W` with their SGEs.
#[derive(Debug)]
pub(crate) struct WorkQueue<W: Copy> {
    pub(crate) wqes: Ring<W>,
    pub(crate) sges: Ring<Sge>,
    inline: InlineData,
    max_sge: u32,
}

impl<W: Copy> WorkQueue<W> {
    /// Room for `depth` WQEs of `max_sge` elements and `max_inline` bytes of inline data each.
    pub(crate) fn new(depth: u32, max_sge: u32, max_inline: u32) -> WorkQueue<W> {
        let wqes = Ring::new(depth);
        let sges = Ring::new(depth * max_sge);
        WorkQueue { inline: InlineData::new(wqes.slots(), max_inline), wqes, sges, max_sge }
    }

    /// May a work request with these elements be pushed? Returns its length in bytes.
    pub(crate) fn check(&self, sges: &[Sge]) -> Result<u32, PostError> {
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        self.check_room()?;
        let len: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        match u32::try_from(len) {
            Ok(len) if len <= MAX_MESSAGE_LEN => Ok(len),
            _ => Err(PostError::TooLong),
        }
    }

    /// May a work request with this inline data be pushed?
    pub(crate) fn check_inline(&self, data: &[u8]) -> Result<(), PostError> {
        if data.len() > self.inline.max as usize {
            return Err(PostError::InlineTooLong);
        }
        self.check_room()
    }

    fn check_room(&self) -> Result<(), PostError> {
        if self.wqes.room() == 0 { Err(PostError::QueueFull) } else { Ok(()) }
    }

    /// Stores the inline data and the WQE. [`check_inline`](WorkQueue::check_inline) has passed.
    pub(crate) fn push_inline(&mut self, data: &[u8], wqe: W) {
        let slot = self.wqes.slot(self.wqes.tail());
        self.inline.of_mut(slot)[..data.len()].copy_from_slice(data);
        self.wqes.push(wqe);
    }

    /// Inline data of the WQE at a position, as far as the queue can hold it.
    pub(crate) fn inline(&self, at: u32) -> &[u8] {
        self.inline.of(self.wqes.slot(at))
    }

    /// Stores the elements and then the WQE that `wqe` makes of the first one's position.
    /// [`check`](WorkQueue::check) has passed.
    pub(crate) fn push(&mut self, sges: &[Sge], wqe: impl FnOnce(u32) -> W) {
        let sge_at = self.sges.tail();
        for sge in sges {
            self.sges.push(*sge);
        }
        self.wqes.push(wqe(sge_at));
    }

    /// Removes the oldest WQE together with its `num_sge` elements.
    pub(crate) fn pop(&mut self, num_sge: impl Fn(&W) -> u32) -> Option<W> {
        let wqe = self.wqes.pop()?;
        for _ in 0..num_sge(&wqe) {
            self.sges.pop();
        }
        Some(wqe)
    }

    pub(crate) fn clear(&mut self) {
        self.wqes.clear();
        self.sges.clear();
    }
}

/// Inline data: as many bytes for each slot of the WQE ring.
#[derive(Debug)]
struct InlineData {
    bytes: Box<[u8]>,
    max: u32,
}

impl InlineData {
    fn new(slots: usize, max: u32) -> InlineData {
        InlineData { bytes: vec![0; slots * max as usize].into_boxed_slice(), max }
    }

    fn of(&self, slot: usize) -> &[u8] {
        let max = self.max as usize;
        &self.bytes[slot * max..][..max]
    }

    fn of_mut(&mut self, slot: usize) -> &mut [u8] {
        let max = self.max as usize;
        &mut self.bytes[slot * max..][..max]
    }
}

/// Writes `data` to a list that begins at `first`, from byte `offset` of the list on.
pub(crate) fn scatter(
    sges: &Ring<Sge>,
    first: u32,
    offset: u32,
    data: &[u8],
    by: Accessor,
    memory: &mut impl Memory,
) -> Result<(), MemoryFault> {
    let mut rest = data;
    for region in Sges::new(sges, first, offset, data.len() as u32) {
        let (bytes, after) = rest.split_at(region.len as usize);
        rest = after;
        memory.write(by, region, bytes)?;
    }
    Ok(())
}

/// Checks `access` to every element of a list.
pub(crate) fn check_sges(
    sges: &Ring<Sge>,
    first: u32,
    count: u32,
    by: Accessor,
    access: Access,
    memory: &impl Memory,
) -> Result<(), MemoryFault> {
    for index in 0..count {
        let sge = sges[first.wrapping_add(index)];
        if sge.len > 0 {
            memory.check(
                by,
                Region { key: Key::Local(sge.lkey), va: sge.va, len: sge.len },
                access,
            )?;
        }
    }
    Ok(())
}
