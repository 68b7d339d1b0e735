//! Events of a QP, and the treatment of packets in states below RTS.

use uroce_sim::{Pair, Rule};
use uroce_transport::{
    AccessFlags, AsyncEvent, DropReason, Pd, QpChange, QpState, QpType, SendOp, Side, WcStatus,
};
use uroce_wire::{NakCode, OpCode, Rkey};

use crate::frames::write_frame;
use crate::scene::*;

#[test] //= check E11 test
//= check R6 test
fn packets_to_a_qp_below_rtr_or_in_err_are_dropped() {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::Eec] {
            let mut pair = Pair::reset(|terms| terms.qp_type = qp_type);
            if state == QpState::Err {
                pair.bring_to(B, QpState::Rts);
                pair.world.modify(pair.at(B), &QpChange::to(state)).unwrap();
            } else {
                pair.bring_to(B, state);
            }
            let opcode = match qp_type {
                QpType::Rc => OpCode::RC_RDMA_WRITE_ONLY,
                QpType::Uc => OpCode::UC_RDMA_WRITE_ONLY,
                QpType::Ud | QpType::Gsi => OpCode::UD_SEND_ONLY,
                QpType::XrcSend | QpType::XrcRecv => OpCode::XRC_RDMA_WRITE_ONLY,
                QpType::Rd | QpType::Eec => OpCode::RD_RDMA_WRITE_ONLY,
                QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => {
                    unreachable!("no packet is of a raw service")
                }
            };
            let packet = pair.craft(A, opcode).payload(&[1; 8]).ext(|ext| ext.reth.dma_len = 8);
            pair.deliver(A, &packet);
            assert_counted(&pair, B, &[(DropReason::QpNotReady.name(), 1)]);
            assert_eq!(pair.seen(B), []);
            assert!(pair.is_untouched_from(B, 0));
            let is_target = qp_type == QpType::XrcSend && state == QpState::Err;
            let expected = is_target.then_some(AsyncEvent::LastWqeReached);
            assert_eq!(pair.take_events(B), expected.as_slice());
        }
    }
}

#[test] //= check E11 test
fn a_qp_in_rtr_serves_requests_and_tells_once_that_the_connection_stands() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::reset(|terms| terms.qp_type = qp_type);
        pair.bring_to(B, QpState::Rtr);
        pair.bring_to(A, QpState::Rts);
        pair.recv(B, 10);
        assert_eq!(pair.take_events(B), []);
        let mut sends = vec![pair.send(A, 10)];
        pair.run();
        assert_eq!(pair.take_events(B), [AsyncEvent::CommEst]);
        sends.push(pair.write(A, 300));
        if qp_type == QpType::Rc {
            sends.push(pair.read(A, 300));
        }
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        assert_eq!(pair.target(B, 300), pair.source(A, 300));
        only_success(&mut pair, B, Side::Recv);
        pair.bring_to(B, QpState::Rts);
        pair.write(A, 10);
        pair.run();
        assert_eq!(pair.take_events(B), [], "once");
        assert_eq!(pair.take_events(A), []);
    }
}

#[test] //= check E11 test
fn in_rts_the_first_packet_is_no_event() {
    let mut pair = Pair::rts();
    pair.write(A, 10);
    pair.run();
    assert_eq!(pair.take_events(B), []);
}

#[test] //= check E11 test
fn a_packet_that_is_dropped_establishes_nothing() {
    let mut pair = Pair::reset(|_| ());
    pair.bring_to(B, QpState::Rtr);
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY);
    pair.deliver(A, &packet.bth(|bth| bth.pkey = uroce_wire::Pkey(5)));
    assert_eq!(pair.take_events(B), []);
}

#[test] //= check F1 test
fn a_request_for_memory_that_is_not_granted_is_an_event_at_its_responder() {
    let mr = Pair::rts().remote(B);
    let (va, rkey) = (mr.va(0), Rkey(mr.rkey().0 ^ 1 << 20));
    let ops = [
        SendOp::Write { va, rkey, imm: None },
        SendOp::Read { va, rkey },
        SendOp::FetchAdd { va, rkey, add: 1 },
        SendOp::CompareSwap { va, rkey, compare: 0, swap: 1 },
    ];
    for op in ops {
        let mut pair = Pair::rts();
        let wr_id = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
        pair.run();
        assert_refused(&pair, NakCode::RemoteAccessError);
        assert_eq!(pair.take_events(B), [AsyncEvent::QpAccessErr]);
        assert_eq!(pair.take_events(A), [], "its requester has a completion");
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemAccessErr)]);
        assert_counted(&pair, A, &[("req_remote_access_errors", 1), ("req_cqe_error", 1)]);
        assert_counted(&pair, B, &[("resp_remote_access_errors", 1)]);
    }
}

#[test] //= check F4 test
fn a_request_that_the_qp_does_not_take_is_an_event_at_its_responder() {
    let mut pair = Pair::with(|terms| terms.half[B].access = AccessFlags::REMOTE_READ);
    pair.write(A, 8);
    pair.run();
    assert_refused(&pair, NakCode::InvalidRequest);
    assert_eq!(pair.take_events(B), [AsyncEvent::QpReqErr]);
    assert_eq!(pair.take_events(A), []);
}

#[test] //= check G7 test
fn a_qp_with_a_shared_receive_queue_tells_once_that_it_takes_no_more() {
    let mut pair = Pair::with(|terms| terms.half[B].srq = Some(Pd(1)));
    pair.shared_recv(B, 100);
    pair.world.modify(pair.at(B), &QpChange::to(QpState::Err)).unwrap();
    let frame = write_frame(&pair);
    pair.deliver_frame(A, frame);
    pair.world.fail(pair.at(B));
    pair.world.modify(pair.at(B), &QpChange::to(QpState::Err)).unwrap();
    assert_eq!(pair.take_events(B), [AsyncEvent::LastWqeReached]);
    assert_eq!(pair.node(B).srq.len(), 1, "what it did not take stays for others");
    assert_eq!(pair.take(B, Side::Recv), []);
}

#[test] //= check H4 test
fn a_drained_send_queue_is_told_of_once_after_the_last_ack() {
    for notify in [false, true] {
        let mut pair = Pair::with(|terms| terms.settings.budget = 2);
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, 5)).nth(1));
        pair.write(A, 8 * 256);
        let change = QpChange { en_sqd_async_notify: Some(notify), ..QpChange::to(QpState::Sqd) };
        pair.world.modify(pair.at(A), &change).unwrap();
        assert_eq!(pair.take_events(A), []);
        pair.run();
        let expected = if notify { vec![AsyncEvent::SqDrained] } else { vec![] };
        assert_eq!(pair.take_events(A), expected);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check H4 test
fn without_acknowledgements_it_is_told_of_after_the_message_in_progress() {
    for (qp_type, notify) in
        [QpType::Uc, QpType::Ud].map(|one| [(one, false), (one, true)]).concat()
    {
        let mut pair = Pair::with(|terms| (terms.qp_type, terms.settings.budget) = (qp_type, 1));
        let sends = [(); 3].map(|()| match qp_type {
            QpType::Uc => pair.write(A, 4 * 256),
            _ => pair.send_to(A, 200, None),
        });
        assert_eq!(pair.seen(A).len(), 1, "the first message has begun");
        let change = QpChange { en_sqd_async_notify: Some(notify), ..QpChange::to(QpState::Sqd) };
        pair.modify(A, &change).unwrap();
        pair.run();
        let expected = if notify { vec![AsyncEvent::SqDrained] } else { vec![] };
        assert_eq!(pair.take_events(A), expected, "{qp_type}");
        assert_eq!(pair.seen(A).len(), if qp_type == QpType::Uc { 4 } else { 1 });
        assert_all_succeeded(&mut pair, A, Side::Send, &sends[..1]);
        pair.modify(A, &QpChange::to(QpState::Rts)).unwrap();
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &sends[1..]);
        assert_eq!(pair.take_events(A), [], "once");
    }
}
