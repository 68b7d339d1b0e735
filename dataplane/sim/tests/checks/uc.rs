//! Checks L1, L2 and L6 on UC: a message arrives as a whole or not at all.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{QpState, QpType, SendOp, Sge, Side, WcOpcode, WcStatus};
use uroce_wire::{ImmDt, Lkey, OpCode, Rkey};

use crate::scene::*;

/// A pair of connected UC QPs.
fn uc() -> Pair {
    Pair::with(|terms| terms.qp_type = QpType::Uc)
}

#[test] //= check L1 test
fn a_message_that_lacks_a_packet_is_dropped_in_silence_and_its_receive_is_used_again() {
    for lost in 0..4 {
        let mut pair = uc();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        let recv = pair.recv(B, 1024);
        let sends = [pair.send(A, 4 * 256), pair.send(A, 300)];
        pair.run();
        assert_eq!(pair.seen(B), [], "no answer to anything");
        // Dropped: the first packet after the gap, and the rest of the message. If the last packet
        // is lost, the packet after the gap is the next message's First, which begins a new
        // message.
        let dropped = 3 - u64::from(lost);
        let counted = [("out_of_sequence", 1), ("rx_message_dropped", dropped), ("rdma_recvs", 1)];
        assert_counted(&pair, B, &counted);
        let cqe = only_success(&mut pair, B, Side::Recv);
        assert_eq!((cqe.wr_id, cqe.byte_len), (recv, 300), "the same receive, the whole second");
        assert_eq!(pair.received_bytes(B, 300), pair.source(A, 300));
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        assert_eq!(pair.sequence(A), runs(&[upto(6)]), "nothing is sent again");
        assert_counted(&pair, A, &[("rdma_sends", 2)]);
    }
}

#[test] //= check L1 test
fn a_write_that_lacks_a_packet_never_completes_its_immediate() {
    for lost in 0..4 {
        let mut pair = uc();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        pair.recv(B, 0);
        pair.write_imm(A, 4 * 256, 1);
        pair.write_imm(A, 300, 2);
        pair.run();
        let cqe = only_success(&mut pair, B, Side::Recv);
        assert_eq!((cqe.imm, cqe.byte_len), (Some(ImmDt(2)), 300));
        assert_eq!(pair.seen(B), []);
    }
}

#[test] //= check L1 test
fn what_breaks_a_rule_drops_its_message_and_nothing_more() {
    use OpCode as O;
    let cases: [(OpCode, usize, bool); 8] = [
        (O::UC_SEND_MIDDLE, 256, false),
        (O::UC_SEND_LAST, 10, false),
        (O::UC_RDMA_WRITE_LAST, 10, false),
        (O::UC_SEND_ONLY, 257, false),
        (O::UC_SEND_FIRST, 252, false),
        (O::UC_RDMA_WRITE_ONLY, 7, false), // the RETH states eight
        (O::UC_RDMA_WRITE_ONLY, 8, true),
        (O::UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 8, true),
    ];
    for (opcode, len, bad_key) in cases {
        let mut pair = uc();
        let recv = pair.recv(B, 1000);
        let packet = pair.craft(A, opcode).payload(&vec![1; len]);
        let packet = packet.ext(|ext| {
            ext.reth.dma_len = 8;
            ext.reth.rkey = Rkey(ext.reth.rkey.0 ^ u32::from(bad_key) << 20);
        });
        pair.deliver(A, &packet);
        let counted =
            [("rx_message_dropped", 1), ("resp_remote_access_errors", u64::from(bad_key))];
        assert_counted(&pair, B, &counted);
        assert_eq!(pair.seen(B), [], "{opcode}");
        assert_eq!(pair.qp(B).state(), QpState::Rts);
        assert!(pair.is_untouched_from(B, 0));
        let next = pair.craft(A, O::UC_SEND_ONLY).psn(pair.psn(A, 1)).payload(&[9; 10]);
        pair.deliver(A, &next);
        assert_all_succeeded(&mut pair, B, Side::Recv, &[recv]);
    }
}

#[test] //= check L2 test
fn copies_and_swaps_never_complete_half_a_message() {
    for place in 0..8 {
        for lag in [Duration::ZERO, Duration::from_nanos(40), SHORTLY] {
            for rule in [Rule::duplicate(lag), Rule::delay(lag)] {
                let mut pair = uc();
                pair.rule(rule.from(A).psn(pair.psn(A, place)).nth(1));
                for _ in 0..4 {
                    pair.recv(B, 1024);
                }
                pair.send(A, 4 * 256);
                pair.send(A, 3 * 256 + 1);
                pair.run();
                let cqes = pair.take(B, Side::Recv);
                // A late Only, or a late First with its Last, could form a message; here none can.
                assert!(cqes.len() <= 2, "{cqes:?}");
                for cqe in &cqes {
                    assert_eq!(cqe.status, WcStatus::Success);
                    assert!([4 * 256, 3 * 256 + 1].contains(&cqe.byte_len), "{cqe:?}");
                }
                assert_eq!(pair.seen(B), []);
                assert_eq!(pair.qp(B).state(), QpState::Rts);
                assert_eq!(pair.take(A, Side::Send).len(), 2);
            }
        }
    }
}

#[test] //= check L2 test
fn a_swap_within_a_message_drops_it() {
    for place in 0..3 {
        let mut pair = uc();
        let swap = Duration::from_nanos(40);
        pair.rule(Rule::delay(swap).from(A).psn(pair.psn(A, place)).nth(1));
        pair.recv(B, 1024);
        pair.send(A, 4 * 256);
        pair.run();
        assert_eq!(pair.take(B, Side::Recv), []);
        assert_eq!(pair.qp(B).recv_wrs(), 1);
    }
}

#[test] //= check L6 test
fn completions_on_uc_say_what_came() {
    let mut pair = uc();
    for _ in 0..3 {
        pair.recv(B, 700);
    }
    pair.send(A, 600);
    pair.send_imm(A, 0, 0x0102_0304);
    pair.write_imm(A, 300, 0xffff_0000);
    pair.run();
    let got: Vec<_> = pair
        .take(B, Side::Recv)
        .iter()
        .map(|cqe| (cqe.opcode, cqe.byte_len, cqe.imm, cqe.invalidated()))
        .collect();
    let expected = [
        (WcOpcode::Recv, 600, None, None),
        (WcOpcode::Recv, 0, Some(ImmDt(0x0102_0304)), None),
        (WcOpcode::RecvRdmaWithImm, 300, Some(ImmDt(0xffff_0000)), None),
    ];
    assert_eq!(got, expected);
}

#[test]
fn a_local_error_stops_the_send_queue_of_uc_and_not_the_receive_queue() {
    let mut pair = uc();
    pair.recv(A, 100);
    let good = pair.write(A, 10);
    let bad_sge = Sge { lkey: Lkey(77), ..pair.local(A).sge(0, 8) };
    let bad = pair.post(A, SendOp::Send { imm: None }, &[bad_sge]);
    let behind = pair.write(A, 10);
    pair.send(B, 50);
    pair.run();
    let expected =
        [(good, WcStatus::Success), (bad, WcStatus::LocProtErr), (behind, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&mut pair, A, Side::Send), expected);
    assert_eq!(pair.qp(A).state(), QpState::Sqe);
    assert_eq!(only_success(&mut pair, A, Side::Recv).byte_len, 50);
}
