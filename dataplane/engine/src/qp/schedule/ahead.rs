//! While one QP sends, prefetches what the QPs with the next turns will need to send.
//!
//! With many QPs none of it is in a near cache. Each piece leads to the next: the context, the ring
//! of posts, the requests in it, their memory. So each piece is fetched one turn after the piece
//! before it.
//!
//! Not here: prefetching for received packets (`rx::ahead`).

use crate::qp::shard::Shard;
use std::collections::VecDeque;
use uroce_shared::copy::prefetch::prefetch_value;
use uroce_shared::memory::mr_table::MrView;

impl Shard {
    /// Called before a QP's turn; `active` are the QPs with the turns after it.
    #[inline]
    pub(super) fn look_ahead(&self, active: &VecDeque<u32>, memory: &MrView<'_>) {
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
