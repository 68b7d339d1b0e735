//! A QP's kind and attributes, and a wish to change some of them.

use bitflags::bitflags;
use uroce_wire::{Encap, PathMtu, Pkey, Psn, Qkey, Qpn};

pub(crate) use held::{Attributes, PackedPath};

use crate::qp::state::QpState;
use crate::rate::StaticRate;

mod held;

/// Transport service of a QP, fixed at creation. `Display` spells it as the verbs do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpType {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The general services interface, QP 1: unreliable datagrams of management.
    Gsi,
}

impl QpType {
    /// All types.
    pub const ALL: [QpType; 4] = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Gsi];

    /// Is each message a packet of its own, to anybody?
    #[inline]
    pub const fn is_datagram(self) -> bool {
        matches!(self, QpType::Ud | QpType::Gsi)
    }
}

impl core::fmt::Display for QpType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::Gsi => "GSI",
        })
    }
}

bitflags! {
    /// What a peer's requests may do on a QP, or what a key opens memory for. Names are the verbs'
    /// `IBV_ACCESS_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AccessFlags: u8 {
        /// The application's own WRs and the receive queue may write.
        const LOCAL_WRITE = 1;
        /// RDMA WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// RDMA READ.
        const REMOTE_READ = 1 << 2;
        /// ATOMIC operations.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
    }
}

bitflags! {
    /// Attributes named by a [`QpChange`].
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
    }
}

/// A path and how fast it may be sent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathAttr {
    /// Addresses and header fields.
    pub encap: Encap,
    /// The most that it takes.
    pub rate: StaticRate,
}

impl From<Encap> for PathAttr {
    /// A path without limit.
    fn from(encap: Encap) -> PathAttr {
        PathAttr { encap, rate: StaticRate::MAX }
    }
}

/// The path that a connection migrates to when its own fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AltPath {
    /// Addresses and header fields, and the rate.
    pub path: PathAttr,
    /// The local port it leaves by, 1-based.
    pub port: u8,
    /// The partition's key on it.
    pub pkey: Pkey,
    /// Local ACK timeout code on it, 0 (never) to 31.
    pub timeout: u8,
}

/// Where a QP stands in path migration. Numbers are the verbs' `IBV_MIG_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum PathMigState {
    /// No migration is prepared; MigReq is 1 in what is sent.
    #[default]
    Migrated = 0,
    /// An alternate path is loaded; waits for the peer to say the same.
    Rearm = 1,
    /// Both ends are ready: either may migrate.
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

/// Everything that Query QP gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// Where the QP stands.
    pub state: QpState,
    /// The partition's key.
    pub pkey: Pkey,
    /// The local port, 1-based.
    pub port: u8,
    /// What the peer may do.
    pub access: AccessFlags,
    /// Addresses and header fields of every packet sent; the reverse of every packet received.
    pub path: PathAttr,
    /// The alternate path as loaded last; `None` again once the QP has migrated to it.
    pub alt_path: Option<AltPath>,
    /// Where the QP stands in path migration.
    pub path_mig_state: PathMigState,
    /// Most that the QP may send, in kbit/s of whole frames, whatever its path takes; 0: no limit.
    pub rate_limit: u32,
    /// Largest payload of a packet; of UD see [`crate::Qp::set_port_mtu`].
    pub path_mtu: PathMtu,
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// First PSN expected.
    pub rq_psn: Psn,
    /// READ and ATOMIC requests the peer may have outstanding here, 0 to 16.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code sent to the peer, 0 to 31.
    pub min_rnr_timer: u8,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// Local ACK timeout code, 0 (never) to 31.
    pub timeout: u8,
    /// Transport retries, 0 to 7.
    pub retry_cnt: u8,
    /// RNR retries, 0 to 7; 7 is without end.
    pub rnr_retry: u8,
    /// READ and ATOMIC requests outstanding at the peer, 0 to 16.
    pub max_rd_atomic: u8,
    /// UD: what a datagram must bring to be taken.
    pub qkey: Qkey,
    /// Tell by an event when SQD has drained the send queue.
    pub en_sqd_async_notify: bool,
}

impl Default for QpAttr {
    fn default() -> QpAttr {
        Attributes::default().query()
    }
}

macro_rules! qp_change {
    ($($field:ident: $type:ty => $bit:ident),* $(,)?) => {
        /// A Modify QP: the wanted state and the attributes given with it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct QpChange {
            /// The state to go to; `None` keeps the state and changes attributes only.
            pub state: Option<QpState>,
            /// Refuse the change unless the QP is in this state.
            pub cur_state: Option<QpState>,
            $(#[doc = concat!("New value of [`QpAttr::", stringify!($field), "`].")]
            pub $field: Option<$type>,)*
        }

        impl QpChange {
            /// A change to `state` without attributes; fill in the fields that go with it.
            pub fn to(state: QpState) -> QpChange {
                QpChange { state: Some(state), ..QpChange::default() }
            }

            /// Which attributes are given.
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
}

/// Largest `max_dest_rd_atomic`: READs and ATOMICs of the peer's whose answers a QP keeps.
pub const MAX_RD_ATOMIC: u8 = 16;
/// Largest `max_rd_atomic`: what a QP may have outstanding at a peer that keeps more answers, as
/// Soft-RoCE does.
pub const MAX_INIT_RD_ATOMIC: u8 = 128;

impl QpChange {
    /// The first attribute whose value is out of its range.
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
        ]
        .into_iter()
        .find_map(|(bad, bit)| bad.then_some(bit))
    }
}
