use super::*;
use uroce_wire::Pkey;

fn modify(change: QpChange, primary: bool, alternate: bool) -> ModifyQp {
    let alternate = alternate.then(|| AlternateVector {
        vector: AddressVector::default(),
        port: 2,
        pkey: Pkey::DEFAULT,
        timeout: 14,
    });
    ModifyQp { qpn: Qpn::new(2), change, vector: primary.then(AddressVector::default), alternate }
}

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
    let primary = |change| modify(change, true, false);
    assert!(may_take_paths(QpType::Rc, Init, &primary(to_rtr)));
    assert!(!may_take_paths(QpType::Rc, Reset, &primary(to_rtr)), "no such transition");
    let without = QpChange { rq_psn: None, ..to_rtr };
    assert!(!may_take_paths(QpType::Rc, Init, &primary(without)), "one is missing");
    let beside = QpChange { sq_psn: to_rtr.rq_psn, ..to_rtr };
    assert!(!may_take_paths(QpType::Rc, Init, &primary(beside)), "one too many");
    assert!(!may_take_paths(QpType::Rc, Rtr, &primary(QpChange::to(Rts))), "takes no path");
    assert!(may_take_paths(QpType::Rc, Sqd, &primary(QpChange::default())));
}

#[test]
fn an_alternate_path_alone_may_be_loaded_where_no_primary_may() {
    use uroce_transport::QpState::{Rts, Sqd};
    let none = QpChange::default();
    assert!(may_take_paths(QpType::Rc, Rts, &modify(none, false, true)));
    assert!(!may_take_paths(QpType::Rc, Rts, &modify(none, true, true)), "not the primary in RTS");
    assert!(may_take_paths(QpType::Uc, Sqd, &modify(none, true, true)));
    assert!(!may_take_paths(QpType::Ud, Rts, &modify(none, false, true)), "datagrams have no path");
}
