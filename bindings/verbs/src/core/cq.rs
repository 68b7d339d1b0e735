//! State of a completion queue.

use std::sync::Arc;

use uroce_controlplane::Device;
use uroce_engine::{CompletionChannel, CqError, EventChannel, Poller};

/// A completion queue, which its handles and the QPs that complete to it keep alive.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) cq: Arc<uroce_engine::CompletionQueue>,
    /// Drives the lcores while the application polls. `None` unless the device is configured with
    /// `driver = "poller"`.
    pub(crate) poller: Option<Poller>,
    device: Arc<Device>,
}

impl CqShared {
    pub(crate) fn new(
        device: &Arc<Device>,
        capacity: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<CqShared>, CqError> {
        let engine = device.engine();
        let cq = engine.create_cq(capacity, channel)?;
        let poller = engine.poller(&cq);
        Ok(Arc::new(CqShared { cq, poller, device: Arc::clone(device) }))
    }

    /// A queue to which nothing completes. It gives no events.
    pub(crate) fn unused(device: &Arc<Device>) -> Result<Arc<CqShared>, CqError> {
        let cq = uroce_engine::CompletionQueue::new(1, None)?;
        Ok(Arc::new(CqShared { cq, poller: None, device: Arc::clone(device) }))
    }

    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        // The poller has a reference, too.
        drop(self.poller.take());
        self.device.engine().retire_cq(&self.cq);
    }
}

/// Identifies a completion queue within the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CqId {
    /// Address of the device's channel for asynchronous events, which identifies the device.
    channel: usize,
    /// Number of the queue on that channel.
    number: u32,
}

impl CqId {
    pub(crate) fn of(cq: &uroce_engine::CompletionQueue) -> CqId {
        // Only an unused queue has no event source.
        cq.events().map_or(CqId { channel: 0, number: 0 }, |events| {
            CqId::numbered(events.channel(), events.number())
        })
    }

    pub(crate) fn numbered(channel: &Arc<EventChannel>, number: u32) -> CqId {
        CqId { channel: Arc::as_ptr(channel).addr(), number }
    }
}
