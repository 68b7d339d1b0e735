//! The environment of a QP: the memory it accesses, the wire it sends on, and where it reports.
//!
//! The core decides *what* to copy and *what* to send; an [`Env`] does it and may refuse. The
//! engine's environment copies real memory into mbufs, the simulator's works on vectors.

use uroce_wire::{Bth, ExtHeaders, HeaderTemplate, Lkey, Mac, Placement, Qpn, Rkey, Srqn, Va};

use crate::attr::AccessFlags;
use crate::counter::Counter;
use crate::cqe::Cqe;
use crate::gather::Gather;
use crate::time::Instant;
use crate::wqe::{BindMw, RecvWr, Sge};

/// Number of a protection domain. Keys of one domain are refused in another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(pub u32);

/// The QP for which memory is accessed: keys belong to one protection domain, type-2 windows to one
/// QP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accessor {
    /// Protection domain of the QP.
    pub pd: Pd,
    /// QPN of the QP.
    pub qpn: Qpn,
}

/// Number of an address handle: the environment maps it to the path of a UD packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ah(pub u32);

/// A key to a memory region, local or remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// A local key: reading needs no right, writing needs `LOCAL_WRITE`.
    Local(Lkey),
    /// A peer's key: every access needs the matching remote right.
    Remote(Rkey),
}

/// A range of registered memory under a key. A range of length zero accesses nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Key of the region.
    pub key: Key,
    /// Address of the first byte.
    pub va: Va,
    /// Length in bytes, 0 to 2^31.
    pub len: u32,
}

/// Kind of access to a [`Region`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Memory is read.
    Read,
    /// Memory is written.
    Write,
    /// An eight-byte atomic read-modify-write.
    Atomic,
}

/// Reason for which an [`Env`] refused access to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryFault {
    /// No memory region has this key, or no longer.
    #[error("unknown or stale memory key")]
    UnknownKey,
    /// The region belongs to another protection domain.
    #[error("memory region of another protection domain")]
    WrongPd,
    /// The memory window belongs to another QP.
    #[error("memory window of another QP")]
    WrongQp,
    /// The range is not inside the region, or wraps past 2^64.
    #[error("address range outside of the memory region")]
    OutOfRange,
    /// The region does not grant the access.
    #[error("access not granted by the memory region")]
    NotGranted,
    /// The memory is registered, but some of its pages no longer exist.
    #[error("memory that is gone though it is registered")]
    Gone,
    /// The memory window is already bound.
    #[error("memory window is bound already")]
    WindowBound,
    /// The operation needs the key of a memory window of a certain type, and the key is another.
    #[error("key of no memory window of the right type")]
    NotAWindow,
}

/// An atomic operation on one aligned 64-bit word in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Stores `swap` if the word equals `compare`.
    CompareSwap {
        /// Value that the word is compared with.
        compare: u64,
        /// Value that is stored if they are equal.
        swap: u64,
    },
    /// Adds to the word, wrapping at 2^64.
    FetchAdd {
        /// Value that is added.
        add: u64,
    },
}

/// What a FLUSH asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// R_Key of the memory region.
    pub rkey: Rkey,
    /// Address and length of the range; `None` is the whole region.
    pub range: Option<(Va, u32)>,
    /// What must be true of the bytes afterwards: one or both of the types that have a meaning.
    pub placement: Placement,
}

impl Flush {
    /// The access that the region, and the QP, must grant.
    pub fn needed(&self) -> AccessFlags {
        let mut needed = AccessFlags::empty();
        needed.set(AccessFlags::FLUSH_GLOBAL, self.placement.contains(Placement::GLOBAL));
        needed.set(AccessFlags::FLUSH_PERSISTENT, self.placement.contains(Placement::PERSISTENT));
        needed
    }
}

/// Registered memory, as a QP accesses it.
pub trait Memory {
    /// Checks whether `access` to the whole of `region` is granted. Changes nothing.
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    fn check(&self, by: Accessor, region: Region, access: AccessKind) -> Result<(), MemoryFault>;

    /// Copies `bytes` to the start of `region` (`bytes.len() == region.len`).
    ///
    /// # Errors
    /// A [`MemoryFault`]; then no byte was written, except that after [`MemoryFault::Gone`] some
    /// bytes may have been.
    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Performs `op` on the eight bytes at `va`, which is 8-byte aligned, and returns their former
    /// value.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the word is unchanged.
    fn atomic(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault>;

    /// Stores `bytes` at `va`, which is 8-byte aligned, in one piece: every other access sees all
    /// of them or none.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the bytes are unchanged.
    fn write_word(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        bytes: [u8; 8],
    ) -> Result<(), MemoryFault>;

    /// Brings all that was written before to where `flush` demands it. Every access flag of
    /// [`Flush::needed`] must be granted; the key of a memory window grants none of them.
    ///
    /// # Errors
    /// A [`MemoryFault`]: nothing was guaranteed.
    fn flush(&mut self, by: Accessor, flush: &Flush) -> Result<(), MemoryFault>;

    /// Binds a memory window to a part or all of a region, or unbinds it.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the window is unchanged.
    fn bind(&mut self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault>;

    /// Invalidates a memory window's key until the window is bound again.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the key is still valid.
    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault>;
}

/// The path that a packet is sent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path<'a> {
    /// The connection's path: everything before BTH, made from [`crate::QpAttr::path`]. The packet
    /// leaves by the QP's port.
    Connected(&'a HeaderTemplate),
    /// The connection's path, but with the UDP source port of this index
    /// ([`HeaderTemplate::with_port`]).
    Sprayed(&'a HeaderTemplate, u16),
    /// The path of an address handle.
    Ah(Ah),
}

/// A packet to be sent: its headers, and where its payload is gathered from.
///
/// The sink adds everything before the BTH, the payload, the pad that `bth.pad_count` states, and
/// the ICRC.
#[derive(Clone, Debug)]
pub struct Outbound<'a> {
    /// Path that the packet is sent on.
    pub path: Path<'a>,
    /// Base transport header, complete.
    pub bth: Bth,
    /// Extended headers; those in the row of `bth.opcode` in the opcode table are used.
    pub ext: ExtHeaders,
    /// QP for which the payload is read.
    pub by: Accessor,
    /// Pieces of the payload, in order.
    pub payload: Gather<'a>,
}

/// What the environment adds to a frame of a raw QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Nothing: the payload is the whole frame, from the destination address on.
    Whole {
        /// The checksums of IP, UDP and TCP are to be filled in.
        checksums: bool,
    },
    /// The Ethernet header: the payload is an IPv6 packet to this station.
    Ipv6 {
        /// Destination address.
        to: Mac,
    },
}

/// A frame of a raw QP, to be sent.
#[derive(Clone, Debug)]
pub struct OutboundFrame<'a> {
    /// What is added to the payload.
    pub framing: Framing,
    /// QP for which the payload is read.
    pub by: Accessor,
    /// Pieces of the payload, in order.
    pub payload: Gather<'a>,
}

/// Reason for which a packet was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransmitError {
    /// No room now; the core keeps the packet's place and tries again later.
    Full,
    /// The payload could not be read.
    Memory(MemoryFault),
    /// The address handle does not exist, or no longer, or belongs to another protection domain.
    UnknownAh,
    /// The address handle's path takes no packet before this time; the core keeps the packet's
    /// place and tries again later.
    Paced(Instant),
}

/// Reason for which a frame of a raw QP was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// No room now; the core keeps the frame's place and tries again later.
    Full,
    /// The payload could not be read.
    Memory(MemoryFault),
    /// The frame is shorter than an Ethernet header, or longer than the port can send; or what is
    /// to be an IPv6 packet is none.
    Length,
    /// The environment sends no frames: it has no link of Ethernet.
    NoLink,
}

/// Sends packets to the wire.
pub trait PacketSink {
    /// Builds and queues one packet. Returns the length of its frame in bytes, from the destination
    /// MAC to the ICRC.
    ///
    /// # Errors
    /// [`TransmitError`]; then nothing was queued.
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError>;

    /// Queues one frame of a raw QP. Returns its length in bytes, from the destination MAC on,
    /// without the check sequence.
    ///
    /// # Errors
    /// [`FrameError`]; then nothing was queued. A sink without a link of Ethernet refuses all
    /// frames.
    fn transmit_frame(&mut self, _frame: &OutboundFrame<'_>) -> Result<u32, FrameError> {
        Err(FrameError::NoLink)
    }
}

/// The work queue that a completion belongs to, which determines its CQ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The send queue's CQ.
    Send,
    /// The receive queue's CQ.
    Recv,
}

/// Event of a QP that belongs to no work request. Names are those of the verbs' `IBV_EVENT_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AsyncEvent {
    /// The first packet has arrived at a QP in RTR.
    CommEst,
    /// The send queue of a QP in SQD has drained.
    SqDrained,
    /// The QP failed for a local reason.
    QpFatal,
    /// The QP failed because the peer's request broke a rule.
    QpReqErr,
    /// The QP failed because the peer's request accessed memory that is not granted.
    QpAccessErr,
    /// The QP went to ERR and takes no more receives from its SRQ.
    LastWqeReached,
    /// The QP has migrated: path, port, P_Key and ACK timeout are now those of the alternate path.
    PathMig,
    /// The peer requested migration to a path other than the alternate one; the QP has not
    /// migrated.
    PathMigErr,
    /// The peer has not answered, and all retries are used up; only of a QP with a keepalive. Not
    /// an event of the verbs: it is for the connection's management. The QP goes to ERR.
    PeerLost,
}

/// Result of looking for a receive for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A receive with enough room.
    Receive,
    /// The oldest receive has too little room and stays in its queue.
    TooSmall,
    /// No receive is queued.
    Nothing,
}

/// Receives outside the core: those of an SRQ, and those posted to the QP that have not reached it
/// yet.
pub trait SharedReceives {
    /// Takes the oldest receive of the QP's SRQ and passes it to `place`, if it has room for at
    /// least `room` bytes.
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found;

    /// Returns the protection domain of the XRC shared receive queue with this number. `None` if
    /// the XRC domain of the QP has no such queue.
    fn queue_named(&self, _srqn: Srqn) -> Option<Pd> {
        None
    }

    /// Takes the oldest receive of that queue, as [`take_receive`](SharedReceives::take_receive)
    /// does. The completions of the QP's receives go to that queue's CQ from then on.
    fn take_named(
        &mut self,
        _srqn: Srqn,
        _room: u32,
        _place: impl FnOnce(&RecvWr, &[Sge]),
    ) -> Found {
        Found::Nothing
    }

    /// Number of receives posted to the QP's own queue that [`crate::Qp::post_recv`] has not been
    /// given yet.
    fn receives_waiting(&self) -> u32;
}

/// Receives the reports of a QP.
pub trait Output {
    /// Reports that a work request ended. Called once per completion, in the order that the
    /// application sees.
    fn complete(&mut self, side: Side, cqe: Cqe);

    /// Counts one event.
    fn count(&mut self, counter: Counter);

    /// Reports an asynchronous event to the application.
    fn event(&mut self, event: AsyncEvent);

    /// Reports a measured round trip of a request, in nanoseconds, for a distribution of all QPs.
    fn round_trip(&mut self, _nanos: u32) {}
}

/// A QP's whole environment: memory, wire, reports and outside receives.
pub trait Env: PacketSink + Output + SharedReceives {
    /// Type of the registered memory.
    type Memory: Memory;

    /// The environment of another QP, in [`with_other`](Env::with_other).
    type Other<'o>: Env;

    /// Whether each request names a shared receive queue. Only the core's own environment, in which
    /// it runs the roles of RC for XRC, sets it.
    const NAMES_QUEUES: bool = false;

    /// Whether a request may be refused as a violation of a domain. Only the core's own
    /// environments, in which it runs the roles of RC for XRC and RD, set it.
    const HAS_DOMAIN: bool = Self::NAMES_QUEUES;

    /// Returns the registered memory that the QP accesses.
    fn memory(&mut self) -> &mut Self::Memory;

    /// Returns whether the caller can keep the packet that is being handled until its turn comes
    /// ([`crate::Handled::Held`]). Asked only of QPs with selective repeat.
    fn can_hold(&self) -> bool {
        false
    }

    /// Runs `work` on another QP: the RD QP or EEC with this number. What `work` reports is that
    /// QP's, and its receives come from that QP's SRQ. `None` if there is none, or if it is being
    /// worked on already. All QPs and EECs of an RD domain are in one environment.
    ///
    /// An input of an EEC is one of its RD QPs, too. So the environment has to:
    /// - give the core the receives that were posted to the other QP, before `work`
    ///   ([`crate::Qp::post_recv`]); those that it does not know of do not exist for a request;
    /// - do after `work` what it does after an input of that QP, such as showing its state and
    ///   delivering its completions. Each completion is of the QP that is worked on when it is
    ///   reported: one input may complete requests of all RD QPs in an EEC's line;
    /// - neither fail nor destroy a QP in the middle of an input of another one, for instance for a
    ///   completion queue that is full: an RD QP cannot leave an EEC that is being worked on;
    /// - call itself: `work` on an EEC may call for an RD QP, and that one for another EEC.
    fn with_other<R>(
        &mut self,
        _number: Qpn,
        _work: impl FnOnce(&mut crate::Qp, &mut Self::Other<'_>) -> R,
    ) -> Option<R> {
        None
    }

    /// Returns whether [`with_other`](Env::with_other) cannot reach the EEC of this number because
    /// the EEC is of another RD domain, which is in another environment.
    fn has_eec_elsewhere(&self, _number: Qpn) -> bool {
        false
    }

    /// Asks the caller to poll the QP that is being worked on for packets, which it does not do by
    /// itself after [`with_other`](Env::with_other).
    fn wake(&mut self) {}
}
