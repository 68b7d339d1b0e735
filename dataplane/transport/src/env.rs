//! The surroundings of a QP: memory it may touch, the wire it sends on, where it reports.
//!
//! The core says *what* to copy and *what* to send; an [`Env`] does it and may refuse. The
//! engine's copies real memory into mbufs, the simulator's works on vectors.

use uroce_wire::{Bth, ExtHeaders, HeaderTemplate, Lkey, Qpn, Rkey, Va};

use crate::counter::Counter;
use crate::cqe::Cqe;
use crate::gather::Gather;
use crate::time::Instant;
use crate::wqe::{BindMw, RecvWr, Sge};

/// A protection domain's number. Keys of one domain are refused in another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(pub u32);

/// Who touches memory: keys are of one protection domain, and type-2 windows of one QP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accessor {
    /// The QP's protection domain.
    pub pd: Pd,
    /// The QP.
    pub qpn: Qpn,
}

/// An address handle's number: the way of a UD packet, known to the surroundings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ah(pub u32);

/// The key that opens a memory region, and on whose behalf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// The application's own: reading needs no right, writing needs `LOCAL_WRITE`.
    Local(Lkey),
    /// A peer's: every access needs the matching remote right.
    Remote(Rkey),
}

/// A range of registered memory under a key. `len` in bytes; a zero length touches nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The key it is opened with.
    pub key: Key,
    /// First byte.
    pub va: Va,
    /// Bytes, 0 to 2^31.
    pub len: u32,
}

/// What is to be done with a [`Region`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Bytes leave memory.
    Read,
    /// Bytes enter memory.
    Write,
    /// An eight-byte atomic read-modify-write.
    Atomic,
}

/// Why an [`Env`] refused memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryFault {
    /// No memory region has this key (any more).
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
    /// The region does not grant this access.
    #[error("access not granted by the memory region")]
    NotGranted,
    /// The memory is registered, but some of it is not there any more.
    #[error("memory that is gone though it is registered")]
    Gone,
    /// The memory window is bound already.
    #[error("memory window is bound already")]
    WindowBound,
    /// What can be done with windows only was asked for another key.
    #[error("key of no memory window of the right type")]
    NotAWindow,
}

/// An operation of an ATOMIC request, on one aligned 64-bit word in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Store `swap` if the word equals `compare`.
    CompareSwap {
        /// Compared with the word.
        compare: u64,
        /// Stored on a match.
        swap: u64,
    },
    /// Add, wrapping at 2^64.
    FetchAdd {
        /// The addend.
        add: u64,
    },
}

/// Registered memory.
pub trait Memory {
    /// Would `access` to the whole of `region` be granted? Changes nothing.
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    fn check(&self, by: Accessor, region: Region, access: Access) -> Result<(), MemoryFault>;

    /// Copies `bytes` to the start of `region` (`bytes.len() == region.len`).
    ///
    /// # Errors
    /// A [`MemoryFault`]; then no byte was written, but for [`MemoryFault::Gone`], where some may
    /// have been.
    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Performs `op` on the eight bytes at `va`, which is 8-byte aligned, and returns the
    /// word's former value.
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

    /// Binds a memory window to (a part of) a region, or unbinds it.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the window is as it was.
    fn bind(&mut self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault>;

    /// Takes a key's meaning away until its window is bound again.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the key opens what it did.
    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault>;
}

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path<'a> {
    /// The connection's: everything in front of BTH, made of [`crate::QpAttr::path`]. It leaves by
    /// the QP's port.
    Connected(&'a HeaderTemplate),
    /// An address handle's.
    Ah(Ah),
}

/// One packet to be sent: what stands in its headers, and where its payload is gathered from.
///
/// The sink adds everything in front of the BTH, the payload, the pad bytes that
/// `bth.pad_count` announces, and the ICRC.
#[derive(Clone, Debug)]
pub struct Outbound<'a> {
    /// The way it goes.
    pub path: Path<'a>,
    /// The base transport header, complete.
    pub bth: Bth,
    /// The extension headers of `bth.opcode`'s row in the opcode table.
    pub ext: ExtHeaders,
    /// On whose behalf the payload is read.
    pub by: Accessor,
    /// The payload's pieces, in order.
    pub payload: Gather<'a>,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransmitError {
    /// No room now; the core keeps the packet's place and asks again.
    Full,
    /// The payload could not be read.
    Memory(MemoryFault),
    /// There is no such address handle (any more), or it is of another protection domain.
    UnknownAh,
    /// The address handle's way takes no packet before then; the core keeps the packet's place and
    /// asks again.
    Paced(Instant),
}

/// The way to the wire.
pub trait PacketSink {
    /// Builds and queues one packet. Gives the length of its frame in bytes, from the destination
    /// MAC to the ICRC.
    ///
    /// # Errors
    /// [`TransmitError`]; then nothing was queued.
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError>;
}

/// Which queue of the QP a completion belongs to, and so which CQ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The send queue's CQ.
    Send,
    /// The receive queue's CQ.
    Recv,
}

/// What happened to a QP and belongs to no work request. Names are the verbs' `IBV_EVENT_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AsyncEvent {
    /// The first packet has come to a QP in RTR.
    CommEst,
    /// The send queue of an SQD QP is drained.
    SqDrained,
    /// The QP failed for a reason of its own.
    QpFatal,
    /// The QP failed: the peer's request broke a rule.
    QpReqErr,
    /// The QP failed: the peer's request named memory that is not granted.
    QpAccessErr,
    /// The QP went to ERR and takes no more receives from its SRQ.
    LastWqeReached,
    /// The QP has migrated: path, port, P_Key and ACK timeout are the alternate path's now.
    PathMig,
    /// The peer asked to migrate to another path than the alternate one; the QP stays.
    PathMigErr,
}

/// What a receive queue has for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A receive that holds the message.
    Receive,
    /// The oldest receive holds less; it stays where it is.
    TooSmall,
    /// No receive.
    Nothing,
}

/// Receives that are not in the core: of an SRQ, or in the QP's own ring on their way.
pub trait SharedReceives {
    /// Takes the oldest receive of the QP's SRQ and hands it to `place`, if it holds `room` bytes or
    /// more.
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found;

    /// Receives posted to the QP's own queue that [`crate::Qp::post_recv`] has not seen yet.
    fn receives_waiting(&self) -> u32;
}

/// Where a QP reports.
pub trait Output {
    /// A work request ended. Called once per completion, in the order the application sees.
    fn complete(&mut self, side: Side, cqe: Cqe);

    /// Something worth counting happened once.
    fn count(&mut self, counter: Counter);

    /// Something happened that the application is to be told of.
    fn event(&mut self, event: AsyncEvent);
}

/// All of a QP's surroundings in one value.
pub trait Env: Memory + PacketSink + Output + SharedReceives {}

impl<T: Memory + PacketSink + Output + SharedReceives> Env for T {}
