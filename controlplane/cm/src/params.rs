//! What a consumer says: configuration, paths, the terms of a connection.

use std::time::Duration;

use thiserror::Error;
use uroce_wire::cm::{
    CaGuid, CmPath, CmTimeout, Failover, PrivateData, ServiceId, SidrStatus, TooLong,
    TransportService,
};
use uroce_wire::{Gid, PathMtu, Pkey, Psn, Qkey, Qpn};

use crate::State;

/// What a [`crate::Cm`] is made with.
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// Our channel adapter: the same for all ports, and no other adapter's.
    pub ca_guid: CaGuid,
    /// What it may keep.
    pub limits: CmLimits,
    /// Secret key of communication IDs, transaction IDs and start PSNs; from the system's
    /// generator, except in a simulation.
    pub seed: [u8; 16],
}

/// How much strangers may take, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct CmLimits {
    /// Connections and requests in any state, TimeWait included.
    pub connections: usize,
    /// Of these, such that a peer began and that are not established.
    pub half_open: usize,
    /// Messages to send, or events to tell, that wait for somebody to ask for them.
    pub queue: usize,
    /// Longest wait for an answer that a peer can ask for with the timeouts of its REQ.
    pub response_timeout: CmTimeout,
    /// Longest patience that a peer can ask for with an MRA.
    pub service_timeout: CmTimeout,
    /// Longest TimeWait that a peer can ask for with the ACK timeouts of its paths.
    pub time_wait: Duration,
    /// How long an answered service ID resolution is remembered for copies of the question.
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

/// Where a MAD goes or comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadAddr {
    /// The local port, from 1.
    pub port: u8,
    /// The sender's GID: ours for MADs that go, the peer's for those that come.
    pub src: Gid,
    /// The receiver's GID.
    pub dst: Gid,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// IPv4 TTL or IPv6 hop limit; 0 and 1 mean 64.
    pub hop_limit: u8,
    /// Service level: the priority of a VLAN tag.
    pub sl: u8,
}

impl MadAddr {
    /// Back to where it came from.
    pub fn reversed(self) -> MadAddr {
        MadAddr { src: self.dst, dst: self.src, ..self }
    }
}

/// A path of a connection, seen from our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The local port, from 1.
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
    /// Most that the message's sender takes: an IBV_RATE code, 0..=63.
    pub packet_rate: u8,
    /// How long to wait for an acknowledgement on this path, a code 0..=31; about twice the
    /// path's packet life time, and so the time of TimeWait too.
    pub local_ack_timeout: CmTimeout,
}

impl Path {
    /// A path as the peer describes it, turned round. `port` is the one of ours that it leads to.
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

    /// As a message of ours describes it. On RoCE the LIDs mean nothing, and no path is local to
    /// a subnet.
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

    /// Where MADs go that take this path.
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

    /// Do both lead from the same GID to the same GID, with the same flow label?
    pub fn is_same_way(self, other: Path) -> bool {
        (self.local, self.remote, self.flow_label) == (other.local, other.remote, other.flow_label)
    }
}

/// The terms on which the active side asks for a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParams {
    /// What to connect to.
    pub service_id: ServiceId,
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// PSN that the peer's first packet is to have; see [`crate::Cm::starting_psn`].
    pub starting_psn: Psn,
    /// [`TransportService::Rc`] or [`TransportService::Uc`].
    pub transport_service: TransportService,
    /// READs and ATOMICs that we answer at a time.
    pub responder_resources: u8,
    /// READs and ATOMICs that we want to have under way.
    pub initiator_depth: u8,
    /// The peer's transport retries, 0..=7.
    pub retry_count: u8,
    /// The peer's RNR retries, 0..=7 (7: without end).
    pub rnr_retry_count: u8,
    /// Partition of the connection.
    pub pkey: Pkey,
    /// Path MTU of the connection.
    pub path_mtu: PathMtu,
    /// We receive from a shared receive queue.
    pub srq: bool,
    /// We give credits in our acknowledgements.
    pub flow_control: bool,
    /// The path to begin with.
    pub primary: Path,
    /// The path to fail over to.
    pub alternate: Option<Path>,
    /// The peer connects to us at the same time and with the same service ID, neither listens:
    /// one connection comes of it.
    pub peer_to_peer: bool,
    /// How long the peer may take for an answer; we repeat the REQ after that.
    pub remote_cm_response_timeout: CmTimeout,
    /// How long we take for an answer at most.
    pub local_cm_response_timeout: CmTimeout,
    /// How often either side repeats a message, 0..=15.
    pub max_cm_retries: u8,
    /// For the listener.
    pub private_data: PrivateData<92>,
}

/// The terms on which the passive side accepts.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptParams {
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// PSN that the peer's first packet is to have.
    pub starting_psn: Psn,
    /// READs and ATOMICs that we answer at a time.
    pub responder_resources: u8,
    /// READs and ATOMICs that we want to have under way.
    pub initiator_depth: u8,
    /// What our side adds to the time of an acknowledgement.
    pub target_ack_delay: CmTimeout,
    /// What became of the alternate path in the REQ.
    pub failover: Failover,
    /// The local port of that path, if it was accepted.
    pub alternate_port: u8,
    /// We give credits in our acknowledgements.
    pub flow_control: bool,
    /// The peer's RNR retries, 0..=7.
    pub rnr_retry_count: u8,
    /// We receive from a shared receive queue.
    pub srq: bool,
    /// For the active side's consumer.
    pub private_data: PrivateData<196>,
}

/// A question for the queue pair of a service.
#[derive(Clone, Copy, Debug)]
pub struct SidrParams {
    /// The service.
    pub service_id: ServiceId,
    /// The way to the peer.
    pub path: Path,
    /// Partition of the datagrams to come.
    pub pkey: Pkey,
    /// How long to wait for the answer before the question is repeated.
    pub timeout: CmTimeout,
    /// How often it is repeated, 0..=15.
    pub max_cm_retries: u8,
    /// For the service provider.
    pub private_data: PrivateData<216>,
}

/// The answer to such a question.
#[derive(Clone, Copy, Debug, Default)]
pub struct SidrAnswer {
    /// Whether there is such a service.
    pub status: SidrStatus,
    /// Its queue pair.
    pub qpn: Qpn,
    /// Q_Key for datagrams to it.
    pub qkey: Qkey,
    /// For whoever asked.
    pub private_data: PrivateData<136>,
}

/// Why a consumer's wish is refused; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CmError {
    /// There is no such connection, or no longer.
    #[error("no such connection")]
    UnknownId,
    /// Not in this state.
    #[error("not possible in state {0:?}")]
    State(State),
    /// [`CmLimits::connections`] are there.
    #[error("too many connections")]
    Full,
    /// The queue pair is in another connection, or in TimeWait after one.
    #[error("queue pair {0} is in a connection or in TimeWait")]
    QpnInUse(Qpn),
    /// Somebody listens there already.
    #[error("service ID {0:?} is in use")]
    ServiceInUse(ServiceId),
    /// Nobody listens there.
    #[error("nobody listens for service ID {0:?}")]
    NotListening(ServiceId),
    /// An attribute of a connection's terms is out of range, or not supported.
    #[error("{0} out of range")]
    OutOfRange(&'static str),
    /// A LAP is already under way.
    #[error("an alternate path is being loaded already")]
    LapPending,
    /// More private data than the message that is due has room for.
    #[error(transparent)]
    PrivateData(#[from] TooLong),
    /// No LAP waits for an answer.
    #[error("no alternate path was proposed")]
    NoLap,
}
