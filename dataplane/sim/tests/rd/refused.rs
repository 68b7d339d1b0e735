//! Requests that are refused: the RD QPs fail, the EECs do not.

use uroce_sim::{RDD, Rule};
use uroce_transport::{
    AccessFlags, AsyncEvent, Counter, DropReason, Pd, QpChange, QpInit, QpState, QpType, RdAddress,
    Rdd, SendOp, Side, WcStatus,
};
use uroce_wire::{NakCode, OpCode, Psn, Qkey, Qpn};

use crate::{A, B, Scene};

/// Posts a SEND to this destination and checks that it is refused as an invalid RD request, which
/// changes nothing at the peer.
fn assert_invalid(scene: &mut Scene, change: impl FnOnce(&mut RdAddress)) {
    let (from, to) = (scene.here[0], scene.there[0]);
    let mut address = scene.pair.rd_address(A, to);
    change(&mut address);
    let before = scene.pair.count(B, Counter::RespRdViolations);
    let sge = scene.pair.local(A).sge(0, 600);
    let op = SendOp::Send { imm: None };
    let send = scene.pair.post_rd_as(from, &address, op, &[sge], |_| ());
    scene.run();
    scene.assert_ended(from, Side::Send, &[(send, WcStatus::RemInvRdReqErr)]);
    scene.assert_state(from, QpState::Sqe);
    assert_eq!(scene.pair.count(B, Counter::RespRdViolations), before + 1);
    assert_eq!(scene.pair.count(A, Counter::ReqRemoteRdViolation), before + 1);
    scene.pair.world.modify(from, &QpChange::to(QpState::Rts)).unwrap();
    scene.assert_eecs_live();
}

#[test] //= check R12 test
//= check R9 test
fn a_request_that_no_rd_qp_takes_is_an_invalid_rd_request() {
    let mut scene = Scene::new();
    let recv = scene.pair.rd_recv(scene.there[0], 1000);
    assert_invalid(&mut scene, |to| to.dest_qpn = Qpn::new(0x5555));
    assert_invalid(&mut scene, |to| to.dest_qpn = Qpn::new(0));
    let eecn = scene.pair.qpn(B);
    assert_invalid(&mut scene, |to| to.dest_qpn = eecn);
    assert_invalid(&mut scene, |to| to.qkey = Qkey(0x1111_1110));
    let foreign = scene.pair.add_rd_as(B, |init| init.rdd = Rdd(RDD.0 + 1));
    let foreign = scene.pair.world.qp(foreign).qpn();
    assert_invalid(&mut scene, |to| to.dest_qpn = foreign);
    let young = scene.pair.add_rd_in_reset(B, |_| ());
    let qpn = scene.pair.world.qp(young).qpn();
    assert_invalid(&mut scene, |to| to.dest_qpn = qpn);
    let [init, ..] = scene.pair.rd_changes(B);
    scene.pair.world.modify(young, &init).unwrap();
    assert_invalid(&mut scene, |to| to.dest_qpn = qpn);
    scene.pair.world.fail(young);
    assert_invalid(&mut scene, |to| to.dest_qpn = qpn);
    scene.assert_state(scene.there[0], QpState::Rts);
    assert_eq!(scene.pair.take_events_at(scene.there[0]), []);
    // The receive is still there.
    scene.pair.rd_send(scene.here[0], scene.there[0], 10);
    scene.run();
    scene.assert_succeeded(scene.there[0], Side::Recv, &[recv]);
}

#[test] //= check R12 test
fn an_rd_qp_in_rtr_and_sqe_receives() {
    let mut scene = Scene::new();
    let at = scene.pair.add_rd_in_reset(B, |_| ());
    let [init, rtr, rts] = scene.pair.rd_changes(B);
    for change in [init, rtr] {
        scene.pair.world.modify(at, &change).unwrap();
    }
    let first = scene.pair.rd_recv(at, 100);
    scene.pair.rd_send(scene.here[0], at, 100);
    scene.run();
    scene.assert_succeeded(at, Side::Recv, &[first]);
    scene.pair.world.modify(at, &rts).unwrap();
    let nowhere = RdAddress::default();
    scene.pair.post_rd_as(at, &nowhere, SendOp::Send { imm: None }, &[], |_| ());
    scene.assert_state(at, QpState::Sqe);
    let second = scene.pair.rd_recv(at, 100);
    scene.pair.rd_send(scene.here[0], at, 100);
    scene.run();
    scene.assert_succeeded(at, Side::Recv, &[second]);
}

/// Checks that a request fails at both ends with these results, and that the EECs go on.
fn assert_fails(
    scene: &mut Scene,
    op: SendOp,
    len: u32,
    (status, event, recv): (WcStatus, Option<AsyncEvent>, Option<WcStatus>),
) {
    let (from, to) = (scene.here[0], scene.there[0]);
    let first = scene.pair.rd_recv(to, 300);
    let second = scene.pair.rd_recv(to, 300);
    let landing = if matches!(op, SendOp::Read { .. } | SendOp::FetchAdd { .. }) {
        scene.pair.landing()
    } else {
        0
    };
    let sge = scene.pair.local(A).sge(landing, len);
    let send = scene.pair.post_rd(from, to, op, &[sge]);
    let behind = scene.pair.rd_send(from, to, 10);
    scene.run();
    let expected = [(send, status), (behind, WcStatus::WrFlushErr)];
    scene.assert_ended(from, Side::Send, &expected);
    scene.assert_state(from, QpState::Sqe);
    let flushed = WcStatus::WrFlushErr;
    let expected = [(first, recv.unwrap_or(flushed)), (second, flushed)];
    scene.assert_ended(to, Side::Recv, &expected);
    scene.assert_state(to, QpState::Err);
    assert_eq!(scene.pair.take_events_at(to), event.as_slice());
    for end in [A, B] {
        assert_eq!(scene.pair.take_events(end), []);
    }
    assert_eq!(scene.resyncs(A).len(), 1);
    assert!(scene.pair.is_untouched_from(B, 0));
    scene.assert_eecs_live();
}

#[test] //= check R13 test
//= check R9 test
fn a_refused_request_takes_both_rd_qps_out_and_neither_eec() {
    let access = (WcStatus::RemAccessErr, Some(AsyncEvent::QpAccessErr), None);
    let invalid = (WcStatus::RemInvReqErr, Some(AsyncEvent::QpReqErr), None);
    // As with RC, the completion tells of it.
    let too_long = (WcStatus::RemInvReqErr, None, Some(WcStatus::LocLenErr));
    let mut scene = Scene::new();
    let (va, mut rkey) = (scene.pair.remote(B).va(0), scene.pair.remote(B).rkey());
    assert_fails(&mut scene, SendOp::Send { imm: None }, 301, too_long);
    for kind in 0..3 {
        let mut scene = Scene::new();
        rkey.0 ^= 1 << 20;
        let op = match kind {
            0 => SendOp::Write { va, rkey, imm: None },
            1 => SendOp::Read { va, rkey },
            _ => SendOp::FetchAdd { va, rkey, add: 1 },
        };
        rkey.0 ^= 1 << 20;
        assert_fails(&mut scene, op, 8, access);
    }
    // Not a multiple of eight.
    let mut scene = Scene::new();
    let va = uroce_wire::Va(va.0 + 4);
    assert_fails(&mut scene, SendOp::FetchAdd { va, rkey, add: 1 }, 8, invalid);
}

#[test] //= check R33 test
fn what_a_request_may_do_is_what_the_rd_qp_allows() {
    let invalid = (WcStatus::RemInvReqErr, Some(AsyncEvent::QpReqErr), None);
    let flags = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ, AccessFlags::REMOTE_ATOMIC];
    for (kind, lacks) in flags.into_iter().enumerate() {
        let mut scene = Scene::new();
        let (va, rkey) = (scene.pair.remote(B).va(0), scene.pair.remote(B).rkey());
        let op = match kind {
            0 => SendOp::Write { va, rkey, imm: None },
            1 => SendOp::Read { va, rkey },
            _ => SendOp::FetchAdd { va, rkey, add: 1 },
        };
        let access = Some(AccessFlags::all() - lacks);
        let to = scene.there[0];
        scene.pair.world.modify(to, &QpChange { access, ..QpChange::default() }).unwrap();
        assert_fails(&mut scene, op, 8, invalid);
    }
    // Without room for READs and ATOMICs there are neither.
    for kind in 0..2 {
        let mut scene = Scene::new();
        let (va, rkey) = (scene.pair.remote(B).va(0), scene.pair.remote(B).rkey());
        let op = match kind {
            0 => SendOp::Read { va, rkey },
            _ => SendOp::FetchAdd { va, rkey, add: 1 },
        };
        let at = scene.pair.add_rd_in_reset(B, |_| ());
        for mut change in scene.pair.rd_changes(B) {
            change.max_dest_rd_atomic = change.max_dest_rd_atomic.map(|_| 0);
            scene.pair.world.modify(at, &change).unwrap();
        }
        scene.there[0] = at;
        assert_fails(&mut scene, op, 8, invalid);
    }
}

#[test] //= check R33 test
fn the_rnr_timer_is_that_of_the_rd_qp() {
    let mut scene = Scene::new();
    let change = QpChange { min_rnr_timer: Some(9), ..QpChange::default() };
    scene.pair.world.stop_tap();
    scene.pair.world.modify(scene.there[1], &change).unwrap();
    let mut codes = Vec::new();
    for at in [0, 1] {
        scene.pair.rd_send(scene.here[at], scene.there[at], 10);
        scene.pair.run_for(crate::SHORTLY);
        scene.pair.rd_recv(scene.there[at], 10);
        scene.pair.run();
        let seen = scene.pair.responses(B);
        codes.extend(seen.iter().filter_map(|seen| match seen.ext.aeth.syndrome {
            uroce_wire::Syndrome::RnrNak { timer } => Some(timer),
            _ => None,
        }));
    }
    codes.dedup();
    assert_eq!(codes[..1], [6]);
    assert_eq!(*codes.last().unwrap(), 9);
}

#[test] //= check R12 test
//= check R7 test
fn a_new_q_key_of_the_rd_qp_counts_from_then_on() {
    let qkey = Qkey(0x77);
    let mut scene = Scene::new();
    // Given on the way to RTR, and in RTS.
    let young = scene.pair.add_rd_in_reset(B, |_| ());
    let [init, rtr, _] = scene.pair.rd_changes(B);
    for change in [init, QpChange { qkey: Some(qkey), ..rtr }] {
        scene.pair.world.modify(young, &change).unwrap();
    }
    let old = scene.there[0];
    let change = QpChange { qkey: Some(qkey), ..QpChange::default() };
    scene.pair.world.modify(old, &change).unwrap();
    for at in [young, old] {
        let recv = scene.pair.rd_recv(at, 100);
        let dest_qpn = scene.pair.world.qp(at).qpn();
        assert_invalid(&mut scene, |to| to.dest_qpn = dest_qpn);
        let address = RdAddress { qkey, ..scene.pair.rd_address(A, at) };
        let (from, op) = (scene.here[0], SendOp::Send { imm: None });
        let send = scene.pair.post_rd_as(from, &address, op, &[], |_| ());
        scene.run();
        scene.assert_succeeded(from, Side::Send, &[send]);
        scene.assert_succeeded(at, Side::Recv, &[recv]);
    }
}

#[test] //= check R14 test
fn a_refusal_that_is_lost_is_given_again() {
    // The NAK, then the acknowledgement of the RESYNC.
    for lost in 1..=2 {
        let mut scene = Scene::new();
        scene.pair.rule(Rule::drop().from(B).nth(lost));
        let (from, to) = (scene.here[0], scene.there[0]);
        let mut rkey = scene.pair.remote(B).rkey();
        rkey.0 ^= 1 << 20;
        let op = SendOp::Write { va: scene.pair.remote(B).va(0), rkey, imm: None };
        let sge = scene.pair.local(A).sge(0, 2000);
        let send = scene.pair.post_rd(from, to, op, &[sge]);
        scene.run();
        scene.assert_ended(from, Side::Send, &[(send, WcStatus::RemAccessErr)]);
        scene.assert_state(to, QpState::Err);
        assert_eq!(scene.pair.take_events_at(to), [AsyncEvent::QpAccessErr], "once");
        scene.assert_eecs_live();
    }
}

#[test] //= check R34 test
fn the_packets_of_a_message_come_from_one_rd_qp_and_go_to_one() {
    for kind in 0..4 {
        let mut scene = Scene::untapped();
        let [to, other, _] = scene.there;
        scene.pair.rd_recv(to, 1000);
        scene.pair.rd_recv(other, 1000);
        let source = scene.pair.world.qp(scene.here[0]).qpn();
        let [to_qpn, other_qpn] = [to, other].map(|at| scene.pair.world.qp(at).qpn());
        let first = scene.pair.craft(A, OpCode::RD_SEND_FIRST).payload(&[1; 256]);
        let first = first.ext(|ext| ext.deth.src_qpn = source).bth(|bth| bth.dest_qpn = to_qpn);
        let next = scene.pair.craft(A, OpCode::RD_SEND_LAST).psn(scene.pair.psn(A, 1));
        let next = next.payload(&[2; 256]).ext(|ext| ext.deth.src_qpn = source);
        let next = next.bth(|bth| bth.dest_qpn = to_qpn);
        let next = match kind {
            0 => next,
            1 => next.bth(|bth| bth.dest_qpn = other_qpn),
            2 => next.ext(|ext| ext.deth.src_qpn = Qpn::new(0x77)),
            _ => next.ext(|ext| ext.deth.qkey.0 ^= 1),
        };
        scene.pair.deliver(A, &first);
        scene.pair.deliver(A, &next);
        let done = scene.done(to, Side::Recv);
        if kind == 0 {
            assert_eq!(done.len(), 1);
            continue;
        }
        assert_eq!(done, []);
        assert_eq!(scene.naks(B), [NakCode::InvalidRdRequest], "kind {kind}");
        scene.assert_state(to, QpState::Rts);
        scene.assert_state(other, QpState::Rts);
        // A RESYNC ends the message.
        let resync = scene.pair.craft(A, OpCode::RD_RESYNC).psn(scene.pair.psn(A, 2));
        scene.pair.deliver(A, &resync);
        assert_eq!(scene.done(to, Side::Recv)[0].1, WcStatus::RemAbortErr);
    }
}

#[test] //= check R34 test
fn a_packet_ahead_that_names_another_rd_qp_changes_nothing() {
    let mut scene = Scene::untapped();
    let [to, other, _] = scene.there;
    let recv = scene.pair.rd_recv(to, 1000);
    let source = scene.pair.world.qp(scene.here[0]).qpn();
    let [to_qpn, other_qpn] = [to, other].map(|at| scene.pair.world.qp(at).qpn());
    let cases = [
        (OpCode::RD_SEND_FIRST, 0, to_qpn),
        (OpCode::RD_SEND_MIDDLE, 5, other_qpn),
        (OpCode::RD_SEND_ONLY, 9, other_qpn),
        (OpCode::RD_SEND_FIRST, 0, other_qpn),
        (OpCode::RD_SEND_LAST, 1, to_qpn),
    ];
    for (opcode, index, dest) in cases {
        let packet = scene.pair.craft(A, opcode).psn(scene.pair.psn(A, index));
        let packet = packet.payload(&[index as u8; 256]).bth(|bth| bth.dest_qpn = dest);
        scene.pair.deliver(A, &packet.ext(|ext| ext.deth.src_qpn = source));
    }
    scene.assert_succeeded(to, Side::Recv, &[recv]);
    scene.assert_state(other, QpState::Rts);
    assert_eq!(scene.naks(B), [NakCode::PsnSequenceError]);
}

#[test] //= check R34 test
//= check R13 test
fn a_message_that_begins_in_the_middle_of_another_is_an_invalid_request() {
    let mut scene = Scene::untapped();
    let [to, other, _] = scene.there;
    let recv = scene.pair.rd_recv(to, 1000);
    scene.pair.rd_recv(other, 1000);
    let source = scene.pair.world.qp(scene.here[0]).qpn();
    let [to_qpn, other_qpn] = [to, other].map(|at| scene.pair.world.qp(at).qpn());
    for (index, dest) in [(0, to_qpn), (1, other_qpn)] {
        let packet = scene.pair.craft(A, OpCode::RD_SEND_FIRST).payload(&[1; 256]);
        let packet = packet.psn(scene.pair.psn(A, index)).bth(|bth| bth.dest_qpn = dest);
        scene.pair.deliver(A, &packet.ext(|ext| ext.deth.src_qpn = source));
    }
    assert_eq!(scene.naks(B), [NakCode::InvalidRequest]);
    // The fault is that of the message in progress; the other QP has no part in it.
    scene.assert_ended(to, Side::Recv, &[(recv, WcStatus::WrFlushErr)]);
    scene.assert_state(to, QpState::Err);
    scene.assert_state(other, QpState::Rts);
    assert_eq!(scene.pair.qp(B).state(), QpState::Rts);
}

#[test] //= check R20 test
fn packets_to_no_eec_are_dropped_and_counted() {
    let mut scene = Scene::untapped();
    let to = scene.pair.world.qp(scene.there[0]).qpn();
    // Handed to an RD QP, an EEC of another number, and to none.
    for dest in [to, scene.pair.qpn(B), Qpn::new(0x7777)] {
        for opcode in [OpCode::RD_SEND_ONLY, OpCode::RD_RESYNC, OpCode::RD_ACKNOWLEDGE] {
            let packet = scene.pair.craft(A, opcode).bth(|bth| bth.dest_qpn = dest);
            scene.pair.deliver(A, &packet.ext(|ext| ext.rdeth.eecn = 0x7777));
        }
    }
    assert_eq!(scene.pair.drops(B, DropReason::UnknownEecn), 9);
    assert_eq!(scene.pair.count(B, Counter::RdResyncs), 0);
    // An RD QP is no EEC, and an EEC takes no other opcodes.
    let packet = scene.pair.craft(A, OpCode::RD_SEND_ONLY);
    scene.pair.deliver(A, &packet.ext(|ext| ext.rdeth.eecn = to.value()));
    let packet = scene.pair.craft(A, OpCode::RC_SEND_ONLY);
    scene.pair.deliver(A, &packet);
    let packet = scene.pair.craft(A, OpCode::UD_SEND_ONLY).bth(|bth| bth.dest_qpn = to);
    scene.pair.deliver(A, &packet);
    assert_eq!(scene.pair.drops(B, DropReason::WrongService), 3);
    assert_eq!(scene.pair.seen(B), []);
}

#[test] //= check R20 test
fn a_response_to_another_rd_qp_than_the_one_that_sends_is_dropped() {
    let mut scene = Scene::untapped();
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.rule(Rule::drop().from(A).nth(1));
    scene.pair.rd_recv(to, 100);
    let send = scene.pair.rd_send(from, to, 100);
    scene.pair.run_for(crate::SHORTLY);
    let psn: Psn = scene.pair.psn(A, 0);
    let other = scene.pair.world.qp(scene.here[1]).qpn();
    let ack = scene.pair.craft(B, OpCode::RD_ACKNOWLEDGE).psn(psn);
    scene.pair.deliver(B, &ack.bth(|bth| bth.dest_qpn = other));
    scene.assert_ended(from, Side::Send, &[]);
    assert_eq!(scene.pair.drops(A, DropReason::OtherRdQp), 1);
    scene.pair.run();
    scene.assert_succeeded(from, Side::Send, &[send]);
    // With nothing in progress any response is stale.
    let own = scene.pair.world.qp(from).qpn();
    let ack = scene.pair.craft(B, OpCode::RD_ACKNOWLEDGE).psn(psn);
    scene.pair.deliver(B, &ack.bth(|bth| bth.dest_qpn = own));
    assert_eq!(scene.pair.count(A, Counter::StaleResponse), 1);
}

#[test] //= check R20 test
fn reserved_opcodes_of_rd_are_dropped() {
    let mut scene = Scene::untapped();
    for opcode in [0x56, 0x57, 0x5d, 0x5f] {
        let packet = scene.pair.craft(A, OpCode(opcode));
        let mut frame = scene.pair.frame(A, &scene.pair.craft(A, OpCode::RD_SEND_ONLY));
        let at = frame.len() - 4 - 24;
        frame[at] = packet.bth.opcode.0;
        uroce_wire::seal(&mut frame[14..]).unwrap();
        scene.pair.deliver_frame(A, frame);
    }
    assert_eq!(scene.pair.drops(B, DropReason::ReservedOpCode), 4);
    // FLUSH over RD is left out: an invalid request.
    let to = scene.there[0];
    let qpn = scene.pair.world.qp(to).qpn();
    let flush = scene.pair.craft(A, OpCode::RD_FLUSH).bth(|bth| bth.dest_qpn = qpn);
    scene.pair.deliver(A, &flush);
    assert_eq!(scene.naks(B), [NakCode::InvalidRequest]);
}

#[test] //= check R29 test
fn an_rd_qp_with_a_shared_receive_queue_takes_its_receives() {
    let mut scene = Scene::with(|_| ());
    let srq = Some(Pd(1));
    let to = scene.pair.add_rd_as(B, |init: &mut QpInit| init.srq = srq);
    let recvs = [0; 3].map(|_| scene.pair.shared_recv(B, 1000));
    let sends = scene.here.map(|from| scene.pair.rd_send(from, to, 600));
    scene.run();
    for (from, send) in scene.here.into_iter().zip(sends) {
        scene.assert_succeeded(from, Side::Send, &[send]);
    }
    scene.assert_succeeded(to, Side::Recv, &recvs);
    assert_eq!(scene.pair.world.qp(to).qp_type(), QpType::Rd);
    // The last receive is told of when the QP fails.
    scene.pair.world.fail(to);
    let events = scene.pair.take_events_at(to);
    assert_eq!(events, [AsyncEvent::QpFatal, AsyncEvent::LastWqeReached]);
}
