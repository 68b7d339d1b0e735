//! What the two sides of a connection ask for, and what they agree on.

use std::net::{IpAddr, SocketAddr};

use uroce_transport::{AccessFlags, MAX_RD_ATOMIC, QpType};
use uroce_wire::{Mac, PathMtu, Psn, Qkey, Qpn};

use super::PortSpace;
use crate::path::AddressVector;

/// Local ACK timeout code where none is asked for: 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// Minimum RNR NAK timer code where none is asked for: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// What one side brings to a connection: `rdma_conn_param` and the QP's attributes that go with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnParam {
    /// For the peer's application. Bytes at most: connecting 56, accepting 196; of datagrams 180
    /// and 136.
    pub private_data: Vec<u8>,
    /// READs and ATOMICs of the peer's that may be outstanding here, 0 to 16. The lesser of this
    /// and the peer's `initiator_depth` becomes `max_dest_rd_atomic`.
    pub responder_resources: u8,
    /// READs and ATOMICs of ours that may be outstanding at the peer, 0 to 128. The lesser of this
    /// and the peer's `responder_resources` becomes `max_rd_atomic`.
    pub initiator_depth: u8,
    /// This side heeds end-to-end flow control. Without an SRQ it always grants credits.
    pub flow_control: bool,
    /// Transport retries of both sides' QPs, 0 to 7. Who connects decides.
    pub retry_count: u8,
    /// How often the peer may retry what met no receive here, 0 to 7; 7 is without end.
    pub rnr_retry_count: u8,
    /// RNR NAK timer code sent to the peer, 0 to 31.
    pub min_rnr_timer: u8,
    /// Local ACK timeout code of both sides' QPs, 0 (never) to 31. Who connects decides.
    pub ack_timeout: u8,
    /// Accepting: the code of our QP alone, where it is not to be what the peer says.
    pub own_ack_timeout: Option<u8>,
    /// The path MTU, at most the port's; `None` is the port's. Who connects decides.
    pub path_mtu: Option<PathMtu>,
    /// What the peer may do.
    pub access: AccessFlags,
    /// What becomes of the peer's wish for another alternate path.
    pub alternate_policy: AlternatePolicy,
    /// Connecting: nobody listens; the peer connects to us in the same way and with the same port,
    /// before our retries are used up, and one connection comes of both. Linux's `rdma_cm` does not
    /// know this.
    pub peer_to_peer: bool,
}

impl Default for ConnParam {
    /// Everything that an RC QP can do, retries without giving up early.
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
            access: AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_ATOMIC,
            alternate_policy: AlternatePolicy::Accept,
            peer_to_peer: false,
        }
    }
}

/// What happens when the peer asks to load another alternate path (LAP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AlternatePolicy {
    /// If the path leads somewhere it is loaded and armed, and the application is told. Where the
    /// QP is the application's to modify it is refused.
    #[default]
    Accept,
    /// The application is asked, and answers by `cm_answer_alternate`.
    Ask,
    /// It is refused.
    Refuse,
}

/// The QP of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnQp {
    /// A QP of the device, in RESET or INIT (of UD also in RTS). The connection takes it to INIT,
    /// RTR and RTS, and to ERR when it ends.
    Driven(Qpn),
    /// As a driven one up to RTS. From then on its states are the caller's business, as with
    /// `librdmacm`: what it sent and received before the peer disconnected is not flushed by that.
    Begun(Qpn),
    /// A QP whose states are the caller's business. What its Modify QP needs is in the events.
    Foreign {
        /// The number that the peer is told.
        qpn: Qpn,
        /// Its service.
        qp_type: QpType,
        /// The PSN that the peer's first packet is to have.
        psn: Psn,
        /// Its receives come from an SRQ.
        has_srq: bool,
        /// It goes to ERR when the peer's process is known to have ended, as the others do.
        stops_with_peer: bool,
    },
}

/// One way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSpec {
    /// Our address; `None` is one on the way to the peer.
    pub source: Option<IpAddr>,
    /// The peer's address. A loopback or unspecified one is the device itself.
    pub destination: IpAddr,
    /// DSCP and ECN, flow label, hop limit, service level and static rate. Its addresses are of no
    /// meaning.
    pub vector: AddressVector,
}

impl PathSpec {
    /// The way to an address with everything else at its default.
    pub fn to(destination: IpAddr) -> PathSpec {
        PathSpec { source: None, destination, vector: AddressVector::default() }
    }
}

/// What `cm_connect` takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectSpec {
    /// [`PortSpace::Tcp`] makes a connection, [`PortSpace::Udp`] asks for a UD QP.
    pub space: PortSpace,
    /// The peer's port.
    pub port: u16,
    /// Our port, which the peer is told; 0 is any.
    pub source_port: u16,
    /// The way.
    pub path: PathSpec,
    /// Another way, which both QPs are armed with once they are connected.
    pub alternate: Option<PathSpec>,
    /// Our QP; `None` is allowed only where a UD QP is asked for.
    pub qp: Option<ConnQp>,
    /// What we bring.
    pub param: ConnParam,
}

impl ConnectSpec {
    /// A connection of a QP to that address, with everything else at its default.
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

/// What both sides have agreed on, as Modify QP of this side takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The peer's QP.
    pub peer_qpn: Qpn,
    /// The PSN of the peer's first packet.
    pub rq_psn: Psn,
    /// The PSN of our first packet.
    pub sq_psn: Psn,
    /// The path MTU.
    pub path_mtu: PathMtu,
    /// READs and ATOMICs of the peer's served here at a time.
    pub max_dest_rd_atomic: u8,
    /// READs and ATOMICs of ours outstanding at a time.
    pub max_rd_atomic: u8,
    /// Transport retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// The local port, from 1.
    pub port: u8,
    /// The way to the peer.
    pub vector: AddressVector,
    /// The peer heeds end-to-end flow control.
    pub flow_control: bool,
    /// The peer's receives come from an SRQ.
    pub peer_has_srq: bool,
}

/// A way to an address, as far as it can be looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolvedPath {
    /// The local port that it leaves by, from 1.
    pub port: u8,
    /// Our address.
    pub source: IpAddr,
    /// The way, for an address handle or Modify QP.
    pub vector: AddressVector,
    /// The next hop's Ethernet address.
    pub mac: Mac,
}

/// How an address and port may be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BindOptions {
    /// Others with this option may have the address as well. One that is to listen has to be the
    /// only one, and stays so.
    pub reuse: bool,
    /// Whether a wildcard is of its own IP version only. Default: that of IPv4 is, that of IPv6 is
    /// IPv4's as well.
    pub one_version: Option<bool>,
}

/// A UD QP that was asked for by port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// The peer's QP.
    pub qpn: Qpn,
    /// The Q_Key that it takes datagrams by.
    pub qkey: Qkey,
    /// The local port of the way to it, from 1.
    pub port: u8,
    /// The way to it, for an address handle.
    pub vector: AddressVector,
}
