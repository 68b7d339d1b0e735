//! Shared receive queue.

use std::sync::Arc;

use uroce_engine::SrqError;
use uroce_transport::PostError;

use crate::core::{SrqId, SrqShared};
use crate::mr::MemorySlice;
use crate::pd::ProtectionDomain;
use crate::wr::{PostListError, RecvWr};

/// A queue of receives for many queue pairs, in memory of one protection domain. Clones are handles
/// of the same queue. It exists as long as a handle or a QP that was created with it.
///
/// Any thread may post. A QP takes the oldest receive when a message begins. An event can warn the
/// application when few receives are left ([`arm_limit`](SharedReceiveQueue::arm_limit)).
///
/// ```
/// use std::time::Duration;
/// use uroce::{AccessFlags, ConnectOptions, Context, EventKind, QpInit, RecvWr, SendWr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = uroce::Config::from_toml(r#"
/// #     [[device]]
/// #     name = "left"
/// #     [[device.port]]
/// #     ethdev = { ring = "srq" }
/// #     ip = ["192.0.2.1/24"]
/// #     [[device]]
/// #     name = "right"
/// #     [[device.port]]
/// #     ethdev = { ring = "srq" }
/// #     ip = ["192.0.2.2/24"]
/// # "#)?;
/// # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
/// // Two QPs that receive from one queue.
/// let pd = right.allocate_pd();
/// let memory = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
/// let (cq, srq) = (right.create_cq(64)?, pd.create_srq(16, 1)?);
/// let mut receivers = [(); 2].map(|()| pd.create_qp(&QpInit::new(&cq).srq(&srq)));
///
/// let slots = (0..4).map(|at| memory.slice(at * 1024..(at + 1) * 1024));
/// for (id, slot) in slots.enumerate() {
///     srq.post_recv(&RecvWr::new(&[slot?]).id(id as u64))?;
/// }
/// srq.arm_limit(3)?;
///
/// // Their peers, each of which sends a message.
/// let (peer_pd, peer_cq) = (left.allocate_pd(), left.create_cq(64)?);
/// let options = ConnectOptions::default();
/// for receiver in &mut receivers {
///     let receiver = receiver.as_mut().map_err(|error| *error)?;
///     let mut sender = peer_pd.create_qp(&QpInit::new(&peer_cq))?;
///     receiver.connect(&sender.endpoint(1, 0)?, &options)?;
///     sender.connect(&receiver.endpoint(1, 0)?, &options)?;
///     sender.post_send(&SendWr::send(&[]).signaled())?;
///     cq.wait(Duration::from_secs(10))?.ok_or("no message")?.ok()?;
/// #   peer_cq.wait(Duration::from_secs(10))?.ok_or("no completion")?.ok()?;
/// }
///
/// // Two of four are left, fewer than three.
/// while let Some(event) = right.poll_async_event()? {
///     if event.kind == EventKind::SrqLimitReached {
///         srq.post_recv(&RecvWr::new(&[memory.slice(..1024)?]))?;
///     }
/// }
/// assert_eq!(srq.len(), 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    shared: Arc<SrqShared>,
}

impl ProtectionDomain {
    /// Creates a shared receive queue for `capacity` receives of up to `max_sge` slices each. Its
    /// memory is in this domain; QPs that use the queue may be in other domains.
    ///
    /// # Errors
    ///
    /// See [`SrqError`].
    pub fn create_srq(&self, capacity: u32, max_sge: u32) -> Result<SharedReceiveQueue, SrqError> {
        Ok(SharedReceiveQueue { shared: SrqShared::new(self.shared(), capacity, max_sge)? })
    }
}

impl From<Arc<SrqShared>> for SharedReceiveQueue {
    fn from(shared: Arc<SrqShared>) -> SharedReceiveQueue {
        SharedReceiveQueue { shared }
    }
}

impl SharedReceiveQueue {
    pub(crate) fn shared(&self) -> &Arc<SrqShared> {
        &self.shared
    }

    /// Posts memory for a message.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing was posted.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.shared.srq.post_recv(&wr.wr, MemorySlice::sges(wr.sges))
    }

    /// Posts memory for several messages, in order.
    ///
    /// # Errors
    ///
    /// See [`PostListError`]; posting stops at the first request that is refused.
    pub fn post_recvs(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostListError> {
        let list = wrs.iter().map(|wr| (&wr.wr, MemorySlice::sges(wr.sges)));
        Ok(self.shared.srq.post_recv_list(list)?)
    }

    /// Requests one [`EventKind::SrqLimitReached`](crate::EventKind::SrqLimitReached) when fewer
    /// than `limit` receives are in the queue, now or later. 0 cancels the request. The queue must
    /// be armed again after the event.
    ///
    /// # Errors
    ///
    /// [`SrqError::Limit`] if `limit` is larger than the queue's capacity.
    pub fn arm_limit(&self, limit: u32) -> Result<(), SrqError> {
        self.shared.srq.arm_limit(limit)
    }

    /// The armed limit. 0 if none is armed.
    pub fn limit(&self) -> u32 {
        self.shared.srq.limit()
    }

    /// Number of receives that no QP has taken yet.
    pub fn len(&self) -> u32 {
        self.shared.srq.len()
    }

    /// Whether the queue has no receives.
    pub fn is_empty(&self) -> bool {
        self.shared.srq.is_empty()
    }

    /// Number of receives that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.shared.srq.depth()
    }

    /// The queue's identity in events.
    pub fn id(&self) -> SrqId {
        SrqId(self.shared.srq.number())
    }
}
