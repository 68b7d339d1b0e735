//! Identifiers and codes of communication management.

use core::fmt;
use core::time::Duration;

/// Names one end's connection, chosen by that end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// EUI-64 of a channel adapter; with a QPN it names a queue pair in the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaGuid(pub u64);

/// What a listener offers and a requester asks for.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    const TCP: u64 = 0x0106_0000;
    const UDP: u64 = 0x0111_0000;

    /// A port of RDMA-CM's TCP port space (connections).
    pub const fn tcp(port: u16) -> ServiceId {
        ServiceId(Self::TCP | port as u64)
    }

    /// A port of RDMA-CM's UDP port space (datagrams, by way of SIDR).
    pub const fn udp(port: u16) -> ServiceId {
        ServiceId(Self::UDP | port as u64)
    }

    /// The port, if this is one of the TCP port space.
    pub const fn tcp_port(self) -> Option<u16> {
        if self.0 & !0xffff == Self::TCP { Some(self.0 as u16) } else { None }
    }

    /// The port, if this is one of the UDP port space.
    pub const fn udp_port(self) -> Option<u16> {
        if self.0 & !0xffff == Self::UDP { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// A time of communication management: 4.096 µs · 2^code, codes 0..=31 (up to 2.4 hours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CmTimeout(u8);

impl CmTimeout {
    /// The low five bits of `code`.
    pub const fn from_code(code: u8) -> CmTimeout {
        CmTimeout(code & 0x1f)
    }

    /// 0..=31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time meant.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }

    /// The shortest time of a code that is not below `time`; the longest there is if none is.
    pub fn at_least(time: Duration) -> CmTimeout {
        let code = (0..31).find(|&code| CmTimeout(code).duration() >= time);
        CmTimeout(code.unwrap_or(31))
    }
}

/// Service asked for in a REQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransportService {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Extended: the three bits beside say which (1 = XRC).
    Extended,
}

impl TransportService {
    /// Of the low two bits.
    pub(super) const fn from_bits(bits: u8) -> TransportService {
        match bits & 3 {
            0 => TransportService::Rc,
            1 => TransportService::Uc,
            2 => TransportService::Rd,
            _ => TransportService::Extended,
        }
    }
}

/// Which message an MRA asks patience for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageMraed {
    /// A REQ.
    #[default]
    Req,
    /// A REP.
    Rep,
    /// A LAP.
    Lap,
    /// None that is defined.
    Reserved,
}

impl MessageMraed {
    /// Of the low two bits.
    pub(super) const fn from_bits(bits: u8) -> MessageMraed {
        match bits & 3 {
            0 => MessageMraed::Req,
            1 => MessageMraed::Rep,
            2 => MessageMraed::Lap,
            _ => MessageMraed::Reserved,
        }
    }
}

/// Which message a REJ refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageRejected {
    /// A REQ.
    #[default]
    Req,
    /// A REP.
    Rep,
    /// No message: a timeout, or another message than these.
    Other,
    /// None that is defined.
    Reserved,
}

impl MessageRejected {
    /// Of the low two bits.
    pub(super) const fn from_bits(bits: u8) -> MessageRejected {
        match bits & 3 {
            0 => MessageRejected::Req,
            1 => MessageRejected::Rep,
            2 => MessageRejected::Other,
            _ => MessageRejected::Reserved,
        }
    }
}

/// What the passive side did with the alternate path of a REQ, said in its REP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Failover {
    /// Loaded, or there was none.
    #[default]
    Accepted,
    /// Path migration is not supported.
    NotSupported,
    /// Supported, this path was not accepted.
    Rejected,
    /// None that is defined.
    Reserved,
}

impl Failover {
    /// Of the low two bits.
    pub(super) const fn from_bits(bits: u8) -> Failover {
        match bits & 3 {
            0 => Failover::Accepted,
            1 => Failover::NotSupported,
            2 => Failover::Rejected,
            _ => Failover::Reserved,
        }
    }
}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident($repr:ty) { $($(#[$item_doc:meta])* $item:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            $($(#[$item_doc])* pub const $item: $name = $name($code);)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($text),)*
                    code => write!(f, "code {code}"),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} ({self})", self.0)
            }
        }
    };
}

codes! {
    /// Why a connection, or a message towards one, is refused (REJ).
    RejectReason(u16) {
        /// No queue pair to be had.
        NO_QP = 1, "no QP available";
        /// No EE context to be had.
        NO_EEC = 2, "no EEC available";
        /// Something else is used up; a full backlog among it.
        NO_RESOURCES = 3, "no resources available";
        /// The sender of the REJ waited in vain.
        TIMEOUT = 4, "timeout";
        /// What was asked for is not supported.
        UNSUPPORTED = 5, "unsupported request";
        /// A communication ID that the receiver does not know.
        INVALID_COMM_ID = 6, "invalid communication ID";
        /// Communication IDs that do not belong together.
        INVALID_COMM_INSTANCE = 7, "invalid communication instance";
        /// Nobody listens there.
        INVALID_SERVICE_ID = 8, "invalid service ID";
        /// The service does not speak the transport asked for.
        INVALID_TRANSPORT_TYPE = 9, "invalid transport service type";
        /// The queue pair named is still in an older connection.
        STALE_CONNECTION = 10, "stale connection";
        /// No reliable datagram channel to the sender.
        RDC_DOES_NOT_EXIST = 11, "RDC does not exist";
        /// The primary path's remote GID is none of ours; ARI: one that is.
        INVALID_GID = 12, "primary remote port GID rejected";
        /// The primary path's remote LID.
        INVALID_LID = 13, "primary remote port LID rejected";
        /// The primary path's service level.
        INVALID_SL = 14, "invalid primary SL";
        /// The primary path's traffic class.
        INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
        /// The primary path's hop limit.
        INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
        /// The primary path's rate.
        INVALID_PACKET_RATE = 17, "invalid primary packet rate";
        /// The alternate path's remote GID.
        INVALID_ALT_GID = 18, "alternate remote port GID rejected";
        /// The alternate path's remote LID.
        INVALID_ALT_LID = 19, "alternate remote port LID rejected";
        /// The alternate path's service level.
        INVALID_ALT_SL = 20, "invalid alternate SL";
        /// The alternate path's traffic class.
        INVALID_ALT_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
        /// The alternate path's hop limit.
        INVALID_ALT_HOP_LIMIT = 22, "invalid alternate hop limit";
        /// The alternate path's rate.
        INVALID_ALT_PACKET_RATE = 23, "invalid alternate packet rate";
        /// Ask another port's communication manager; ARI: where.
        PORT_AND_CM_REDIRECT = 24, "port and CM redirection";
        /// Ask at another port; ARI: which.
        PORT_REDIRECT = 25, "port redirection";
        /// The path MTU is beyond ours; ARI: ours.
        INVALID_PATH_MTU = 26, "invalid path MTU";
        /// Fewer responder resources than asked for.
        INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
        /// The consumer's own reason, in ARI and private data.
        CONSUMER = 28, "consumer reject";
        /// The RNR retry count.
        INVALID_RNR_RETRY_COUNT = 29, "RNR retry count reject";
        /// The communication ID is in use by another connection of the sender.
        DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication ID";
        /// Another version of the class; ARI: ours.
        INVALID_CLASS_VERSION = 31, "unsupported class version";
        /// The primary path's flow label.
        INVALID_FLOW_LABEL = 32, "invalid primary flow label";
        /// The alternate path's flow label.
        INVALID_ALT_FLOW_LABEL = 33, "invalid alternate flow label";
        /// A vendor's option.
        VENDOR_OPTION = 35, "vendor option is not supported";
    }
}

codes! {
    /// What became of a LAP (APR).
    AprStatus(u8) {
        /// The alternate path was loaded.
        LOADED = 0, "alternate path loaded";
        /// A communication ID that the receiver does not know.
        INVALID_COMM_ID = 1, "invalid communication ID";
        /// Path migration is not supported.
        UNSUPPORTED = 2, "alternate paths not supported";
        /// Refused by the consumer.
        REJECTED = 3, "failover rejected";
        /// Not without other addresses; additional information: which.
        REDIRECT = 4, "failover rejected, redirected";
        /// It is the path in use.
        IS_CURRENT = 5, "proposed alternate path is the current path";
        /// Not the connection's queue pair.
        INVALID_QPN = 6, "QPN does not match";
        /// The LID.
        INVALID_LID = 7, "LID rejected";
        /// The GID.
        INVALID_GID = 8, "GID rejected";
        /// The flow label.
        INVALID_FLOW_LABEL = 9, "flow label rejected";
        /// The traffic class.
        INVALID_TRAFFIC_CLASS = 10, "traffic class rejected";
        /// The hop limit.
        INVALID_HOP_LIMIT = 11, "hop limit rejected";
        /// The rate.
        INVALID_PACKET_RATE = 12, "packet rate rejected";
        /// The service level.
        INVALID_SL = 13, "service level rejected";
    }
}

codes! {
    /// Answer to a service ID resolution (SIDR_REP).
    SidrStatus(u8) {
        /// QPN and Q_Key are valid.
        VALID = 0, "QPN and Q_Key valid";
        /// Nobody offers that service ID.
        UNSUPPORTED = 1, "service ID not supported";
        /// The provider refuses this requester.
        REJECTED = 2, "rejected by the service provider";
        /// No queue pair to be had.
        NO_QP = 3, "no QP available";
        /// Ask elsewhere; additional information: where.
        REDIRECT = 4, "request should be redirected";
        /// Another version of the class; additional information: ours.
        UNSUPPORTED_VERSION = 5, "unsupported class version";
    }
}
