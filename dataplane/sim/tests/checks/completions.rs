//! Checks G, and those checks H that need only the transport: completions, flushing, states.

use uroce_sim::{Pair, Rule, Terms};
use uroce_transport::{
    Counter, DropReason, ModifyError, PostError, QpCaps, QpChange, QpState, QpType, RecvWr, SendOp,
    SendWr, Sge, Side, WcOpcode, WcStatus, WorkQueues,
};
use uroce_wire::{ImmDt, Lkey, NakCode, OpCode, Rkey};

use crate::scene::*;

/// A cause for which a send work request fails: the terms of the pair, the request, and what must
/// happen after the post.
struct Cause {
    status: WcStatus,
    terms: fn(&mut Terms),
    post: fn(&mut Pair, bool) -> u64,
    /// Called with the position of the bad request's packet in the sequence.
    help: fn(&mut Pair, u32),
}

const NO_TERMS: fn(&mut Terms) = |_| ();
const NO_HELP: fn(&mut Pair, u32) = |_, _| ();

/// Loses the first answer to a READ, and delivers one of another kind.
fn answer_falsely(pair: &mut Pair, position: u32, opcode: OpCode, len: usize) {
    pair.rule(Rule::drop().from(B).opcode(OpCode::RC_RDMA_READ_RESPONSE_ONLY));
    pair.run_for(SHORTLY);
    let answer = pair.craft(B, opcode).psn(pair.psn(A, position)).payload(&vec![0; len]);
    pair.deliver(B, &answer);
}

/// A cause for every status that a send work request of RC can fail with.
fn causes() -> [Cause; 10] {
    let read: fn(&mut Pair, bool) -> u64 = |pair, signaled| {
        let mr = pair.remote(B);
        let op = SendOp::Read { va: mr.va(0), rkey: mr.rkey() };
        pair.post_wr(A, op, &[pair.local(A).sge(4096, 10)], signaled)
    };
    let send: fn(&mut Pair, bool) -> u64 = |pair, signaled| {
        let sge = pair.local(A).sge(0, 10);
        pair.post_wr(A, SendOp::Send { imm: None }, &[sge], signaled)
    };
    let cause = |status, post| Cause { status, terms: NO_TERMS, post, help: NO_HELP };
    [
        cause(WcStatus::RemAccessErr, |pair, signaled| {
            let op = SendOp::Write { va: pair.remote(B).va(0), rkey: Rkey(1), imm: None };
            pair.post_wr(A, op, &[pair.local(A).sge(0, 10)], signaled)
        }),
        cause(WcStatus::RemInvReqErr, |pair, signaled| {
            let mr = pair.remote(B);
            let op = SendOp::FetchAdd { va: mr.va(1), rkey: mr.rkey(), add: 1 };
            pair.post_wr(A, op, &[pair.local(A).sge(0, 8)], signaled)
        }),
        Cause {
            help: |pair, _| {
                let bad = Sge { lkey: Lkey(1), ..pair.local(B).sge(0, 64) };
                pair.post_recv(B, &[bad]);
            },
            ..cause(WcStatus::RemOpErr, send)
        },
        cause(WcStatus::LocProtErr, |pair, signaled| {
            let bad = Sge { lkey: Lkey(77), ..pair.local(A).sge(0, 8) };
            pair.post_wr(A, SendOp::Send { imm: None }, &[bad], signaled)
        }),
        Cause {
            terms: |terms| terms.half[A].max_rd_atomic = 0,
            ..cause(WcStatus::LocQpOpErr, read)
        },
        cause(WcStatus::MwBindErr, |pair, signaled| {
            pair.post_wr(A, SendOp::LocalInvalidate { rkey: Rkey(1) }, &[], signaled)
        }),
        Cause {
            terms: |terms| terms.half[A].retry_cnt = 1,
            help: |pair, position| {
                pair.rule(Rule::drop().from(A).psn(pair.psn(A, position)));
            },
            ..cause(WcStatus::RetryExcErr, send)
        },
        Cause {
            terms: |terms| terms.half[A].rnr_retry = 0,
            ..cause(WcStatus::RnrRetryExcErr, send)
        },
        Cause {
            help: |pair, position| {
                answer_falsely(pair, position, OpCode::RC_RDMA_READ_RESPONSE_ONLY, 9);
            },
            ..cause(WcStatus::LocLenErr, read)
        },
        Cause {
            help: |pair, position| {
                answer_falsely(pair, position, OpCode::RC_ATOMIC_ACKNOWLEDGE, 0);
            },
            ..cause(WcStatus::BadRespErr, read)
        },
    ]
}

#[test] //= check G1 test
fn whatever_the_error_it_completes_its_request_and_flushes_the_rest_in_order() {
    for cause in causes() {
        for bad in 0..4 {
            // All subsets of the four requests that request a completion.
            for signals in 0..16_u32 {
                assert_flushed(&cause, bad, |index| signals >> index & 1 == 1);
            }
        }
    }
}

/// Posts four requests, of which number `bad` fails for this cause, and checks all completions.
fn assert_flushed(cause: &Cause, bad: u32, is_signaled: impl Fn(u32) -> bool) {
    let mut pair = Pair::with(cause.terms);
    let mut expected = Vec::new();
    // Nothing is sent before all requests are posted.
    pair.world.set_full_rate(1.0);
    for index in 0..4 {
        let signaled = is_signaled(index);
        let wr_id = match index == bad {
            true => (cause.post)(&mut pair, signaled),
            false => {
                let op = pair.write_op(A, 0, None);
                pair.post_wr(A, op, &[pair.local(A).sge(0, 10)], signaled)
            }
        };
        match index.cmp(&bad) {
            std::cmp::Ordering::Less if signaled => expected.push((wr_id, WcStatus::Success)),
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => expected.push((wr_id, cause.status)),
            std::cmp::Ordering::Greater => expected.push((wr_id, WcStatus::WrFlushErr)),
        }
    }
    let recvs = [pair.recv(A, 10), pair.recv(A, 20)];
    pair.world.set_full_rate(0.0);
    (cause.help)(&mut pair, bad);
    pair.run();
    let what = format!("{:?} at {bad}", cause.status);
    assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{what}");
    let flushed = recvs.map(|wr_id| (wr_id, WcStatus::WrFlushErr));
    assert_eq!(statuses(&mut pair, A, Side::Recv), flushed, "{what}");
    assert_eq!(pair.qp(A).state(), QpState::Err);
    assert_eq!((pair.qp(A).send_wrs(), pair.qp(A).recv_wrs()), (0, 0));
    let counts = [Counter::ReqCqeError, Counter::ReqCqeFlushError, Counter::RespCqeFlushError];
    let counts = counts.map(|counter| pair.count(A, counter));
    assert_eq!(counts, [1, u64::from(3 - bad), 2], "{what}");
}

#[test] //= check G2 test
fn queues_take_work_only_in_the_states_that_allow_it() {
    let op = SendOp::Send { imm: None };
    let wr = SendWr {
        wr_id: 1,
        op,
        signaled: true,
        solicited: false,
        fence: false,
        srqn: Default::default(),
    };
    let types = [QpType::Rc, QpType::Uc, QpType::Ud];
    let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
    for (state, qp_type) in states.into_iter().flat_map(|state| types.map(|one| (state, one))) {
        let mut pair = Pair::reset(|terms| terms.qp_type = qp_type);
        pair.bring_to(A, state);
        let at = pair.at(A);
        // Nothing may be sent at once, so that the posted requests can be counted.
        pair.world.set_full_rate(1.0);
        let op = if qp_type == QpType::Ud { pair.send_to_op(A, None) } else { wr.op };
        let send = pair.world.post_send(at, &SendWr { op, ..wr }, &[]);
        let recv = pair.world.post_recv(at, &RecvWr { wr_id: 2 }, &[]);
        let expected = |may| if may { Ok(()) } else { Err(PostError::InvalidState) };
        assert_eq!(send, expected(state == QpState::Rts), "{state}");
        assert_eq!(recv, expected(state != QpState::Reset), "{state}");
        assert_eq!(pair.qp(A).send_wrs(), u32::from(send.is_ok()));
        assert_eq!(pair.qp(A).recv_wrs(), u32::from(recv.is_ok()));
    }
}

#[test] //= check G3 test
fn what_is_posted_in_err_completes_flushed() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
        pair.world.fail(pair.at(A));
        let ops = match qp_type {
            QpType::Ud => [pair.send_to_op(A, None); 3],
            _ => {
                [pair.write_op(A, 0, None), SendOp::Send { imm: None }, SendOp::Send { imm: None }]
            }
        };
        let is_signaled = [true, true, false];
        let sends = [0, 1, 2].map(|at| pair.post_wr(A, ops[at], &[], is_signaled[at]));
        let recv = pair.recv(A, 10);
        pair.run();
        let flushed = sends.map(|wr_id| (wr_id, WcStatus::WrFlushErr));
        assert_eq!(statuses(&mut pair, A, Side::Send), flushed, "{qp_type}");
        assert_eq!(statuses(&mut pair, A, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
        assert_eq!(pair.seen(A), []);
    }
}

#[test] //= check H12 test
fn empty_queues_are_exchanged_for_larger_ones_in_any_state() {
    let types = [QpType::Rc, QpType::Uc, QpType::Ud];
    let states = [QpState::Init, QpState::Rtr, QpState::Rts];
    for (state, qp_type) in states.into_iter().flat_map(|state| types.map(|one| (state, one))) {
        let small = QpCaps { max_send_wr: 2, max_recv_wr: 2, ..Terms::default().caps };
        let large = QpCaps { max_send_wr: 40, max_recv_wr: 40, ..small };
        let mut pair = Pair::reset(|terms| (terms.qp_type, terms.caps) = (qp_type, small));
        let exchange = |pair: &mut Pair, end| {
            let at = pair.at(end);
            pair.world.exchange_queues(at, &mut WorkQueues::new(&large, false))
        };
        let send = |pair: &mut Pair, end| match qp_type {
            QpType::Ud => pair.send_to(end, 10, None),
            _ => pair.send(end, 10),
        };
        for end in [A, B] {
            pair.bring_to(end, state);
            assert!(exchange(&mut pair, end), "{qp_type} {state}");
        }
        // With a receive outstanding nothing changes.
        let recv = pair.recv(A, 100);
        assert!(!exchange(&mut pair, A), "{qp_type} {state}");
        for end in [A, B] {
            pair.bring_to(end, QpState::Rts);
        }
        let recvs: Vec<u64> = (0..40).map(|_| pair.recv(B, 100)).collect();
        let sends: Vec<u64> = (0..40).map(|_| send(&mut pair, A)).collect();
        send(&mut pair, B);
        assert!(!exchange(&mut pair, A), "{qp_type} {state}");
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
        assert_all_succeeded(&mut pair, A, Side::Recv, &[recv]);
        assert!(exchange(&mut pair, A), "{qp_type} {state}");
    }
}

#[test] //= check G4 test
fn going_to_err_at_any_moment_completes_everything_once_and_sends_nothing_more() {
    for steps in 0..60 {
        let mut pair = Pair::rts();
        let mut sends = Vec::new();
        for _ in 0..3 {
            pair.recv(B, 600);
            sends.extend([pair.send(A, 600), pair.read(A, 600), pair.write(A, 600)]);
        }
        let recv = pair.recv(A, 10);
        for _ in 0..steps {
            pair.world.step();
        }
        let at = pair.at(A);
        pair.world.modify(at, &QpChange::to(QpState::Err)).unwrap();
        let sent = pair.seen(A).len();
        pair.run();
        assert_eq!(pair.seen(A).len(), sent, "after {steps} steps");
        let done = statuses(&mut pair, A, Side::Send);
        let wr_ids: Vec<u64> = done.iter().map(|(wr_id, _)| *wr_id).collect();
        assert_eq!(wr_ids, sends, "after {steps} steps");
        assert!(done.is_sorted_by_key(|(_, status)| *status != WcStatus::Success));
        assert!(
            done.iter()
                .all(|(_, status)| { matches!(status, WcStatus::Success | WcStatus::WrFlushErr) })
        );
        assert_eq!(statuses(&mut pair, A, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
    }
}

#[test] //= check G4 test
fn a_responder_that_goes_to_err_at_any_moment_takes_nothing_twice_and_says_nothing_more() {
    for steps in 0..60 {
        let mut pair = Pair::with(|terms| terms.settings.budget = 1);
        let recvs: Vec<u64> = (0..4).map(|_| pair.recv(B, 600)).collect();
        let own = pair.write(B, 600);
        for _ in 0..3 {
            pair.send(A, 600);
            pair.read(A, 600);
            pair.fetch_add(A, 1);
        }
        for _ in 0..steps {
            pair.world.step();
        }
        let added = pair.count(B, Counter::AtomicRequests);
        pair.world.modify(pair.at(B), &QpChange::to(QpState::Err)).unwrap();
        let (sent, bytes) = (pair.seen(B).len(), pair.bytes(B, pair.remote(B)).to_vec());
        pair.run();
        assert_eq!(pair.seen(B).len(), sent, "after {steps} steps");
        assert_eq!(pair.bytes(B, pair.remote(B)), bytes, "after {steps} steps");
        assert_eq!(pair.count(B, Counter::AtomicRequests), added);
        let done = statuses(&mut pair, B, Side::Recv);
        let wr_ids: Vec<u64> = done.iter().map(|(wr_id, _)| *wr_id).collect();
        assert_eq!(wr_ids, recvs, "each once, in order, after {steps} steps");
        assert!(done.is_sorted_by_key(|(_, status)| *status != WcStatus::Success));
        let own_done = statuses(&mut pair, B, Side::Send);
        assert_eq!(own_done.len(), 1);
        assert_eq!(own_done[0].0, own);
        let received = done.iter().filter(|(_, status)| *status == WcStatus::Success).count();
        assert_eq!(pair.count(B, Counter::RecvMessages), received as u64);
    }
}

#[test] //= check G4 test
fn going_to_err_twice_completes_nothing_twice() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(A));
    let (send, recv) = (pair.write(A, 10), pair.recv(A, 10));
    for _ in 0..3 {
        pair.world.modify(pair.at(A), &QpChange::to(QpState::Err)).unwrap();
        pair.world.fail(pair.at(A));
        pair.run();
    }
    assert_eq!(statuses(&mut pair, A, Side::Send), [(send, WcStatus::WrFlushErr)]);
    assert_eq!(statuses(&mut pair, A, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
}

#[test] //= check G5 test
fn a_qp_taken_through_reset_keeps_nothing_of_its_former_life() {
    let mut pair = Pair::rts();
    // A first use of the QP that ends in the middle of messages.
    pair.rule(Rule::drop().from(B));
    for _ in 0..3 {
        pair.write(A, 1000);
        pair.read(A, 1000);
        pair.recv(A, 10);
    }
    pair.run_for(SHORTLY);
    pair.world.clear_rules();
    for end in [A, B] {
        pair.world.modify(pair.at(end), &QpChange::to(QpState::Reset)).unwrap();
    }
    pair.run();
    assert_eq!(pair.take(A, Side::Send), [], "RESET completes nothing");
    assert_eq!(pair.take(A, Side::Recv), []);
    let old = pair.seen(A)[0].clone();
    pair.world.record_mut().unwrap().clear();

    // The second use begins with other PSNs.
    let changes = [pair.changes(A), pair.changes(B)];
    let life = |pair: &mut Pair, end: usize| {
        for mut change in changes[end] {
            change.rq_psn = change.rq_psn.map(|psn| psn.plus(0x40_0000));
            change.sq_psn = change.sq_psn.map(|psn| psn.plus(0x40_0000));
            pair.world.modify(pair.at(end), &change).unwrap();
        }
    };
    life(&mut pair, A);
    life(&mut pair, B);
    // A packet of the first use is a duplicate or ahead, and is not executed.
    let target = pair.remote(B);
    pair.bytes_mut(B, target).fill(0xa5);
    let ghost = pair.craft(A, old.bth.opcode).psn(old.bth.psn).payload(&old.payload);
    pair.deliver(A, &ghost.ext(|ext| ext.reth = old.ext.reth));
    assert!(pair.is_untouched_from(B, 0));
    let sends = [pair.write(A, 1000), pair.read(A, 1000)];
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    assert_eq!(pair.seen(A)[0].bth.psn, pair.psn(A, 0x40_0000));
    assert_eq!(pair.drops(B, DropReason::AfterNak), 0);
}

#[test] //= check H4 test
fn a_draining_send_queue_finishes_what_it_began_and_begins_nothing() {
    let mut pair = Pair::with(|terms| terms.settings.budget = 2);
    let first = pair.write(A, 8 * 256);
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(1));
    let at = pair.at(A);
    pair.world.modify(at, &QpChange::to(QpState::Sqd)).unwrap();
    let second = pair.write(A, 10);
    pair.recv(A, 10);
    pair.send(B, 10);
    assert!(!pair.qp(A).is_drained());
    pair.run();
    assert!(pair.qp(A).is_drained());
    assert_all_succeeded(&mut pair, A, Side::Send, &[first]);
    assert_eq!(pair.take(A, Side::Recv).len(), 1, "the peer is served throughout");
    pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[second]);
}

#[test] //= check H4 test
fn a_message_that_cannot_be_sent_has_not_begun() {
    let mut pair = Pair::rts();
    let first = pair.read(A, 1000);
    let op = SendOp::Send { imm: None };
    let bad = pair.post(A, op, &[Sge { lkey: Lkey(77), ..pair.local(A).sge(0, 8) }]);
    let at = pair.at(A);
    pair.world.modify(at, &QpChange::to(QpState::Sqd)).unwrap();
    pair.run();
    assert!(pair.qp(A).is_drained());
    assert_all_succeeded(&mut pair, A, Side::Send, &[first]);
    pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
    pair.run();
    assert_eq!(statuses(&mut pair, A, Side::Send), [(bad, WcStatus::LocProtErr)]);
}

#[test] //= check H4 test
fn a_read_that_waited_for_its_turn_has_not_begun() {
    let mut pair = Pair::with(|terms| terms.half[A].max_rd_atomic = 1);
    let (first, second) = (pair.read(A, 1000), pair.read(A, 1000));
    pair.run_until(|pair| !pair.seen(A).is_empty());
    let at = pair.at(A);
    pair.world.modify(at, &QpChange::to(QpState::Sqd)).unwrap();
    pair.run();
    assert_eq!(pair.seen(A).len(), 1, "no request leaves that had not");
    assert!(pair.qp(A).is_drained());
    assert_all_succeeded(&mut pair, A, Side::Send, &[first]);
    pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[second]);
}

#[test] //= check H4 test
fn a_message_that_found_the_port_full_has_not_begun() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
        pair.world.set_full_rate(1.0);
        let wr_id = pair.write(A, 10);
        let at = pair.at(A);
        pair.world.modify(at, &QpChange::to(QpState::Sqd)).unwrap();
        pair.world.set_full_rate(0.0);
        pair.run();
        assert_eq!(pair.seen(A).len(), 0, "{qp_type}");
        assert!(pair.qp(A).is_drained());
        pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &[wr_id]);
    }
}

#[test] //= check H6 test
fn a_draining_send_queue_takes_new_attributes_only_once_it_is_drained() {
    let mut pair = Pair::rts();
    pair.write(A, 10);
    let at = pair.at(A);
    pair.world.modify(at, &QpChange::to(QpState::Sqd)).unwrap();
    let change = QpChange { timeout: Some(9), ..QpChange::to(QpState::Sqd) };
    assert_eq!(pair.world.modify(at, &change), Err(ModifyError::Draining));
    assert_eq!(pair.qp(A).attr().timeout, 8);
    pair.run();
    assert_eq!(pair.world.modify(at, &change), Ok(()));
    assert_eq!(pair.qp(A).attr().timeout, 9);
}

#[test] //= check L6 test
fn a_completion_says_what_came() {
    let mut pair = Pair::rts();
    pair.recv(B, 700);
    pair.recv(B, 700);
    pair.recv(B, 700);
    pair.send(A, 600);
    pair.send_imm(A, 0, 0x0102_0304);
    pair.write_imm(A, 300, 0xffff_0000);
    pair.run();
    let got: Vec<_> = pair
        .take(B, Side::Recv)
        .iter()
        .map(|cqe| (cqe.opcode, cqe.byte_len, cqe.imm, cqe.qpn))
        .collect();
    let qpn = pair.qpn(B);
    let expected = [
        (WcOpcode::Recv, 600, None, qpn),
        (WcOpcode::Recv, 0, Some(ImmDt(0x0102_0304)), qpn),
        (WcOpcode::RecvRdmaWithImm, 300, Some(ImmDt(0xffff_0000)), qpn),
    ];
    assert_eq!(got, expected);
    let opcodes: Vec<WcOpcode> = pair.take(A, Side::Send).iter().map(|cqe| cqe.opcode).collect();
    assert_eq!(opcodes, [WcOpcode::Send, WcOpcode::Send, WcOpcode::RdmaWrite]);
}

#[test]
fn a_write_takes_no_receive() {
    let mut pair = Pair::rts();
    pair.recv(B, 100);
    pair.write(A, 100);
    pair.run();
    assert_eq!(pair.qp(B).recv_wrs(), 1);
    assert_eq!(naks(&pair, B), []);
}

#[test]
fn a_nak_that_ends_the_connection_comes_behind_the_answers_owed_before_it() {
    let mut pair = Pair::rts();
    pair.world.set_full_rate(1.0);
    let read = pair.craft(A, uroce_wire::OpCode::RC_RDMA_READ_REQUEST);
    pair.deliver(A, &read.ext(|ext| ext.reth.dma_len = 600));
    let psn = pair.psn(A, 3);
    let bad = pair.craft(A, uroce_wire::OpCode::RC_SEND_LAST).psn(psn).payload(&[0; 4]);
    pair.deliver(A, &bad);
    pair.world.set_full_rate(0.0);
    pair.run();
    assert_eq!(pair.responses(B).len(), 4);
    assert_eq!(naks(&pair, B), [(NakCode::InvalidRequest, psn)]);
    assert_eq!(pair.qp(B).state(), QpState::Err);
}
