//! Relations between the roles of a QP and their queues: turns, order, shared receives.

use uroce_sim::{Pair, Rule, WindowType};
use uroce_transport::{
    AccessFlags, BindMw, Counter, Instant, Pd, PostError, QpChange, QpState, QpType, RecvWr,
    SendOp, SendWr, Side, WcOpcode, WcStatus,
};
use uroce_wire::{OpCode, PathMtu, Placement, Rkey, Va};

use crate::bare::{Bare, PSN, request};
use crate::scene::*;

/// Kind of each packet that end B sent, in order: true for a request.
fn requests_and_answers(pair: &Pair) -> Vec<bool> {
    let kind = |opcode: OpCode| opcode.info().expect("a known one").is_request();
    pair.seen(B).iter().map(|seen| kind(seen.bth.opcode)).collect()
}

/// Makes end B answer a long READ and then write, with the rate limit in kb/s (0: none). Returns
/// the kinds of the packets that it sent.
fn write_amid_answers(rate_limit: u32) -> Vec<bool> {
    let mut pair = Pair::rts();
    let rate_limit = Some(rate_limit);
    pair.modify(B, &QpChange { rate_limit, ..QpChange::default() }).expect("a QP in RTS");
    pair.read(A, 200 * 256);
    pair.run_until(|pair| !pair.seen(B).is_empty());
    pair.write(B, 5 * 256);
    pair.run();
    only_success(&mut pair, A, Side::Send);
    only_success(&mut pair, B, Side::Send);
    requests_and_answers(&pair)
}

#[test]
fn long_reads_do_not_keep_a_qp_from_sending_requests() {
    let kinds = write_amid_answers(0);
    let first = kinds.iter().position(|is_request| *is_request).expect("requests");
    let last = kinds.iter().rposition(|is_request| *is_request).expect("requests");
    assert!(last < kinds.len() - 1, "the READ goes on behind the WRITE");
    let between = kinds[first..=last].split(|is_request| *is_request);
    assert!(between.clone().all(|answers| answers.len() <= 16), "{kinds:?}");
    assert!(between.clone().any(|answers| answers.len() == 16), "answers come first");
}

#[test]
fn nor_do_they_if_its_rate_puts_off_each_packet() {
    let kinds = write_amid_answers(100_000);
    let first = kinds.iter().position(|is_request| *is_request).expect("requests");
    assert!(first <= 17, "{kinds:?}");
}

#[test]
fn a_request_that_finds_no_room_is_next_when_there_is_some() {
    let mut bare = Bare::rts(PathMtu::B256, 1);
    let mut read = request(OpCode::RC_RDMA_READ_REQUEST, PSN);
    read.ext.reth.dma_len = 64 * 256;
    bare.receive(&read).expect("a READ");
    let write = SendOp::Write { va: Va(0), rkey: Rkey(1), imm: None };
    bare.post(write, &[]).expect("room in the queue");
    let answers = 16;
    bare.qp.poll_transmit(Instant::ZERO, answers, &mut bare.env);
    bare.env.is_full = true;
    bare.send();
    bare.env.is_full = false;
    bare.send();
    let opcodes: Vec<OpCode> = bare.env.sent.iter().map(|sent| sent.bth.opcode).collect();
    let first = opcodes.iter().position(|opcode| *opcode == OpCode::RC_RDMA_WRITE_ONLY);
    assert_eq!(first, Some(answers as usize), "{opcodes:?}");
}

#[test]
fn a_qp_that_sends_without_end_answers_at_once() {
    let mut pair = Pair::rts();
    pair.write(B, 250 * 256);
    pair.read(A, 10 * 256);
    pair.run();
    only_success(&mut pair, A, Side::Send);
    only_success(&mut pair, B, Side::Send);
    let kinds = requests_and_answers(&pair);
    let answers = kinds.iter().position(|is_request| !is_request).expect("answers");
    assert!(kinds[answers..answers + 10].iter().all(|is_request| !is_request), "{kinds:?}");
}

/// A type-2 window of end A that is not bound yet, and a request that binds it.
fn window(pair: &mut Pair) -> BindMw {
    let memory = &mut pair.world.node_mut(A as u16).memory;
    let rkey = memory.allocate_window(Pd(1), WindowType::Two);
    let region = pair.remote(A);
    let access = AccessFlags::REMOTE_WRITE;
    let (new_rkey, lkey) = (Rkey(rkey.0 ^ 1), region.lkey());
    BindMw { rkey, new_rkey, lkey, va: region.va(0), len: 64, access }
}

#[test] //= check F8 test
fn what_needs_no_packet_completes_in_its_turn_and_happens_once() {
    let mut pair = Pair::rts();
    let window = window(&mut pair);
    pair.rule(Rule::drop().from(B).nth(1));
    let first = pair.write(A, 600);
    let bind = pair.post(A, window.into(), &[]);
    let second = pair.write(A, 600);
    let invalidate = pair.post(A, SendOp::LocalInvalidate { rkey: window.new_rkey }, &[]);
    let last = pair.write(A, 10);
    pair.run_for(SHORTLY);
    pair.run();
    // The first acknowledgement is lost: the next one completes all, still in order.
    let posted = [first, bind, second, invalidate, last];
    let cqes = pair.take(A, Side::Send);
    let done: Vec<u64> = cqes.iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(done, posted);
    assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::Success), "{cqes:?}");
    assert_eq!([cqes[1].opcode, cqes[3].opcode], [WcOpcode::BindMw, WcOpcode::LocalInv]);
    assert_eq!(pair.sequence(A), upto(7).collect::<Vec<_>>(), "and takes no PSN");
}

#[test] //= check F8 test
fn what_was_done_without_a_packet_is_not_done_again_after_a_loss() {
    let mut pair = Pair::rts();
    let window = window(&mut pair);
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 0)).nth(1));
    let first = pair.write(A, 10);
    // A second bind of a bound type 2 window would fail.
    let bind = pair.post(A, window.into(), &[]);
    let last = pair.write(A, 10);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[first, bind, last]);
    assert_eq!(pair.sequence(A), [0, 1, 0, 1]);
}

#[test]
fn a_shared_receive_is_taken_when_a_message_needs_one() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::with(|terms| {
            terms.qp_type = qp_type;
            terms.half[B].srq = Some(Pd(1));
        });
        let refused = pair.world.post_recv(pair.at(B), &RecvWr { wr_id: 1 }, &[]);
        assert_eq!(refused, Err(PostError::HasSrq));
        let recvs = [pair.shared_recv(B, 600), pair.shared_recv(B, 600)];
        pair.write(A, 600);
        pair.send(A, 600);
        pair.run();
        assert_eq!(pair.node(B).srq.len(), 1, "a WRITE takes none");
        assert_all_succeeded(&mut pair, B, Side::Recv, &recvs[..1]);
        pair.write_imm(A, 600, 5);
        pair.run();
        assert_all_succeeded(&mut pair, B, Side::Recv, &recvs[1..]);
    }
}

#[test]
fn without_a_shared_receive_a_send_is_refused_until_there_is_one() {
    let mut pair = Pair::with(|terms| terms.half[B].srq = Some(Pd(1)));
    let send = pair.send(A, 10);
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    let recv = pair.shared_recv(B, 10);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
    assert_all_succeeded(&mut pair, B, Side::Recv, &[recv]);
}

#[test] //= check G7 test
fn a_shared_receive_in_use_is_flushed_and_the_others_stay() {
    let mut pair = Pair::with(|terms| terms.half[B].srq = Some(Pd(1)));
    let recvs = [pair.shared_recv(B, 600), pair.shared_recv(B, 600)];
    let first = pair.craft(A, OpCode::RC_SEND_FIRST).payload(&[1; 256]);
    pair.deliver(A, &first);
    pair.world.modify(pair.at(B), &QpChange::to(QpState::Err)).unwrap();
    pair.run();
    assert_eq!(statuses(&mut pair, B, Side::Recv), [(recvs[0], WcStatus::WrFlushErr)]);
    assert_eq!(pair.node(B).srq.len(), 1);
}

#[test] //= check H8 test
fn after_a_local_error_a_uc_qp_begins_anew_when_told_to() {
    let mut pair = Pair::with(|terms| terms.qp_type = QpType::Uc);
    let recvs = [pair.recv(B, 600), pair.recv(B, 600)];
    let good = pair.send(A, 600);
    pair.run();
    let bad = pair.post(A, SendOp::LocalInvalidate { rkey: Rkey(0x0bad_0000) }, &[]);
    pair.run();
    assert_eq!(pair.qp(A).state(), QpState::Sqe);
    let flushed = pair.send(A, 600);
    let expected =
        [(good, WcStatus::Success), (bad, WcStatus::MwBindErr), (flushed, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&mut pair, A, Side::Send), expected);
    // The other direction is not affected.
    let answer = pair.recv(A, 10);
    pair.send(B, 10);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Recv, &[answer]);

    pair.world.modify(pair.at(A), &QpChange::to(QpState::Rts)).unwrap();
    let again = pair.send(A, 600);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[again]);
    assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
    assert_eq!(pair.sequence(A), upto(6).collect::<Vec<_>>(), "PSNs go on");
    assert_eq!(pair.count(B, Counter::OutOfSequence), 0);
}

#[test] //= check G2 test
fn each_service_takes_its_own_operations_and_no_other() {
    use QpType::{Rc, Uc, Ud};
    for qp_type in [Rc, Uc, Ud] {
        let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
        let bind = window(&mut pair);
        let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
        let ah = uroce_transport::Ah(0);
        let (dest_qpn, qkey, imm) = (pair.qpn(B), uroce_wire::Qkey(1), None);
        // Operation, QP types that have it, longest scatter/gather list, whether it takes inline
        // data.
        let ops = [
            (SendOp::Send { imm: None }, &[Rc, Uc][..], 16, true),
            (SendOp::SendWithInvalidate { rkey }, &[Rc], 16, true),
            (SendOp::SendTo { ah, dest_qpn, qkey, imm }, &[Ud], 16, true),
            (SendOp::Write { va, rkey, imm: None }, &[Rc, Uc], 16, true),
            (SendOp::Read { va, rkey }, &[Rc], 16, false),
            (SendOp::CompareSwap { va, rkey, compare: 1, swap: 2 }, &[Rc], 8, false),
            (SendOp::FetchAdd { va, rkey, add: 1 }, &[Rc], 8, false),
            (SendOp::AtomicWrite { va, rkey }, &[Rc], 8, true),
            (pair.flush_op(A, 8, Placement::GLOBAL), &[Rc], 0, false),
            (SendOp::LocalInvalidate { rkey }, &[Rc, Uc], 0, false),
            (bind.into(), &[Rc, Uc], 0, false),
        ];
        let sge = pair.local(A).sge(0, 8);
        for (op, services, len, takes_inline) in ops {
            let is_ours = services.contains(&qp_type);
            let right = if is_ours { Ok(()) } else { Err(PostError::WrongOperation) };
            let list = &[sge; 2][..len / 8];
            assert_eq!(op.check(qp_type, list.len(), len as u64), right, "{qp_type} {op:?}");
            let inline =
                if is_ours && takes_inline { right } else { Err(PostError::WrongOperation) };
            assert_eq!(op.check_inline(qp_type, 8), inline, "{qp_type} {op:?}");
            let wr = SendWr {
                wr_id: 1,
                op,
                signaled: true,
                solicited: false,
                fence: false,
                srqn: Default::default(),
            };
            let at = pair.at(A);
            assert_eq!(pair.world.post_inline(at, &wr, &[1; 8]), inline, "{qp_type} {op:?}");
            if !is_ours {
                assert_eq!(pair.world.post_send(at, &wr, list), Err(PostError::WrongOperation));
            }
            if is_ours && len == 0 {
                let refused = pair.world.post_send(at, &wr, &[sge]);
                assert_eq!(refused, Err(PostError::WrongOperation), "takes no list");
            }
        }
    }
}

#[test] //= check G2 test
fn the_general_services_interface_takes_what_a_datagram_qp_takes() {
    let ah = uroce_transport::Ah(0);
    let to = SendOp::SendTo {
        ah,
        dest_qpn: uroce_wire::Qpn::new(1),
        qkey: uroce_wire::Qkey(0x8001_0000),
        imm: None,
    };
    for op in [to, SendOp::Send { imm: None }] {
        assert_eq!(op.suits(QpType::Gsi), op.suits(QpType::Ud));
        assert_eq!(op.check(QpType::Gsi, 1, 64), op.check(QpType::Ud, 1, 64));
    }
}
