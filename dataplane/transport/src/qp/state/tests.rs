use super::*;
use uroce_wire::{PathMtu, Pkey, Psn, Qkey, Qpn};

use crate::attr::AccessFlags;

/// A change with every attribute given.
fn everything() -> QpChange {
    QpChange {
        pkey: Some(Pkey::DEFAULT),
        port: Some(1),
        access: Some(AccessFlags::all()),
        path: Some(Default::default()),
        path_mtu: Some(PathMtu::B4096),
        dest_qpn: Some(Qpn::new(17)),
        rq_psn: Some(Psn::new(1)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        sq_psn: Some(Psn::new(1)),
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        qkey: Some(Qkey(1)),
        en_sqd_async_notify: Some(true),
        ..QpChange::default()
    }
}

/// A change to `to` that gives exactly the attributes of `mask`.
fn exactly(from: QpState, to: QpState, mask: AttrMask) -> QpChange {
    let mut change = QpChange { state: Some(to), cur_state: Some(from), ..everything() };
    for bit in (!mask).iter() {
        match bit {
            AttrMask::CUR_STATE => change.cur_state = None,
            AttrMask::PKEY => change.pkey = None,
            AttrMask::PORT => change.port = None,
            AttrMask::ACCESS => change.access = None,
            AttrMask::AV => change.path = None,
            AttrMask::PATH_MTU => change.path_mtu = None,
            AttrMask::DEST_QPN => change.dest_qpn = None,
            AttrMask::RQ_PSN => change.rq_psn = None,
            AttrMask::MAX_DEST_RD_ATOMIC => change.max_dest_rd_atomic = None,
            AttrMask::MIN_RNR_TIMER => change.min_rnr_timer = None,
            AttrMask::SQ_PSN => change.sq_psn = None,
            AttrMask::TIMEOUT => change.timeout = None,
            AttrMask::RETRY_CNT => change.retry_cnt = None,
            AttrMask::RNR_RETRY => change.rnr_retry = None,
            AttrMask::MAX_QP_RD_ATOMIC => change.max_rd_atomic = None,
            AttrMask::QKEY => change.qkey = None,
            AttrMask::EN_SQD_ASYNC_NOTIFY => change.en_sqd_async_notify = None,
            other => panic!("a new attribute: {other:?}"),
        }
    }
    assert_eq!(change.mask(), mask);
    change
}

/// Every service and pair of states.
fn pairs() -> impl Iterator<Item = (QpType, QpState, QpState)> {
    let states = || QpState::ALL.into_iter();
    QpType::ALL.into_iter().flat_map(move |qp_type| {
        states().flat_map(move |from| states().map(move |to| (qp_type, from, to)))
    })
}

#[test] //= check H1 test
fn all_pairs_of_states() {
    for qp_type in QpType::ALL {
        let mut drawn = String::new();
        for from in QpState::ALL {
            for to in QpState::ALL {
                drawn.push(if rule(qp_type, from, to).is_some() { 'x' } else { '.' });
            }
            drawn.push('\n');
        }
        // Columns and rows: RESET INIT RTR RTS SQD SQE ERR. SQE->RTS is not an RC transition.
        let sqe = if qp_type == QpType::Rc { "x.....x" } else { "x..x..x" };
        let table = format!("xx....x\nxxx...x\nx..x..x\nx..xx.x\nx..xx.x\n{sqe}\nx.....x\n");
        assert_eq!(drawn, table, "{qp_type}");
    }
}

#[test] //= check H2 test
fn each_required_attribute_is_missed_and_each_other_one_refused() {
    for (qp_type, from, to) in pairs() {
        let Some(rule) = rule(qp_type, from, to) else { continue };
        let check = |mask| check(qp_type, from, &exactly(from, to, mask));
        let allowed = rule.required | rule.optional;
        assert_eq!(check(rule.required), Ok(to));
        assert_eq!(check(allowed), Ok(to));
        for bit in AttrMask::all().iter() {
            if rule.required.contains(bit) {
                let without = check(allowed - bit);
                assert_eq!(without, Err(ModifyError::Missing(bit)), "{qp_type} {from} {to}");
            } else if !allowed.contains(bit) {
                let with = check(rule.required | bit);
                assert_eq!(with, Err(ModifyError::NotAllowed(bit)), "{qp_type} {from} {to}");
            }
        }
    }
}

#[test] //= check H3 test
fn a_wrong_current_state_is_refused() {
    for qp_type in QpType::ALL {
        let change = QpChange { cur_state: Some(QpState::Sqd), ..QpChange::to(QpState::Err) };
        let refused = check(qp_type, QpState::Rts, &change);
        assert_eq!(refused, Err(ModifyError::CurrentState(QpState::Rts)));
    }
}

#[test]
fn values_out_of_range_are_named() {
    let allowed = rule(QpType::Rc, QpState::Rtr, QpState::Rts).unwrap().required;
    let change = QpChange { timeout: Some(32), ..exactly(QpState::Rtr, QpState::Rts, allowed) };
    let refused = check(QpType::Rc, QpState::Rtr, &change);
    assert_eq!(refused, Err(ModifyError::OutOfRange(AttrMask::TIMEOUT)));
}
