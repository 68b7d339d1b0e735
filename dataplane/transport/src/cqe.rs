//! Completions: what a work request came to.

use uroce_wire::{ImmDt, Qpn, Rkey};

use crate::time::Instant;

/// How a work request ended. Names are the verbs' `IBV_WC_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum WcStatus {
    /// Done.
    #[error("success")]
    Success,
    /// A message did not fit the receive WQE, or a response had a wrong length.
    #[error("local length error")]
    LocLenErr,
    /// The QP's attributes do not allow the operation, e.g. a READ with `max_rd_atomic` 0.
    #[error("local QP operation error")]
    LocQpOpErr,
    /// The local scatter/gather list names memory that is not granted.
    #[error("local protection error")]
    LocProtErr,
    /// The QP was in, or went to, the Error state before this work request was done.
    #[error("work request flushed")]
    WrFlushErr,
    /// A memory window could not be bound, or a key not be invalidated.
    #[error("memory management operation error")]
    MwBindErr,
    /// The responder's answer does not fit the request.
    #[error("bad response")]
    BadRespErr,
    /// NAK: invalid request.
    #[error("remote invalid request")]
    RemInvReqErr,
    /// NAK: remote access error.
    #[error("remote access error")]
    RemAccessErr,
    /// NAK: remote operational error.
    #[error("remote operational error")]
    RemOpErr,
    /// The transport retry counter ran out.
    #[error("transport retry counter exceeded")]
    RetryExcErr,
    /// The RNR retry counter ran out.
    #[error("RNR retry counter exceeded")]
    RnrRetryExcErr,
}

/// What completed. Names are the verbs' `IBV_WC_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// SEND, with immediate or invalidate or plain.
    Send,
    /// RDMA WRITE, with or without immediate.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// ATOMIC compare and swap.
    CompSwap,
    /// ATOMIC fetch and add.
    FetchAdd,
    /// Local invalidate.
    LocalInv,
    /// A memory window bound or unbound.
    BindMw,
    /// A receive WQE filled by a SEND.
    Recv,
    /// A receive WQE consumed by a WRITE with immediate.
    RecvRdmaWithImm,
}

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// The work request's cookie.
    pub wr_id: u64,
    /// How it ended; with an error only `wr_id`, `status` and `qpn` are meaningful.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received (receive side, READ, ATOMIC); with UD the 40 bytes of the GRH count.
    pub byte_len: u32,
    /// Immediate data that came with the message.
    pub imm: Option<ImmDt>,
    /// The key that the peer's SEND with invalidate has invalidated.
    pub invalidated: Option<Rkey>,
    /// The local QP.
    pub qpn: Qpn,
    /// The sender's QP; UD receives only, else 0.
    pub src_qpn: Qpn,
    /// The message lies behind a GRH area of 40 bytes, made of this header; UD receives only.
    pub grh: Option<Grh>,
    /// The peer asked for a solicited event, or the status is an error.
    pub solicited: bool,
    /// Work requests that have left the queue up to this one, unsignaled and discarded ones as well,
    /// modulo 2^32. Surroundings may count from elsewhere.
    pub position: u32,
    /// Where the surroundings keep the QP: they fill it in.
    pub slot: u32,
    /// When it was made, by the clock of the surroundings: they fill it in.
    pub at: Instant,
}

/// The network header that a datagram came behind (IBA A17.4.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grh {
    /// IPv4, in the last 20 bytes of the area.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Cqe {
    /// A completion that says no more than what ended how.
    pub fn new(wr_id: u64, status: WcStatus, opcode: WcOpcode, qpn: Qpn) -> Cqe {
        Cqe {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn,
            src_qpn: Qpn::default(),
            grh: None,
            solicited: status != WcStatus::Success,
            position: 0,
            slot: 0,
            at: Instant::ZERO,
        }
    }
}
