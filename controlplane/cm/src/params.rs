//! Parameters of the consumer: configuration, limits, paths, the terms of a connection.

use std::time::Duration;

use thiserror::Error;
use uroce_wire::cm::{
    CaGuid, CmPath, CmTimeout, Failover, PrivateData, Rep, Req, ServiceId, SidrStatus, TooLong,
    TransportService,
};
use uroce_wire::{Gid, PathMtu, Pkey, Psn, Qkey, Qpn};

use crate::State;

/// Configuration of a [`crate::Cm`].
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// CA GUID: one for all ports, different from every other channel adapter's.
    pub ca_guid: CaGuid,
    /// Bounds of memory and time.
    pub limits: CmLimits,
    /// Secret key of communication IDs, transaction IDs and starting PSNs. It comes from the
    /// system's random generator, except in a simulation.
    pub seed: [u8; 16],
}

/// Bounds of the memory and time that unknown senders can take.
#[derive(Clone, Copy, Debug)]
pub struct CmLimits {
    /// Connections and service ID resolutions in any state, TimeWait included.
    pub connections: usize,
    /// Connections that a peer began and that are not established.
    pub half_open: usize,
    /// Messages waiting for [`crate::Cm::poll_transmit`]; also, new requests are refused while this
    /// many events wait.
    pub queue: usize,
    /// Longest wait for an answer that a peer's REQ can ask for.
    pub response_timeout: CmTimeout,
    /// Longest wait that a peer's MRA can ask for.
    pub service_timeout: CmTimeout,
    /// Longest TimeWait that the ACK timeouts in a peer's REQ can ask for.
    pub time_wait: Duration,
    /// How long an answered SIDR request is kept, to answer copies of it.
    pub sidr_memory: Duration,
}

impl Default for CmLimits {
    fn default() -> CmLimits {
        CmLimits {
            connections: 65_536,
            half_open: 4096,
            queue: 8192,
            response_timeout: CmTimeout::from_code(21), // 8.6 s
            service_timeout: CmTimeout::from_code(25),  // 137 s; Linux asks for 69 s
            time_wait: Duration::from_secs(10),
            sidr_memory: Duration::from_secs(1),
        }
    }
}

/// Source and destination of a MAD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadAddr {
    /// Local port, from 1.
    pub port: u8,
    /// GID of the sender: ours for a MAD that is sent, the peer's for one received.
    pub src: Gid,
    /// GID of the receiver.
    pub dst: Gid,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// IPv4 TTL or IPv6 hop limit; 0 and 1 mean 64.
    pub hop_limit: u8,
    /// Service level, sent as the priority of a VLAN tag.
    pub sl: u8,
}

impl MadAddr {
    /// Returns the address for an answer.
    pub fn reversed(self) -> MadAddr {
        MadAddr { src: self.dst, dst: self.src, ..self }
    }
}

/// A path of a connection, seen from the local side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Local port, from 1.
    pub port: u8,
    /// Our GID.
    pub local: Gid,
    /// The peer's GID.
    pub remote: Gid,
    /// IPv6 flow label, 20 bits; it also makes the UDP source port.
    pub flow_label: u32,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// Service level, 0..=15.
    pub sl: u8,
    /// Highest packet rate of the message's sender: an IBV_RATE code, 0..=63.
    pub packet_rate: u8,
    /// ACK timeout of this path, a code 0..=31: about twice the path's packet lifetime. It is also
    /// the length of TimeWait.
    pub local_ack_timeout: CmTimeout,
}

impl Path {
    /// Converts a path of a peer's message to the local view. `port` is the local port it leads to.
    pub fn of_peer(port: u8, path: &CmPath) -> Path {
        Path {
            port,
            local: path.remote_gid,
            remote: path.local_gid,
            flow_label: path.flow_label,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            sl: path.sl,
            packet_rate: path.packet_rate,
            local_ack_timeout: path.local_ack_timeout,
        }
    }

    /// Converts the path for a message of ours. LIDs have no meaning on RoCE, and no path is
    /// subnet-local.
    pub fn to_wire(self) -> CmPath {
        CmPath {
            local_lid: CmPath::ROCE_LID,
            remote_lid: CmPath::ROCE_LID,
            local_gid: self.local,
            remote_gid: self.remote,
            flow_label: self.flow_label,
            packet_rate: self.packet_rate,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            sl: self.sl,
            subnet_local: false,
            local_ack_timeout: self.local_ack_timeout,
        }
    }

    /// Returns the address of MADs sent over this path.
    pub fn mad_addr(self) -> MadAddr {
        MadAddr {
            port: self.port,
            src: self.local,
            dst: self.remote,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
            sl: self.sl,
        }
    }

    /// Tells whether both paths have the same GIDs and the same flow label.
    pub fn is_same_way(self, other: Path) -> bool {
        (self.local, self.remote, self.flow_label) == (other.local, other.remote, other.flow_label)
    }
}

/// One end of a reliable datagram channel (RDC), the connection of two EE contexts: what a REQ or
/// REP says of it beyond its queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdEnd {
    /// Number of the EE context.
    pub eecn: Qpn,
    /// Q_Key of the RD queue pair; without meaning if none is named.
    pub qkey: Qkey,
}

impl RdEnd {
    /// Returns the sender's end in a REQ for reliable datagrams; [`None`] of another service.
    pub fn of_req(req: &Req) -> Option<RdEnd> {
        let end = || RdEnd { eecn: Qpn::new(req.local_eecn), qkey: req.local_qkey };
        req.is_rd().then(end)
    }

    /// Returns the sender's end in a REP that answers a REQ for reliable datagrams.
    pub fn of_rep(rep: &Rep) -> RdEnd {
        RdEnd { eecn: Qpn::new(rep.local_eecn), qkey: rep.local_qkey }
    }
}

/// Parameters of a REQ.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParams {
    /// Service to connect to.
    pub service_id: ServiceId,
    /// Local queue pair. Of reliable datagrams: the RD queue pair that the peer may send to, or 0
    /// for none. It is not part of the connection and may be named in any number of REQs.
    pub local_qpn: Qpn,
    /// Reliable datagrams: the local EE context, and the Q_Key of `local_qpn`. Given with
    /// [`TransportService::Rd`] and no other service.
    pub rd: Option<RdEnd>,
    /// Reliable datagrams: the EE context is in an established connection of this manager, and its
    /// peer is asked for an RD queue pair of a service. Without this the connection made is that of
    /// the EE context. The connection ends with the channel at the latest, and has no alternate
    /// path of its own.
    pub rdc_exists: bool,
    /// PSN of the first packet from the peer; see [`crate::Cm::starting_psn`].
    pub starting_psn: Psn,
    /// Transport service. [`TransportService::Extended`] is XRC, of which the local queue pair is
    /// the initiator.
    pub transport_service: TransportService,
    /// READs and ATOMICs of the peer that the local side executes at a time.
    pub responder_resources: u8,
    /// READs and ATOMICs that the local side has outstanding at a time.
    pub initiator_depth: u8,
    /// Transport retries of the peer, 0..=7.
    pub retry_count: u8,
    /// RNR retries of the peer, 0..=7; 7 retries without end.
    pub rnr_retry_count: u8,
    /// P_Key of the connection.
    pub pkey: Pkey,
    /// Path MTU of the connection.
    pub path_mtu: PathMtu,
    /// The local side receives from a shared receive queue.
    pub srq: bool,
    /// The local side sends credits in its acknowledgements.
    pub flow_control: bool,
    /// Primary path.
    pub primary: Path,
    /// Alternate path, for path migration.
    pub alternate: Option<Path>,
    /// Peer-to-peer mode: the peer sends a REQ with the same service ID at the same time, and
    /// neither side listens. One connection results.
    pub peer_to_peer: bool,
    /// Time in which the peer has to answer, a code 0..=31; then the REQ is repeated.
    pub remote_cm_response_timeout: CmTimeout,
    /// Longest time in which the local side answers a message.
    pub local_cm_response_timeout: CmTimeout,
    /// Repetitions of a message by either side, 0..=15.
    pub max_cm_retries: u8,
    /// Offer selective repeat, for an RC queue pair that can use it. Nothing is offered if the last
    /// [`TAG_LEN`](crate::TAG_LEN) bytes of `private_data` are not zero.
    /// [`Cm::selective_repeat`](crate::Cm::selective_repeat) returns the answer.
    pub selective_repeat: bool,
    /// Private data for the listener, at most 92 bytes.
    pub private_data: PrivateData<92>,
}

/// Parameters of a REP.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptParams {
    /// Local queue pair. Of reliable datagrams: the RD queue pair that the peer may send to, or 0
    /// for none.
    pub local_qpn: Qpn,
    /// Reliable datagrams: the local EE context, and the Q_Key of `local_qpn`. If the REQ names an
    /// EE context of ours ([`Req::rdc_exists`]), that one.
    pub rd: Option<RdEnd>,
    /// PSN of the first packet from the peer.
    pub starting_psn: Psn,
    /// READs and ATOMICs of the peer that the local side executes at a time.
    pub responder_resources: u8,
    /// READs and ATOMICs that the local side has outstanding at a time.
    pub initiator_depth: u8,
    /// Time that the local side adds before an acknowledgement.
    pub target_ack_delay: CmTimeout,
    /// Answer to the alternate path in the REQ.
    pub failover: Failover,
    /// Local port of the alternate path, if it was accepted.
    pub alternate_port: u8,
    /// The local side sends credits in its acknowledgements.
    pub flow_control: bool,
    /// RNR retries of the peer, 0..=7.
    pub rnr_retry_count: u8,
    /// The local side receives from a shared receive queue.
    pub srq: bool,
    /// Accept selective repeat, if [`Request::selective_repeat`](crate::Request::selective_repeat)
    /// offers it. Not accepted if the last [`TAG_LEN`](crate::TAG_LEN) bytes of `private_data` are
    /// not zero.
    pub selective_repeat: bool,
    /// Private data for the active side, at most 196 bytes.
    pub private_data: PrivateData<196>,
}

/// Parameters of a SIDR_REQ.
#[derive(Clone, Copy, Debug)]
pub struct SidrParams {
    /// Service to look up.
    pub service_id: ServiceId,
    /// Path to the peer.
    pub path: Path,
    /// P_Key of the datagrams that will follow.
    pub pkey: Pkey,
    /// Time to wait for an answer before the request is repeated.
    pub timeout: CmTimeout,
    /// Repetitions of the request, 0..=15.
    pub max_cm_retries: u8,
    /// Private data for the service provider, at most 216 bytes.
    pub private_data: PrivateData<216>,
}

/// Parameters of a SIDR_REP.
#[derive(Clone, Copy, Debug, Default)]
pub struct SidrAnswer {
    /// Result of the look-up.
    pub status: SidrStatus,
    /// QPN of the service.
    pub qpn: Qpn,
    /// Q_Key for datagrams to the service.
    pub qkey: Qkey,
    /// Private data for the requester, at most 136 bytes.
    pub private_data: PrivateData<136>,
}

/// Reason for which a consumer's call is refused. A refused call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CmError {
    /// The id does not exist, or is released or destroyed.
    #[error("no such connection")]
    UnknownId,
    /// The call is not allowed in this state.
    #[error("not possible in state {0:?}")]
    State(State),
    /// [`CmLimits::connections`] ids are in use.
    #[error("too many connections")]
    Full,
    /// The queue pair, or EE context, is in another connection, or in TimeWait after one.
    #[error("queue pair or EE context {0} is in a connection or in TimeWait")]
    QpnInUse(Qpn),
    /// No established connection of this manager is the channel of the EE context, or the REQ to be
    /// accepted names another EE context.
    #[error("EE context {0} is not in a connection that could be used")]
    NoRdc(Qpn),
    /// The service ID has a listener, or a peer-to-peer request is pending for it.
    #[error("service ID {0:?} is in use")]
    ServiceInUse(ServiceId),
    /// The service ID has no listener.
    #[error("no listener for service ID {0:?}")]
    NotListening(ServiceId),
    /// A parameter is out of range or not supported.
    #[error("{0} out of range")]
    OutOfRange(&'static str),
    /// Our last LAP has no answer yet.
    #[error("an alternate path is already being loaded")]
    LapPending,
    /// The private data is longer than the message allows.
    #[error(transparent)]
    PrivateData(#[from] TooLong),
    /// No LAP of the peer waits for an answer.
    #[error("no alternate path was proposed")]
    NoLap,
}
