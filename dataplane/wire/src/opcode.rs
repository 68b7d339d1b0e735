//! The BTH opcode: one byte that determines what a packet does and which headers follow.
//!
//! Read first: IBA 9.2 (opcodes); Annex A14 for XRC, A17 for CNP, A19 for FLUSH and ATOMIC WRITE.
//!
//! One table at the end of this file holds all facts about opcodes; no other code tests bits of the
//! byte. The three high bits choose the service, the five low bits mean the same in each service.
//! An opcode that is absent from the table is reserved.
//!
//! One row is uroce's own, in the range that the specification leaves to manufacturers: the
//! selective acknowledgement. QPs send and accept it only after both ends have agreed on it.

use core::fmt;

use crate::{Header, PathMtu};

/// A BTH opcode. Any byte is a value; [`OpCode::info`] distinguishes defined from reserved opcodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OpCode(pub u8);

impl OpCode {
    /// The opcode's row of the table; `None` if the opcode is reserved.
    //= check E20 — one table for all 256
    #[inline]
    pub fn info(self) -> Option<&'static OpInfo> {
        TABLE[self.0 as usize].as_ref()
    }

    /// Returns whether the byte is in RC's range, defined or reserved.
    #[inline]
    pub const fn is_of_rc(self) -> bool {
        self.0 >> 5 == 0
    }

    /// Returns whether the byte is in XRC's range, defined or reserved.
    #[inline]
    pub const fn is_of_xrc(self) -> bool {
        self.0 >> 5 == 5
    }

    /// Returns whether the byte is in RD's range, defined or reserved.
    #[inline]
    pub const fn is_of_rd(self) -> bool {
        self.0 >> 5 == 2
    }

    /// The opcode of an RC operation in the range that `range` begins.
    #[inline]
    pub const fn in_range(self, range: OpCodeRange) -> OpCode {
        OpCode(self.0 | range.0)
    }

    /// The RC opcode of an operation at a position, with immediate data
    /// ([`Header::ImmDt`]), with invalidation ([`Header::Ieth`]) or plain (`None`).
    ///
    /// `None` where RC has no such packet.
    #[inline]
    pub const fn rc(
        operation: Operation,
        position: Position,
        extra: Option<Header>,
    ) -> Option<Self> {
        use {Header as H, Operation as O, Position as P};
        Some(match (operation, position, extra) {
            (O::Send, P::First, None) => Self::RC_SEND_FIRST,
            (O::Send, P::Middle, None) => Self::RC_SEND_MIDDLE,
            (O::Send, P::Last, None) => Self::RC_SEND_LAST,
            (O::Send, P::Last, Some(H::ImmDt)) => Self::RC_SEND_LAST_WITH_IMMEDIATE,
            (O::Send, P::Last, Some(H::Ieth)) => Self::RC_SEND_LAST_WITH_INVALIDATE,
            (O::Send, P::Only, None) => Self::RC_SEND_ONLY,
            (O::Send, P::Only, Some(H::ImmDt)) => Self::RC_SEND_ONLY_WITH_IMMEDIATE,
            (O::Send, P::Only, Some(H::Ieth)) => Self::RC_SEND_ONLY_WITH_INVALIDATE,
            (O::Write, P::First, None) => Self::RC_RDMA_WRITE_FIRST,
            (O::Write, P::Middle, None) => Self::RC_RDMA_WRITE_MIDDLE,
            (O::Write, P::Last, None) => Self::RC_RDMA_WRITE_LAST,
            (O::Write, P::Last, Some(H::ImmDt)) => Self::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
            (O::Write, P::Only, None) => Self::RC_RDMA_WRITE_ONLY,
            (O::Write, P::Only, Some(H::ImmDt)) => Self::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
            (O::ReadRequest, P::Only, None) => Self::RC_RDMA_READ_REQUEST,
            (O::ReadResponse, P::First, None) => Self::RC_RDMA_READ_RESPONSE_FIRST,
            (O::ReadResponse, P::Middle, None) => Self::RC_RDMA_READ_RESPONSE_MIDDLE,
            (O::ReadResponse, P::Last, None) => Self::RC_RDMA_READ_RESPONSE_LAST,
            (O::ReadResponse, P::Only, None) => Self::RC_RDMA_READ_RESPONSE_ONLY,
            (O::Acknowledge, P::Only, None) => Self::RC_ACKNOWLEDGE,
            (O::AtomicAcknowledge, P::Only, None) => Self::RC_ATOMIC_ACKNOWLEDGE,
            (O::CompareSwap, P::Only, None) => Self::RC_COMPARE_SWAP,
            (O::FetchAdd, P::Only, None) => Self::RC_FETCH_ADD,
            (O::Flush, P::Only, None) => Self::RC_FLUSH,
            (O::AtomicWrite, P::Only, None) => Self::RC_ATOMIC_WRITE,
            _ => return None,
        })
    }

    /// The UC opcode for the arguments of [`rc`](OpCode::rc); `None` where UC has no such packet.
    #[inline]
    pub fn uc(operation: Operation, position: Position, extra: Option<Header>) -> Option<Self> {
        const FROM_RC: u8 = OpCode::UC_SEND_FIRST.0 - OpCode::RC_SEND_FIRST.0;
        let rc = Self::rc(operation, position, extra)?;
        let uc = OpCode(rc.0 + FROM_RC);
        uc.info().map(|info| info.opcode)
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "reserved opcode 0x{:02x}", self.0),
        }
    }
}

impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The range of a service's opcodes: the three high bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCodeRange(u8);

impl OpCodeRange {
    /// RC's range; an opcode stays what it is.
    pub const RC: OpCodeRange = OpCodeRange(0);
    /// RD's range.
    pub const RD: OpCodeRange = OpCodeRange(2 << 5);
    /// XRC's range.
    pub const XRC: OpCodeRange = OpCodeRange(5 << 5);
}

/// One row of the opcode table.
#[derive(Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// The opcode that this row describes.
    pub opcode: OpCode,
    /// Name of service and operation as the specification spells them, such as `RC SEND First`.
    pub name: &'static str,
    /// Transport service.
    pub service: Service,
    /// The operation that the packet requests or answers.
    pub operation: Operation,
    /// Position of the packet in its message.
    pub position: Position,
    /// Extended transport headers after BTH, in wire order.
    pub headers: &'static [Header],
    /// Payload that may follow the headers.
    pub payload: PayloadRule,
    /// Length of BTH and extended headers together, in bytes.
    headers_len: u8,
    /// The set of `headers` as bits, so that [`OpInfo::has`] is one test.
    header_set: u16,
}

impl OpInfo {
    /// Returns whether packets of this opcode carry `header`.
    #[inline]
    pub const fn has(&self, header: Header) -> bool {
        self.header_set & 1 << header as u16 != 0
    }

    /// Length of BTH and the extended headers in bytes, 12..=52.
    #[inline]
    pub const fn headers_len(&self) -> usize {
        self.headers_len as usize
    }

    /// Returns whether a requester sends packets of this opcode.
    #[inline]
    pub const fn is_request(&self) -> bool {
        !self.is_response() && !matches!(self.operation, Operation::Cnp)
    }

    /// Returns whether a responder sends packets of this opcode.
    #[inline]
    pub const fn is_response(&self) -> bool {
        use Operation as O;
        matches!(
            self.operation,
            O::ReadResponse | O::Acknowledge | O::AtomicAcknowledge | O::SelectiveAcknowledge
        )
    }
}

/// Transport service of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification, which belongs to no service.
    Cnp,
}

/// Operation that a packet carries out, requests or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Writes to the receiver's next receive buffer.
    Send,
    /// Writes to memory that the requester names.
    Write,
    /// Requests the content of memory that the requester names.
    ReadRequest,
    /// Carries the data that a READ requested.
    ReadResponse,
    /// Acknowledges or refuses requests.
    Acknowledge,
    /// Acknowledges an atomic operation and carries its result.
    AtomicAcknowledge,
    /// Acknowledges requests, and lists those that came early.
    SelectiveAcknowledge,
    /// Stores a value atomically if the old value equals the one given.
    CompareSwap,
    /// Adds to a value atomically.
    FetchAdd,
    /// Requests that earlier writes become visible or persistent.
    Flush,
    /// Writes eight bytes in one piece to memory that the requester names.
    AtomicWrite,
    /// Realigns the PSN of a reliable datagram context.
    Resync,
    /// Congestion notification.
    Cnp,
}

/// Position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last of several packets.
    Middle,
    /// The last of several packets.
    Last,
    /// The only packet of its message.
    Only,
}

impl Position {
    /// Returns whether a message starts with this packet: `First` or `Only`.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Returns whether a message ends with this packet: `Last` or `Only`.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }
}

/// Amount of payload, without pad, that a packet may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// No payload and no pad.
    Empty,
    /// Exactly the path MTU; for first and middle packets.
    FullMtu,
    /// One byte to the path MTU; for last packets.
    OneToMtu,
    /// Zero bytes to the path MTU; for only packets and datagrams.
    UpToMtu,
    /// Sixteen reserved bytes; for CNPs.
    Reserved16,
    /// A bitmap of 1 to 128 words of eight bytes; for selective acknowledgements.
    Bitmap,
    /// Exactly eight bytes; for ATOMIC WRITEs.
    Word,
}

impl PayloadRule {
    /// The rule for an operation and a position in the message.
    const fn of(operation: Operation, position: Position) -> PayloadRule {
        use {Operation as O, Position as P};
        match (operation, position) {
            (O::Send | O::Write | O::ReadResponse, P::First | P::Middle) => PayloadRule::FullMtu,
            (O::Send | O::Write | O::ReadResponse, P::Last) => PayloadRule::OneToMtu,
            (O::Send | O::Write | O::ReadResponse, P::Only) => PayloadRule::UpToMtu,
            (O::Cnp, _) => PayloadRule::Reserved16,
            (O::SelectiveAcknowledge, _) => PayloadRule::Bitmap,
            (O::AtomicWrite, _) => PayloadRule::Word,
            _ => PayloadRule::Empty,
        }
    }

    /// Returns whether a payload of `payload_len` bytes obeys the rule on a path with `path_mtu`.
    #[inline]
    pub const fn allows(self, payload_len: usize, path_mtu: PathMtu) -> bool {
        let mtu = path_mtu.bytes() as usize;
        match self {
            PayloadRule::Empty => payload_len == 0,
            PayloadRule::FullMtu => payload_len == mtu,
            PayloadRule::OneToMtu => 1 <= payload_len && payload_len <= mtu,
            PayloadRule::UpToMtu => payload_len <= mtu,
            PayloadRule::Reserved16 => payload_len == 16,
            PayloadRule::Bitmap => is_bitmap_len(payload_len) && payload_len <= mtu,
            PayloadRule::Word => payload_len == 8,
        }
    }
}

/// Returns whether a bitmap can have this length in bytes: 1 to 128 words of eight.
#[inline]
pub(crate) const fn is_bitmap_len(len: usize) -> bool {
    len.is_multiple_of(8) && 8 <= len && len <= 1024
}

/// Length of BTH and `headers` together, in bytes.
const fn wire_len(headers: &[Header]) -> u8 {
    let (mut len, mut i) = (crate::Bth::LEN, 0);
    while i < headers.len() {
        len += headers[i].wire_len();
        i += 1;
    }
    len as u8
}

/// Bit `1 << header` for each of `headers`.
const fn set_of(headers: &[Header]) -> u16 {
    let (mut set, mut i) = (0, 0);
    while i < headers.len() {
        set |= 1 << headers[i] as u16;
        i += 1;
    }
    set
}

/// The headers that all rows of a block share, then the row's own headers.
macro_rules! headers {
    ([$($shared:ident),*] [$($own:ident),*]) => {
        &[$(Header::$shared,)* $(Header::$own,)*]
    };
}

/// Builds the named constants and the table from one list of rows.
macro_rules! opcodes {
    ($($service:ident $prefix:literal $shared:tt {
        $($code:literal $name:ident $position:ident $operation:ident $own:tt $text:literal;)*
    })*) => {
        impl OpCode {
            $($(
                #[doc = concat!($prefix, $text, ".")]
                pub const $name: OpCode = OpCode($code);
            )*)*
        }

        /// The opcode table: row *n* describes opcode *n*; `None` is reserved.
        static TABLE: [Option<OpInfo>; 256] = {
            let mut table = [const { None }; 256];
            $($(
                table[$code] = Some(OpInfo {
                    opcode: OpCode::$name,
                    name: concat!($prefix, $text),
                    service: Service::$service,
                    operation: Operation::$operation,
                    position: Position::$position,
                    headers: headers!($shared $own),
                    payload: PayloadRule::of(Operation::$operation, Position::$position),
                    headers_len: wire_len(headers!($shared $own)),
                    header_set: set_of(headers!($shared $own)),
                });
            )*)*
            table
        };
    };
}

// A block begins with: service, prefix of the names, headers before every row's own headers.
// A row has: code, constant, position, operation, own headers, name.
opcodes! {
Rc "RC " [] {
    0x00 RC_SEND_FIRST                      First  Send [] "SEND First";
    0x01 RC_SEND_MIDDLE                     Middle Send [] "SEND Middle";
    0x02 RC_SEND_LAST                       Last   Send [] "SEND Last";
    0x03 RC_SEND_LAST_WITH_IMMEDIATE        Last   Send [ImmDt] "SEND Last with Immediate";
    0x04 RC_SEND_ONLY                       Only   Send [] "SEND Only";
    0x05 RC_SEND_ONLY_WITH_IMMEDIATE        Only   Send [ImmDt] "SEND Only with Immediate";
    0x06 RC_RDMA_WRITE_FIRST                First  Write [Reth] "RDMA WRITE First";
    0x07 RC_RDMA_WRITE_MIDDLE               Middle Write [] "RDMA WRITE Middle";
    0x08 RC_RDMA_WRITE_LAST                 Last   Write [] "RDMA WRITE Last";
    0x09 RC_RDMA_WRITE_LAST_WITH_IMMEDIATE  Last   Write [ImmDt] "RDMA WRITE Last with Immediate";
    0x0a RC_RDMA_WRITE_ONLY                 Only   Write [Reth] "RDMA WRITE Only";
    0x0b RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE  Only   Write [Reth, ImmDt]
         "RDMA WRITE Only with Immediate";
    0x0c RC_RDMA_READ_REQUEST               Only   ReadRequest [Reth] "RDMA READ Request";
    0x0d RC_RDMA_READ_RESPONSE_FIRST        First  ReadResponse [Aeth] "RDMA READ Response First";
    0x0e RC_RDMA_READ_RESPONSE_MIDDLE       Middle ReadResponse [] "RDMA READ Response Middle";
    0x0f RC_RDMA_READ_RESPONSE_LAST         Last   ReadResponse [Aeth] "RDMA READ Response Last";
    0x10 RC_RDMA_READ_RESPONSE_ONLY         Only   ReadResponse [Aeth] "RDMA READ Response Only";
    0x11 RC_ACKNOWLEDGE                     Only   Acknowledge [Aeth] "Acknowledge";
    0x12 RC_ATOMIC_ACKNOWLEDGE              Only   AtomicAcknowledge [Aeth, AtomicAckEth]
         "Atomic Acknowledge";
    0x13 RC_COMPARE_SWAP                    Only   CompareSwap [AtomicEth] "CmpSwap";
    0x14 RC_FETCH_ADD                       Only   FetchAdd [AtomicEth] "FetchAdd";
    0x16 RC_SEND_LAST_WITH_INVALIDATE       Last   Send [Ieth] "SEND Last with Invalidate";
    0x17 RC_SEND_ONLY_WITH_INVALIDATE       Only   Send [Ieth] "SEND Only with Invalidate";
    0x1c RC_FLUSH                           Only   Flush [Feth, Reth] "FLUSH";
    0x1d RC_ATOMIC_WRITE                    Only   AtomicWrite [Reth] "ATOMIC WRITE";
    0xd1 RC_SELECTIVE_ACKNOWLEDGE           Only   SelectiveAcknowledge [Aeth]
         "Selective Acknowledge";
}
Uc "UC " [] {
    0x20 UC_SEND_FIRST                      First  Send [] "SEND First";
    0x21 UC_SEND_MIDDLE                     Middle Send [] "SEND Middle";
    0x22 UC_SEND_LAST                       Last   Send [] "SEND Last";
    0x23 UC_SEND_LAST_WITH_IMMEDIATE        Last   Send [ImmDt] "SEND Last with Immediate";
    0x24 UC_SEND_ONLY                       Only   Send [] "SEND Only";
    0x25 UC_SEND_ONLY_WITH_IMMEDIATE        Only   Send [ImmDt] "SEND Only with Immediate";
    0x26 UC_RDMA_WRITE_FIRST                First  Write [Reth] "RDMA WRITE First";
    0x27 UC_RDMA_WRITE_MIDDLE               Middle Write [] "RDMA WRITE Middle";
    0x28 UC_RDMA_WRITE_LAST                 Last   Write [] "RDMA WRITE Last";
    0x29 UC_RDMA_WRITE_LAST_WITH_IMMEDIATE  Last   Write [ImmDt] "RDMA WRITE Last with Immediate";
    0x2a UC_RDMA_WRITE_ONLY                 Only   Write [Reth] "RDMA WRITE Only";
    0x2b UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE  Only   Write [Reth, ImmDt]
         "RDMA WRITE Only with Immediate";
}
Rd "RD " [Rdeth, Deth] {
    0x40 RD_SEND_FIRST                      First  Send [] "SEND First";
    0x41 RD_SEND_MIDDLE                     Middle Send [] "SEND Middle";
    0x42 RD_SEND_LAST                       Last   Send [] "SEND Last";
    0x43 RD_SEND_LAST_WITH_IMMEDIATE        Last   Send [ImmDt] "SEND Last with Immediate";
    0x44 RD_SEND_ONLY                       Only   Send [] "SEND Only";
    0x45 RD_SEND_ONLY_WITH_IMMEDIATE        Only   Send [ImmDt] "SEND Only with Immediate";
    0x46 RD_RDMA_WRITE_FIRST                First  Write [Reth] "RDMA WRITE First";
    0x47 RD_RDMA_WRITE_MIDDLE               Middle Write [] "RDMA WRITE Middle";
    0x48 RD_RDMA_WRITE_LAST                 Last   Write [] "RDMA WRITE Last";
    0x49 RD_RDMA_WRITE_LAST_WITH_IMMEDIATE  Last   Write [ImmDt] "RDMA WRITE Last with Immediate";
    0x4a RD_RDMA_WRITE_ONLY                 Only   Write [Reth] "RDMA WRITE Only";
    0x4b RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE  Only   Write [Reth, ImmDt]
         "RDMA WRITE Only with Immediate";
    0x4c RD_RDMA_READ_REQUEST               Only   ReadRequest [Reth] "RDMA READ Request";
    0x53 RD_COMPARE_SWAP                    Only   CompareSwap [AtomicEth] "CmpSwap";
    0x54 RD_FETCH_ADD                       Only   FetchAdd [AtomicEth] "FetchAdd";
    0x55 RD_RESYNC                          Only   Resync [] "RESYNC";
    0x5c RD_FLUSH                           Only   Flush [Feth, Reth] "FLUSH";
}
Rd "RD " [Rdeth] {
    0x4d RD_RDMA_READ_RESPONSE_FIRST        First  ReadResponse [Aeth] "RDMA READ Response First";
    0x4e RD_RDMA_READ_RESPONSE_MIDDLE       Middle ReadResponse [] "RDMA READ Response Middle";
    0x4f RD_RDMA_READ_RESPONSE_LAST         Last   ReadResponse [Aeth] "RDMA READ Response Last";
    0x50 RD_RDMA_READ_RESPONSE_ONLY         Only   ReadResponse [Aeth] "RDMA READ Response Only";
    0x51 RD_ACKNOWLEDGE                     Only   Acknowledge [Aeth] "Acknowledge";
    0x52 RD_ATOMIC_ACKNOWLEDGE              Only   AtomicAcknowledge [Aeth, AtomicAckEth]
         "Atomic Acknowledge";
}
Ud "UD " [Deth] {
    0x64 UD_SEND_ONLY                       Only   Send [] "SEND Only";
    0x65 UD_SEND_ONLY_WITH_IMMEDIATE        Only   Send [ImmDt] "SEND Only with Immediate";
}
Cnp "" [] {
    0x81 CNP                                Only   Cnp [] "CNP";
}
Xrc "XRC " [Xrceth] {
    0xa0 XRC_SEND_FIRST                     First  Send [] "SEND First";
    0xa1 XRC_SEND_MIDDLE                    Middle Send [] "SEND Middle";
    0xa2 XRC_SEND_LAST                      Last   Send [] "SEND Last";
    0xa3 XRC_SEND_LAST_WITH_IMMEDIATE       Last   Send [ImmDt] "SEND Last with Immediate";
    0xa4 XRC_SEND_ONLY                      Only   Send [] "SEND Only";
    0xa5 XRC_SEND_ONLY_WITH_IMMEDIATE       Only   Send [ImmDt] "SEND Only with Immediate";
    0xa6 XRC_RDMA_WRITE_FIRST               First  Write [Reth] "RDMA WRITE First";
    0xa7 XRC_RDMA_WRITE_MIDDLE              Middle Write [] "RDMA WRITE Middle";
    0xa8 XRC_RDMA_WRITE_LAST                Last   Write [] "RDMA WRITE Last";
    0xa9 XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE Last   Write [ImmDt] "RDMA WRITE Last with Immediate";
    0xaa XRC_RDMA_WRITE_ONLY                Only   Write [Reth] "RDMA WRITE Only";
    0xab XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE Only   Write [Reth, ImmDt]
         "RDMA WRITE Only with Immediate";
    0xac XRC_RDMA_READ_REQUEST              Only   ReadRequest [Reth] "RDMA READ Request";
    0xb3 XRC_COMPARE_SWAP                   Only   CompareSwap [AtomicEth] "CmpSwap";
    0xb4 XRC_FETCH_ADD                      Only   FetchAdd [AtomicEth] "FetchAdd";
    0xb6 XRC_SEND_LAST_WITH_INVALIDATE      Last   Send [Ieth] "SEND Last with Invalidate";
    0xb7 XRC_SEND_ONLY_WITH_INVALIDATE      Only   Send [Ieth] "SEND Only with Invalidate";
}
Xrc "XRC " [] {
    0xad XRC_RDMA_READ_RESPONSE_FIRST       First  ReadResponse [Aeth] "RDMA READ Response First";
    0xae XRC_RDMA_READ_RESPONSE_MIDDLE      Middle ReadResponse [] "RDMA READ Response Middle";
    0xaf XRC_RDMA_READ_RESPONSE_LAST        Last   ReadResponse [Aeth] "RDMA READ Response Last";
    0xb0 XRC_RDMA_READ_RESPONSE_ONLY        Only   ReadResponse [Aeth] "RDMA READ Response Only";
    0xb1 XRC_ACKNOWLEDGE                    Only   Acknowledge [Aeth] "Acknowledge";
    0xb2 XRC_ATOMIC_ACKNOWLEDGE             Only   AtomicAcknowledge [Aeth, AtomicAckEth]
         "Atomic Acknowledge";
}
}

#[cfg(test)]
mod tests;
