//! Reliable datagrams (RD): queue pairs without connections, and connections without queues.
//!
//! An EE context ([`Eec`]) is a connection to an EE context of a peer: it has the path, the packet
//! sequence numbers, the retries and the alternate path. An RD queue pair ([`RdQp`]) has the
//! queues. Each of its requests names an EE context to go by, an RD queue pair of the peer, and a
//! Q_Key. So any number of queue pairs share one connection, and one queue pair reaches several
//! peers. Both belong to a domain ([`Rdd`]).
//!
//! ```text
//!   RdQp ─┐                                    ┌─> RdQp
//!   RdQp ─┼─> Eec ══════ connection ══════ Eec ┼─> RdQp
//!   RdQp ─┘    one message after the other     └─> RdQp
//! ```
//!
//! The messages of a queue pair are carried out in the order in which they were posted, one at a
//! time. Those of several queue pairs take turns in an EE context, also one at a time. A request
//! that fails stops its queue pair, not the EE context. Only when the peer cannot be reached the EE
//! context ends.
//!
//! EE contexts are connected by data that the application exchanges itself ([`Eec::connect`]), or
//! by IP address and port ([`Listener::bind_rd`](crate::cm::Listener::bind_rd)).
//!
//! No C program can use this service: libibverbs has neither EE contexts nor RD queue pairs.
//!
//! ```
//! use std::time::Duration;
//! use uroce::rd::Address;
//! use uroce::{AccessFlags, ConnectOptions, Context, Qkey, QpInit, RecvWr, SendWr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let config = uroce::Config::from_toml(r#"
//! #     [[device]]
//! #     name = "left"
//! #     [[device.port]]
//! #     ethdev = { ring = "rd" }
//! #     ip = ["192.0.2.1/24"]
//! #     [[device]]
//! #     name = "right"
//! #     [[device.port]]
//! #     ethdev = { ring = "rd" }
//! #     ip = ["192.0.2.2/24"]
//! # "#)?;
//! # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
//! let options = ConnectOptions::default();
//! let (here, there) = (left.open_rd_domain()?, right.open_rd_domain()?);
//! let (near, far) = (here.create_eec()?, there.create_eec()?);
//! far.connect(&near.endpoint(1, 0)?, &options)?;
//! near.connect(&far.endpoint(1, 0)?, &options)?;
//!
//! // Two receivers behind one connection.
//! let pd = right.allocate_pd();
//! let memory = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
//! let received = right.create_cq(16)?;
//! let mut receivers = Vec::new();
//! for key in [17, 18] {
//!     let mut qp = pd.create_rd_qp(&there, &QpInit::new(&received))?;
//!     qp.start(Qkey(key), &options)?;
//!     qp.post_recv(&RecvWr::new(&[memory.slice(..1024)?]))?;
//!     receivers.push((qp, Qkey(key)));
//! }
//!
//! let cq = left.create_cq(16)?;
//! let mut sender = left.allocate_pd().create_rd_qp(&here, &QpInit::new(&cq))?;
//! sender.start(Qkey(1), &options)?;
//! for (receiver, qkey) in &receivers {
//!     let to = Address { eecn: near.eecn(), dest_qpn: receiver.qpn(), qkey: *qkey };
//!     sender.post_send(&SendWr::send(&[]).signaled(), &to)?;
//!     cq.wait(Duration::from_secs(10))?.ok_or("no completion")?.ok()?;
//!     let message = received.wait(Duration::from_secs(10))?.ok_or("no message")?;
//!     message.ok()?;
//!     assert_eq!((message.qpn, message.src_qpn), (receiver.qpn(), sender.qpn()));
//!     assert_eq!(message.eecn, Some(far.eecn()));
//! }
//! # Ok(()) }
//! ```

use std::borrow::Borrow;
use std::sync::Arc;

use uroce_controlplane::{AlternateVector, PathError, RequestError};
use uroce_engine::{CqError, QpInfo};
pub use uroce_transport::RdAddress as Address;
use uroce_transport::{PostError, QpChange, QpState, QpType, RdAttr};
use uroce_wire::{Qkey, Qpn};

use crate::AddressVector;
use crate::context::Context;
use crate::core::{QpParts, RddShared};
use crate::pd::ProtectionDomain;
use crate::qp::{ConnectOptions, Endpoint, NO_QUEUES, QpControl, QpInit, QueuePair, create};
use crate::srq::SharedReceiveQueue;
use crate::wr::{PostListError, RecvWr, SendWr};

/// A reliable datagram domain: its queue pairs use its EE contexts only, and serve requests that
/// come by these only. Clones are handles of the same domain. It exists as long as a handle, a
/// queue pair or an EE context of it.
///
/// All queue pairs and EE contexts of a domain run on one lcore. A program that is to use several
/// lcores opens a domain for each.
#[derive(Clone, Debug)]
pub struct Rdd {
    shared: Arc<RddShared>,
}

impl Context {
    /// Opens a reliable datagram domain. Domains get the device's lcores in turn.
    ///
    /// # Errors
    ///
    /// See [`CqError`].
    pub fn open_rd_domain(&self) -> Result<Rdd, CqError> {
        let domain = self.device.engine().open_rd_domain();
        Ok(Rdd { shared: RddShared::new(&self.device, domain)? })
    }

    /// Opens a reliable datagram domain on this lcore, counted from 0.
    ///
    /// # Errors
    ///
    /// [`ControlError::NoSuchLcore`](crate::ControlError::NoSuchLcore), [`RequestError::Queue`].
    pub fn open_rd_domain_on(&self, lcore: usize) -> Result<Rdd, RequestError> {
        let domain = self.device.engine().open_rd_domain_on(lcore)?;
        Ok(Rdd { shared: RddShared::new(&self.device, domain)? })
    }
}

impl Rdd {
    /// The lcore of the domain's queue pairs and EE contexts.
    pub fn lcore(&self) -> usize {
        self.shared.domain.home()
    }

    /// Creates an EE context in RESET.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_eec(&self) -> Result<Eec, RequestError> {
        let qp = create(QpParts {
            pd: &self.shared.pd,
            send_cq: &self.shared.cq,
            recv_cq: &self.shared.cq,
            srq: None,
            xrcd: None,
            rdd: Some(&self.shared),
            qp_type: QpType::Eec,
            caps: NO_QUEUES,
            lcore: None,
            congestion: None,
        })?;
        let (control, ..) = qp.into_parts();
        Ok(Eec { control })
    }
}

impl ProtectionDomain {
    /// Creates an RD queue pair in RESET. The service, the lcore and the congestion control of
    /// `init` are not used.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_rd_qp(&self, domain: &Rdd, init: &QpInit<'_>) -> Result<RdQp, RequestError> {
        let qp = create(QpParts {
            pd: self.shared(),
            send_cq: init.send_cq.shared(),
            recv_cq: init.recv_cq.shared(),
            srq: init.srq.map(SharedReceiveQueue::shared),
            xrcd: None,
            rdd: Some(&domain.shared),
            qp_type: QpType::Rd,
            caps: init.caps,
            lcore: None,
            congestion: None,
        })?;
        Ok(RdQp { qp })
    }
}

/// An RD queue pair. Dropping it destroys it: its message in progress is given up, and the EE
/// context goes on with those of others.
#[derive(Debug)]
pub struct RdQp {
    qp: QueuePair,
}

impl RdQp {
    /// The queue pair's number.
    pub fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    /// The state that the lcore has published last. Does not ask the lcore.
    pub fn state(&self) -> QpState {
        self.qp.state()
    }

    /// Modifies the queue pair from RESET to RTS. It serves requests with this Q_Key from now on.
    /// The options `access`, `max_dest_rd_atomic` and `min_rnr_timer` are used, no others. Requests
    /// may be READ and ATOMIC unless `max_dest_rd_atomic` is 0.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The queue pair stays in the last state that it has reached.
    pub fn start(&mut self, qkey: Qkey, options: &ConnectOptions) -> Result<(), RequestError> {
        let &ConnectOptions { access, max_dest_rd_atomic, min_rnr_timer, .. } = options;
        let attr = RdAttr { access, max_dest_rd_atomic, min_rnr_timer };
        QpChange::reliable_datagram_steps(qkey, &attr).iter().try_for_each(|step| self.modify(step))
    }

    /// Posts a request that goes to an RD queue pair of a peer, by an EE context of this domain. If
    /// the EE context cannot be used, the request completes in error, and the queue pair goes to
    /// SQE.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing was posted. RD has no local operations, no SEND with invalidate,
    /// no ATOMIC WRITE and no FLUSH.
    pub fn post_send(&mut self, wr: &SendWr<'_>, to: &Address) -> Result<(), PostError> {
        let (sq, _) = self.qp.split();
        wr.push_datagram_to(&mut sq.end.batch()?, to)
    }

    /// Posts requests in order, each with its destination, and wakes the lcore once.
    ///
    /// # Errors
    ///
    /// See [`PostListError`]; posting stops at the first request that is refused.
    pub fn post_sends<'a>(
        &mut self,
        wrs: impl IntoIterator<Item = (impl Borrow<SendWr<'a>>, impl Borrow<Address>)>,
    ) -> Result<(), PostListError> {
        let (sq, _) = self.qp.split();
        let mut batch = sq.end.batch().map_err(|error| PostListError { posted: 0, error })?;
        for (posted, (wr, to)) in wrs.into_iter().enumerate() {
            let pushed = wr.borrow().push_datagram_to(&mut batch, to.borrow());
            pushed.map_err(|error| PostListError { posted, error })?;
        }
        Ok(())
    }

    /// Posts memory for a message. Receives of messages that come by several EE contexts at the
    /// same time may complete in another order than that of their posts.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing was posted.
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.qp.post_recv(wr)
    }

    /// Posts memory for several messages, in order.
    ///
    /// # Errors
    ///
    /// See [`PostListError`]; posting stops at the first request that is refused.
    pub fn post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostListError> {
        self.qp.post_recvs(wrs)
    }

    /// Modify QP: changes the state, other attributes, or both.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the queue pair is unchanged.
    pub fn modify(&mut self, change: &QpChange) -> Result<(), RequestError> {
        self.qp.modify(change, None)
    }

    /// Modifies the queue pair from RTS to SQD. See [`QueuePair::drain`](crate::QueuePair::drain).
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the queue pair is unchanged.
    pub fn drain(&mut self, notify: bool) -> Result<(), RequestError> {
        self.qp.drain(notify)
    }

    /// Modifies the queue pair from SQD to RTS.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the queue pair is unchanged.
    pub fn resume(&mut self) -> Result<(), RequestError> {
        self.qp.resume()
    }

    /// Modifies the queue pair from SQE to RTS, after a request has failed.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the queue pair is unchanged.
    pub fn recover(&mut self) -> Result<(), RequestError> {
        let cur_state = Some(QpState::Sqe);
        self.modify(&QpChange { cur_state, ..QpChange::to(QpState::Rts) })
    }

    /// Query QP: the queue pair's present attributes and capabilities.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn query(&self) -> Result<QpInfo, RequestError> {
        self.qp.query()
    }
}

/// An EE context. Dropping it destroys it: requests that name it complete in error. Clones are
/// handles of the same EE context.
#[derive(Clone, Debug)]
pub struct Eec {
    control: QpControl,
}

impl AsRef<QpControl> for Eec {
    /// The EE context as the [connection manager](crate::cm) connects it.
    fn as_ref(&self) -> &QpControl {
        &self.control
    }
}

impl Eec {
    /// The EE context's number, which requests name. Events of the EE context name it as they name
    /// a queue pair; no queue pair of the device has the number.
    pub fn eecn(&self) -> Qpn {
        self.control.qpn()
    }

    /// The data that a peer needs to connect an EE context to this one, at a port (counted from 1)
    /// with one of its GIDs.
    ///
    /// # Errors
    ///
    /// [`PathError::NoPort`] or [`PathError::NoGid`].
    pub fn endpoint(&self, port: u8, sgid_index: u8) -> Result<Endpoint, PathError> {
        self.control.endpoint(port, sgid_index)
    }

    /// Modifies the EE context from RESET to INIT, at the port that the options name.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), RequestError> {
        self.control.init(options)
    }

    /// Modifies an EE context in RESET or INIT to RTS, connected to a peer's, which must be
    /// connected to this one. Resolves the peer's next hop, which takes a few seconds if it does
    /// not answer. Options that are RD queue pairs' are not used: `access`, `min_rnr_timer`. Those
    /// of other services are refused: `selective_repeat`, `udp_source_ports`, `keepalive_ms`.
    ///
    /// With `failover = "auto"`, which is for RC, a program loads alternate paths of EE contexts
    /// itself all the same; PORT_ERR is raised at once if an EE context is left on the port.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The EE context stays in the last state that it has reached.
    pub fn connect(&self, remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError> {
        self.control.connect(remote, options)
    }

    /// Modify EEC: changes the state, other attributes, or both. Paths are given as vectors;
    /// `change.path` and `change.alt_path` must be empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn modify(
        &self,
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>,
    ) -> Result<(), RequestError> {
        self.control.modify_paths(change, path, alternate)
    }

    /// Modifies the EE context from RTS to SQD: it begins no new message. See
    /// [`QueuePair::drain`](crate::QueuePair::drain).
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn drain(&self, notify: bool) -> Result<(), RequestError> {
        self.control.drain(notify)
    }

    /// Modifies the EE context from SQD to RTS.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn resume(&self) -> Result<(), RequestError> {
        self.control.resume()
    }

    /// Loads an alternate path and resolves its next hop. Replaces a path that was loaded before.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn load_alternate_path(&self, alternate: &AlternateVector) -> Result<(), RequestError> {
        self.control.load_alternate_path(alternate)
    }

    /// Modifies the migration state from MIGRATED to REARM. See [`QpControl::rearm`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn rearm(&self) -> Result<(), RequestError> {
        self.control.rearm()
    }

    /// Modifies the migration state from ARMED to MIGRATED, with all RD queue pairs that use the EE
    /// context. See [`QpControl::migrate`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the EE context is unchanged.
    pub fn migrate(&self) -> Result<(), RequestError> {
        self.control.migrate()
    }

    /// Query EEC: the EE context's present attributes.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn query(&self) -> Result<QpInfo, RequestError> {
        self.control.query()
    }
}
