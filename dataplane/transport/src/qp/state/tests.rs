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
        selective_repeat: Some(true),
        udp_source_ports: Some(4),
        keepalive_ms: Some(10_000),
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
            AttrMask::SELECTIVE_REPEAT => change.selective_repeat = None,
            AttrMask::UDP_SOURCE_PORTS => change.udp_source_ports = None,
            AttrMask::KEEPALIVE_MS => change.keepalive_ms = None,
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

/// The tables of all services as text: every pair of states with its attributes.
fn drawn() -> String {
    let mut text = String::from(
        "# Modify QP: required attributes, those that count if given before in brackets; then optional ones.\n",
    );
    let names = |mask: AttrMask| {
        let names: Vec<_> = mask.iter_names().map(|(name, _)| name.to_lowercase()).collect();
        if names.is_empty() { "-".to_string() } else { names.join(" ") }
    };
    for qp_type in QpType::ALL {
        text += &format!("\n{qp_type}\n");
        for (from, to) in
            QpState::ALL.into_iter().flat_map(|from| QpState::ALL.map(move |to| (from, to)))
        {
            let row = match rule(qp_type, from, to) {
                None => "no".to_string(),
                Some(rule) if !rule.earlier.is_empty() => {
                    let now = names(rule.required - rule.earlier);
                    format!("{now} [{}]; {}", names(rule.earlier), names(rule.optional))
                }
                Some(rule) => format!("{}; {}", names(rule.required), names(rule.optional)),
            };
            text += &format!("{:>5} -> {:<5} {row}\n", from.to_string(), to.to_string());
        }
    }
    text
}

#[test] //= check H1 test
//= check H2 test
fn all_pairs_of_states_are_those_of_the_committed_table() {
    let drawn = drawn();
    println!("{drawn}");
    let committed = include_str!("table.txt");
    for (line, (drawn, committed)) in (1..).zip(drawn.lines().zip(committed.lines())) {
        assert_eq!(drawn, committed, "line {line}");
    }
    assert_eq!(drawn.len(), committed.len());
}

#[test] //= check H1 test
//= check R6 test
//= check R7 test
fn all_pairs_of_states() {
    for qp_type in QpType::ALL {
        let mut drawn = String::new();
        for from in QpState::ALL {
            for to in QpState::ALL {
                drawn.push(if rule(qp_type, from, to).is_some() { 'x' } else { '.' });
            }
            drawn.push('\n');
        }
        // Columns and rows: RESET INIT RTR RTS SQD SQE ERR. RC, XRC and EECs have no SQE->RTS.
        let sqe = if qp_type.is_reliable() { "x.....x" } else { "x..x..x" };
        let table = format!("xx....x\nxxx...x\nx..x..x\nx..xx.x\nx..xx.x\n{sqe}\nx.....x\n");
        assert_eq!(drawn, table, "{qp_type}");
    }
}

#[test] //= check H2 test
//= check R6 test
//= check R7 test
fn each_required_attribute_is_missed_and_each_other_one_refused() {
    for (qp_type, from, to) in pairs() {
        let Some(rule) = rule(qp_type, from, to) else { continue };
        let none = AttrMask::empty();
        let check = |mask| check(qp_type, from, none, &exactly(from, to, mask));
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
        let refused = check(qp_type, QpState::Rts, AttrMask::empty(), &change);
        assert_eq!(refused, Err(ModifyError::CurrentState(QpState::Rts)));
    }
}

#[test] //= check H2 test
fn values_out_of_range_are_named() {
    let alternate = |port, timeout| {
        let path = Default::default();
        Some(AltPath { path, port, pkey: Pkey::DEFAULT, timeout })
    };
    let none = QpChange::default();
    let cases = [
        (AttrMask::TIMEOUT, QpChange { timeout: Some(32), ..none }),
        (AttrMask::RETRY_CNT, QpChange { retry_cnt: Some(8), ..none }),
        (AttrMask::RNR_RETRY, QpChange { rnr_retry: Some(8), ..none }),
        (AttrMask::MIN_RNR_TIMER, QpChange { min_rnr_timer: Some(32), ..none }),
        (AttrMask::MAX_QP_RD_ATOMIC, QpChange { max_rd_atomic: Some(129), ..none }),
        (AttrMask::MAX_DEST_RD_ATOMIC, QpChange { max_dest_rd_atomic: Some(17), ..none }),
        (AttrMask::PORT, QpChange { port: Some(0), ..none }),
        (AttrMask::ALT_PATH, QpChange { alt_path: alternate(0, 14), ..none }),
        (AttrMask::ALT_PATH, QpChange { alt_path: alternate(2, 32), ..none }),
    ];
    for (bit, change) in cases {
        let state = if change.min_rnr_timer.is_some() { QpState::Rts } else { QpState::Sqd };
        let refused = check(QpType::Rc, state, AttrMask::empty(), &change);
        assert_eq!(refused, Err(ModifyError::OutOfRange(bit)));
    }
    let highest = QpChange { alt_path: alternate(255, 31), timeout: Some(31), ..none };
    assert_eq!(check(QpType::Rc, QpState::Sqd, AttrMask::empty(), &highest), Ok(QpState::Sqd));
    let nobody = QpChange { dest_qpn: Some(Qpn::new(0)), ..everything() };
    assert_eq!(nobody.out_of_range(), Some(AttrMask::DEST_QPN));
}

#[test] //= check H2 test
fn of_all_masks_exactly_those_between_required_and_allowed_are_taken() {
    const NONE: AttrMask = AttrMask::empty();
    let rules = pairs().filter_map(|(qp_type, from, to)| {
        rule(qp_type, from, to).map(|rule| (qp_type, from, to, rule))
    });
    let mut seen = std::collections::BTreeSet::new();
    for (qp_type, from, to, rule) in rules {
        let allowed = rule.required | rule.optional;
        // Many transitions have the same rule; one of each has every mask tried.
        if seen.insert((rule.required.bits(), rule.earlier.bits(), rule.optional.bits())) {
            for mask in (0..=AttrMask::all().bits()).map(AttrMask::from_bits_truncate) {
                let is_right = mask.contains(rule.required) && allowed.contains(mask);
                assert_eq!(check_mask(rule, NONE, mask).is_ok(), is_right, "{mask:?}");
                let needed = rule.required - rule.earlier;
                let is_right = mask.contains(needed) && allowed.contains(mask);
                assert_eq!(check_mask(rule, rule.earlier, mask).is_ok(), is_right, "{mask:?}");
            }
        }
        // The whole check, with values, for a sample of masks: every 499th, a prime.
        for bits in (0..=AttrMask::all().bits()).step_by(499) {
            let mask = AttrMask::from_bits_truncate(bits);
            let whole = check(qp_type, from, NONE, &exactly(from, to, mask));
            assert_eq!(whole, check_mask(rule, NONE, mask).map(|()| to), "{qp_type} {from} {to}");
        }
    }
}

#[test] //= check H2 test
fn rts_is_refused_while_a_timer_or_retry_count_was_never_given() {
    let rule = rule(QpType::Rc, QpState::Rtr, QpState::Rts).unwrap();
    let [timeout, retry_cnt, rnr_retry] =
        [AttrMask::TIMEOUT, AttrMask::RETRY_CNT, AttrMask::RNR_RETRY];
    assert_eq!(rule.earlier, timeout | retry_cnt | rnr_retry);
    let rest = rule.required - rule.earlier;
    let rts = |given, mask| {
        check(QpType::Rc, QpState::Rtr, given, &exactly(QpState::Rtr, QpState::Rts, mask))
    };
    for bit in rule.earlier.iter() {
        let others = rule.earlier - bit;
        assert_eq!(rts(others, rest), Err(ModifyError::Missing(bit)));
        assert_eq!(rts(others, rest | bit), Ok(QpState::Rts));
    }
    assert_eq!(rts(rule.earlier, rest), Ok(QpState::Rts));
}

/// The rows of [`digest`] for XRC: the masks of Linux's table for its two types, to which this
/// project adds the rate limit and the attributes that may be given early.
const fn digest_of_xrc(qp_type: QpType, row: usize) -> (AttrMask, AttrMask) {
    use AttrMask as M;
    const NONE: M = M::empty();
    const RTR: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
    const RTR_OPTIONAL: M = M::ALT_PATH.union(M::ACCESS).union(M::PKEY).union(M::TIMEOUT);
    const LIVE: M = M::CUR_STATE
        .union(M::ACCESS)
        .union(M::ALT_PATH)
        .union(M::PATH_MIG_STATE)
        .union(M::RATE_LIMIT);
    const DRAINED: M = M::AV
        .union(M::PORT)
        .union(M::TIMEOUT)
        .union(M::ALT_PATH)
        .union(M::ACCESS)
        .union(M::PKEY)
        .union(M::PATH_MIG_STATE);
    const RETRIES: M = M::RETRY_CNT.union(M::RNR_RETRY);
    const REQUESTER: M = RETRIES.union(M::MAX_QP_RD_ATOMIC);
    const RESPONDER: M = M::MAX_DEST_RD_ATOMIC.union(M::MIN_RNR_TIMER);
    let rts = M::SQ_PSN.union(M::TIMEOUT);
    let is_initiator = matches!(qp_type, QpType::XrcSend);
    match (row, is_initiator) {
        (1, true) => (RTR, RTR_OPTIONAL.union(RETRIES)),
        (1, false) => (RTR.union(RESPONDER), RTR_OPTIONAL),
        (2, true) => (rts.union(REQUESTER), LIVE),
        (2, false) => (rts, LIVE.union(M::MIN_RNR_TIMER)),
        (3, true) => (NONE, LIVE),
        (3, false) => (NONE, LIVE.union(M::MIN_RNR_TIMER)),
        (_, true) => (NONE, DRAINED.union(REQUESTER)),
        (_, false) => (NONE, DRAINED.union(RESPONDER)),
    }
}

/// The rows of [`digest`] for RD: a row is RC's, with the attributes that the chapters on states
/// give to RD QPs taken out of the EEC's, and nothing else left for the RD QP.
const fn digest_of_rd(row: usize) -> (AttrMask, AttrMask) {
    use AttrMask as M;
    const NONE: M = M::empty();
    const OWN: M = M::QKEY.union(M::ACCESS).union(M::MIN_RNR_TIMER);
    match row {
        0 => (M::QKEY.union(M::ACCESS), NONE),
        1 => (M::MAX_DEST_RD_ATOMIC, OWN),
        4 => (NONE, OWN.union(M::MAX_DEST_RD_ATOMIC)),
        5 => (NONE, M::EN_SQD_ASYNC_NOTIFY),
        _ => (NONE, OWN.union(M::CUR_STATE)),
    }
}

/// The rows of [`digest`] for an EEC.
const fn digest_of_eec(row: usize) -> (AttrMask, AttrMask) {
    use AttrMask as M;
    const NONE: M = M::empty();
    const OWN: M = M::QKEY.union(M::ACCESS).union(M::MIN_RNR_TIMER).union(M::KEEPALIVE_MS);
    const ADDED: M = M::SELECTIVE_REPEAT.union(M::UDP_SOURCE_PORTS);
    let (required, optional) =
        if row == 0 { (M::PKEY.union(M::PORT), NONE) } else { digest(QpType::Rc, row) };
    (required.difference(OWN), optional.difference(OWN).difference(ADDED))
}

/// The tables of the control plane's digest, row by row: required, then optional attributes.
const fn digest(qp_type: QpType, row: usize) -> (AttrMask, AttrMask) {
    use AttrMask as M;
    const NONE: M = M::empty();
    const PKEY_QKEY: M = M::PKEY.union(M::QKEY);
    const CUR_QKEY: M = M::CUR_STATE.union(M::QKEY);
    const CUR_ACCESS: M = M::CUR_STATE.union(M::ACCESS);
    // The rate limit is an addition of this project; the digest has no column for it.
    const LIVE: M = CUR_ACCESS.union(M::ALT_PATH).union(M::PATH_MIG_STATE).union(M::RATE_LIMIT);
    const LIVE_RC: M = LIVE.union(M::MIN_RNR_TIMER).union(M::KEEPALIVE_MS);
    const UC_RTR_OPTIONAL: M = M::ALT_PATH.union(M::ACCESS).union(M::PKEY);
    const UC_INIT: M = M::PKEY.union(M::PORT).union(M::ACCESS);
    const UC_RTR: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
    const RC_RTS: M = M::SQ_PSN
        .union(M::TIMEOUT)
        .union(M::RETRY_CNT)
        .union(M::RNR_RETRY)
        .union(M::MAX_QP_RD_ATOMIC);
    const UC_DRAINED: M =
        M::AV.union(M::ALT_PATH).union(M::ACCESS).union(M::PKEY).union(M::PATH_MIG_STATE);
    const RC_DRAINED: M = UC_DRAINED
        .union(M::PORT)
        .union(M::TIMEOUT)
        .union(M::RETRY_CNT)
        .union(M::RNR_RETRY)
        .union(M::MAX_QP_RD_ATOMIC)
        .union(M::MAX_DEST_RD_ATOMIC)
        .union(M::MIN_RNR_TIMER)
        .union(M::KEEPALIVE_MS);
    match (row, qp_type) {
        (0, QpType::Ud) => (PKEY_QKEY.union(M::PORT), NONE),
        (_, QpType::Rd) => digest_of_rd(row),
        (_, QpType::Eec) => digest_of_eec(row),
        (0, QpType::Gsi) => (PKEY_QKEY, NONE),
        (0, kind) if kind.is_raw() => (M::PORT, NONE),
        (1 | 4, kind) if kind.is_raw() => (NONE, NONE),
        (2 | 3, kind) if kind.is_raw() => (NONE, M::CUR_STATE.union(M::RATE_LIMIT)),
        (6, kind) if kind.is_raw() => (NONE, M::CUR_STATE),
        (0, _) => (UC_INIT, NONE),
        (1, QpType::Ud | QpType::Gsi) => (NONE, PKEY_QKEY),
        (1, QpType::Uc) => (UC_RTR, UC_RTR_OPTIONAL),
        (1, QpType::Rc) => {
            let required = UC_RTR.union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER);
            let patience = M::TIMEOUT.union(M::RETRY_CNT).union(M::RNR_RETRY);
            // Selective repeat and the keepalive, too, are additions of this project.
            let recovery = M::SELECTIVE_REPEAT.union(M::UDP_SOURCE_PORTS);
            let added = recovery.union(M::KEEPALIVE_MS);
            (required, UC_RTR_OPTIONAL.union(patience).union(added))
        }
        (1..=4, QpType::XrcSend | QpType::XrcRecv) => digest_of_xrc(qp_type, row),
        (2, QpType::Gsi) => (M::SQ_PSN, CUR_QKEY),
        (2, QpType::Ud) => (M::SQ_PSN, CUR_QKEY.union(M::RATE_LIMIT)),
        (2, QpType::Uc) => (M::SQ_PSN, LIVE),
        (2, QpType::Rc) => (RC_RTS, LIVE_RC),
        (3, QpType::Gsi) => (NONE, CUR_QKEY),
        (3, QpType::Ud) => (NONE, CUR_QKEY.union(M::RATE_LIMIT)),
        (3, QpType::Uc) => (NONE, LIVE),
        (3, QpType::Rc) => (NONE, LIVE_RC),
        (4, QpType::Ud | QpType::Gsi) => (NONE, PKEY_QKEY),
        (4, QpType::Uc) => (NONE, UC_DRAINED),
        (4, QpType::Rc) => (NONE, RC_DRAINED),
        (5, _) => (NONE, M::EN_SQD_ASYNC_NOTIFY),
        (_, QpType::Ud | QpType::Gsi) => (NONE, CUR_QKEY),
        (_, kind) if kind.is_raw() => panic!("a raw QP has no such row"),
        _ => (NONE, CUR_ACCESS),
    }
}

#[test] //= check H2 test
//= check X6 test
//= check R6 test
//= check R7 test
//= check W8 test
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
        if !qp_type.is_reliable() {
            rows.push((Sqe, Rts, 6));
        }
        for (from, to, row) in rows {
            let (required, optional) = digest(qp_type, row);
            let rule = rule(qp_type, from, to).unwrap();
            let found = (rule.required, rule.optional);
            assert_eq!(found, (required, optional), "{qp_type} {from} {to}");
        }
    }
}
