//! Protection domain: a group of objects that may work together.

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

/// A protection domain. A queue pair can only access memory regions of its own domain. Clones are
/// handles of the same domain.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    shared: Arc<PdShared>,
}

/// The part of a domain that its objects keep alive.
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

    /// Creates a memory region of `len` bytes of newly allocated, zeroed, page-aligned memory.
    ///
    /// # Errors
    ///
    /// See [`RegisterError`].
    pub fn allocate(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion, RegisterError> {
        MemoryRegion::allocate(&self.shared, len, access)
    }

    /// Creates a memory window, which is not bound yet.
    ///
    /// # Errors
    ///
    /// [`MrError::TableFull`] if the device has its maximum of regions and windows.
    pub fn allocate_mw(&self, kind: MwType) -> Result<MemoryWindow, MrError> {
        MemoryWindow::new(&self.shared, kind)
    }

    /// Creates a shared receive queue for `capacity` receives of up to `max_sge` slices each. Its
    /// memory is in this domain; QPs that use the queue may be in other domains.
    ///
    /// # Errors
    ///
    /// See [`SrqError`].
    pub fn create_srq(&self, capacity: u32, max_sge: u32) -> Result<SharedReceiveQueue, SrqError> {
        SharedReceiveQueue::new(&self.shared, capacity, max_sge)
    }

    /// Creates an address handle for the path from a port, counted from 1, to a peer or a multicast
    /// group. Resolves the peer's next hop, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_ah(&self, port: u8, way: &AddressVector) -> Result<AddressHandle, RequestError> {
        AddressHandle::new(&self.shared, port, way)
    }

    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_qp(&self, init: &QpInit<'_>) -> Result<QueuePair, RequestError> {
        QueuePair::create(&self.shared, init)
    }
}
