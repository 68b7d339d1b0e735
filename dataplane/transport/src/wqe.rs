//! Work requests as the user posts them and as they stand in the queues (WQEs).

use uroce_wire::{ImmDt, Lkey, Msn, Psn, Qkey, Qpn, Rkey, Va};

use crate::attr::{AccessFlags, QpType};
use crate::env::Ah;

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

/// What a memory window is bound to. A length of 0 unbinds it (type 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindMw {
    /// The window's key as it is.
    pub rkey: Rkey,
    /// The window's key from now on; differs in the low 8 bits at most.
    pub new_rkey: Rkey,
    /// The memory region that is to be opened through it.
    pub lkey: Lkey,
    /// First byte.
    pub va: Va,
    /// Bytes.
    pub len: u64,
    /// What the window grants.
    pub access: AccessFlags,
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND, consuming a receive WQE at the peer.
    Send {
        /// Delivered in the peer's completion.
        imm: Option<ImmDt>,
    },
    /// SEND that has the peer invalidate one of its keys, too (RC).
    SendWithInvalidate {
        /// The peer's key.
        rkey: Rkey,
    },
    /// SEND of one datagram (UD).
    SendTo {
        /// The way to the peer.
        ah: Ah,
        /// The peer's QP, or 0xFFFFFF for a multicast group.
        dest_qpn: Qpn,
        /// What the peer's QP must have; with the high bit set the sending QP's own is sent.
        qkey: Qkey,
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
    /// Invalidates a local key: nothing is sent.
    LocalInvalidate {
        /// The key.
        rkey: Rkey,
    },
    /// Binds a memory window as a [`BindMw`] says: nothing is sent.
    BindMw {
        /// The window's key as it is.
        rkey: Rkey,
        /// The window's key from now on.
        new_rkey: Rkey,
        /// The memory region.
        lkey: Lkey,
        /// First byte.
        va: Va,
        /// Bytes.
        len: u64,
        /// What the window grants.
        access: AccessFlags,
    },
}

/// The fields stand in the variant themselves, so that a [`SendOp`] is half a cache line.
impl From<BindMw> for SendOp {
    fn from(bind: BindMw) -> SendOp {
        let BindMw { rkey, new_rkey, lkey, va, len, access } = bind;
        SendOp::BindMw { rkey, new_rkey, lkey, va, len, access }
    }
}

impl SendOp {
    /// READ and ATOMIC are answered with data and bounded by `max_rd_atomic`.
    pub fn is_read_or_atomic(&self) -> bool {
        matches!(self, SendOp::Read { .. }) || self.is_atomic()
    }

    /// May it be posted to a QP of this type?
    pub fn suits(&self, qp_type: QpType) -> bool {
        match self {
            SendOp::SendTo { .. } => qp_type.is_datagram(),
            SendOp::Send { .. }
            | SendOp::Write { .. }
            | SendOp::LocalInvalidate { .. }
            | SendOp::BindMw { .. } => !qp_type.is_datagram(),
            _ => qp_type == QpType::Rc,
        }
    }

    /// May its payload be inline data?
    pub fn takes_inline(&self) -> bool {
        matches!(
            self,
            SendOp::Send { .. }
                | SendOp::SendWithInvalidate { .. }
                | SendOp::SendTo { .. }
                | SendOp::Write { .. }
        )
    }

    /// The rules of a post that need neither a queue nor a state: is the operation one of the QP
    /// type's, and is a scatter/gather list of `num_sge` elements and `len` bytes right for it?
    ///
    /// # Errors
    /// [`PostError::WrongOperation`] or [`PostError::AtomicLength`].
    #[inline]
    pub fn check(&self, qp_type: QpType, num_sge: usize, len: u64) -> Result<(), PostError> {
        if !self.suits(qp_type) || self.is_local() && num_sge > 0 {
            return Err(PostError::WrongOperation);
        }
        if self.is_atomic() && len != 8 { Err(PostError::AtomicLength) } else { Ok(()) }
    }

    /// As [`check`](SendOp::check), for a payload of inline data.
    ///
    /// # Errors
    /// [`PostError::WrongOperation`].
    #[inline]
    pub fn check_inline(&self, qp_type: QpType) -> Result<(), PostError> {
        let is_right = self.suits(qp_type) && self.takes_inline();
        if is_right { Ok(()) } else { Err(PostError::WrongOperation) }
    }

    /// Does it consume a receive WQE at the peer?
    pub fn needs_receive(&self) -> bool {
        match self {
            SendOp::Send { .. } | SendOp::SendWithInvalidate { .. } | SendOp::SendTo { .. } => true,
            SendOp::Write { imm, .. } => imm.is_some(),
            _ => false,
        }
    }

    /// Local invalidate and bind: nothing is sent, no PSN is taken.
    pub fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInvalidate { .. } | SendOp::BindMw { .. })
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
    /// Begin only when all READs and ATOMICs posted before have completed (RC).
    pub fence: bool,
}

/// A receive work request; its scatter list is handed over beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWr {
    /// The application's cookie, given back in the completion.
    pub wr_id: u64,
}

/// Longest message of a work request, in bytes.
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;

/// A send work request in the send queue: one cache line, since with many QPs it is in no cache
/// when it is sent and completed.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    /// Total bytes of the scatter/gather list.
    pub(crate) len: u32,
    /// PSN of the first packet; set when the message's first packet is first sent.
    pub(crate) first_psn: Psn,
    /// PSNs it takes: one a packet, for a READ one a response packet.
    pub(crate) psns: u32,
    /// Number of the message, RC; set with `first_psn`. The first is 1.
    pub(crate) ssn: Msn,
    pub(crate) num_sge: u8,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// The payload is inline data.
    pub(crate) is_inline: bool,
}

const _: () = assert!(size_of::<Option<SendWqe>>() == 64);

impl SendWqe {
    /// A work request without payload and PSNs.
    pub(crate) fn new(wr: &SendWr) -> SendWqe {
        let SendWr { wr_id, op, signaled, solicited, fence } = *wr;
        SendWqe {
            wr_id,
            op,
            len: 0,
            first_psn: Psn::default(),
            psns: 0,
            ssn: Msn::default(),
            num_sge: 0,
            signaled,
            solicited,
            fence,
            is_inline: false,
        }
    }

    /// The PSN after its last, once it has any.
    pub(crate) fn end(&self) -> Psn {
        self.first_psn.plus(self.psns)
    }
}

/// A receive work request in the receive queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) len: u32,
    pub(crate) num_sge: u8,
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
    /// The operation is none of the QP type's, or takes no inline data, or no scatter/gather list.
    #[error("operation not possible on a QP of this type, or not with this payload")]
    WrongOperation,
    /// More inline data than the queue was created for.
    #[error("too much inline data")]
    InlineTooLong,
    /// The QP takes its receives from a shared receive queue.
    #[error("receives of this QP are posted to its SRQ")]
    HasSrq,
}
