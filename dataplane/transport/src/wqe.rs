//! Work requests as the user posts them and as they stand in the queues (WQEs).

use uroce_wire::{ImmDt, Lkey, Psn, Rkey, Va};

/// A piece of local memory in a work request's scatter/gather list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// First byte.
    pub va: Va,
    /// Bytes; zero is allowed and touches nothing.
    pub len: u32,
    /// The region's local key.
    pub lkey: Lkey,
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND, consuming a receive WQE at the peer.
    Send {
        /// Delivered in the peer's completion.
        imm: Option<ImmDt>,
    },
    /// RDMA WRITE. With `imm` it consumes a receive WQE at the peer.
    Write {
        /// Remote address of the first byte.
        va: Va,
        /// The remote region's key.
        rkey: Rkey,
        /// Delivered in the peer's completion.
        imm: Option<ImmDt>,
    },
    /// RDMA READ into the local scatter list.
    Read {
        /// Remote address of the first byte.
        va: Va,
        /// The remote region's key.
        rkey: Rkey,
    },
    /// ATOMIC compare and swap; the former value lands in the 8-byte scatter list.
    CompareSwap {
        /// Remote address, 8-byte aligned.
        va: Va,
        /// The remote region's key.
        rkey: Rkey,
        /// Compared with the remote word.
        compare: u64,
        /// Stored on a match.
        swap: u64,
    },
    /// ATOMIC fetch and add; the former value lands in the 8-byte scatter list.
    FetchAdd {
        /// Remote address, 8-byte aligned.
        va: Va,
        /// The remote region's key.
        rkey: Rkey,
        /// The addend.
        add: u64,
    },
}

impl SendOp {
    /// READ and ATOMIC are answered with data and bounded by `max_rd_atomic`.
    pub fn is_read_or_atomic(&self) -> bool {
        !matches!(self, SendOp::Send { .. } | SendOp::Write { .. })
    }

    /// The two ATOMIC operations.
    pub fn is_atomic(&self) -> bool {
        matches!(self, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }
}

/// A send work request; its scatter/gather list is handed over beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendWr {
    /// The application's cookie, given back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// Ask for a completion on success. Errors always complete.
    pub signaled: bool,
    /// Raise a solicited event at the peer (SEND and WRITE with immediate).
    pub solicited: bool,
}

/// A receive work request; its scatter list is handed over beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWr {
    /// The application's cookie, given back in the completion.
    pub wr_id: u64,
}

/// Longest message of a work request, in bytes.
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;

/// A send work request in the send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr: SendWr,
    /// Total bytes of the scatter/gather list.
    pub(crate) len: u32,
    /// Position of the first SGE in the queue's SGE ring.
    pub(crate) sge_at: u32,
    pub(crate) num_sge: u32,
    /// PSN of the first packet; set when the message's first packet is first sent.
    pub(crate) first_psn: Psn,
    /// PSNs it takes: one a packet, for a READ one a response packet.
    pub(crate) psns: u32,
}

/// A receive work request in the receive queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) len: u32,
    pub(crate) sge_at: u32,
    pub(crate) num_sge: u32,
}

/// Why a work request was not taken. A refused post changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// The QP's state does not allow posting to this queue.
    #[error("QP state does not allow posting to this queue")]
    InvalidState,
    /// The queue holds as many work requests as it was created for.
    #[error("queue is full")]
    QueueFull,
    /// More scatter/gather elements than the queue was created for.
    #[error("too many scatter/gather elements")]
    TooManySges,
    /// The elements sum up to more than [`MAX_MESSAGE_LEN`].
    #[error("message longer than 2^31 bytes")]
    TooLong,
    /// An ATOMIC's scatter list is not exactly 8 bytes long.
    #[error("scatter list of an atomic must be 8 bytes")]
    AtomicLength,
}
