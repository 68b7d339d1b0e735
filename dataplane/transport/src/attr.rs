//! The type and the attributes of a QP, and a change of them (Modify QP).
//!
//! Read first: IBA 10 (queue pair attributes) and 11 (Create QP, Modify QP, Query QP).

use bitflags::bitflags;
use uroce_wire::{Encap, PathMtu, Pkey, Psn, Qkey, Qpn};

pub(crate) use held::{Attributes, PackedPath};
pub use steps::{RdAttr, RtrAttr, RtsAttr};

use crate::qp::state::QpState;
use crate::rate::StaticRate;

mod held;
mod steps;

/// Transport service of a QP, fixed at creation. `Display` prints the name that the verbs use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpType {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// General services interface, QP 1: unreliable datagrams for management.
    Gsi,
    /// Extended reliable connection, initiator: sends requests and receives none.
    XrcSend,
    /// Extended reliable connection, target: serves requests with the XRC shared receive queue
    /// that each of them names, and sends none.
    XrcRecv,
    /// Reliable datagram: queues, without a connection of their own.
    Rd,
    /// End-to-end context (EEC): the connection over which RD QPs of a domain send and receive.
    Eec,
    /// Whole Ethernet frames, those that flow rules choose: the verbs' `IBV_QPT_RAW_PACKET`.
    RawPacket,
    /// Whole Ethernet frames of chosen EtherTypes.
    RawEtherType,
    /// IPv6 packets, without the Ethernet header.
    RawIpv6,
}

impl QpType {
    /// All types.
    pub const ALL: [QpType; 11] = [
        QpType::Rc,
        QpType::Uc,
        QpType::Ud,
        QpType::Gsi,
        QpType::XrcSend,
        QpType::XrcRecv,
        QpType::Rd,
        QpType::Eec,
        QpType::RawPacket,
        QpType::RawEtherType,
        QpType::RawIpv6,
    ];

    /// Returns whether every message is one packet that can go to any destination: true of UD and
    /// GSI.
    #[inline]
    pub const fn is_datagram(self) -> bool {
        matches!(self, QpType::Ud | QpType::Gsi)
    }

    /// Returns whether messages are frames or packets of another protocol.
    #[inline]
    pub const fn is_raw(self) -> bool {
        matches!(self, QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6)
    }

    /// Returns whether the QP has one peer: true of RC, UC, both ends of XRC, and an EEC.
    #[inline]
    pub const fn is_connected(self) -> bool {
        !self.is_datagram() && !self.is_raw() && !matches!(self, QpType::Rd)
    }

    /// Returns whether it is an end of a connection in which requests are acknowledged: true of RC,
    /// both ends of XRC, and an EEC.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        matches!(self, QpType::Rc | QpType::Eec) || self.is_xrc()
    }

    /// Returns whether it is one of the two ends of an extended reliable connection.
    #[inline]
    pub const fn is_xrc(self) -> bool {
        matches!(self, QpType::XrcSend | QpType::XrcRecv)
    }
}

impl core::fmt::Display for QpType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::Gsi => "GSI",
            QpType::XrcSend => "XRC_SEND",
            QpType::XrcRecv => "XRC_RECV",
            QpType::Rd => "RD",
            QpType::Eec => "EEC",
            QpType::RawPacket => "RAW_PACKET",
            QpType::RawEtherType => "RAW_ETHERTYPE",
            QpType::RawIpv6 => "RAW_IPV6",
        })
    }
}

bitflags! {
    /// Operations that a peer's requests may do on a QP, or that a key grants on its memory. Names
    /// are those of the verbs' `IBV_ACCESS_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AccessFlags: u8 {
        /// Local writes: receives, READ and ATOMIC results.
        const LOCAL_WRITE = 1;
        /// RDMA WRITE by a peer.
        const REMOTE_WRITE = 1 << 1;
        /// RDMA READ by a peer.
        const REMOTE_READ = 1 << 2;
        /// ATOMIC operations by a peer.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// FLUSH by a peer, for visibility.
        const FLUSH_GLOBAL = 1 << 5;
    }
}

impl AccessFlags {
    /// FLUSH by a peer, for persistence. Not one of [`all`](AccessFlags::all): ordinary memory
    /// cannot grant it.
    pub const FLUSH_PERSISTENT: AccessFlags = AccessFlags::from_bits_retain(1 << 6);
}

bitflags! {
    /// The set of attributes that a [`QpChange`] gives.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AttrMask: u32 {
        /// `cur_state`
        const CUR_STATE = 1;
        /// `pkey`
        const PKEY = 1 << 1;
        /// `port`
        const PORT = 1 << 2;
        /// `access`
        const ACCESS = 1 << 3;
        /// `path`
        const AV = 1 << 4;
        /// `path_mtu`
        const PATH_MTU = 1 << 5;
        /// `dest_qpn`
        const DEST_QPN = 1 << 6;
        /// `rq_psn`
        const RQ_PSN = 1 << 7;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 8;
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 9;
        /// `sq_psn`
        const SQ_PSN = 1 << 10;
        /// `timeout`
        const TIMEOUT = 1 << 11;
        /// `retry_cnt`
        const RETRY_CNT = 1 << 12;
        /// `rnr_retry`
        const RNR_RETRY = 1 << 13;
        /// `max_rd_atomic`
        const MAX_QP_RD_ATOMIC = 1 << 14;
        /// `qkey`
        const QKEY = 1 << 15;
        /// `en_sqd_async_notify`
        const EN_SQD_ASYNC_NOTIFY = 1 << 16;
        /// `alt_path`
        const ALT_PATH = 1 << 17;
        /// `path_mig_state`
        const PATH_MIG_STATE = 1 << 18;
        /// `rate_limit`
        const RATE_LIMIT = 1 << 19;
        /// `selective_repeat`
        const SELECTIVE_REPEAT = 1 << 20;
        /// `udp_source_ports`
        const UDP_SOURCE_PORTS = 1 << 21;
        /// `keepalive_ms`
        const KEEPALIVE_MS = 1 << 22;
    }
}

/// A path and the highest rate to send at on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathAttr {
    /// Addresses and header fields of packets on the path.
    pub encap: Encap,
    /// Highest rate that the path takes.
    pub rate: StaticRate,
}

impl From<Encap> for PathAttr {
    /// A path without a rate limit.
    fn from(encap: Encap) -> PathAttr {
        PathAttr { encap, rate: StaticRate::MAX }
    }
}

/// Alternate path: the path that a connection migrates to when the path in use fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AltPath {
    /// Addresses, header fields and rate.
    pub path: PathAttr,
    /// Local port that the path leaves by, counted from 1.
    pub port: u8,
    /// Partition key used on the path.
    pub pkey: Pkey,
    /// Local ACK timeout code used on the path, 0 (never) to 31.
    pub timeout: u8,
}

/// State of path migration. Numbers are those of the verbs' `IBV_MIG_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum PathMigState {
    /// No migration is prepared; packets sent have MigReq 1.
    #[default]
    Migrated = 0,
    /// An alternate path is loaded; the QP waits for a packet with MigReq 0 from the peer.
    Rearm = 1,
    /// Both ends have an alternate path loaded; either may migrate.
    Armed = 2,
}

impl core::fmt::Display for PathMigState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            PathMigState::Migrated => "MIGRATED",
            PathMigState::Rearm => "REARM",
            PathMigState::Armed => "ARMED",
        })
    }
}

/// All attributes that Query QP returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// State of the QP.
    pub state: QpState,
    /// Partition key.
    pub pkey: Pkey,
    /// Local port, counted from 1.
    pub port: u8,
    /// Operations that the peer's requests may do.
    pub access: AccessFlags,
    /// Addresses and header fields of every packet sent; those of received packets are the reverse.
    pub path: PathAttr,
    /// Alternate path, as last loaded; `None` again once the QP has migrated to it.
    pub alt_path: Option<AltPath>,
    /// State of path migration.
    pub path_mig_state: PathMigState,
    /// Limit of the QP's sending rate in kbit/s of whole frames, besides that of its path; 0: none.
    pub rate_limit: u32,
    /// Largest payload of a packet. For UD, see [`crate::Qp::set_port_mtu`].
    pub path_mtu: PathMtu,
    /// QPN of the peer's QP.
    pub dest_qpn: Qpn,
    /// First PSN expected from the peer.
    pub rq_psn: Psn,
    /// READ, ATOMIC and ATOMIC WRITE requests that the peer may have outstanding at this QP, 0 to
    /// 16.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code that this QP sends to the peer, 0 to 31.
    pub min_rnr_timer: u8,
    /// First PSN to be sent.
    pub sq_psn: Psn,
    /// Local ACK timeout code, 0 (never) to 31.
    pub timeout: u8,
    /// Limit of transport retries, 0 to 7.
    pub retry_cnt: u8,
    /// Limit of RNR retries, 0 to 7; 7 means no limit.
    pub rnr_retry: u8,
    /// READ, ATOMIC, ATOMIC WRITE and FLUSH requests that this QP may have outstanding at the
    /// peer, 0 to 128.
    pub max_rd_atomic: u8,
    /// Q_Key; a UD QP drops datagrams that carry another.
    pub qkey: Qkey,
    /// Whether an event reports that the send queue has drained in SQD.
    pub en_sqd_async_notify: bool,
    /// Whether the peer understands selective acknowledgements, and both ends use them (RC). To be
    /// set only for a peer that has agreed to it. The QP must have the memory for it
    /// ([`crate::Qp::equip`]).
    pub selective_repeat: bool,
    /// Number of UDP source ports that requests use in turn, so that a network with several paths
    /// spreads them: 1, 2, 4, 8 or 16; with more than 1, [`selective_repeat`] must be set too.
    ///
    /// [`selective_repeat`]: QpAttr::selective_repeat
    pub udp_source_ports: u8,
    /// Silence of the peer, in milliseconds, after which a connection in which nothing is
    /// outstanding asks the peer for a sign of life (RC); 0 means never. If the peer does not
    /// answer within [`timeout`](QpAttr::timeout) and [`retry_cnt`](QpAttr::retry_cnt) retries, the
    /// QP goes to ERR. Without a timeout (code 0) the peer is not asked.
    pub keepalive_ms: u32,
}

impl Default for QpAttr {
    fn default() -> QpAttr {
        Attributes::default().query()
    }
}

macro_rules! qp_change {
    ($($field:ident: $type:ty => $bit:ident),* $(,)?) => {
        /// A Modify QP: the new state and the attributes given with it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct QpChange {
            /// New state; `None` keeps the state and changes attributes only.
            pub state: Option<QpState>,
            /// State that the QP must be in, or else the change is refused.
            pub cur_state: Option<QpState>,
            $(#[doc = concat!("New value of [`QpAttr::", stringify!($field), "`].")]
            pub $field: Option<$type>,)*
        }

        impl QpChange {
            /// A change to `state` without attributes; the caller fills in the attributes it needs.
            pub fn to(state: QpState) -> QpChange {
                QpChange { state: Some(state), ..QpChange::default() }
            }

            /// The set of attributes given.
            pub fn mask(&self) -> AttrMask {
                let mut mask = AttrMask::empty();
                mask.set(AttrMask::CUR_STATE, self.cur_state.is_some());
                $(mask.set(AttrMask::$bit, self.$field.is_some());)*
                mask
            }
        }
    };
}

qp_change! {
    pkey: Pkey => PKEY,
    port: u8 => PORT,
    access: AccessFlags => ACCESS,
    path: PathAttr => AV,
    alt_path: AltPath => ALT_PATH,
    path_mig_state: PathMigState => PATH_MIG_STATE,
    rate_limit: u32 => RATE_LIMIT,
    path_mtu: PathMtu => PATH_MTU,
    dest_qpn: Qpn => DEST_QPN,
    rq_psn: Psn => RQ_PSN,
    max_dest_rd_atomic: u8 => MAX_DEST_RD_ATOMIC,
    min_rnr_timer: u8 => MIN_RNR_TIMER,
    sq_psn: Psn => SQ_PSN,
    timeout: u8 => TIMEOUT,
    retry_cnt: u8 => RETRY_CNT,
    rnr_retry: u8 => RNR_RETRY,
    max_rd_atomic: u8 => MAX_QP_RD_ATOMIC,
    qkey: Qkey => QKEY,
    en_sqd_async_notify: bool => EN_SQD_ASYNC_NOTIFY,
    selective_repeat: bool => SELECTIVE_REPEAT,
    udp_source_ports: u8 => UDP_SOURCE_PORTS,
    keepalive_ms: u32 => KEEPALIVE_MS,
}

/// Largest `max_dest_rd_atomic`: number of the peer's READs, ATOMICs and ATOMIC WRITEs that a QP
/// keeps answers of.
pub const MAX_RD_ATOMIC: u8 = 16;
/// Largest `max_rd_atomic`: number of READs, ATOMICs, ATOMIC WRITEs and FLUSHes that a QP may have
/// outstanding. It is larger than [`MAX_RD_ATOMIC`] because some peers, such as Soft-RoCE, keep
/// more answers.
pub const MAX_INIT_RD_ATOMIC: u8 = 128;
/// Largest `udp_source_ports`.
pub const MAX_UDP_SOURCE_PORTS: u8 = 16;

impl QpChange {
    /// The first attribute that is out of its range; `None` if all are valid.
    pub(crate) fn out_of_range(&self) -> Option<AttrMask> {
        let over = |value: Option<u8>, max: u8| value.is_some_and(|value| value > max);
        [
            (over(self.max_dest_rd_atomic, MAX_RD_ATOMIC), AttrMask::MAX_DEST_RD_ATOMIC),
            (over(self.max_rd_atomic, MAX_INIT_RD_ATOMIC), AttrMask::MAX_QP_RD_ATOMIC),
            (over(self.min_rnr_timer, 31), AttrMask::MIN_RNR_TIMER),
            (over(self.timeout, 31), AttrMask::TIMEOUT),
            (over(self.retry_cnt, 7), AttrMask::RETRY_CNT),
            (over(self.rnr_retry, 7), AttrMask::RNR_RETRY),
            (self.dest_qpn == Some(Qpn::new(0)), AttrMask::DEST_QPN),
            (
                self.alt_path.is_some_and(|alt| alt.port == 0 || alt.timeout > 31),
                AttrMask::ALT_PATH,
            ),
            (self.port == Some(0), AttrMask::PORT),
            (
                self.udp_source_ports
                    .is_some_and(|ports| !ports.is_power_of_two() || ports > MAX_UDP_SOURCE_PORTS),
                AttrMask::UDP_SOURCE_PORTS,
            ),
        ]
        .into_iter()
        .find_map(|(bad, bit)| bad.then_some(bit))
    }
}
