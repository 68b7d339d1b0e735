//! What the next QPs' turns will need, fetched while one has its own.
//!
//! Of many QPs nothing is in a near cache when their turn comes, and each piece is found by way of
//! the one before: the context, the ring of what was posted, the requests in it, their memory. So
//! each is fetched a turn after the one that it is found by.
//!
//! Not here: what QPs need for the packets that come (`rx::ahead`).

use crate::mr_table::Access;
use crate::prefetch::prefetch_value;
use crate::shard::Shard;
use std::collections::VecDeque;

impl Shard {
    /// A QP has its turn, and after it those of `active`.
    #[inline]
    pub(super) fn look_ahead(&self, active: &VecDeque<u32>, memory: &Access<'_>) {
        let ahead = |turns: usize| active.get(turns - 1).and_then(|&index| self.get(index));
        if let Some(context) = ahead(4) {
            prefetch_value(context);
        }
        if let Some(context) = ahead(3) {
            context.queues.sq.prefetch_ring();
        }
        if let Some(context) = ahead(2) {
            context.queues.sq.prefetch_posted(&context.qp);
        }
        if let Some(context) = ahead(1) {
            context.queues.sq.prefetch_memory(memory);
        }
    }
}
