//! Identifiers and codes of communication management.

use core::fmt;
use core::time::Duration;

/// Communication ID: one end's identifier of a connection or request, chosen by that end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// EUI-64 of a channel adapter; together with a QPN it identifies a queue pair worldwide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaGuid(pub u64);

/// Service ID: identifies the service that a listener offers and a requester asks for.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    const TCP: u64 = 0x0106_0000;
    const UDP: u64 = 0x0111_0000;
    const IB: u64 = 0x013f_0000;

    /// The service ID of a port in RDMA-CM's TCP port space (connections).
    pub const fn tcp(port: u16) -> ServiceId {
        ServiceId(Self::TCP | port as u64)
    }

    /// The service ID of a port in RDMA-CM's UDP port space (datagrams, resolved by SIDR).
    pub const fn udp(port: u16) -> ServiceId {
        ServiceId(Self::UDP | port as u64)
    }

    /// The service ID of a port in RDMA-CM's IB port space (connections of any type).
    pub const fn ib(port: u16) -> ServiceId {
        ServiceId(Self::IB | port as u64)
    }

    /// The port number, if this is a service ID of the TCP port space.
    pub const fn tcp_port(self) -> Option<u16> {
        if self.0 & !0xffff == Self::TCP { Some(self.0 as u16) } else { None }
    }

    /// The port number, if this is a service ID of the UDP port space.
    pub const fn udp_port(self) -> Option<u16> {
        if self.0 & !0xffff == Self::UDP { Some(self.0 as u16) } else { None }
    }

    /// The port number, if this is a service ID of the IB port space.
    pub const fn ib_port(self) -> Option<u16> {
        if self.0 & !0xffff == Self::IB { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// A time in CM messages: 4.096 µs · 2^code, codes 0..=31 (up to 2.4 hours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CmTimeout(u8);

impl CmTimeout {
    /// The time of the low five bits of `code`.
    pub const fn from_code(code: u8) -> CmTimeout {
        CmTimeout(code & 0x1f)
    }

    /// The code, 0..=31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }

    /// The shortest encodable time that is not below `time`, or the longest (code 31) if none is.
    pub fn at_least(time: Duration) -> CmTimeout {
        let code = (0..31).find(|&code| CmTimeout(code).duration() >= time);
        CmTimeout(code.unwrap_or(31))
    }
}

/// Transport service that a REQ asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransportService {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Extended: three more bits of the REQ say which service (1 = XRC).
    Extended,
}

impl TransportService {
    /// Decodes the low two bits.
    pub(super) const fn from_bits(bits: u8) -> TransportService {
        match bits & 3 {
            0 => TransportService::Rc,
            1 => TransportService::Uc,
            2 => TransportService::Rd,
            _ => TransportService::Extended,
        }
    }
}

/// The message that an MRA acknowledges as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageMraed {
    /// A REQ.
    #[default]
    Req,
    /// A REP.
    Rep,
    /// A LAP.
    Lap,
    /// The undefined code.
    Reserved,
}

impl MessageMraed {
    /// Decodes the low two bits.
    pub(super) const fn from_bits(bits: u8) -> MessageMraed {
        match bits & 3 {
            0 => MessageMraed::Req,
            1 => MessageMraed::Rep,
            2 => MessageMraed::Lap,
            _ => MessageMraed::Reserved,
        }
    }
}

/// The message that a REJ refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageRejected {
    /// A REQ.
    #[default]
    Req,
    /// A REP.
    Rep,
    /// Neither REQ nor REP: another message, or a timeout.
    Other,
    /// The undefined code.
    Reserved,
}

impl MessageRejected {
    /// Decodes the low two bits.
    pub(super) const fn from_bits(bits: u8) -> MessageRejected {
        match bits & 3 {
            0 => MessageRejected::Req,
            1 => MessageRejected::Rep,
            2 => MessageRejected::Other,
            _ => MessageRejected::Reserved,
        }
    }
}

/// Result of a REQ's alternate path at the passive side, reported in the REP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Failover {
    /// The alternate path was loaded, or the REQ had none.
    #[default]
    Accepted,
    /// Path migration is not supported.
    NotSupported,
    /// Path migration is supported, but this path was not accepted.
    Rejected,
    /// The undefined code.
    Reserved,
}

impl Failover {
    /// Decodes the low two bits.
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
    ($(#[$doc:meta])* $name:ident($repr:ty) {
        $($(#[$item_doc:meta])* $item:ident = $code:literal, $text:literal;)*
    }) => {
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
    /// Reason of a REJ: why a connection, or a message of its set-up, is refused.
    RejectReason(u16) {
        /// No queue pair is available.
        NO_QP = 1, "no QP available";
        /// No end-to-end context is available.
        NO_EEC = 2, "no EEC available";
        /// Another resource is used up; a full listen backlog counts as one.
        NO_RESOURCES = 3, "no resources available";
        /// The sender of the REJ received no answer in time.
        TIMEOUT = 4, "timeout";
        /// The request asks for something unsupported.
        UNSUPPORTED = 5, "unsupported request";
        /// The message names a communication ID unknown to its receiver.
        INVALID_COMM_ID = 6, "invalid communication ID";
        /// The two communication IDs do not belong to one connection.
        INVALID_COMM_INSTANCE = 7, "invalid communication instance";
        /// No listener has this service ID.
        INVALID_SERVICE_ID = 8, "invalid service ID";
        /// The service does not support the transport service asked for.
        INVALID_TRANSPORT_TYPE = 9, "invalid transport service type";
        /// The queue pair named still belongs to an older connection.
        STALE_CONNECTION = 10, "stale connection";
        /// There is no reliable datagram channel to the sender.
        RDC_DOES_NOT_EXIST = 11, "RDC does not exist";
        /// The primary path's remote GID is not a GID of the receiver; ARI: a GID that is.
        INVALID_GID = 12, "primary remote port GID rejected";
        /// The primary path's remote LID is rejected.
        INVALID_LID = 13, "primary remote port LID rejected";
        /// The primary path's service level is rejected.
        INVALID_SL = 14, "invalid primary SL";
        /// The primary path's traffic class is rejected.
        INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
        /// The primary path's hop limit is rejected.
        INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
        /// The primary path's packet rate is rejected.
        INVALID_PACKET_RATE = 17, "invalid primary packet rate";
        /// The alternate path's remote GID is rejected.
        INVALID_ALT_GID = 18, "alternate remote port GID rejected";
        /// The alternate path's remote LID is rejected.
        INVALID_ALT_LID = 19, "alternate remote port LID rejected";
        /// The alternate path's service level is rejected.
        INVALID_ALT_SL = 20, "invalid alternate SL";
        /// The alternate path's traffic class is rejected.
        INVALID_ALT_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
        /// The alternate path's hop limit is rejected.
        INVALID_ALT_HOP_LIMIT = 22, "invalid alternate hop limit";
        /// The alternate path's packet rate is rejected.
        INVALID_ALT_PACKET_RATE = 23, "invalid alternate packet rate";
        /// Redirection to the communication manager of another port; ARI: its address.
        PORT_AND_CM_REDIRECT = 24, "port and CM redirection";
        /// Redirection to another port; ARI: the port.
        PORT_REDIRECT = 25, "port redirection";
        /// The path MTU is larger than the receiver supports; ARI: the largest supported.
        INVALID_PATH_MTU = 26, "invalid path MTU";
        /// Fewer responder resources are available than asked for.
        INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
        /// The consumer refuses; its reason is in the ARI and the private data.
        CONSUMER = 28, "consumer reject";
        /// The RNR retry count is rejected.
        INVALID_RNR_RETRY_COUNT = 29, "RNR retry count reject";
        /// Another connection of the sender uses this communication ID.
        DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication ID";
        /// The class version is not supported; ARI: the version that is.
        INVALID_CLASS_VERSION = 31, "unsupported class version";
        /// The primary path's flow label is rejected.
        INVALID_FLOW_LABEL = 32, "invalid primary flow label";
        /// The alternate path's flow label is rejected.
        INVALID_ALT_FLOW_LABEL = 33, "invalid alternate flow label";
        /// A vendor option is not supported.
        VENDOR_OPTION = 35, "vendor option is not supported";
    }
}

codes! {
    /// Result of a LAP, reported in its APR.
    AprStatus(u8) {
        /// The alternate path was loaded.
        LOADED = 0, "alternate path loaded";
        /// The message names a communication ID unknown to its receiver.
        INVALID_COMM_ID = 1, "invalid communication ID";
        /// Path migration is not supported.
        UNSUPPORTED = 2, "alternate paths not supported";
        /// The consumer refuses the path.
        REJECTED = 3, "failover rejected";
        /// The path is refused; the additional information has other addresses to use.
        REDIRECT = 4, "failover rejected, redirected";
        /// The proposed path is the path in use.
        IS_CURRENT = 5, "proposed alternate path is the current path";
        /// The QPN is not that of the connection's queue pair.
        INVALID_QPN = 6, "QPN does not match";
        /// The LID is rejected.
        INVALID_LID = 7, "LID rejected";
        /// The GID is rejected.
        INVALID_GID = 8, "GID rejected";
        /// The flow label is rejected.
        INVALID_FLOW_LABEL = 9, "flow label rejected";
        /// The traffic class is rejected.
        INVALID_TRAFFIC_CLASS = 10, "traffic class rejected";
        /// The hop limit is rejected.
        INVALID_HOP_LIMIT = 11, "hop limit rejected";
        /// The packet rate is rejected.
        INVALID_PACKET_RATE = 12, "packet rate rejected";
        /// The service level is rejected.
        INVALID_SL = 13, "service level rejected";
    }
}

codes! {
    /// Result of a service ID resolution, reported in a SIDR_REP.
    SidrStatus(u8) {
        /// QPN and Q_Key are valid.
        VALID = 0, "QPN and Q_Key valid";
        /// No provider offers the service ID.
        UNSUPPORTED = 1, "service ID not supported";
        /// The service provider refuses this requester.
        REJECTED = 2, "rejected by the service provider";
        /// No queue pair is available.
        NO_QP = 3, "no QP available";
        /// Redirection; the additional information has the place to ask at.
        REDIRECT = 4, "request should be redirected";
        /// The class version is not supported; additional information: the version that is.
        UNSUPPORTED_VERSION = 5, "unsupported class version";
    }
}
