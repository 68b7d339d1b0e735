//! Completions: the results of work requests.
//!
//! Read first: IBA 11 (completion statuses and the work completion); A17.4.5.1 for the GRH area.

use uroce_wire::{ImmDt, Qpn, Rkey};

use crate::time::Instant;

/// Status of a work completion. Names are those of the verbs' `IBV_WC_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum WcStatus {
    /// The work request was carried out.
    #[error("success")]
    Success,
    /// A message did not fit the receive WQE, or a response had the wrong length.
    #[error("local length error")]
    LocLenErr,
    /// The QP's attributes do not allow the operation, e.g. a READ with `max_rd_atomic` 0.
    #[error("local QP operation error")]
    LocQpOpErr,
    /// The EEC failed, or was taken to ERR or RESET, while it worked on the request (RD).
    #[error("local EE context operation error")]
    LocEecOpErr,
    /// The local scatter/gather list names memory that is not granted.
    #[error("local protection error")]
    LocProtErr,
    /// The QP was in, or went to, the Error state before this work request was done.
    #[error("work request flushed")]
    WrFlushErr,
    /// A memory window could not be bound, or a key could not be invalidated.
    #[error("memory management operation error")]
    MwBindErr,
    /// The response does not match the request.
    #[error("bad response")]
    BadRespErr,
    /// The peer sent a NAK: invalid request.
    #[error("remote invalid request")]
    RemInvReqErr,
    /// The peer sent a NAK: the request named no shared receive queue of its XRC domain, or no RD
    /// QP that takes it: one of the EEC's RD domain, with this Q_Key, in a state to receive.
    #[error("remote invalid XRC or RD request")]
    RemInvRdReqErr,
    /// The peer sent a NAK: remote access error.
    #[error("remote access error")]
    RemAccessErr,
    /// The peer sent a NAK: remote operational error.
    #[error("remote operational error")]
    RemOpErr,
    /// The transport retry counter ran out.
    #[error("transport retry counter exceeded")]
    RetryExcErr,
    /// The RNR retry counter ran out.
    #[error("RNR retry counter exceeded")]
    RnrRetryExcErr,
    /// The work request names an EEC of another RD domain than the QP's.
    #[error("local RD domain violation")]
    LocRddViolErr,
    /// The requester has given the message up that the receive was being filled with (RD).
    #[error("remote aborted")]
    RemAbortErr,
    /// The work request names an EEC that does not exist.
    #[error("invalid EE context number")]
    InvEecnErr,
    /// The work request names an EEC in a state in which it sends nothing.
    #[error("invalid EE context state")]
    InvEecStateErr,
}

/// Operation that a completion reports. Names are those of the verbs' `IBV_WC_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// SEND, plain or with immediate or invalidate.
    Send,
    /// RDMA WRITE, with or without immediate.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// ATOMIC compare and swap.
    CompSwap,
    /// ATOMIC fetch and add.
    FetchAdd,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// Local invalidate of a key.
    LocalInv,
    /// Binding or unbinding of a memory window.
    BindMw,
    /// A receive WQE filled by a SEND.
    Recv,
    /// A receive WQE consumed by a WRITE with immediate.
    RecvRdmaWithImm,
}

/// Completion queue entry: the result of one work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// The application's identifier, from the work request.
    pub wr_id: u64,
    /// Status; if it is an error, only `wr_id`, `status` and `qpn` are meaningful.
    pub status: WcStatus,
    /// Operation that completed.
    pub opcode: WcOpcode,
    /// Bytes received (receives, READ, ATOMIC); on UD the 40 bytes of the GRH area are included.
    pub byte_len: u32,
    /// Immediate data of the message.
    pub imm: Option<ImmDt>,
    /// What a receive names besides.
    pub extra: Extra,
    /// QPN of the local QP.
    pub qpn: Qpn,
    /// QPN of the sender; UD and RD receives only, otherwise 0.
    pub src_qpn: Qpn,
    /// UD receives only: a GRH area of 40 bytes precedes the message and holds this header.
    pub grh: Option<Grh>,
    /// The peer requested a solicited event, or the status is an error.
    pub solicited: bool,
    /// Number of work requests that have left the queue up to and including this one, modulo 2^32.
    /// Unsignaled and discarded ones count too. The environment may count from another start.
    pub position: u32,
    /// Index under which the environment keeps the QP; filled in by the environment.
    pub slot: u32,
    /// Time of the completion by the environment's clock; filled in by the environment.
    pub at: Instant,
}

/// What the completion of a receive names besides the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extra {
    /// Nothing.
    Nothing,
    /// R_Key that the peer's SEND with invalidate has invalidated.
    Invalidated(Rkey),
    /// RD: number of the EEC that the message came by.
    Eec(Qpn),
}

/// IP version of the network header before a datagram (IBA A17.4.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grh {
    /// IPv4: the header is in the last 20 bytes of the GRH area.
    Ipv4,
    /// IPv6: the header fills the GRH area.
    Ipv6,
}

impl Cqe {
    /// R_Key that the peer's SEND with invalidate has invalidated.
    #[inline]
    pub fn invalidated(&self) -> Option<Rkey> {
        if let Extra::Invalidated(rkey) = self.extra { Some(rkey) } else { None }
    }

    /// Number of the EEC that the message of an RD receive came by.
    #[inline]
    pub fn eecn(&self) -> Option<Qpn> {
        if let Extra::Eec(eecn) = self.extra { Some(eecn) } else { None }
    }

    /// A completion with only these fields set; the others are zero or empty.
    pub fn new(wr_id: u64, status: WcStatus, opcode: WcOpcode, qpn: Qpn) -> Cqe {
        Cqe {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            imm: None,
            extra: Extra::Nothing,
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
