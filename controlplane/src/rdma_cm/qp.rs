//! Attributes of the Modify QPs of a connection.
//!
//! Read first: IBA 10 and 11 for the transitions and their attributes.
//!
//! Not here: when each is executed (the driver).

use uroce_transport::{AltPath, PathAttr, PathMigState, QpChange, QpState, QpType};
use uroce_wire::{Pkey, Psn, Qkey};

use super::{Agreed, ConnParam};

/// Builds RESET to INIT of a connected QP.
pub(super) fn to_init(port: u8, param: &ConnParam) -> QpChange {
    QpChange {
        pkey: Some(Pkey::DEFAULT),
        port: Some(port),
        access: Some(param.access),
        ..QpChange::to(QpState::Init)
    }
}

/// Builds INIT to RTR.
pub(super) fn to_rtr(
    qp_type: QpType,
    agreed: &Agreed,
    param: &ConnParam,
    path: PathAttr,
    alternate: Option<AltPath>,
) -> QpChange {
    let is_rc = qp_type == QpType::Rc;
    QpChange {
        path: Some(path),
        alt_path: alternate,
        path_mtu: Some(agreed.path_mtu),
        dest_qpn: Some(agreed.peer_qpn),
        rq_psn: Some(agreed.rq_psn),
        max_dest_rd_atomic: is_rc.then_some(agreed.max_dest_rd_atomic),
        min_rnr_timer: is_rc.then_some(param.min_rnr_timer),
        ..QpChange::to(QpState::Rtr)
    }
}

/// Builds RTR to RTS; the QP is armed if both sides have the alternate path.
pub(super) fn to_rts(qp_type: QpType, agreed: &Agreed, is_armed: bool) -> QpChange {
    let is_rc = qp_type == QpType::Rc;
    QpChange {
        sq_psn: Some(agreed.sq_psn),
        timeout: is_rc.then_some(agreed.timeout),
        retry_cnt: is_rc.then_some(agreed.retry_cnt),
        rnr_retry: is_rc.then_some(agreed.rnr_retry),
        max_rd_atomic: is_rc.then_some(agreed.max_rd_atomic),
        path_mig_state: is_armed.then_some(PathMigState::Rearm),
        ..QpChange::to(QpState::Rts)
    }
}

/// Builds the change that loads another alternate path into a connected QP and arms it.
pub(super) fn rearm(alternate: AltPath) -> QpChange {
    QpChange {
        alt_path: Some(alternate),
        path_mig_state: Some(PathMigState::Rearm),
        ..QpChange::default()
    }
}

/// Builds the three steps of a UD QP from RESET to RTS.
pub(super) fn datagram_steps(port: u8, qkey: Qkey, psn: Psn) -> [QpChange; 3] {
    let init = QpChange {
        pkey: Some(Pkey::DEFAULT),
        port: Some(port),
        qkey: Some(qkey),
        ..QpChange::to(QpState::Init)
    };
    let rts = QpChange { sq_psn: Some(psn), ..QpChange::to(QpState::Rts) };
    [init, QpChange::to(QpState::Rtr), rts]
}
