//! Protection domain: what may work together.

use std::sync::Arc;

use uroce_controlplane::{Device, RequestError};
use uroce_transport::{AccessFlags, Pd};

use crate::context::Context;
use crate::mr::{MemoryRegion, RegisterError};
use crate::qp::{QpInit, QueuePair};

/// A protection domain. A queue pair reaches memory regions of its own domain only. Clones are
/// handles of the same one.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    shared: Arc<PdShared>,
}

/// What the objects of a domain keep alive.
#[derive(Debug)]
pub(crate) struct PdShared {
    pub(crate) device: Arc<Device>,
    pub(crate) pd: Pd,
}

impl ProtectionDomain {
    pub(crate) fn new(context: &Context) -> ProtectionDomain {
        let device = Arc::clone(&context.device);
        let pd = device.engine().alloc_pd();
        ProtectionDomain { shared: Arc::new(PdShared { device, pd }) }
    }

    pub(crate) fn shared(&self) -> &Arc<PdShared> {
        &self.shared
    }

    /// A memory region of `len` bytes of zeroed, page-aligned memory of its own.
    ///
    /// # Errors
    ///
    /// See [`RegisterError`].
    pub fn allocate(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion, RegisterError> {
        MemoryRegion::allocate(&self.shared, len, access)
    }

    /// A queue pair, in RESET.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_qp(&self, init: &QpInit<'_>) -> Result<QueuePair, RequestError> {
        QueuePair::create(&self.shared, init)
    }
}
