//! State of a shared receive queue.

use std::sync::Arc;

use uroce_engine::SrqError;

use super::PdShared;

/// A shared receive queue, which its handles and the QPs created with it keep alive.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) srq: Arc<uroce_engine::SharedReceiveQueue>,
    _pd: Arc<PdShared>,
}

impl SrqShared {
    pub(crate) fn new(
        pd: &Arc<PdShared>,
        capacity: u32,
        max_sge: u32,
    ) -> Result<Arc<SrqShared>, SrqError> {
        let srq = pd.device.engine().create_srq(pd.pd, capacity, max_sge)?;
        Ok(Arc::new(SrqShared { srq, _pd: Arc::clone(pd) }))
    }
}

/// Identifies a shared receive queue of a device in an [`AsyncEvent`](crate::AsyncEvent).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqId(pub(crate) u32);
