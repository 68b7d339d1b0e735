//! RESYNC: a message is given up, and the peer is told.

use core::time::Duration;

use uroce_sim::{At, Pair, Rule};
use uroce_transport::{
    AsyncEvent, Counter, DropReason, QpChange, QpState, QpType, SendOp, Side, WcStatus,
};
use uroce_wire::{NakCode, OpCode, Syndrome};

use crate::{A, B, SHORTLY, Scene};

/// How an RD QP leaves its EEC.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Leave {
    Fail,
    Reset,
    Destroy,
}

fn leave(scene: &mut Scene, at: At, how: Leave) {
    match how {
        Leave::Fail => scene.pair.world.fail(at),
        Leave::Reset => scene.pair.world.modify(at, &QpChange::to(QpState::Reset)).unwrap(),
        Leave::Destroy => scene.pair.world.destroy(at),
    }
}

const WAYS: [Leave; 3] = [Leave::Fail, Leave::Reset, Leave::Destroy];

#[test] //= check R10 test
//= check R11 test
//= check R23 test
fn an_rd_qp_that_leaves_in_the_middle_of_its_message_is_given_up_by_a_resync() {
    for how in WAYS {
        // From no packet of the message to the last one, and to after its acknowledgement.
        for packets in 0..14 {
            let mut scene = Scene::slow();
            let (from, to) = (scene.here[0], scene.there[0]);
            let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 4000));
            let send = scene.pair.rd_send(from, to, 3000);
            let behind = scene.pair.rd_send(scene.here[1], to, 500);
            while scene.pair.seen(A).len() < packets && scene.pair.world.next_due().is_some() {
                scene.pair.world.step();
            }
            let sent = scene.pair.seen(A).len();
            leave(&mut scene, from, how);
            scene.run();
            let done = scene.done(from, Side::Send);
            // Completed before or flushed; nothing completes after a reset.
            match how {
                Leave::Fail => assert_eq!(done.len(), 1),
                Leave::Reset | Leave::Destroy => assert!(done.is_empty() || sent > 12, "{done:?}"),
            }
            assert!(done.iter().all(|(wr_id, _)| *wr_id == send));
            scene.assert_succeeded(scene.here[1], Side::Send, &[behind]);
            let received = scene.pair.take_at(to, Side::Recv);
            let statuses: Vec<_> = received.iter().map(|cqe| (cqe.wr_id, cqe.status)).collect();
            let resyncs = scene.resyncs(A);
            let ok = WcStatus::Success;
            match resyncs.len() {
                0 if sent == 0 => assert_eq!(statuses, [(recvs[0], ok)]),
                // It was acknowledged before its RD QP has left.
                0 if sent > 12 => assert_eq!(statuses, recvs.map(|wr_id| (wr_id, ok))),
                0 => panic!("{sent} packets were sent, and no RESYNC"),
                _ if statuses[0].1 == ok => assert_eq!(statuses.len(), 2),
                _ => assert_eq!(statuses, [(recvs[0], WcStatus::RemAbortErr), (recvs[1], ok)]),
            }
            scene.assert_state(to, QpState::Rts);
            assert_eq!(scene.pair.take_events_at(to), []);
            scene.assert_eecs_live();
        }
    }
}

#[test] //= check R10 test
fn a_resync_has_the_psn_after_the_newest_that_was_sent() {
    let mut scene = Scene::slow();
    let (from, to) = (scene.here[0], scene.there[0]);
    let far = scene.pair.remote(B);
    // A READ of ten packets: all its PSNs are used.
    let op = SendOp::Read { va: far.va(0), rkey: far.rkey() };
    let sge = scene.pair.local(A).sge(scene.pair.landing(), 2560);
    scene.pair.post_rd(from, to, op, &[sge]);
    scene.pair.run_for(Duration::from_nanos(1200));
    scene.pair.world.fail(from);
    scene.run();
    let resyncs = scene.resyncs(A);
    assert_eq!(resyncs.len(), 1);
    assert_eq!(resyncs[0].bth.psn, scene.pair.psn(A, 10));
    assert!(resyncs[0].bth.ack_req);
    let acked = scene.pair.responses(B).into_iter().any(|seen| {
        seen.bth.psn == scene.pair.psn(A, 10)
            && matches!(seen.ext.aeth.syndrome, Syndrome::Ack { .. })
    });
    assert!(acked);
    assert_eq!(scene.pair.count(A, Counter::RdResyncsSent), 1);
    assert_eq!(scene.pair.count(B, Counter::RdResyncs), 1);
    scene.assert_eecs_live();
}

#[test] //= check R10 test
//= check R22 test
fn a_resync_is_repeated_until_it_is_acknowledged() {
    for lost_end in [A, B] {
        for count in 1..=7 {
            let mut scene = Scene::slow();
            let (from, to) = (scene.here[0], scene.there[0]);
            scene.pair.rd_recv(to, 4000);
            scene.pair.rd_send(from, to, 3000);
            scene.pair.run_for(Duration::from_nanos(1200));
            for nth in 1..=count {
                let rule = Rule::drop().from(lost_end);
                let opcode = if lost_end == A { OpCode::RD_RESYNC } else { OpCode::RD_ACKNOWLEDGE };
                scene.pair.rule(rule.opcode(opcode).nth(nth));
            }
            scene.pair.world.fail(from);
            scene.run();
            assert!(scene.resyncs(A).len() as u32 >= count, "{count} of {lost_end}");
            assert_eq!(scene.pair.count(B, Counter::RdResyncs), 1, "executed once");
            scene.pair.world.clear_rules();
            scene.assert_eecs_live();
        }
    }
}

#[test] //= check R27 test
fn a_resync_that_is_never_acknowledged_ends_the_eec() {
    let mut scene = Scene::slow();
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.rd_send(from, to, 3000);
    let waiting = scene.pair.rd_send(scene.here[1], to, 10);
    scene.pair.rd_recv(to, 4000);
    scene.pair.run_for(Duration::from_nanos(1200));
    scene.pair.cut(0);
    scene.pair.world.fail(from);
    scene.run();
    assert_eq!(scene.pair.qp(A).state(), QpState::Err);
    assert_eq!(scene.pair.take_events(A), [AsyncEvent::QpFatal, AsyncEvent::PeerLost]);
    scene.assert_ended(scene.here[1], Side::Send, &[(waiting, WcStatus::InvEecStateErr)]);
    assert_eq!(scene.resyncs(A).len(), 8);
}

/// An EEC with a RESYNC that is outstanding, about a message that was given up, or put off; another
/// RD QP waits. Nothing passes any more.
fn outstanding(is_put_off: bool) -> (Scene, [u64; 2]) {
    let mut scene = Scene::with(|terms| {
        terms.settings.budget = 1;
        terms.half[A].rnr_retry = 1;
    });
    scene.pair.world.stop_tap();
    let ([first, second, _], [to, other, _]) = (scene.here, scene.there);
    if !is_put_off {
        scene.pair.rd_recv(to, 4000);
    }
    let send = scene.pair.rd_send(first, to, if is_put_off { 200 } else { 3000 });
    let waiting = scene.pair.rd_send(second, other, 10);
    scene.pair.rule(Rule::drop().from(A).opcode(OpCode::RD_RESYNC).nth(1));
    if !is_put_off {
        scene.pair.run_for(Duration::from_nanos(1200));
        scene.pair.world.fail(first);
    }
    scene
        .pair
        .run_until(|pair| pair.seen(A).iter().any(|seen| seen.bth.opcode == OpCode::RD_RESYNC));
    scene.pair.cut(0);
    (scene, [send, waiting])
}

#[test] //= check R27 test
fn a_resync_that_is_refused_ends_the_eec() {
    let nak = |code| Some(Syndrome::Nak(code));
    let answers = [
        (nak(NakCode::InvalidRequest), WcStatus::RemInvReqErr),
        (nak(NakCode::RemoteAccessError), WcStatus::RemAccessErr),
        (nak(NakCode::RemoteOperationalError), WcStatus::RemOpErr),
        (nak(NakCode::InvalidRdRequest), WcStatus::RemInvRdReqErr),
        (nak(NakCode::Reserved(9)), WcStatus::BadRespErr),
        (Some(Syndrome::RnrNak { timer: 1 }), WcStatus::RnrRetryExcErr),
        // A READ response.
        (None, WcStatus::BadRespErr),
    ];
    for (syndrome, status) in answers {
        for is_put_off in [false, true] {
            let (mut scene, [send, waiting]) = outstanding(is_put_off);
            let ([first, second, _], resync) = (scene.here, scene.resyncs(A)[0].bth.psn);
            let opcode = match syndrome {
                Some(_) => OpCode::RD_ACKNOWLEDGE,
                None => OpCode::RD_RDMA_READ_RESPONSE_ONLY,
            };
            let qpn = scene.pair.world.qp(first).qpn();
            let answer = scene.pair.craft(B, opcode).psn(resync).bth(|bth| bth.dest_qpn = qpn);
            let answer =
                answer.ext(|ext| ext.aeth.syndrome = syndrome.unwrap_or(Syndrome::UNLIMITED));
            // An RNR NAK once more than the retries, each after its wait.
            let is_rnr = matches!(syndrome, Some(Syndrome::RnrNak { .. }));
            for nth in 0..=u32::from(is_rnr) {
                if nth > 0 {
                    scene.pair.run_for(Duration::from_micros(20));
                    assert_eq!(scene.resyncs(A).len(), 2);
                }
                assert_eq!(scene.pair.qp(A).state(), QpState::Rts, "{syndrome:?}");
                scene.pair.deliver(B, &answer);
            }
            assert_eq!(scene.pair.qp(A).state(), QpState::Err, "{syndrome:?} {is_put_off}");
            let events: &[AsyncEvent] = if is_put_off { &[] } else { &[AsyncEvent::QpFatal] };
            assert_eq!(scene.pair.take_events(A), events, "{syndrome:?}");
            let flushed = WcStatus::WrFlushErr;
            let expected = (send, if is_put_off { status } else { flushed });
            scene.assert_ended(first, Side::Send, &[expected]);
            let expected = [(waiting, WcStatus::InvEecStateErr)];
            scene.assert_ended(second, Side::Send, &expected);
            scene.assert_state(second, QpState::Sqe);
        }
    }
}

#[test] //= check R21 test
//= check R22 test
fn a_responder_takes_a_resync_with_any_psn_from_the_expected_one_on() {
    for ahead in [0, 1, 2, 1000, (1 << 23) - 1, 1 << 23] {
        let mut scene = Scene::untapped();
        let psn = scene.pair.psn(A, ahead);
        let resync = scene.pair.craft(A, OpCode::RD_RESYNC).psn(psn);
        scene.pair.deliver(A, &resync);
        assert_eq!(scene.pair.count(B, Counter::RdResyncs), 1);
        // A copy is acknowledged and not executed, and what is older too.
        scene.pair.deliver(A, &resync);
        let older = scene.pair.craft(A, OpCode::RD_RESYNC).psn(psn.minus(5));
        scene.pair.deliver(A, &older);
        assert_eq!(scene.pair.count(B, Counter::RdResyncs), 1);
        assert_eq!(scene.pair.count(B, Counter::DuplicateRequest), 2);
        let acks = scene.pair.responses(B);
        assert_eq!(acks.len(), 3);
        assert!(acks.iter().all(|seen| seen.bth.psn == psn));
        // The next request has the PSN after it.
        let to = scene.there[0];
        let recv = scene.pair.rd_recv(to, 100);
        let qpn = scene.pair.world.qp(to).qpn();
        let send = scene.pair.craft(A, OpCode::RD_SEND_ONLY).psn(psn.next());
        scene.pair.deliver(A, &send.bth(|bth| bth.dest_qpn = qpn));
        scene.assert_succeeded(to, Side::Recv, &[recv]);
    }
}

#[test] //= check R21 test
fn a_resync_out_of_place_gets_the_verdict_of_its_state_and_is_counted() {
    let mut scene = Scene::untapped();
    let resync = scene.pair.craft(A, OpCode::RD_RESYNC);
    // With an other P_Key, from a stranger, to an EEC that has failed.
    scene.pair.deliver(A, &resync.clone().bth(|bth| bth.pkey = uroce_wire::Pkey(0x1234)));
    assert_eq!(scene.pair.drops(B, DropReason::BadPkey), 1);
    let mut path = scene.pair.path(A);
    path.src = uroce_wire::Gid::from(core::net::Ipv4Addr::new(10, 9, 9, 9));
    let frame = scene.pair.frame_by(&path, &resync);
    scene.pair.deliver_frame(A, frame);
    assert_eq!(scene.pair.drops(B, DropReason::WrongSource), 1);
    scene.pair.world.fail(scene.pair.at(B));
    scene.pair.deliver(A, &resync);
    assert_eq!(scene.pair.drops(B, DropReason::QpNotReady), 1);
    assert_eq!(scene.pair.count(B, Counter::RdResyncs), 0);
    assert_eq!(scene.pair.seen(B), []);
}

#[test] //= check R21 test
fn a_resync_to_an_eec_in_reset_or_init_is_dropped_as_any_packet_and_changes_nothing() {
    for state in [QpState::Reset, QpState::Init] {
        let mut pair = Pair::reset(|terms| terms.qp_type = QpType::Eec);
        pair.bring_to(A, QpState::Rts);
        pair.bring_to(B, state);
        let mut scene = Scene::of(pair);
        let opcodes = [OpCode::RD_SEND_ONLY, OpCode::RD_ACKNOWLEDGE, OpCode::RD_RESYNC];
        for (before, opcode) in (0..).zip(opcodes) {
            // The PSN is ahead: a RESYNC that counted would move the expected one.
            let psn = scene.pair.psn(A, 3);
            let packet = scene.pair.craft(A, opcode).psn(psn);
            scene.pair.deliver(A, &packet);
            let dropped = scene.pair.drops(B, DropReason::QpNotReady);
            assert_eq!(dropped, before + 1, "{opcode:?} in {state}");
        }
        assert_eq!(scene.pair.count(B, Counter::RdResyncs), 0);
        assert_eq!(scene.pair.seen(B), []);
        assert_eq!(scene.pair.take_events(B), []);
        assert_eq!(scene.pair.qp(B).state(), state);
        scene.pair.bring_to(B, QpState::Rts);
        scene.assert_eecs_live();
    }
}

#[test] //= check R23 test
fn after_a_resync_the_message_in_progress_goes_no_further() {
    let mut scene = Scene::untapped();
    let to = scene.there[0];
    let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 1000));
    let qpn = scene.pair.world.qp(to).qpn();
    let packet = |scene: &Scene, opcode, index| {
        let packet = scene.pair.craft(A, opcode).psn(scene.pair.psn(A, index));
        packet.payload(&[7; 256]).bth(|bth| bth.dest_qpn = qpn)
    };
    let first = packet(&scene, OpCode::RD_SEND_FIRST, 0);
    scene.pair.deliver(A, &first);
    let resync = scene.pair.craft(A, OpCode::RD_RESYNC).psn(scene.pair.psn(A, 1));
    scene.pair.deliver(A, &resync);
    scene.assert_ended(to, Side::Recv, &[(recvs[0], WcStatus::RemAbortErr)]);
    let only = packet(&scene, OpCode::RD_SEND_ONLY, 2);
    scene.pair.deliver(A, &only);
    let cqes = scene.pair.take_at(to, Side::Recv);
    assert_eq!(cqes.len(), 1);
    assert_eq!((cqes[0].wr_id, cqes[0].byte_len, cqes[0].position), (recvs[1], 256, 2));
}

#[test] //= check R9 test
fn a_message_that_fails_here_half_way_is_given_up() {
    let mut scene = Scene::slow();
    let (from, to) = (scene.here[0], scene.there[0]);
    let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 4000));
    let send = scene.pair.rd_send(from, to, 3000);
    scene.pair.run_for(Duration::from_nanos(1200));
    let mr = scene.pair.local(A);
    let sent = scene.pair.seen(A).len();
    assert!(sent > 0 && sent < 12, "{sent}");
    scene.pair.world.node_mut(0).memory.deregister(mr);
    scene.run();
    scene.assert_ended(from, Side::Send, &[(send, WcStatus::LocProtErr)]);
    scene.assert_state(from, QpState::Sqe);
    scene.assert_ended(to, Side::Recv, &[(recvs[0], WcStatus::RemAbortErr)]);
    scene.assert_state(to, QpState::Rts);
    assert_eq!(scene.resyncs(A).len(), 1);
}

#[test] //= check R9 test
fn a_message_that_fails_before_its_first_packet_needs_no_resync() {
    let mut scene = Scene::new();
    let (from, to) = (scene.here[0], scene.there[0]);
    let mut sge = scene.pair.local(A).sge(0, 3000);
    sge.lkey.0 ^= 1 << 20;
    let send = scene.pair.post_rd(from, to, SendOp::Send { imm: None }, &[sge]);
    scene.run();
    scene.assert_ended(from, Side::Send, &[(send, WcStatus::LocProtErr)]);
    scene.assert_state(from, QpState::Sqe);
    assert_eq!(scene.pair.seen(A), []);
    scene.assert_eecs_live();
}

#[test] //= check R25 test
//= check R11 test
fn a_receiver_that_leaves_in_the_middle_is_refused_and_completes_its_receives_once() {
    for how in WAYS {
        let mut scene = Scene::slow();
        let (from, to) = (scene.here[0], scene.there[0]);
        let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 4000));
        let send = scene.pair.rd_send(from, to, 3000);
        scene.pair.run_for(Duration::from_nanos(1200));
        assert_eq!(scene.pair.world.qp(to).recv_wrs(), 2);
        leave(&mut scene, to, how);
        let expected = match how {
            Leave::Fail => recvs.map(|wr_id| (wr_id, WcStatus::WrFlushErr)).to_vec(),
            Leave::Reset | Leave::Destroy => Vec::new(),
        };
        assert_eq!(scene.done(to, Side::Recv), expected);
        assert_eq!(scene.pair.world.qp(to).recv_wrs(), 0);
        if how == Leave::Reset {
            // A new life with the same number: the old message has no part in it.
            for change in scene.pair.rd_changes(B) {
                scene.pair.world.modify(to, &change).unwrap();
            }
            scene.pair.rd_recv(to, 4000);
        }
        scene.run();
        scene.assert_ended(from, Side::Send, &[(send, WcStatus::RemInvRdReqErr)]);
        assert_eq!(scene.done(to, Side::Recv), []);
        let flushed = expected.len() as u64;
        assert_eq!(scene.pair.count(B, Counter::RespCqeFlushError), flushed, "{how:?}");
        assert_eq!(scene.pair.count(B, Counter::RespCqeError), 0, "none has completed: {how:?}");
        assert_eq!(scene.pair.count(B, Counter::RecvMessages), 0);
        scene.assert_eecs_live();
        assert_eq!(scene.pair.count(B, Counter::RecvMessages), 1);
    }
}

#[test] //= check R24 test
fn a_read_is_answered_from_the_memory_of_the_rd_qp_that_it_named() {
    // Responses are four packets each; each of them is lost once.
    for lost in 0..=8 {
        let mut scene = Scene::new();
        let far_pd = uroce_transport::Pd(2);
        let init = uroce_transport::QpInit {
            rdd: uroce_sim::RDD,
            ..uroce_transport::QpInit::new(
                uroce_transport::QpType::Rd,
                uroce_sim::Terms::default().caps,
            )
        };
        let far_at = scene.pair.world.add_qp(1, 0x66, far_pd, &init);
        for change in scene.pair.rd_changes(B) {
            scene.pair.world.modify(far_at, &change).unwrap();
        }
        let access = uroce_transport::AccessFlags::all();
        let node = scene.pair.world.node_mut(1);
        let far = node.memory.register(far_pd, access, 0x9000, 8, vec![0x3c; 2000]);
        if lost > 0 {
            scene.pair.rule(Rule::drop().from(B).nth(lost));
        }
        let sge = scene.pair.local(A).sge(scene.pair.landing(), 1000);
        let op = SendOp::Read { va: far.va(0), rkey: far.rkey() };
        let near = scene.pair.rd_read(scene.here[0], scene.there[0], 1000);
        let other = scene.pair.post_rd(scene.here[1], far_at, op, &[sge]);
        scene.run();
        scene.assert_succeeded(scene.here[0], Side::Send, &[near]);
        scene.assert_succeeded(scene.here[1], Side::Send, &[other]);
        let landing = scene.pair.landing();
        assert_eq!(scene.pair.slice(A, scene.pair.local(A), landing, 1000), [0x3c; 1000]);
        // The other QP's key does not work for this one.
        let third = scene.pair.post_rd(scene.here[2], scene.there[2], op, &[sge]);
        scene.run();
        scene.assert_ended(scene.here[2], Side::Send, &[(third, WcStatus::RemAccessErr)]);
        scene.pair.run_for(SHORTLY);
    }
}

#[test] //= check R24 test
//= check R11 test
fn an_rd_qp_that_leaves_in_the_middle_of_a_read_answers_no_further() {
    for how in WAYS {
        let mut scene = Scene::slow();
        let (from, to) = (scene.here[0], scene.there[0]);
        let read = scene.pair.rd_read(from, to, 20_000);
        scene.pair.run_for(Duration::from_nanos(2500));
        let sent = scene.pair.seen(B).len();
        assert!(sent > 0 && sent < 78, "{sent}");
        leave(&mut scene, to, how);
        scene.run();
        let data = scene.pair.seen(B).iter().filter(|seen| !seen.payload.is_empty()).count();
        assert_eq!(data, sent, "no data after it has left");
        scene.assert_ended(from, Side::Send, &[(read, WcStatus::RemInvRdReqErr)]);
        scene.assert_state(from, QpState::Sqe);
        scene.assert_eecs_live();
    }
}

#[test] //= check R13 test
fn memory_that_goes_away_in_the_middle_of_a_read_fails_the_rd_qps_only() {
    let mut scene = Scene::slow();
    let (from, to) = (scene.here[0], scene.there[0]);
    let read = scene.pair.rd_read(from, to, 20_000);
    scene.pair.run_for(Duration::from_nanos(2500));
    let mr = scene.pair.remote(B);
    scene.pair.world.node_mut(1).memory.deregister(mr);
    scene.run();
    scene.assert_ended(from, Side::Send, &[(read, WcStatus::RemAccessErr)]);
    scene.assert_state(to, QpState::Err);
    assert_eq!(scene.pair.take_events_at(to), [AsyncEvent::QpAccessErr]);
    scene.assert_eecs_live();
}
