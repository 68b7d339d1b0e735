//! Queue pairs with the smallest queues, for tests of connections and of Modify QP, which carry no
//! messages.

use crate::error::{BenchError, Step};
use uroce::{CompletionQueue, Context, ProtectionDomain, QpCaps, QpInit, QueuePair};

/// Entries of the completion queue that all queue pairs of a [`QpMaker`] share. A queue pair cannot
/// be created without one; nothing is posted, so nothing completes.
const CQ_ENTRIES: u32 = 16;

/// A protection domain and a completion queue, and what creates queue pairs from them.
pub(crate) struct QpMaker {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl QpMaker {
    pub(crate) fn new(context: &Context) -> Result<Self, BenchError> {
        let cq = context.create_cq(CQ_ENTRIES).step("creating a CQ")?;
        Ok(Self { pd: context.allocate_pd(), cq })
    }

    /// Creates a queue pair in RESET with room for one send and one receive request.
    pub(crate) fn create(&self) -> Result<QueuePair, BenchError> {
        let caps = QpCaps {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit { caps, ..QpInit::new(&self.cq) };
        self.pd.create_qp(&init).step("creating a QP")
    }
}
