//! The changes that take a QP from RESET to RTS.
//!
//! Read first: IBA 10 and 11 (Modify QP: the attributes of each transition).
//!
//! Not here: the path, which the caller adds; attributes that a transition does not need.

use uroce_wire::{PathMtu, Pkey, Psn, Qkey, Qpn};

use super::{AccessFlags, QpChange, QpType};
use crate::qp::state::QpState;

/// Attributes that a connected QP needs for INIT to RTR, besides the path. The last two are used on
/// RC and by an XRC target only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtrAttr {
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// QPN of the peer.
    pub dest_qpn: Qpn,
    /// PSN of the peer's first packet.
    pub rq_psn: Psn,
    /// READ, ATOMIC and ATOMIC WRITE requests of the peer that this side keeps answers of, 0 to
    /// 16.
    pub max_dest_rd_atomic: u8,
    /// Code of the time that the peer waits after an RNR NAK of this side, 0 to 31.
    pub min_rnr_timer: u8,
}

/// Attributes that a connected QP needs for RTR to RTS. All but `sq_psn` are used on RC and XRC
/// only; an XRC target uses none but the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtsAttr {
    /// PSN of the first packet that is sent.
    pub sq_psn: Psn,
    /// Code of the local ACK timeout, 0 (never) to 31.
    pub timeout: u8,
    /// Transport retries, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after an RNR NAK, 0 to 7, where 7 means no limit.
    pub rnr_retry: u8,
    /// READ, ATOMIC, ATOMIC WRITE and FLUSH requests outstanding at the peer, 0 to 128.
    pub max_rd_atomic: u8,
}

/// Attributes of an RD QP. All else is its EECs'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdAttr {
    /// Operations that requests to the QP may do.
    pub access: AccessFlags,
    /// 0 if requests to the QP may be neither READ nor ATOMIC, otherwise up to 16.
    pub max_dest_rd_atomic: u8,
    /// Code of the time that a peer waits after an RNR NAK of this QP, 0 to 31.
    pub min_rnr_timer: u8,
}

impl QpChange {
    /// RESET to INIT with the default P_Key. `port` is the local port, counted from 1. The caller
    /// adds `access` (RC, UC) or `qkey` (UD).
    pub fn to_init(port: u8) -> QpChange {
        QpChange { pkey: Some(Pkey::DEFAULT), port: Some(port), ..QpChange::to(QpState::Init) }
    }

    /// INIT to RTR of a connected QP. The caller adds `path`.
    pub fn to_rtr(qp_type: QpType, attr: &RtrAttr) -> QpChange {
        //= check X6 — an initiator serves nothing, so it has no limits of what it serves
        let serves = matches!(qp_type, QpType::Rc | QpType::XrcRecv | QpType::Eec);
        QpChange {
            path_mtu: Some(attr.path_mtu),
            dest_qpn: Some(attr.dest_qpn),
            rq_psn: Some(attr.rq_psn),
            max_dest_rd_atomic: serves.then_some(attr.max_dest_rd_atomic),
            //= check R7 — the RNR timer of a reliable datagram is that of the RD QP
            min_rnr_timer: (serves && qp_type != QpType::Eec).then_some(attr.min_rnr_timer),
            ..QpChange::to(QpState::Rtr)
        }
    }

    /// RTR to RTS of a connected QP.
    pub fn to_rts(qp_type: QpType, attr: &RtsAttr) -> QpChange {
        let asks = matches!(qp_type, QpType::Rc | QpType::XrcSend | QpType::Eec);
        QpChange {
            sq_psn: Some(attr.sq_psn),
            timeout: qp_type.is_reliable().then_some(attr.timeout),
            retry_cnt: asks.then_some(attr.retry_cnt),
            rnr_retry: asks.then_some(attr.rnr_retry),
            max_rd_atomic: asks.then_some(attr.max_rd_atomic),
            ..QpChange::to(QpState::Rts)
        }
    }

    /// The three changes that take an RD QP from RESET to RTS.
    pub fn reliable_datagram_steps(qkey: Qkey, attr: &RdAttr) -> [QpChange; 3] {
        let init =
            QpChange { qkey: Some(qkey), access: Some(attr.access), ..QpChange::to(QpState::Init) };
        let rtr = QpChange {
            max_dest_rd_atomic: Some(attr.max_dest_rd_atomic),
            min_rnr_timer: Some(attr.min_rnr_timer),
            ..QpChange::to(QpState::Rtr)
        };
        [init, rtr, QpChange::to(QpState::Rts)]
    }

    /// The three changes that take a UD QP from RESET to RTS. For QP 1 (GSI), which belongs to its
    /// port, the caller clears `port`.
    pub fn datagram_steps(port: u8, qkey: Qkey, sq_psn: Psn) -> [QpChange; 3] {
        let init = QpChange { qkey: Some(qkey), ..QpChange::to_init(port) };
        let rts = QpChange { sq_psn: Some(sq_psn), ..QpChange::to(QpState::Rts) };
        [init, QpChange::to(QpState::Rtr), rts]
    }
}
