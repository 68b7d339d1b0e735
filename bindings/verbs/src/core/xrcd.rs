//! State of an XRC domain.

use std::sync::Arc;

use uroce_controlplane::Device;
use uroce_engine::CqError;

use super::{CqShared, PdShared};

/// An XRC domain, which its handles, queues and targets keep alive.
#[derive(Debug)]
pub(crate) struct XrcdShared {
    pub(crate) domain: Arc<uroce_engine::XrcDomain>,
    /// The protection domain of targets, in which there is no memory.
    pub(crate) pd: Arc<PdShared>,
    /// The completion queue of targets before their first message; nothing completes there.
    pub(crate) cq: Arc<CqShared>,
}

impl XrcdShared {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<XrcdShared>, CqError> {
        Ok(Arc::new(XrcdShared {
            domain: device.engine().open_xrc_domain(),
            pd: PdShared::new(device),
            cq: CqShared::unused(device)?,
        }))
    }
}
