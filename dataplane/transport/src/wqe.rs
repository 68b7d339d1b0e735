//! Work requests as the user posts them, and as the queues store them (WQEs).
//!
//! Read first: IBA 11 (work requests).

use uroce_wire::{ImmDt, Lkey, Mac, Msn, Placement, Psn, Qkey, Qpn, Rkey, Selectivity, Srqn, Va};

use crate::attr::{AccessFlags, QpType};
use crate::env::Ah;
use crate::rate::StaticRate;

/// Scatter/gather element: a range of local memory in a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sge {
    /// Address of the first byte.
    pub va: Va,
    /// Length in bytes; an element of length zero accesses nothing.
    pub len: u32,
    /// L_Key of the memory region.
    pub lkey: Lkey,
}

/// Binding of a memory window. A length of 0 unbinds it (type 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindMw {
    /// Current R_Key of the window.
    pub rkey: Rkey,
    /// R_Key of the window from now on; differs from `rkey` in the low 8 bits at most.
    pub new_rkey: Rkey,
    /// L_Key of the memory region that the window is bound to.
    pub lkey: Lkey,
    /// Address of the first byte.
    pub va: Va,
    /// Length in bytes.
    pub len: u64,
    /// Access that the window grants.
    pub access: AccessFlags,
}

/// Operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND; consumes a receive WQE at the peer.
    Send {
        /// Immediate data for the peer's completion.
        imm: Option<ImmDt>,
    },
    /// SEND that also invalidates a key at the peer (RC).
    SendWithInvalidate {
        /// R_Key of the peer to invalidate.
        rkey: Rkey,
    },
    /// SEND of one datagram (UD).
    SendTo {
        /// Address handle: the path to the peer.
        ah: Ah,
        /// QPN of the peer's QP, or 0xFFFFFF for a multicast group.
        dest_qpn: Qpn,
        /// Q_Key that the peer's QP must have; if its high bit is set, the sending QP's own is
        /// sent.
        qkey: Qkey,
        /// Immediate data for the peer's completion.
        imm: Option<ImmDt>,
    },
    /// A whole Ethernet frame, sent as it is (Raw packet, Raw EtherType).
    Frame {
        /// Highest rate: the next frame waits as long as this one takes at it.
        rate: StaticRate,
        /// The checksums of IP, UDP and TCP are filled in.
        checksums: bool,
    },
    /// An IPv6 packet (Raw IPv6).
    Ipv6 {
        /// Ethernet address of the next hop.
        to: Mac,
        /// Highest rate, as of a [`Frame`](SendOp::Frame).
        rate: StaticRate,
    },
    /// RDMA WRITE; with `imm` it consumes a receive WQE at the peer.
    Write {
        /// Remote address of the first byte.
        va: Va,
        /// R_Key of the remote region.
        rkey: Rkey,
        /// Immediate data for the peer's completion.
        imm: Option<ImmDt>,
    },
    /// RDMA READ into the local scatter list.
    Read {
        /// Remote address of the first byte.
        va: Va,
        /// R_Key of the remote region.
        rkey: Rkey,
    },
    /// ATOMIC compare and swap; the former value is written to the 8-byte scatter list.
    CompareSwap {
        /// Remote address, 8-byte aligned.
        va: Va,
        /// R_Key of the remote region.
        rkey: Rkey,
        /// Value that the remote word is compared with.
        compare: u64,
        /// Value that is stored if they are equal.
        swap: u64,
    },
    /// ATOMIC fetch and add; the former value is written to the 8-byte scatter list.
    FetchAdd {
        /// Remote address, 8-byte aligned.
        va: Va,
        /// R_Key of the remote region.
        rkey: Rkey,
        /// Value that is added.
        add: u64,
    },
    /// ATOMIC WRITE: writes the 8 bytes of the gather list, or of inline data, in one piece.
    AtomicWrite {
        /// Remote address, 8-byte aligned.
        va: Va,
        /// R_Key of the remote region.
        rkey: Rkey,
    },
    /// FLUSH: completes once what was written to the remote memory before is visible or
    /// persistent, as `placement` says.
    Flush {
        /// Remote address of the first byte; not used for a whole region.
        va: Va,
        /// R_Key of the remote region.
        rkey: Rkey,
        /// Length in bytes; not used for a whole region.
        len: u32,
        /// Visibility, persistence or both.
        placement: Placement,
        /// A range or the whole region.
        selectivity: Selectivity,
    },
    /// Invalidates a local key; sends nothing.
    LocalInvalidate {
        /// R_Key to invalidate.
        rkey: Rkey,
    },
    /// Binds a memory window; sends nothing. The fields are those of [`BindMw`].
    BindMw {
        /// Current R_Key of the window.
        rkey: Rkey,
        /// R_Key of the window from now on.
        new_rkey: Rkey,
        /// L_Key of the memory region.
        lkey: Lkey,
        /// Address of the first byte.
        va: Va,
        /// Length in bytes.
        len: u64,
        /// Access that the window grants.
        access: AccessFlags,
    },
}

/// The fields of a [`BindMw`] are in the variant itself, because that makes a [`SendOp`] half a
/// cache line.
impl From<BindMw> for SendOp {
    fn from(bind: BindMw) -> SendOp {
        let BindMw { rkey, new_rkey, lkey, va, len, access } = bind;
        SendOp::BindMw { rkey, new_rkey, lkey, va, len, access }
    }
}

impl SendOp {
    /// Returns whether the operation has a response of its own, and is limited by `max_rd_atomic`:
    /// READ, ATOMIC, ATOMIC WRITE and FLUSH.
    pub fn has_response(&self) -> bool {
        self.returns_data() || self.is_placement()
    }

    /// Returns whether the response carries data: READ and ATOMIC.
    pub fn returns_data(&self) -> bool {
        matches!(self, SendOp::Read { .. }) || self.is_atomic()
    }

    /// Returns whether the operation is ATOMIC WRITE or FLUSH, the response to which is empty.
    pub fn is_placement(&self) -> bool {
        matches!(self, SendOp::AtomicWrite { .. } | SendOp::Flush { .. })
    }

    /// Returns whether the operation may be posted to a QP of this type.
    pub fn suits(&self, qp_type: QpType) -> bool {
        match self {
            SendOp::SendTo { .. } => qp_type.is_datagram(),
            SendOp::Frame { .. } => matches!(qp_type, QpType::RawPacket | QpType::RawEtherType),
            SendOp::Ipv6 { .. } => qp_type == QpType::RawIpv6,
            SendOp::Send { .. } | SendOp::Write { .. } => {
                matches!(qp_type, QpType::Rc | QpType::Uc | QpType::XrcSend | QpType::Rd)
            }
            //= check R8 — RD has neither local operations nor invalidation, ATOMIC WRITE, FLUSH
            SendOp::LocalInvalidate { .. } | SendOp::BindMw { .. } => {
                matches!(qp_type, QpType::Rc | QpType::Uc | QpType::XrcSend)
            }
            SendOp::SendWithInvalidate { .. } => matches!(qp_type, QpType::Rc | QpType::XrcSend),
            //= check X5 — ATOMIC WRITE and FLUSH over XRC are left out
            SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => qp_type == QpType::Rc,
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                matches!(qp_type, QpType::Rc | QpType::XrcSend | QpType::Rd)
            }
        }
    }

    /// Returns whether the operation's payload may be inline data.
    pub fn takes_inline(&self) -> bool {
        matches!(
            self,
            SendOp::Send { .. }
                | SendOp::SendWithInvalidate { .. }
                | SendOp::SendTo { .. }
                | SendOp::Frame { .. }
                | SendOp::Ipv6 { .. }
                | SendOp::Write { .. }
                | SendOp::AtomicWrite { .. }
        )
    }

    /// Checks the rules of a post that need neither a queue nor a state: the operation belongs to
    /// the QP type, and a scatter/gather list of `num_sge` elements and `len` bytes suits it.
    ///
    /// # Errors
    /// [`PostError::WrongOperation`], [`PostError::AtomicLength`] or [`PostError::BadFlush`].
    #[inline]
    pub fn check(&self, qp_type: QpType, num_sge: usize, len: u64) -> Result<(), PostError> {
        if !self.suits(qp_type) || self.takes_no_list() && num_sge > 0 {
            return Err(PostError::WrongOperation);
        }
        if self.is_one_word() && len != 8 {
            return Err(PostError::AtomicLength);
        }
        match self {
            SendOp::Flush { len, placement, selectivity, .. } => {
                check_flush(*len, *placement, *selectivity)
            }
            _ => Ok(()),
        }
    }

    /// Checks the same rules as [`check`](SendOp::check) for a payload of `len` bytes of inline
    /// data.
    ///
    /// # Errors
    /// [`PostError::WrongOperation`] or [`PostError::AtomicLength`].
    #[inline]
    pub fn check_inline(&self, qp_type: QpType, len: usize) -> Result<(), PostError> {
        if !self.suits(qp_type) || !self.takes_inline() {
            return Err(PostError::WrongOperation);
        }
        if self.is_one_word() && len != 8 { Err(PostError::AtomicLength) } else { Ok(()) }
    }

    /// Returns whether the operation has no payload and no result, so that it takes no
    /// scatter/gather list.
    fn takes_no_list(&self) -> bool {
        self.is_local() || matches!(self, SendOp::Flush { .. })
    }

    /// Returns whether the operation's payload or result is exactly 8 bytes long.
    fn is_one_word(&self) -> bool {
        self.is_atomic() || matches!(self, SendOp::AtomicWrite { .. })
    }

    /// Returns whether the operation consumes a receive WQE at the peer.
    pub fn needs_receive(&self) -> bool {
        match self {
            SendOp::Send { .. } | SendOp::SendWithInvalidate { .. } | SendOp::SendTo { .. } => true,
            SendOp::Write { imm, .. } => imm.is_some(),
            _ => false,
        }
    }

    /// Returns whether the operation is local (invalidate or bind): it sends nothing and uses no
    /// PSN.
    pub fn is_local(&self) -> bool {
        matches!(self, SendOp::LocalInvalidate { .. } | SendOp::BindMw { .. })
    }

    /// Returns whether the operation is one of the two ATOMIC operations.
    pub fn is_atomic(&self) -> bool {
        matches!(self, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }
}

/// Checks the fields of a FLUSH.
#[cold]
fn check_flush(len: u32, placement: Placement, selectivity: Selectivity) -> Result<(), PostError> {
    let is_right = match selectivity {
        Selectivity::Range => len <= MAX_MESSAGE_LEN,
        Selectivity::Region => true,
        Selectivity::Reserved(_) => false,
    };
    if placement.is_defined() && is_right { Ok(()) } else { Err(PostError::BadFlush) }
}

/// A send work request. Its scatter/gather list is passed separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendWr {
    /// Identifier of the application, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// A completion is requested on success. Errors always complete.
    pub signaled: bool,
    /// A solicited event is requested at the peer (SEND and WRITE with immediate).
    pub solicited: bool,
    /// The request must not begin before all earlier READs, ATOMICs, ATOMIC WRITEs and FLUSHes have
    /// completed (RC, XRC).
    pub fence: bool,
    /// XRC: number of the peer's shared receive queue. It provides the receive, and its protection
    /// domain is that of the memory, also for requests without a receive. Otherwise not used.
    pub srqn: Srqn,
}

/// Destination of a work request of an RD QP, which is passed separately like a scatter/gather
/// list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdAddress {
    /// Number of the local EEC that the message goes by.
    pub eecn: Qpn,
    /// QPN of the peer's RD QP.
    pub dest_qpn: Qpn,
    /// Q_Key that the peer's QP must have; if its high bit is set, the sending QP's own is sent.
    pub qkey: Qkey,
}

impl RdAddress {
    /// Places for the addresses beside the slots of a send queue.
    pub(crate) fn of_slots(slots: usize) -> Box<[RdAddress]> {
        vec![RdAddress::default(); slots].into_boxed_slice()
    }
}

/// Number of a reliable datagram domain (RDD). RD QPs use the EECs of their domain only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rdd(pub u32);

/// A receive work request. Its scatter list is passed separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWr {
    /// Identifier of the application, returned in the completion.
    pub wr_id: u64,
}

/// Longest message of a work request, in bytes.
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;

/// A send work request in the send queue. It has the size of a cache line, because with many QPs it
/// is in no cache when it is sent and completed.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    /// Length of the message in bytes.
    pub(crate) len: u32,
    /// PSN of the first packet; set when the message's first packet is first sent.
    pub(crate) first_psn: Psn,
    /// Number of PSNs that the message uses: one per packet; for a READ, one per response packet.
    pub(crate) psns: u32,
    /// Number of the message (RC); set with `first_psn`. The first message has number 1.
    pub(crate) ssn: Msn,
    pub(crate) num_sge: u8,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// The payload is inline data.
    pub(crate) is_inline: bool,
    /// [`SendWr::srqn`], high byte first.
    pub(crate) srqn: [u8; 3],
}

const _: () = assert!(size_of::<Option<SendWqe>>() == 64);

impl SendWqe {
    /// A work request without payload and PSNs.
    pub(crate) fn new(wr: &SendWr) -> SendWqe {
        let SendWr { wr_id, op, signaled, solicited, fence, srqn } = *wr;
        let [_, srqn @ ..] = srqn.value().to_be_bytes();
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
            srqn,
        }
    }

    /// The shared receive queue that an XRC request names.
    pub(crate) fn srqn(&self) -> Srqn {
        let [high, middle, low] = self.srqn;
        Srqn::new(u32::from_be_bytes([0, high, middle, low]))
    }

    /// The PSN after the message's last one, once it has PSNs.
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

/// Reason for which a work request was refused. A refused post changes nothing.
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
    /// The scatter/gather list, or inline data, of an ATOMIC or ATOMIC WRITE is not exactly 8 bytes
    /// long.
    #[error("scatter/gather list of an atomic must be 8 bytes")]
    AtomicLength,
    /// A FLUSH for neither visibility nor persistence, with a reserved placement type or
    /// selectivity level, or of a range longer than [`MAX_MESSAGE_LEN`].
    #[error("placement type, selectivity level or length that no FLUSH has")]
    BadFlush,
    /// The QP type does not have the operation, or the operation takes no inline data or no list.
    #[error("operation not possible on a QP of this type, or not with this payload")]
    WrongOperation,
    /// More inline data than the queue was created for.
    #[error("too much inline data")]
    InlineTooLong,
    /// The QP receives from a shared receive queue.
    #[error("receives of this QP are posted to its SRQ")]
    HasSrq,
}
