//! The work queues inside a QP: WQEs in one ring, their scatter/gather elements in another.

use crate::env::{Access, Key, Memory, MemoryFault, Pd, Region};
use crate::ring::Ring;
use crate::wqe::{MAX_MESSAGE_LEN, PostError, Sge};

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
}

/// A queue of WQEs `W` with their SGEs.
#[derive(Debug)]
pub(crate) struct WorkQueue<W: Copy> {
    pub(crate) wqes: Ring<W>,
    pub(crate) sges: Ring<Sge>,
    max_sge: u32,
}

impl<W: Copy> WorkQueue<W> {
    pub(crate) fn new(depth: u32, max_sge: u32) -> WorkQueue<W> {
        WorkQueue { wqes: Ring::new(depth), sges: Ring::new(depth * max_sge), max_sge }
    }

    /// May a work request with these elements be pushed? Returns its length in bytes.
    pub(crate) fn check(&self, sges: &[Sge]) -> Result<u32, PostError> {
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if self.wqes.room() == 0 {
            return Err(PostError::QueueFull);
        }
        let len: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        match u32::try_from(len) {
            Ok(len) if len <= MAX_MESSAGE_LEN => Ok(len),
            _ => Err(PostError::TooLong),
        }
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

/// Checks `access` to every element of a list.
pub(crate) fn check_sges(
    sges: &Ring<Sge>,
    first: u32,
    count: u32,
    pd: Pd,
    access: Access,
    memory: &impl Memory,
) -> Result<(), MemoryFault> {
    for index in 0..count {
        let sge = sges[first.wrapping_add(index)];
        if sge.len > 0 {
            memory.check(
                pd,
                Region { key: Key::Local(sge.lkey), va: sge.va, len: sge.len },
                access,
            )?;
        }
    }
    Ok(())
}
