//! The surroundings of a QP: memory it may touch, the wire it sends on, where it reports.
//!
//! The core says *what* to copy and *what* to send; an [`Env`] does it and may refuse. The
//! engine's copies real memory into mbufs, the simulator's works on vectors.

use uroce_wire::{Bth, ExtHeaders, Lkey, Rkey, Va};

use crate::counter::Counter;
use crate::cqe::Cqe;
use crate::gather::Gather;

/// A protection domain's number. Keys of one domain are refused in another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pd(pub u32);

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
    /// The range is not inside the region, or wraps past 2^64.
    #[error("address range outside of the memory region")]
    OutOfRange,
    /// The region does not grant this access.
    #[error("access not granted by the memory region")]
    NotGranted,
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
    fn check(&self, pd: Pd, region: Region, access: Access) -> Result<(), MemoryFault>;

    /// Copies `bytes` to the start of `region` (`bytes.len() == region.len`).
    ///
    /// # Errors
    /// A [`MemoryFault`]; then no byte was written.
    fn write(&mut self, pd: Pd, region: Region, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Performs `op` on the eight bytes at `va`, which is 8-byte aligned, and returns the
    /// word's former value.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the word is unchanged.
    fn atomic(&mut self, pd: Pd, rkey: Rkey, va: Va, op: AtomicOp) -> Result<u64, MemoryFault>;
}

/// One packet to be sent: what stands in its headers, and where its payload is gathered from.
///
/// The sink adds everything in front of the BTH, the payload, the pad bytes that
/// `bth.pad_count` announces, and the ICRC.
#[derive(Clone, Debug)]
pub struct Outbound<'a> {
    /// The base transport header, complete.
    pub bth: Bth,
    /// The extension headers of `bth.opcode`'s row in the opcode table.
    pub ext: ExtHeaders,
    /// The protection domain under which the payload is read.
    pub pd: Pd,
    /// The payload's regions, in order.
    pub payload: Gather<'a>,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransmitError {
    /// No room now; the core keeps the packet's place and asks again.
    Full,
    /// The payload could not be read.
    Memory(MemoryFault),
}

/// The way to the wire.
pub trait PacketSink {
    /// Builds and queues one packet.
    ///
    /// # Errors
    /// [`TransmitError`]; then nothing was queued.
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<(), TransmitError>;
}

/// Which queue of the QP a completion belongs to, and so which CQ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The send queue's CQ.
    Send,
    /// The receive queue's CQ.
    Recv,
}

/// Where a QP reports.
pub trait Output {
    /// A work request ended. Called once per completion, in the order the application sees.
    fn complete(&mut self, side: Side, cqe: Cqe);

    /// Something worth counting happened once.
    fn count(&mut self, counter: Counter);
}

/// All of a QP's surroundings in one value.
pub trait Env: Memory + PacketSink + Output {}

impl<T: Memory + PacketSink + Output> Env for T {}
