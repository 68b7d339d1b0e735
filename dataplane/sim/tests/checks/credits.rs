//! Checks A19: end-to-end credits, granted and used.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{Pd, Side};
use uroce_wire::{OpCode, Syndrome};

use crate::go_back_n::write_only;
use crate::scene::*;

/// Number of receives of each credit code; code 31 means no limit.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// The largest code that stands for at most `receives`.
fn code_of(receives: u32) -> u8 {
    CREDITS.iter().rposition(|credits| *credits <= receives).unwrap() as u8
}

/// Requests the `index`-th acknowledgement from end B and returns its credit code.
fn credits_of(pair: &mut Pair, index: u32) -> u8 {
    pair.world.record_mut().unwrap().clear();
    let write = write_only(pair, index);
    pair.deliver(A, &write);
    match pair.responses(B)[0].ext.aeth.syndrome {
        Syndrome::Ack { credits } => credits,
        other => panic!("{other:?}"),
    }
}

#[test] //= check A19 test
fn a_responder_grants_the_receives_it_has_rounded_down_to_a_code() {
    let mut pair = Pair::with(|terms| terms.caps.max_recv_wr = 33_000);
    let (mut posted, mut asked) = (0, 0);
    for credits in CREDITS {
        // One receive fewer than the code's, then as many, then one more.
        for receives in [credits.saturating_sub(1), credits, credits + 1] {
            while posted < receives {
                pair.recv(B, 10);
                posted += 1;
            }
            let granted = credits_of(&mut pair, asked);
            assert_eq!(granted, code_of(posted), "{posted} receives");
            asked += 1;
        }
    }
}

#[test] //= check A19 test
fn a_send_takes_its_credit_away() {
    let mut pair = Pair::rts();
    for _ in 0..4 {
        pair.recv(B, 10);
    }
    let mut granted = Vec::new();
    for _ in 0..4 {
        pair.send(A, 10);
        pair.run();
        granted.push(pair.responses(B).last().unwrap().ext.aeth.syndrome);
    }
    assert_eq!(granted, [3, 2, 1, 0].map(|credits| Syndrome::Ack { credits }));
}

#[test] //= check A19 test
fn with_a_shared_receive_queue_there_is_no_limit_to_grant() {
    let mut pair = Pair::with(|terms| terms.half[B].srq = Some(Pd(1)));
    for receives in 0..3 {
        assert_eq!(credits_of(&mut pair, receives), 0x1f);
        pair.shared_recv(B, 10);
    }
    let send = pair.craft(A, OpCode::RC_SEND_ONLY).psn(pair.psn(A, 3));
    pair.deliver(A, &send);
    assert_eq!(pair.responses(B).last().unwrap().ext.aeth.syndrome, Syndrome::UNLIMITED);
    assert_eq!(pair.take(B, Side::Recv).len(), 1);
}

/// A pair in which end A has sent one WRITE, acknowledged with this credit code. Its later packets
/// are lost.
fn granted(code: u8) -> Pair {
    let mut pair = Pair::with(|terms| {
        terms.half[A].timeout = 0;
        terms.caps.max_send_wr = 1024;
    });
    pair.rule(Rule::drop().from(A));
    pair.write(A, 10);
    acknowledge(&mut pair, 1, code);
    pair
}

/// Delivers an acknowledgement of end B for the first `messages`, each of one packet.
fn acknowledge(pair: &mut Pair, messages: u32, code: u8) {
    let psn = pair.psn(A, messages - 1);
    let ack = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn);
    let ack = ack.ext(|ext| {
        ext.aeth.msn = uroce_wire::Msn::new(messages);
        ext.aeth.syndrome = Syndrome::Ack { credits: code };
    });
    pair.world.record_mut().unwrap().clear();
    pair.deliver(B, &ack);
    pair.run_for(Duration::from_micros(20));
}

#[test] //= check A19 test
fn a_requester_sends_as_many_as_its_credits_cover_and_not_one_more() {
    for (code, credits) in (0_u8..).zip(CREDITS).skip(1) {
        let mut pair = granted(code);
        // The last message, the WRITE included, that A may send.
        let limit = 1 + credits;
        let (mut acked, mut code, mut sent, mut posted) = (1, code, 1, 1);
        while acked < limit {
            let (before, sent_then) = (pair.sequence(A).len(), sent);
            while posted < (acked + 300).min(limit + 5) {
                pair.send(A, 0);
                posted += 1;
            }
            pair.run_for(Duration::from_micros(20));
            sent += (pair.sequence(A).len() - before) as u32;
            // Messages within the credits are sent at once, up to the window of 256 packets. The
            // peer rounds credits down, so a later grant may seem smaller than an earlier one.
            let covered = acked + CREDITS[usize::from(code)];
            assert_eq!(sent, covered.min(acked + 256).max(sent_then), "code {code}");
            // The peer receives some messages and reports the remaining credits.
            acked = sent.min(acked + 200);
            code = code_of(limit - acked);
            acknowledge(&mut pair, acked, code);
            sent += pair.sequence(A).len() as u32;
            pair.take(A, Side::Send);
        }
        // All messages within the credits were sent. The next packet is a probe.
        assert_eq!(sent, limit + 1, "code {code}");
    }
}

#[test] //= check A19 test
fn code_31_is_no_limit() {
    let mut pair = granted(31);
    for _ in 0..300 {
        pair.send(A, 0);
    }
    pair.run_for(SHORTLY);
    assert_eq!(pair.sequence(A).len(), 256, "the window's limit alone");
}

#[test] //= check A19 test
fn without_credit_one_packet_probes() {
    for len in [10, 1000] {
        let mut pair = granted(0);
        for _ in 0..3 {
            pair.send(A, len);
        }
        pair.run_for(SHORTLY);
        assert_eq!(pair.sequence(A), [1], "SENDs of {len} bytes");
        assert!(pair.seen(A)[0].bth.ack_req, "to learn of credits");
        // A WRITE needs no receive and no credit, but it does not overtake.
        pair.write(A, 10);
        pair.run_for(SHORTLY);
        assert_eq!(pair.sequence(A), [1]);
    }
}

#[test] //= check A19 test
fn a_write_needs_no_credit_and_one_with_immediate_does() {
    let mut pair = granted(0);
    pair.write(A, 1000);
    pair.write(A, 1000);
    pair.write_imm(A, 10, 1);
    pair.write_imm(A, 10, 2);
    pair.run_for(SHORTLY);
    assert!(pair.sequence(A).into_iter().eq(1..9));
}

#[test] //= check A12 test
fn the_newest_ack_once_more_only_brings_credits() {
    let mut pair = granted(0);
    for _ in 0..3 {
        pair.send(A, 10);
    }
    pair.run_for(SHORTLY);
    assert_eq!(pair.sequence(A), [1]);
    acknowledge(&mut pair, 1, 4);
    assert_eq!(pair.sequence(A), [2, 3]);
    assert_eq!(pair.take(A, Side::Send).len(), 1, "the WRITE, once");
    let counted = [("stale_response", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
}
