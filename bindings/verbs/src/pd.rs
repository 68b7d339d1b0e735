//! Protection domain: what may work together.

use std::sync::Arc;

use uroce_controlplane::{Device, RequestError};
use uroce_engine::{MrError, MwType, SrqError};
use uroce_transport::{AccessFlags, Pd};

use crate::AddressVector;
use crate::ah::AddressHandle;
use crate::context::Context;
use crate::mr::{MemoryRegion, RegisterError};
use crate::mw::MemoryWindow;
use crate::qp::{QpInit, QueuePair};
use crate::srq::SharedReceiveQueue;

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

    /// A memory window, not bound yet.
    ///
    /// # Errors
    ///
    /// [`MrError::TableFull`].
    pub fn allocate_mw(&self, kind: MwType) -> Result<MemoryWindow, MrError> {
        MemoryWindow::new(&self.shared, kind)
    }

    /// A shared receive queue for `capacity` receives of up to `max_sge` slices each. Their memory is
    /// of this domain; the QPs that use the queue may be of others.
    ///
    /// # Errors
    ///
    /// See [`SrqError`].
    pub fn create_srq(&self, capacity: u32, max_sge: u32) -> Result<SharedReceiveQueue, SrqError> {
        SharedReceiveQueue::new(&self.shared, capacity, max_sge)
    }

    /// An address handle: the way to a peer or a multicast group from a port counted from 1. The
    /// peer's next hop is resolved, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_ah(&self, port: u8, way: &AddressVector) -> Result<AddressHandle, RequestError> {
        AddressHandle::new(&self.shared, port, way)
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
