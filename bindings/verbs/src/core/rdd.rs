//! State of a reliable datagram domain.

use std::sync::Arc;

use uroce_controlplane::Device;
use uroce_engine::{CqError, RdDomain};

use super::{CqShared, PdShared};

/// A reliable datagram domain, which its handles, QPs and EE contexts keep alive.
#[derive(Debug)]
pub(crate) struct RddShared {
    pub(crate) domain: Arc<RdDomain>,
    /// The protection domain of EE contexts, in which there is no memory.
    pub(crate) pd: Arc<PdShared>,
    /// The completion queue of EE contexts; nothing completes there.
    pub(crate) cq: Arc<CqShared>,
}

impl RddShared {
    pub(crate) fn new(device: &Arc<Device>, domain: RdDomain) -> Result<Arc<RddShared>, CqError> {
        Ok(Arc::new(RddShared {
            domain: Arc::new(domain),
            pd: PdShared::new(device),
            cq: CqShared::unused(device)?,
        }))
    }
}
