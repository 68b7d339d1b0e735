//! Checks G and what of H transport shows alone: completions, flushing, states.

use uroce_transport::sim::{Pair, Rule};
use uroce_transport::{
    DropReason, ModifyError, PostError, QpChange, QpState, RecvWr, SendOp, SendWr, Side, WcOpcode,
    WcStatus,
};
use uroce_wire::{ImmDt, NakCode, Rkey};

use crate::scene::*;

#[test] //= check G1 test
fn an_error_completes_its_request_and_flushes_the_rest_in_order() {
    for bad in 0..6 {
        let mut pair = Pair::rts();
        let mut expected = Vec::new();
        for index in 0..6 {
            let signaled = index % 2 == 0;
            let mut op = pair.write_op(A, 0, None);
            if index == bad
                && let SendOp::Write { rkey, .. } = &mut op
            {
                *rkey = Rkey(1);
            }
            let wr_id = pair.post_wr(A, op, &[pair.local(A).sge(0, 300)], signaled);
            match index.cmp(&bad) {
                std::cmp::Ordering::Less if signaled => {
                    expected.push((wr_id, WcStatus::Success));
                }
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => expected.push((wr_id, WcStatus::RemAccessErr)),
                std::cmp::Ordering::Greater => expected.push((wr_id, WcStatus::WrFlushErr)),
            }
        }
        let recvs = [pair.recv(A, 10), pair.recv(A, 20)];
        pair.run();
        assert_eq!(statuses(&mut pair, A, Side::Send), expected, "bad {bad}");
        let flushed = recvs.map(|wr_id| (wr_id, WcStatus::WrFlushErr));
        assert_eq!(statuses(&mut pair, A, Side::Recv), flushed);
        assert_eq!(pair.qp(A).state(), QpState::Err);
    }
}

#[test] //= check G2 test
fn queues_take_work_only_in_the_states_that_allow_it() {
    let op = SendOp::Send { imm: None };
    let wr = SendWr { wr_id: 1, op, signaled: true, solicited: false, fence: false };
    for state in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
        let mut pair = Pair::reset(|_| ());
        pair.bring_to(A, state);
        let at = pair.at(A);
        let send = pair.world.post_send(at, &wr, &[]);
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
    let mut pair = Pair::rts();
    pair.world.fail(pair.at(A));
    let sends = [pair.write(A, 10), pair.send(A, 10)];
    let unsignaled = pair.post_wr(A, SendOp::Send { imm: None }, &[], false);
    let recv = pair.recv(A, 10);
    pair.run();
    let flushed = [sends[0], sends[1], unsignaled].map(|wr_id| (wr_id, WcStatus::WrFlushErr));
    assert_eq!(statuses(&mut pair, A, Side::Send), flushed);
    assert_eq!(statuses(&mut pair, A, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
    assert_eq!(pair.seen(A), []);
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

#[test] //= check G5 test
fn a_qp_taken_through_reset_keeps_nothing_of_its_former_life() {
    let mut pair = Pair::rts();
    // A former life that ends in the middle of everything.
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

    // The next life begins with other PSNs.
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
    // A packet of the former life is a duplicate or ahead, but it is not executed.
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

#[test]
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
