//! Parameters of connections: those that each side asks for, and those that both agree on.

use std::net::{IpAddr, SocketAddr};

use uroce_cm::{RdEnd, TAG_LEN};
use uroce_transport::{AccessFlags, MAX_RD_ATOMIC, QpType};
use uroce_wire::cm::IpHeader;
use uroce_wire::{Mac, PathMtu, Psn, Qkey, Qpn};

use super::PortSpace;
use crate::path::AddressVector;

/// Default code of the local ACK timeout: 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// Largest number of bytes of an application's private data in a REQ.
pub(super) const REQ_DATA: usize = 92 - IpHeader::LEN;
/// Largest number of bytes of an application's private data in a REP.
pub(super) const REP_DATA: usize = 196;
/// Default code of the minimum RNR NAK timer: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// Parameters that one side brings to a connection: those of Linux's `rdma_conn_param`, and some
/// attributes of the QP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnParam {
    /// Private data for the peer's application. For connections, at most 56 bytes when connecting
    /// and 196 when accepting; for look-ups of UD QPs, 180 and 136.
    pub private_data: Vec<u8>,
    /// READs and ATOMICs of the peer that may be outstanding here, 0 to 16. The lesser of this and
    /// the peer's `initiator_depth` becomes `max_dest_rd_atomic`.
    pub responder_resources: u8,
    /// READs and ATOMICs of this side that may be outstanding at the peer, 0 to 128. The lesser of
    /// this and the peer's `responder_resources` becomes `max_rd_atomic`.
    pub initiator_depth: u8,
    /// This side sends credits in its acknowledgements (end-to-end flow control). The value is
    /// announced in the REQ or REP and has no effect on the QP.
    pub flow_control: bool,
    /// Transport retries of both QPs, 0 to 7. The connecting side decides.
    pub retry_count: u8,
    /// Retries of the peer after an RNR NAK, 0 to 7; 7 means without end.
    pub rnr_retry_count: u8,
    /// RNR NAK timer code sent to the peer, 0 to 31.
    pub min_rnr_timer: u8,
    /// Local ACK timeout code of both QPs, 0 (no timeout) to 31. The connecting side decides.
    pub ack_timeout: u8,
    /// When accepting: local ACK timeout code of our QP, instead of the one from the REQ.
    pub own_ack_timeout: Option<u8>,
    /// Path MTU, at most the port's; `None` means the port's. The connecting side decides.
    pub path_mtu: Option<PathMtu>,
    /// Idle time of the RC QP's keepalive, in milliseconds. The QP sends a probe if nothing is
    /// outstanding and no packet has arrived from the peer for this time. 0 means no keepalive.
    ///
    /// `None` means the time in the device's configuration. If none is configured, it means 10 s,
    /// or 0 at a port that reports by itself that the peer's process has ended.
    pub keepalive_ms: Option<u32>,
    /// Access that the peer has to registered memory through the QP. Like `min_rnr_timer`, an RD QP
    /// has it and an EEC does not.
    pub access: AccessFlags,
    /// Treatment of an alternate path that the peer proposes.
    pub alternate_policy: AlternatePolicy,
    /// When connecting: both sides send a REQ and neither listens. The peer's REQ must have the
    /// same service ID, which contains [`ConnectSpec::port`], and must arrive before our retries
    /// are used up. The two REQs become one connection. Linux's `rdma_cm` does not support this.
    pub peer_to_peer: bool,
    /// For an EEC: an RD QP of this side, beyond RESET, of which the peer is told the number and
    /// the Q_Key ([`Agreed::peer_rd_qp`]). One of another domain than the EEC's refuses what the
    /// peer then sends. Other RD QPs may use the connection, too.
    pub rd_qp: Option<Qpn>,
}

impl Default for ConnParam {
    /// Returns parameters that permit all operations of an RC QP, with the largest retry counts.
    fn default() -> ConnParam {
        ConnParam {
            private_data: Vec::new(),
            responder_resources: MAX_RD_ATOMIC,
            initiator_depth: MAX_RD_ATOMIC,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: MIN_RNR_TIMER,
            ack_timeout: ACK_TIMEOUT,
            own_ack_timeout: None,
            path_mtu: None,
            keepalive_ms: None,
            access: AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_ATOMIC,
            alternate_policy: AlternatePolicy::Accept,
            peer_to_peer: false,
            rd_qp: None,
        }
    }
}

impl ConnParam {
    /// Tells whether the private data of a REQ or REP, which takes `max` bytes, leaves room for the
    /// agreement on selective repeat.
    pub(super) fn leaves_room(&self, max: usize) -> bool {
        self.private_data.len() + TAG_LEN <= max
    }
}

/// Treatment of an alternate path that the peer proposes with a LAP (Load Alternate Path).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AlternatePolicy {
    /// The path is loaded and armed if it can be resolved, and reported to the application. It is
    /// refused if the application modifies the QP.
    #[default]
    Accept,
    /// The proposal is reported. The application answers it with
    /// [`cm_answer_alternate`](crate::Device::cm_answer_alternate).
    Ask,
    /// The path is refused.
    Refuse,
}

/// QP of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnQp {
    /// A connected QP or an EEC of the device, in RESET or INIT. The control plane takes it to
    /// INIT, RTR and RTS, and to ERR when the connection ends. A UD QP may be in any state. The
    /// control plane takes it to RTS if it is in RESET or INIT, and never to ERR.
    Driven(Qpn),
    /// A QP of the device that the control plane takes to RTS and the application modifies from
    /// then on, as with `librdmacm`. A disconnect does not flush the QP's outstanding work.
    Begun(Qpn),
    /// A QP that the application modifies. Events contain the attributes for its Modify QP.
    Foreign {
        /// QPN for the peer.
        qpn: Qpn,
        /// Service of the QP.
        qp_type: QpType,
        /// PSN of the peer's first packet.
        psn: Psn,
        /// The QP receives from an SRQ.
        has_srq: bool,
        /// The QP goes to ERR when the peer's process has ended, as the other kinds do.
        stops_with_peer: bool,
    },
}

/// A path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSpec {
    /// Local address; `None` chooses the best one for the destination.
    pub source: Option<IpAddr>,
    /// Address of the peer. A loopback or unspecified address means the device itself.
    pub destination: IpAddr,
    /// Traffic class, flow label, hop limit, service level and static rate. The addresses in it are
    /// ignored.
    pub vector: AddressVector,
}

impl PathSpec {
    /// Creates a path to an address with everything else at its default.
    pub fn to(destination: IpAddr) -> PathSpec {
        PathSpec { source: None, destination, vector: AddressVector::default() }
    }
}

/// Arguments of [`cm_connect`](crate::Device::cm_connect).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectSpec {
    /// [`PortSpace::Tcp`] makes a connection, [`PortSpace::Udp`] looks up a UD QP.
    pub space: PortSpace,
    /// Port of the peer.
    pub port: u16,
    /// Local port, which the request carries; 0 chooses a free one.
    pub source_port: u16,
    /// Primary path.
    pub path: PathSpec,
    /// Alternate path; both QPs are armed with it once they are connected.
    pub alternate: Option<PathSpec>,
    /// Local QP; may be `None` only for the look-up of a UD QP.
    pub qp: Option<ConnQp>,
    /// Parameters of this side.
    pub param: ConnParam,
}

impl ConnectSpec {
    /// Creates the arguments to connect a QP to an address, with everything else at its default.
    pub fn new(qpn: Qpn, to: SocketAddr) -> ConnectSpec {
        ConnectSpec {
            space: PortSpace::Tcp,
            port: to.port(),
            source_port: 0,
            path: PathSpec::to(to.ip()),
            alternate: None,
            qp: Some(ConnQp::Driven(qpn)),
            param: ConnParam::default(),
        }
    }
}

/// Parameters that both sides have agreed on, as attributes for Modify QP of this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// QPN of the peer; between EECs, the EECN.
    pub peer_qpn: Qpn,
    /// Between EECs: the RD QP that the peer names, if any.
    pub peer_rd_qp: Option<PeerRdQp>,
    /// PSN of the peer's first packet.
    pub rq_psn: Psn,
    /// PSN of our first packet.
    pub sq_psn: Psn,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// READs and ATOMICs of the peer executed here at a time.
    pub max_dest_rd_atomic: u8,
    /// READs and ATOMICs of this side outstanding at a time.
    pub max_rd_atomic: u8,
    /// Transport retries, 0 to 7.
    pub retry_cnt: u8,
    /// RNR retries, 0 to 7.
    pub rnr_retry: u8,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Local port, from 1.
    pub port: u8,
    /// Address vector of the peer.
    pub vector: AddressVector,
    /// The peer uses end-to-end flow control.
    pub flow_control: bool,
    /// The peer receives from an SRQ.
    pub peer_has_srq: bool,
    /// Both sides use selective repeat (RC only). In a [`ConnectRequest`](super::ConnectRequest):
    /// the peer offers it, and this device can accept it. It is an attribute of the change from
    /// INIT to RTR. If the application omits it in that change, the control plane adds it.
    pub selective_repeat: bool,
}

/// An RD QP that a peer names when its EEC connects or accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerRdQp {
    /// QPN of the peer.
    pub qpn: Qpn,
    /// Q_Key for datagrams to it.
    pub qkey: Qkey,
}

impl PeerRdQp {
    /// Returns the RD QP that a peer's REQ or REP names beside its EEC; QP 0 means none.
    pub(super) fn named(qpn: Qpn, rd: Option<RdEnd>) -> Option<PeerRdQp> {
        let qkey = rd?.qkey;
        (qpn != Qpn::default()).then_some(PeerRdQp { qpn, qkey })
    }
}

/// A resolved path to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedPath {
    /// Local port, from 1.
    pub port: u8,
    /// Local address.
    pub source: IpAddr,
    /// Address vector for an address handle or Modify QP.
    pub vector: AddressVector,
    /// Ethernet address of the next hop.
    pub mac: Mac,
}

/// Options for binding to an address and port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BindOptions {
    /// Other ids with this option may bind to the address of this id. An id can begin to listen
    /// only if no other id is bound to its address. While it listens, no other id can bind there.
    pub reuse: bool,
    /// Whether a wildcard covers its own IP version only. `None` means true for IPv4's wildcard,
    /// and false for IPv6's, which then covers IPv4, too.
    pub one_version: Option<bool>,
    /// While it listens, the id receives the requests of EECs instead of those of QPs. Requests of
    /// the other kind are rejected with reason 9 (invalid transport service type).
    pub eecs: bool,
}

/// A UD QP found by port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// QPN of the peer.
    pub qpn: Qpn,
    /// Q_Key for datagrams to it.
    pub qkey: Qkey,
    /// Local port for datagrams to it, from 1.
    pub port: u8,
    /// Address vector for an address handle.
    pub vector: AddressVector,
}
