//! Receive requests of an end: their queues, and how many are posted.

use super::qp::Qp;
use crate::error::{BenchError, Step};
use uroce::{RecvWr, SharedReceiveQueue};

/// The receive queues: one of each queue pair, or one that all share.
pub(super) struct Receives {
    srq: Option<SharedReceiveQueue>,
    /// Requests that a queue holds.
    depth: u32,
    /// Number of posted requests per queue.
    posted: Vec<u32>,
    /// Number of posts so far, each of one request or of a list.
    pub(super) posts: u64,
}

impl Receives {
    /// Creates the state of empty queues.
    pub(super) fn new(srq: Option<SharedReceiveQueue>, qps: usize, depth: u32) -> Self {
        let queues = if srq.is_some() { 1 } else { qps };
        Self { srq, depth, posted: vec![0; queues], posts: 0 }
    }

    /// Returns the number of queues.
    pub(super) fn queues(&self) -> usize {
        self.posted.len()
    }

    /// Returns the number of requests that a queue has room for.
    #[inline]
    pub(super) fn room(&self, queue: usize) -> u32 {
        self.depth - self.posted[queue]
    }

    /// Counts a completed request of a queue, or of a queue pair of those that share one.
    #[inline]
    pub(super) fn take(&mut self, queue: usize) {
        let queue = self.index(queue);
        self.posted[queue] -= 1;
    }

    /// Posts a list of requests at once, to a queue or the one that a queue pair shares.
    #[inline]
    pub(super) fn post(
        &mut self,
        queue: usize,
        qps: &mut [Qp],
        list: &[RecvWr<'_>],
    ) -> Result<(), BenchError> {
        match &self.srq {
            Some(srq) => srq.post_recvs(list),
            None => qps[queue].post_recvs(list),
        }
        .step("posting receive requests")?;
        let queue = self.index(queue);
        self.posted[queue] += list.len() as u32;
        self.posts += 1;
        Ok(())
    }

    /// Fills a queue with copies of a request, in lists of up to `most`.
    pub(super) fn fill(
        &mut self,
        queue: usize,
        qps: &mut [Qp],
        request: RecvWr<'_>,
        most: u32,
    ) -> Result<(), BenchError> {
        let list = vec![request; self.room(queue).min(most) as usize];
        while self.room(queue) > 0 {
            let count = self.room(queue).min(most);
            self.post(queue, qps, &list[..count as usize])?;
        }
        Ok(())
    }

    #[inline]
    fn index(&self, queue: usize) -> usize {
        if self.srq.is_some() { 0 } else { queue }
    }
}
