//! Extended reliable connections (XRC): one connection to a device serves several shared receive
//! queues.

use std::sync::Arc;

use uroce_controlplane::RequestError;
use uroce_engine::{CqError, SrqError};
use uroce_transport::QpType;
use uroce_wire::Srqn;

use crate::context::Context;
use crate::core::{CqShared, PdShared, SrqShared, XrcdShared};
use crate::cq::CompletionQueue;
use crate::pd::ProtectionDomain;
use crate::qp::{NO_QUEUES, QueuePair, create};
use crate::srq::SharedReceiveQueue;

/// An XRC domain: its targets serve requests that name one of its shared receive queues. Clones are
/// handles of the same domain. It exists as long as a handle, a queue or a target of it.
///
/// An extended reliable connection has two ends. The initiator ([`QpType::XrcSend`]) sends
/// requests, each of which names a shared receive queue at the other end ([`SendWr::to_srq`]). The
/// target ([`XrcDomain::create_target`]) serves them. The named queue provides the receive of a
/// message, the completion queue, and the protection domain of all memory that the request
/// accesses.
///
/// [`SendWr::to_srq`]: crate::SendWr::to_srq
///
/// ```
/// use std::time::Duration;
/// use uroce::{AccessFlags, ConnectOptions, Context, QpInit, QpType, RecvWr, SendWr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = uroce::Config::from_toml(r#"
/// #     [[device]]
/// #     name = "left"
/// #     [[device.port]]
/// #     ethdev = { ring = "xrc" }
/// #     ip = ["192.0.2.1/24"]
/// #     [[device]]
/// #     name = "right"
/// #     [[device.port]]
/// #     ethdev = { ring = "xrc" }
/// #     ip = ["192.0.2.2/24"]
/// # "#)?;
/// # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
/// // Two queues behind one connection.
/// let domain = right.open_xrc_domain()?;
/// let pd = right.allocate_pd();
/// let memory = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
/// let cqs = [right.create_cq(16)?, right.create_cq(16)?];
/// let srqs = cqs.each_ref().map(|cq| pd.create_xrc_srq(&domain, cq, 16, 1));
/// let [first, second] = srqs;
/// let (first, second) = (first?, second?);
/// let mut target = domain.create_target()?;
/// for srq in [&first, &second] {
///     srq.post_recv(&RecvWr::new(&[memory.slice(..1024)?]))?;
/// }
///
/// let cq = left.create_cq(16)?;
/// let mut initiator =
///     left.allocate_pd().create_qp(&QpInit::new(&cq).qp_type(QpType::XrcSend))?;
/// let options = ConnectOptions::default();
/// target.connect(&initiator.endpoint(1, 0)?, &options)?;
/// initiator.connect(&target.endpoint(1, 0)?, &options)?;
/// for srq in [&second, &first] {
///     let number = srq.xrc_number().ok_or("no XRC queue")?;
///     initiator.post_send(&SendWr::send(&[]).to_srq(number).signaled())?;
///     cq.wait(Duration::from_secs(10))?.ok_or("no completion")?.ok()?;
/// }
/// for cq in &cqs {
///     let received = cq.wait(Duration::from_secs(10))?.ok_or("no message")?;
///     received.ok()?;
///     assert_eq!(received.qpn, target.qpn());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct XrcDomain {
    shared: Arc<XrcdShared>,
}

impl Context {
    /// Opens an XRC domain of its own.
    ///
    /// # Errors
    ///
    /// See [`CqError`].
    pub fn open_xrc_domain(&self) -> Result<XrcDomain, CqError> {
        Ok(XrcDomain { shared: XrcdShared::new(&self.device)? })
    }
}

impl XrcDomain {
    /// Creates a target in RESET. It has no queues of its own; posts to it are refused.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_target(&self) -> Result<QueuePair, RequestError> {
        create(crate::core::QpParts {
            pd: &self.shared.pd,
            send_cq: &self.shared.cq,
            recv_cq: &self.shared.cq,
            srq: None,
            xrcd: Some(&self.shared),
            rdd: None,
            qp_type: QpType::XrcRecv,
            caps: NO_QUEUES,
            lcore: None,
            congestion: None,
        })
    }
}

impl ProtectionDomain {
    /// Creates a shared receive queue for `capacity` receives of up to `max_sge` slices each, which
    /// requests to the targets of an XRC domain can name. Its receives complete in `cq`. Requests
    /// that name it access memory of this protection domain.
    ///
    /// # Errors
    ///
    /// See [`SrqError`].
    pub fn create_xrc_srq(
        &self,
        domain: &XrcDomain,
        cq: &CompletionQueue,
        capacity: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue, SrqError> {
        let cq: &Arc<CqShared> = cq.shared();
        let pd: &Arc<PdShared> = self.shared();
        let shared = SrqShared::named(pd, &domain.shared, cq, capacity, max_sge)?;
        Ok(SharedReceiveQueue::from(shared))
    }
}

impl SharedReceiveQueue {
    /// The number by which requests of an XRC initiator name the queue; `None` if it is not of an
    /// XRC domain.
    pub fn xrc_number(&self) -> Option<Srqn> {
        self.shared().name.as_ref().map(uroce_engine::XrcName::number)
    }
}
