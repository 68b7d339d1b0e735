//! Changes that take a connection's QP from RESET to RTS, and one that loads an alternate path.
//!
//! Read first: IBA 10 and 11 for the transitions and their attributes.
//!
//! Not here: when each is executed ([`super::service`]).

use uroce_transport::{AltPath, PathAttr, PathMigState, QpChange, QpType, RtrAttr, RtsAttr};

use super::{Agreed, ConnParam};

/// Builds the change of a connected QP from RESET to INIT.
pub(super) fn to_init(qp_type: QpType, port: u8, param: &ConnParam) -> QpChange {
    // The access rights of an EEC's peer are those of the RD QPs that use it.
    let access = (qp_type != QpType::Eec).then_some(param.access);
    QpChange { access, ..QpChange::to_init(port) }
}

/// Builds the change from INIT to RTR, with the paths of the connection.
pub(super) fn to_rtr(
    qp_type: QpType,
    agreed: &Agreed,
    param: &ConnParam,
    path: PathAttr,
    alternate: Option<AltPath>,
    keepalive_ms: u32,
) -> QpChange {
    let attr = RtrAttr {
        path_mtu: agreed.path_mtu,
        dest_qpn: agreed.peer_qpn,
        rq_psn: agreed.rq_psn,
        max_dest_rd_atomic: agreed.max_dest_rd_atomic,
        min_rnr_timer: param.min_rnr_timer,
    };
    QpChange {
        path: Some(path),
        alt_path: alternate,
        selective_repeat: agreed.selective_repeat.then_some(true),
        keepalive_ms: (qp_type == QpType::Rc).then_some(keepalive_ms),
        ..QpChange::to_rtr(qp_type, &attr)
    }
}

/// Builds the change from RTR to RTS. `is_armed` also arms the QP for migration: both sides then
/// have the alternate path.
pub(super) fn to_rts(qp_type: QpType, agreed: &Agreed, is_armed: bool) -> QpChange {
    let attr = RtsAttr {
        sq_psn: agreed.sq_psn,
        timeout: agreed.timeout,
        retry_cnt: agreed.retry_cnt,
        rnr_retry: agreed.rnr_retry,
        max_rd_atomic: agreed.max_rd_atomic,
    };
    let path_mig_state = is_armed.then_some(PathMigState::Rearm);
    QpChange { path_mig_state, ..QpChange::to_rts(qp_type, &attr) }
}

/// Builds the change that loads another alternate path into a connected QP and arms it.
pub(super) fn rearm(alternate: AltPath) -> QpChange {
    QpChange {
        alt_path: Some(alternate),
        path_mig_state: Some(PathMigState::Rearm),
        ..QpChange::default()
    }
}
