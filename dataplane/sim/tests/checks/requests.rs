//! Options of a work request besides its operation: a fence, an event at the peer, inline data.

use uroce_sim::{Pair, Rule};
use uroce_transport::{PostError, SendOp, Side, WcStatus};
use uroce_wire::{OpCode, Rkey, Va};

use crate::scene::*;

/// Time at which end A sent the first packet of this opcode.
fn sent_at(pair: &Pair, opcode: OpCode) -> uroce_transport::Instant {
    pair.seen(A).iter().find(|seen| seen.bth.opcode == opcode).expect("it was sent").at
}

/// Posts a READ of four packets or an ATOMIC, then a SEND, fenced or not.
fn read_then_send(is_atomic: bool, fence: bool, lost: Option<u32>) -> Pair {
    let mut pair = Pair::rts();
    if let Some(lost) = lost {
        pair.rule(Rule::drop().from(B).psn(pair.psn(A, lost)).nth(1));
    }
    pair.recv(B, 10);
    let first = if is_atomic { pair.fetch_add(A, 1) } else { pair.read(A, 1000) };
    let sge = pair.local(A).sge(0, 10);
    let send = pair.post_as(A, SendOp::Send { imm: None }, &[sge], |wr| wr.fence = fence);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[first, send]);
    pair
}

#[test] //= check C15 test
fn a_fenced_send_is_not_on_the_wire_before_the_last_response() {
    for is_atomic in [false, true] {
        for lost in [None, Some(0), Some(1), Some(3)] {
            let pair = read_then_send(is_atomic, true, lost);
            let answers = pair.responses(B);
            let last = answers.iter().rfind(|seen| seen.bth.opcode != OpCode::RC_ACKNOWLEDGE);
            let arrived = last.unwrap().at + pair_latency();
            assert!(sent_at(&pair, OpCode::RC_SEND_ONLY) > arrived, "{is_atomic} {lost:?}");
        }
    }
}

/// Least time that a packet is in flight.
fn pair_latency() -> core::time::Duration {
    uroce_sim::Settings::default().latency
}

#[test] //= check C15 test
fn without_a_fence_the_send_does_not_wait() {
    for (is_atomic, request) in
        [(false, OpCode::RC_RDMA_READ_REQUEST), (true, OpCode::RC_FETCH_ADD)]
    {
        let pair = read_then_send(is_atomic, false, None);
        assert_eq!(sent_at(&pair, OpCode::RC_SEND_ONLY), sent_at(&pair, request));
    }
}

#[test] //= check C15 test
fn a_fence_waits_for_reads_and_atomics_alone() {
    let mut pair = Pair::rts();
    pair.recv(B, 10);
    pair.write(A, 1000);
    let sge = pair.local(A).sge(0, 10);
    pair.post_as(A, SendOp::Send { imm: None }, &[sge], |wr| wr.fence = true);
    pair.run();
    let write = sent_at(&pair, OpCode::RC_RDMA_WRITE_LAST);
    assert_eq!(sent_at(&pair, OpCode::RC_SEND_ONLY), write);
}

#[test] //= check E21 test
fn the_solicited_bit_stands_in_the_last_packet_and_reaches_the_completion() {
    for solicited in [false, true] {
        for len in [0, 10, 256, 1000] {
            let mut pair = Pair::rts();
            let write = pair.write_op(A, 0, None);
            let write_imm = pair.write_op(A, 0, Some(uroce_wire::ImmDt(5)));
            let ops = [
                SendOp::Send { imm: None },
                SendOp::Send { imm: Some(uroce_wire::ImmDt(5)) },
                write_imm,
                write,
            ];
            for op in ops {
                pair.recv(B, 1000);
                let sge = pair.local(A).sge(0, len);
                pair.post_as(A, op, &[sge], |wr| wr.solicited = solicited);
            }
            pair.run();
            for seen in pair.seen(A) {
                let op = seen.bth.opcode.info().unwrap();
                let is_plain_write = op.operation == uroce_wire::Operation::Write
                    && !op.has(uroce_wire::Header::ImmDt);
                let may = op.position.is_last() && !is_plain_write;
                assert_eq!(seen.bth.solicited, solicited && may, "{}", seen.bth.opcode);
            }
            let told: Vec<bool> =
                pair.take(B, Side::Recv).iter().map(|cqe| cqe.solicited).collect();
            assert_eq!(told, [solicited; 3]);
            assert!(pair.take(A, Side::Send).iter().all(|cqe| !cqe.solicited));
        }
    }
}

#[test] //= check F13 test
fn inline_data_is_what_it_was_at_the_post_on_the_wire_and_again() {
    for len in [0, 1, 8, 255, 256, 257, 1024] {
        for is_write in [false, true] {
            let mut pair = Pair::rts();
            pair.rule(Rule::drop().from(A).nth(1));
            pair.recv(B, 1024);
            let op = if is_write { pair.write_op(A, 0, None) } else { SendOp::Send { imm: None } };
            let posted: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let mut buffer = posted.clone();
            let at = pair.at(A);
            let wr = pair.send_wr(op);
            // Nothing is sent at the post, so that the application can change its buffer.
            pair.world.set_full_rate(1.0);
            pair.world.post_inline(at, &wr, &buffer).unwrap();
            buffer.fill(0xee);
            pair.world.set_full_rate(0.0);
            pair.run();
            let payloads = |skip: usize| -> Vec<u8> {
                let packets = (len as usize).div_ceil(256).max(1);
                let seen = pair.seen(A).into_iter().skip(skip * packets).take(packets);
                seen.flat_map(|seen| seen.payload).collect()
            };
            assert_eq!(payloads(0), posted, "first");
            assert_eq!(payloads(1), posted, "again");
            let got = if is_write { pair.target(B, len) } else { pair.received_bytes(B, len) };
            assert_eq!(got, posted);
            only_success(&mut pair, A, Side::Send);
        }
    }
}

#[test] //= check F13 test
fn inline_data_needs_no_key_of_its_own_and_stays_within_its_limits() {
    let mut pair = Pair::with(|terms| terms.caps.max_inline_data = 64);
    let at = pair.at(A);
    let wr = pair.send_wr(pair.write_op(A, 0, None));
    assert_eq!(pair.world.post_inline(at, &wr, &[1; 65]), Err(PostError::InlineTooLong));
    let read = pair.send_wr(SendOp::Read { va: Va(0), rkey: Rkey(0) });
    assert_eq!(pair.world.post_inline(at, &read, &[1; 8]), Err(PostError::WrongOperation));
    pair.run();
    assert_eq!(pair.seen(A), []);
    assert_eq!(pair.world.post_inline(at, &wr, &[1; 64]), Ok(()));
    pair.run();
    assert_eq!(pair.target(B, 64), [1; 64]);
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr.wr_id, WcStatus::Success)]);
}
