use super::*;
use uroce_wire::{PathMtu, Pkey, Psn, Qkey, Qpn};

use crate::attr::{AccessFlags, AltPath};

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
        alt_path: Some(AltPath {
            path: Default::default(),
            port: 2,
            pkey: Pkey::DEFAULT,
            timeout: 14,
        }),
        path_mig_state: Some(PathMigState::Rearm),
        rate_limit: Some(1_000_000),
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
            AttrMask::ALT_PATH => change.alt_path = None,
            AttrMask::PATH_MIG_STATE => change.path_mig_state = None,
            AttrMask::RATE_LIMIT => change.rate_limit = None,
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

#[test] //= check H2 test
fn of_all_masks_exactly_those_between_required_and_allowed_are_taken() {
    let rules = pairs().filter_map(|(qp_type, from, to)| {
        rule(qp_type, from, to).map(|rule| (qp_type, from, to, rule))
    });
    for (qp_type, from, to, rule) in rules {
        let allowed = rule.required | rule.optional;
        for bits in 0..=AttrMask::all().bits() {
            let mask = AttrMask::from_bits_truncate(bits);
            let checked = check_mask(rule, mask);
            let is_right = mask.contains(rule.required) && allowed.contains(mask);
            assert_eq!(checked.is_ok(), is_right, "{qp_type} {from} {to} {mask:?}");
        }
        // And the whole check, with values, for as many masks as a long prime's steps reach.
        for bits in (0..=AttrMask::all().bits()).step_by(499) {
            let mask = AttrMask::from_bits_truncate(bits);
            let whole = check(qp_type, from, &exactly(from, to, mask));
            assert_eq!(whole, check_mask(rule, mask).map(|()| to), "{qp_type} {from} {to}");
        }
    }
}

/// What the tables of the control plane's digest say, row by row: required, then optional.
const fn digest(qp_type: QpType, row: usize) -> (AttrMask, AttrMask) {
    use AttrMask as M;
    const NONE: M = M::empty();
    const PKEY_QKEY: M = M::PKEY.union(M::QKEY);
    const CUR_QKEY: M = M::CUR_STATE.union(M::QKEY);
    const CUR_ACCESS: M = M::CUR_STATE.union(M::ACCESS);
    const CUR_ACCESS_RNR: M = CUR_ACCESS.union(M::MIN_RNR_TIMER);
    const UC_INIT: M = M::PKEY.union(M::PORT).union(M::ACCESS);
    const UC_RTR: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
    const RC_RTS: M = M::SQ_PSN
        .union(M::TIMEOUT)
        .union(M::RETRY_CNT)
        .union(M::RNR_RETRY)
        .union(M::MAX_QP_RD_ATOMIC);
    const UC_DRAINED: M = M::AV.union(M::ACCESS).union(M::PKEY);
    const RC_DRAINED: M = UC_DRAINED
        .union(M::PORT)
        .union(M::TIMEOUT)
        .union(M::RETRY_CNT)
        .union(M::RNR_RETRY)
        .union(M::MAX_QP_RD_ATOMIC)
        .union(M::MAX_DEST_RD_ATOMIC)
        .union(M::MIN_RNR_TIMER);
    match (row, qp_type) {
        (0, QpType::Ud) => (PKEY_QKEY.union(M::PORT), NONE),
        (0, QpType::Gsi) => (PKEY_QKEY, NONE),
        (0, _) => (UC_INIT, NONE),
        (1, QpType::Ud | QpType::Gsi) => (NONE, PKEY_QKEY),
        (1, QpType::Uc) => (UC_RTR, M::ACCESS.union(M::PKEY)),
        (1, QpType::Rc) => {
            (UC_RTR.union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER), M::ACCESS.union(M::PKEY))
        }
        (2, QpType::Ud | QpType::Gsi) => (M::SQ_PSN, CUR_QKEY),
        (2, QpType::Uc) => (M::SQ_PSN, CUR_ACCESS),
        (2, QpType::Rc) => (RC_RTS, CUR_ACCESS_RNR),
        (3, QpType::Ud | QpType::Gsi) => (NONE, CUR_QKEY),
        (3, QpType::Uc) => (NONE, CUR_ACCESS),
        (3, QpType::Rc) => (NONE, CUR_ACCESS_RNR),
        (4, QpType::Ud | QpType::Gsi) => (NONE, PKEY_QKEY),
        (4, QpType::Uc) => (NONE, UC_DRAINED),
        (4, QpType::Rc) => (NONE, RC_DRAINED),
        _ => (NONE, M::EN_SQD_ASYNC_NOTIFY),
    }
}

#[test] //= check H2 test
fn the_attributes_of_each_service_are_those_of_its_table() {
    use QpState::{Init, Reset, Rtr, Rts, Sqd, Sqe};
    for qp_type in QpType::ALL {
        let mut rows = vec![
            (Reset, Init, 0),
            (Init, Rtr, 1),
            (Rtr, Rts, 2),
            (Rts, Rts, 3),
            (Sqd, Rts, 3),
            (Sqd, Sqd, 4),
            (Rts, Sqd, 5),
        ];
        if qp_type != QpType::Rc {
            rows.push((Sqe, Rts, 3));
        }
        for (from, to, row) in rows {
            let (required, optional) = digest(qp_type, row);
            let expected = Some(Rule { required, optional });
            assert_eq!(rule(qp_type, from, to), expected, "{qp_type} {from} {to}");
        }
    }
}
