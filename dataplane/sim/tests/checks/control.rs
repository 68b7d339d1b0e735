//! Modify QP and Query QP: values set are returned, and a change applies from the next packet on.

use uroce_sim::{Pair, Terms};
use uroce_transport::{
    AccessFlags, AltPath, AsyncEvent, DropReason, ModifyError, PathAttr, PathMigState, PostError,
    QpAttr, QpChange, QpInit, QpState, QpType, SendOp, SendWr, Side, StaticRate, WcStatus,
};
use uroce_wire::{PathMtu, Pkey, Psn, Qkey, Qpn, Syndrome};

use super::frames::bth;
use super::scene::{A, B, TIMEOUT, only_success, rnr_naks, statuses};

/// A change to a state, with every attribute that some service takes on the way there, each with a
/// distinct value.
fn full(pair: &Pair, to: QpState) -> QpChange {
    let rate = StaticRate::from_mbps(40_000).unwrap();
    let path = PathAttr { rate, ..pair.path(A).into() };
    let mut other = pair.path(A);
    (other.hop_limit, other.traffic_class, other.flow_label) = (9, 0x22, 0x4_5678);
    let alt_path = AltPath { path: other.into(), port: 2, pkey: Pkey(0x8777), timeout: 12 };
    let none = QpChange::to(to);
    match to {
        QpState::Init => QpChange {
            pkey: Some(Pkey(0x8042)),
            port: Some(3),
            access: Some(AccessFlags::REMOTE_READ | AccessFlags::LOCAL_WRITE),
            qkey: Some(Qkey(0x1234)),
            ..none
        },
        QpState::Rtr => QpChange {
            path: Some(path),
            alt_path: Some(alt_path),
            path_mtu: Some(PathMtu::B2048),
            dest_qpn: Some(Qpn::new(0x77)),
            rq_psn: Some(Psn::new(0xab_cdef)),
            max_dest_rd_atomic: Some(7),
            min_rnr_timer: Some(13),
            access: Some(AccessFlags::REMOTE_WRITE),
            pkey: Some(Pkey(0x8043)),
            timeout: Some(15),
            retry_cnt: Some(5),
            rnr_retry: Some(4),
            qkey: Some(Qkey(0x1235)),
            ..none
        },
        QpState::Rts => QpChange {
            sq_psn: Some(Psn::new(0x12_3456)),
            timeout: Some(16),
            retry_cnt: Some(6),
            rnr_retry: Some(3),
            max_rd_atomic: Some(9),
            path_mig_state: Some(PathMigState::Rearm),
            rate_limit: Some(123_456),
            access: Some(AccessFlags::REMOTE_ATOMIC),
            min_rnr_timer: Some(14),
            qkey: Some(Qkey(0x1236)),
            ..none
        },
        QpState::Sqd => QpChange { en_sqd_async_notify: Some(true), ..none },
        _ => none,
    }
}

/// A change of attributes in SQD.
fn drained(pair: &Pair) -> QpChange {
    let mut path = pair.path(A);
    path.src_port = 0xc0de;
    QpChange {
        path: Some(path.into()),
        alt_path: Some(AltPath { path: path.into(), port: 1, pkey: Pkey(0x8001), timeout: 3 }),
        port: Some(2),
        pkey: Some(Pkey(0x8044)),
        access: Some(AccessFlags::all()),
        timeout: Some(1),
        retry_cnt: Some(2),
        rnr_retry: Some(7),
        max_rd_atomic: Some(3),
        max_dest_rd_atomic: Some(4),
        min_rnr_timer: Some(5),
        qkey: Some(Qkey(6)),
        ..QpChange::to(QpState::Sqd)
    }
}

/// The part of `change` that a service takes in this transition.
fn taken(change: QpChange, qp_type: QpType, from: QpState) -> QpChange {
    let rule = uroce_transport::rule(qp_type, from, change.state.unwrap()).unwrap();
    let allowed = rule.required | rule.optional;
    let mut taken = QpChange::to(change.state.unwrap());
    macro_rules! copy {
        ($($field:ident)*) => {$(
            let alone = QpChange { $field: change.$field, ..QpChange::default() };
            if allowed.contains(alone.mask()) {
                taken.$field = change.$field;
            }
        )*};
    }
    copy! {
        pkey port access path alt_path path_mig_state rate_limit path_mtu dest_qpn rq_psn
        max_dest_rd_atomic min_rnr_timer sq_psn timeout retry_cnt rnr_retry max_rd_atomic qkey
        en_sqd_async_notify
    }
    taken
}

/// The attributes that Query QP must return after `change`.
fn after(mut attr: QpAttr, change: &QpChange) -> QpAttr {
    macro_rules! copy {
        ($($field:ident)*) => {$(
            if let Some(value) = change.$field {
                attr.$field = value;
            }
        )*};
    }
    copy! {
        state pkey port access path path_mig_state rate_limit path_mtu dest_qpn rq_psn
        max_dest_rd_atomic min_rnr_timer sq_psn timeout retry_cnt rnr_retry max_rd_atomic qkey
        en_sqd_async_notify
    }
    attr.alt_path = change.alt_path.or(attr.alt_path);
    attr
}

#[test] //= check H9 test
//= check H1 test
//= check R6 test
//= check R7 test
fn after_every_transition_query_gives_back_what_was_set() {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    for qp_type in QpType::ALL {
        let mut pair = Pair::reset(|_| ());
        let init = QpInit::new(qp_type, Terms::default().caps);
        let at = pair.world.add_qp(A as u16, 0x55, uroce_transport::Pd(1), &init);
        let mut expected = pair.world.qp(at).attr();
        assert_eq!(expected, QpAttr::default());
        for (from, to) in [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Sqd),
            (Sqd, Sqd),
            (Sqd, Rts),
            (Rts, Err),
        ] {
            let wish = if (from, to) == (Sqd, Sqd) { drained(&pair) } else { full(&pair, to) };
            let mut change = taken(wish, qp_type, from);
            if from == Sqd {
                // Migration is prepared already.
                change.path_mig_state = None;
            }
            pair.world.modify(at, &change).unwrap_or_else(|e| panic!("{qp_type} {to}: {e}"));
            expected = after(expected, &change);
            assert_eq!(pair.world.qp(at).attr(), expected, "{qp_type} {from} -> {to}");
        }
        pair.world.modify(at, &QpChange::to(Reset)).unwrap();
        assert_eq!(pair.world.qp(at).attr(), QpAttr::default());
    }
}

#[test] //= check H2 test
fn a_refused_change_changes_nothing() {
    let mut pair = Pair::rts();
    let before = pair.qp(A).attr();
    let allowed = QpChange {
        min_rnr_timer: Some(20),
        access: Some(AccessFlags::empty()),
        ..Default::default()
    };
    let bad = [
        QpChange { sq_psn: Some(Psn::new(5)), ..allowed },
        QpChange { port: Some(2), ..allowed },
        QpChange { min_rnr_timer: Some(32), ..allowed },
        QpChange { path_mig_state: Some(PathMigState::Armed), ..allowed },
        QpChange { path_mig_state: Some(PathMigState::Rearm), ..allowed },
        QpChange { state: Some(QpState::Rtr), ..allowed },
        //= check H3 test
        QpChange { cur_state: Some(QpState::Sqd), ..allowed },
    ];
    for change in bad {
        assert!(pair.modify(A, &change).is_err(), "{change:?}");
        assert_eq!(pair.qp(A).attr(), before, "{change:?}");
    }
    pair.modify(A, &QpChange { cur_state: Some(QpState::Rts), ..allowed }).unwrap();
    assert_eq!(pair.qp(A).attr().min_rnr_timer, 20);
}

#[test] //= check H2 test
//= check R6 test
fn timers_given_on_the_way_to_rtr_need_not_be_given_again() {
    for qp_type in [QpType::Rc, QpType::Eec] {
        let mut pair = Pair::reset(|terms| terms.qp_type = qp_type);
        let [init, rtr, rts] = pair.changes(A);
        pair.modify(A, &init).unwrap();
        let patience = QpChange { timeout: rts.timeout, rnr_retry: rts.rnr_retry, ..rtr };
        pair.modify(A, &patience).unwrap();
        let bare = QpChange { timeout: None, retry_cnt: None, rnr_retry: None, ..rts };
        let missing = Err(ModifyError::Missing(uroce_transport::AttrMask::RETRY_CNT));
        assert_eq!(pair.modify(A, &bare), missing);
        assert_eq!(pair.qp(A).state(), QpState::Rtr);
        pair.modify(A, &QpChange { retry_cnt: Some(1), ..bare }).unwrap();
        let (attr, half) = (pair.qp(A).attr(), Terms::default().half[A]);
        let held = (attr.timeout, attr.retry_cnt, attr.rnr_retry);
        assert_eq!(held, (half.timeout, 1, half.rnr_retry), "{qp_type}");
    }
}

#[test] //= check H2 test
//= check B6 test
fn an_rnr_nak_has_the_timer_code_that_was_given_on_the_way_to_rtr() {
    for code in 0..32 {
        let mut pair = Pair::with(|terms| terms.half[B].min_rnr_timer = code);
        pair.send(A, 10);
        pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
        let record = pair.world.record().unwrap();
        let nak = record.sightings().find(|sighting| sighting.from == B).unwrap();
        // AETH follows the BTH of 12 bytes: 0, then 01 for RNR NAK, then the code.
        assert_eq!(nak.frame[bth(false) + 12], 0x20 | code, "code {code}");
    }
}

#[test] //= check H7 test
fn in_rts_a_change_counts_from_the_next_packet_on() {
    let mut pair = Pair::with(|terms| terms.settings.budget = 1);
    // The RNR NAK timer that B sends to its peer.
    pair.modify(B, &QpChange { min_rnr_timer: Some(1), ..QpChange::default() }).unwrap();
    pair.send(A, 10);
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    assert_eq!(rnr_naks(&pair, B)[0].ext.aeth.syndrome, Syndrome::RnrNak { timer: 1 });
    pair.modify(B, &QpChange { min_rnr_timer: Some(2), ..QpChange::default() }).unwrap();
    pair.run_until(|pair| rnr_naks(pair, B).len() == 2);
    assert_eq!(rnr_naks(&pair, B)[1].ext.aeth.syndrome, Syndrome::RnrNak { timer: 2 });
    pair.recv(B, 10);
    pair.run();
    // In the middle of a message: an access that is withdrawn is refused from the next packet on.
    let begun = pair.seen(A).len();
    let wr_id = pair.write(A, 16 * 256);
    pair.run_until(|pair| pair.seen(A).len() > begun + 2);
    let access = Some(AccessFlags::REMOTE_READ);
    pair.modify(B, &QpChange { access, ..QpChange::default() }).unwrap();
    pair.run();
    let cqes = pair.take(A, Side::Send);
    assert_eq!(cqes.last().unwrap().wr_id, wr_id);
    assert_eq!(cqes.last().unwrap().status, WcStatus::RemInvReqErr);
}

#[test] //= check H8 test
fn a_datagram_qp_in_sqe_receives_and_recovers() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
        let op = |pair: &Pair, end| match qp_type {
            QpType::Ud => pair.send_to_op(end, None),
            _ => SendOp::Send { imm: None },
        };
        let good = [A, B].map(|end| pair.local(end).sge(0, 16));
        let bad = uroce_transport::Sge { lkey: uroce_wire::Lkey(0xdead_be00), ..good[A] };
        let send = pair.post(A, op(&pair, A), &[bad]);
        pair.run();
        assert_eq!(pair.qp(A).state(), QpState::Sqe);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(send, WcStatus::LocProtErr)]);
        // What is posted before the QP is in RTS again is flushed.
        let send = pair.post(A, op(&pair, A), &[good[A]]);
        pair.run();
        assert_eq!(pair.qp(A).state(), QpState::Sqe);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(send, WcStatus::WrFlushErr)]);
        pair.recv(A, 100);
        pair.post(B, op(&pair, B), &[good[B]]);
        pair.run();
        only_success(&mut pair, A, Side::Recv);
        // Only the attributes of the transition from SQE are taken.
        let rate_limit = QpChange { rate_limit: Some(1000), ..QpChange::to(QpState::Rts) };
        assert!(matches!(pair.modify(A, &rate_limit), Err(ModifyError::NotAllowed(_))));
        pair.modify(A, &QpChange::to(QpState::Rts)).unwrap();
        assert_eq!(pair.qp(A).state(), QpState::Rts);
        assert_eq!(pair.seen(A), [], "nothing has been sent yet");
        let recv = pair.recv(B, 100);
        let send = pair.post(A, op(&pair, A), &[good[A]]);
        pair.run();
        assert_eq!(only_success(&mut pair, A, Side::Send).wr_id, send);
        assert_eq!(only_success(&mut pair, B, Side::Recv).wr_id, recv);
    }
}

#[test] //= check H11 test
fn a_peer_that_is_late_is_reached_by_repetition_and_told_of_once() {
    let mut pair = Pair::reset(|_| ());
    pair.bring_to(A, QpState::Rts);
    pair.bring_to(B, QpState::Init);
    pair.recv(B, 10);
    pair.send(A, 10);
    pair.run_for(TIMEOUT / 2);
    assert_eq!(pair.drops(B, DropReason::QpNotReady), 1, "INIT takes nothing");
    pair.bring_to(B, QpState::Rtr);
    assert_eq!(pair.take_events(B), []);
    pair.run();
    only_success(&mut pair, B, Side::Recv);
    only_success(&mut pair, A, Side::Send);
    assert_eq!(pair.take_events(B), [AsyncEvent::CommEst]);
    // In RTR the QP answers requests but cannot send any.
    let (at, op) = (pair.at(B), pair.write_op(B, 0, None));
    let wr = SendWr {
        wr_id: 7,
        op,
        signaled: true,
        solicited: false,
        fence: false,
        srqn: Default::default(),
    };
    let refused = pair.world.post_send(at, &wr, &[]);
    assert_eq!(refused, Err(PostError::InvalidState));
    pair.recv(B, 10);
    pair.send(A, 10);
    pair.bring_to(B, QpState::Rts);
    pair.run();
    pair.write(B, 10);
    pair.run();
    only_success(&mut pair, B, Side::Send);
    assert_eq!(pair.take_events(B), [], "once in the life of a connection");
}
