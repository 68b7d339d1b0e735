use super::*;

#[test]
fn a_path_is_resolved_only_for_a_change_that_could_take_it() {
    use uroce_transport::QpState::{Init, Reset, Rtr, Rts, Sqd};
    let to_rtr = QpChange {
        path_mtu: Some(uroce_wire::PathMtu::B1024),
        dest_qpn: Some(Qpn::new(2)),
        rq_psn: Some(uroce_wire::Psn::new(3)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..QpChange::to(Rtr)
    };
    assert!(may_take_path(QpType::Rc, Init, &to_rtr));
    assert!(!may_take_path(QpType::Rc, Reset, &to_rtr), "no such transition");
    assert!(
        !may_take_path(QpType::Rc, Init, &QpChange { rq_psn: None, ..to_rtr }),
        "one is missing"
    );
    assert!(
        !may_take_path(QpType::Rc, Init, &QpChange { sq_psn: to_rtr.rq_psn, ..to_rtr }),
        "one too many"
    );
    assert!(!may_take_path(QpType::Rc, Rtr, &QpChange::to(Rts)), "takes no path");
    assert!(may_take_path(QpType::Rc, Sqd, &QpChange::default()));
}
