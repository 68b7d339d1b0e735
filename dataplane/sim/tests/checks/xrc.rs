//! Checks XRC: extended reliable connections.

use core::time::Duration;

use uroce_sim::{Pair, Rates, Rule, SRQN, XRCD};
use uroce_transport::{
    AsyncEvent, Counter, DropReason, Pd, PostError, QpState, QpType, RecvWr, SendOp, Side,
    WcOpcode, WcStatus,
};
use uroce_wire::{ImmDt, NakCode, OpCode, Operation, Placement, Srqn};

use crate::frames::{bth, seal};
use crate::scene::*;

/// Protection domain of all memory of a pair.
const PD: Pd = Pd(1);
/// Another queue of B in the target's XRC domain.
const OTHER: Srqn = Srqn::new(0xff_fffe);

/// A to B, with the independent checker.
fn xrc() -> Pair {
    let mut pair = Pair::with(|terms| {
        terms.qp_type = QpType::XrcSend;
        terms.is_tapped = true;
    });
    pair.world.node_mut(1).add_named_queue(OTHER, XRCD, PD);
    pair
}

/// Posts a SEND of `len` bytes that names this queue.
fn send_to(pair: &mut Pair, srqn: Srqn, len: u32) -> u64 {
    let sge = pair.local(A).sge(0, len);
    pair.post_as(A, SendOp::Send { imm: None }, &[sge], |wr| wr.srqn = srqn)
}

/// Checks that end A's requests were refused because of the queue that they name.
fn assert_foreign(pair: &mut Pair) {
    pair.run();
    assert_refused(pair, NakCode::InvalidRdRequest);
    assert_eq!(statuses(pair, A, Side::Send)[0].1, WcStatus::RemInvRdReqErr);
    assert_eq!(pair.count(B, Counter::RespXrcViolations), 1);
    assert_eq!(pair.count(A, Counter::ReqRemoteXrcViolation), 1);
    assert!(pair.take_events(B).contains(&AsyncEvent::QpReqErr));
    assert!(pair.is_untouched_from(B, 0));
    assert_eq!(pair.world.take_flaw(), None);
}

#[test] //= check X1 test
fn every_request_names_the_queue_and_no_response_does() {
    let mut pair = xrc();
    for _ in 0..3 {
        pair.recv(B, 1000);
    }
    let wr_ids = [
        pair.send(A, 700),
        pair.send_imm(A, 10, 5),
        pair.write(A, 700),
        pair.write_imm(A, 300, 6),
        pair.read(A, 700),
        pair.fetch_add(A, 1),
        pair.compare_swap(A, 0, 1),
    ];
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
    assert_eq!(pair.take(B, Side::Recv).len(), 3);
    for seen in pair.seen(A) {
        assert!(seen.bth.opcode.is_of_xrc(), "{seen:?}");
        assert_eq!(seen.ext.xrceth.srqn, SRQN);
    }
    let kinds = pair.responses(B).into_iter().map(|seen| seen.bth.opcode.info().unwrap());
    let kinds: Vec<_> = kinds.map(|info| (info.opcode.is_of_xrc(), info.operation)).collect();
    for operation in [Operation::Acknowledge, Operation::ReadResponse] {
        assert!(kinds.contains(&(true, operation)), "{kinds:?}");
    }
    assert_eq!(
        kinds.iter().filter(|kind| **kind == (true, Operation::AtomicAcknowledge)).count(),
        2
    );
    assert!(kinds.iter().all(|kind| kind.0));
    assert_eq!(pair.world.take_flaw(), None);
}

#[test] //= check X2 test
fn a_message_takes_the_oldest_receive_of_the_queue_that_it_names() {
    let mut pair = xrc();
    let sge = pair.local(B).sge(pair.inbox(), 1000);
    let first = pair.post_named_recv(B, SRQN, &[sge]);
    let others = [0, 1].map(|_| pair.post_named_recv(B, OTHER, &[sge]));
    let wr_ids = [OTHER, SRQN, OTHER].map(|srqn| send_to(&mut pair, srqn, 600));
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
    let cqes = pair.take(B, Side::Recv);
    let taken: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.byte_len, cqe.opcode)).collect();
    let of = |wr_id| (wr_id, 600, WcOpcode::Recv);
    assert_eq!(taken, [of(others[0]), of(first), of(others[1])]);
    assert!(cqes.iter().all(|cqe| cqe.qpn == pair.qpn(B)));
}

#[test] //= check X2 test
fn a_queue_without_receives_is_an_rnr_nak_and_holds_up_only_until_one_is_posted() {
    let mut pair = xrc();
    let sge = pair.local(B).sge(pair.inbox(), 1000);
    let write = pair.post_named_recv(B, SRQN, &[sge]);
    let send = send_to(&mut pair, OTHER, 600);
    pair.run_for(Duration::from_millis(2));
    assert!(pair.count(B, Counter::RnrNakSent) > 0);
    assert_eq!(pair.take(B, Side::Recv), []);
    let posted = pair.post_named_recv(B, OTHER, &[sge]);
    let imm = pair.write_imm(A, 100, 9);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[send, imm]);
    let cqes = pair.take(B, Side::Recv);
    let taken: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.opcode, cqe.imm)).collect();
    let expected =
        [(posted, WcOpcode::Recv, None), (write, WcOpcode::RecvRdmaWithImm, Some(ImmDt(9)))];
    assert_eq!(taken, expected);
}

#[test] //= check X2 test
fn memory_is_that_of_the_named_queue_s_protection_domain() {
    // The target itself is in a domain without memory. A queue of another domain than the memory's
    // does not grant it.
    const FAR: Srqn = Srqn::new(3);
    for far_pd in [PD, Pd(2)] {
        for kind in 0..3 {
            let mut pair = xrc();
            pair.world.node_mut(1).add_named_queue(FAR, XRCD, far_pd);
            let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
            let op = match kind {
                0 => SendOp::Write { va, rkey, imm: None },
                1 => SendOp::Read { va, rkey },
                _ => SendOp::FetchAdd { va, rkey, add: 1 },
            };
            let sge = pair.local(A).sge(pair.landing(), 8);
            pair.post_as(A, op, &[sge], |wr| wr.srqn = FAR);
            pair.run();
            let status = statuses(&mut pair, A, Side::Send)[0].1;
            let expected = if far_pd == PD { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(status, expected, "{op:?} {far_pd:?}");
        }
    }
}

#[test] //= check X2 test
fn a_read_is_answered_from_its_own_queue_s_domain_also_when_it_is_repeated() {
    const FAR: Srqn = Srqn::new(3);
    // The responses of both READs, each of four packets, and the ACK of the WRITE.
    for lost in 0..=9 {
        let mut pair = xrc();
        let node = pair.world.node_mut(1);
        node.add_named_queue(FAR, XRCD, Pd(2));
        let access = uroce_transport::AccessFlags::all();
        let far = node.memory.register(Pd(2), access, 0x9000, 8, vec![0x3c; 2000]);
        if lost > 0 {
            pair.rule(Rule::drop().from(B).nth(lost));
        }
        let sge = pair.local(A).sge(pair.landing(), 1000);
        let near = pair.read(A, 1000);
        let op = SendOp::Read { va: far.va(0), rkey: far.rkey() };
        let other = pair.post_as(A, op, &[sge], |wr| wr.srqn = FAR);
        let last = pair.write(A, 10);
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &[near, other, last]);
        let landing = pair.landing();
        assert_eq!(pair.slice(A, pair.local(A), landing, 1000), [0x3c; 1000]);
        let is_repeated = pair.count(B, Counter::DuplicateRequest) > 0;
        assert_eq!(is_repeated, lost > 0, "without packet {lost} of the target");
        assert_eq!(pair.world.take_flaw(), None);
    }
}

#[test] //= check X3 test
fn a_number_that_no_queue_has_is_refused() {
    let mut pair = xrc();
    pair.recv(B, 1000);
    send_to(&mut pair, Srqn::new(4711), 10);
    assert_foreign(&mut pair);
    assert_eq!(pair.node(B).named[0].receives.len(), 1);
}

#[test] //= check X3 test
fn a_queue_of_another_xrc_domain_is_refused_for_every_operation() {
    const FOREIGN: Srqn = Srqn::new(5);
    for kind in 0..5 {
        let mut pair = xrc();
        let node = pair.world.node_mut(1);
        node.add_named_queue(FOREIGN, XRCD + 1, PD);
        let receive = (RecvWr { wr_id: 1 }, Vec::new());
        node.named_mut(FOREIGN).receives.push_back(receive);
        let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
        let sge = pair.local(A).sge(pair.landing(), 8);
        let op = match kind {
            0 => SendOp::Send { imm: None },
            1 => SendOp::Write { va, rkey, imm: None },
            2 => SendOp::Write { va, rkey, imm: Some(ImmDt(1)) },
            3 => SendOp::Read { va, rkey },
            _ => SendOp::FetchAdd { va, rkey, add: 1 },
        };
        pair.post_as(A, op, &[sge], |wr| wr.srqn = FOREIGN);
        assert_foreign(&mut pair);
    }
}

#[test] //= check X3 test
fn a_queue_that_is_gone_is_refused_but_what_it_has_got_is_acknowledged_again() {
    let mut pair = xrc();
    pair.recv(B, 1000);
    pair.rule(Rule::drop().from(B).nth(1));
    let send = pair.send(A, 100);
    pair.run_until(|pair| pair.count(B, Counter::RecvMessages) == 1);
    pair.world.node_mut(1).named.retain(|queue| queue.srqn != SRQN);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
    pair.send(A, 100);
    assert_foreign(&mut pair);
}

#[test] //= check X4 test
fn a_message_that_changes_its_queue_is_refused() {
    let cases = [
        (OpCode::XRC_SEND_FIRST, OpCode::XRC_SEND_LAST),
        (OpCode::XRC_SEND_FIRST, OpCode::XRC_SEND_MIDDLE),
        (OpCode::XRC_RDMA_WRITE_FIRST, OpCode::XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE),
    ];
    for (first, next) in cases {
        for named in [OTHER, Srqn::new(77)] {
            let mut pair = xrc();
            pair.world.stop_tap();
            let sge = pair.local(B).sge(pair.inbox(), 1000);
            pair.post_named_recv(B, SRQN, &[sge]);
            pair.post_named_recv(B, OTHER, &[sge]);
            let packet = pair.craft(A, first).payload(&[1; 256]);
            pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = 512));
            let packet = pair.craft(A, next).psn(pair.psn(A, 1)).payload(&[2; 256]);
            pair.deliver(A, &packet.ext(|ext| ext.xrceth.srqn = named));
            assert_refused(&pair, NakCode::InvalidRdRequest);
            assert_eq!(pair.count(B, Counter::RespXrcViolations), 1);
            assert_eq!(pair.node(B).named[1].receives.len(), 1, "of the other queue");
        }
    }
}

#[test] //= check X4 test
fn a_packet_of_another_queue_out_of_its_order_changes_nothing() {
    let mut pair = xrc();
    pair.world.stop_tap();
    pair.recv(B, 1000);
    let payload = [1; 256];
    let send = |pair: &mut Pair, opcode, index, srqn| {
        let packet = pair.craft(A, opcode).psn(pair.psn(A, index)).payload(&payload);
        pair.deliver(A, &packet.ext(|ext| ext.xrceth.srqn = srqn));
    };
    send(&mut pair, OpCode::XRC_SEND_FIRST, 0, SRQN);
    // Ahead of the expected packet, and one that was executed before.
    send(&mut pair, OpCode::XRC_SEND_ONLY, 5, OTHER);
    send(&mut pair, OpCode::XRC_SEND_FIRST, 0, OTHER);
    send(&mut pair, OpCode::XRC_SEND_LAST, 1, SRQN);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
    assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, 512);
}

#[test] //= check X5 test
fn each_end_takes_the_posts_of_its_half_only() {
    let mut pair = xrc();
    let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
    let flush = pair.flush_op(A, 8, Placement::GLOBAL);
    for op in [flush, SendOp::AtomicWrite { va, rkey }] {
        let (wr, sge) = (pair.send_wr(op), pair.local(A).sge(0, 8));
        let sges = [sge];
        let sges = if op == flush { &sges[..0] } else { &sges[..] };
        let refused = pair.world.post_send(pair.at(A), &wr, sges);
        assert_eq!(refused, Err(PostError::WrongOperation), "{op:?}");
    }
    let wr = RecvWr { wr_id: 1 };
    for end in [A, B] {
        let refused = pair.world.post_recv(pair.at(end), &wr, &[]);
        assert_eq!(refused, Err(PostError::HasSrq));
    }
    for op in [
        SendOp::Send { imm: None },
        SendOp::Write { va, rkey, imm: None },
        SendOp::Read { va, rkey },
        SendOp::LocalInvalidate { rkey },
    ] {
        let wr = pair.send_wr(op);
        let refused = pair.world.post_send(pair.at(B), &wr, &[]);
        assert_eq!(refused, Err(PostError::WrongOperation), "{op:?}");
    }
}

#[test] //= check X7 test
fn requests_to_an_initiator_and_responses_to_a_target_are_dropped() {
    let mut pair = xrc();
    pair.world.stop_tap();
    let packet = pair.craft(B, OpCode::XRC_SEND_ONLY).payload(&[1; 8]);
    pair.deliver(B, &packet);
    assert_eq!(pair.drops(A, DropReason::NotResponder), 1);
    assert_eq!(pair.seen(A), []);
    let packet = pair.craft(A, OpCode::XRC_ACKNOWLEDGE);
    pair.deliver(A, &packet);
    assert_eq!(pair.drops(B, DropReason::NotRequester), 1);
    // RC's opcodes are another service's.
    for opcode in [OpCode::RC_SEND_ONLY, OpCode::RC_ACKNOWLEDGE] {
        let packet = pair.craft(A, opcode);
        pair.deliver(A, &packet);
    }
    assert_eq!(pair.drops(B, DropReason::WrongService), 2);
    assert_eq!(pair.qp(A).state(), QpState::Rts);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
}

#[test] //= check E7 test
fn a_reserved_opcode_of_xrc_is_an_invalid_request() {
    for reserved in [0xb5, 0xb8, 0xbc, 0xbd, 0xbf] {
        let mut pair = xrc();
        pair.world.stop_tap();
        let packet = pair.craft(A, OpCode::XRC_SEND_ONLY);
        let mut frame = pair.frame(A, &packet);
        frame[bth(false)] = reserved;
        seal(&mut frame);
        pair.deliver_frame(A, frame);
        assert_refused(&pair, NakCode::InvalidRequest);
    }
}

#[test] //= check X8 test
fn messages_to_two_queues_arrive_once_and_in_order_by_links_that_lose_packets() {
    let mut pair = xrc();
    let rates = Rates { loss: 0.05, duplicate: 0.05, ..Rates::NONE };
    pair.world.set_rates(0, 1, rates);
    pair.world.set_rates(1, 0, rates);
    let sge = pair.local(B).sge(pair.inbox(), 1000);
    let mut expected = Vec::new();
    let mut wr_ids = Vec::new();
    for at in 0..120 {
        let srqn = if at % 3 == 0 { OTHER } else { SRQN };
        expected.push(pair.post_named_recv(B, srqn, &[sge]));
        wr_ids.push(send_to(&mut pair, srqn, 700));
        if at % 8 == 7 {
            pair.run();
        }
    }
    assert!(pair.world.faults().lost > 10, "{:?}", pair.world.faults());
    assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
    let taken: Vec<_> = pair.take(B, Side::Recv).iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(taken, expected);
    assert_eq!(pair.world.take_flaw(), None);
}

#[test] //= check X9 test
fn a_target_that_fails_reports_its_last_receive_and_an_initiator_does_not() {
    let mut pair = xrc();
    for end in [A, B] {
        pair.world.fail(pair.at(end));
    }
    assert_eq!(pair.take_events(A), [AsyncEvent::QpFatal]);
    assert_eq!(pair.take_events(B), [AsyncEvent::QpFatal, AsyncEvent::LastWqeReached]);
}

#[test] //= check X9 test
fn a_receive_that_was_taken_completes_flushed_and_the_others_stay_in_their_queue() {
    let mut pair = xrc();
    pair.world.stop_tap();
    let wr_ids = [pair.recv(B, 1000), pair.recv(B, 1000)];
    let packet = pair.craft(A, OpCode::XRC_SEND_FIRST).payload(&[1; 256]);
    pair.deliver(A, &packet);
    pair.world.fail(pair.at(B));
    let done = statuses(&mut pair, B, Side::Recv);
    assert_eq!(done, [(wr_ids[0], WcStatus::WrFlushErr)]);
    assert_eq!(pair.node(B).named[0].receives.len(), 1);
}
