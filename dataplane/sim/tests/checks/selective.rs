//! Checks A25 and A26: selective repeat between own ends, and selective acknowledgements that lie.

use core::time::Duration;

use uroce_sim::{Crafted, Pair, Rates, Rule, Seen, Step, Terms};
use uroce_transport::{Counter, Cqe, DropReason, QpState, Side};
use uroce_wire::{OpCode, Psn, Syndrome};

use crate::scene::*;

/// A pair with selective repeat, with terms changed by `change`.
fn own_with(change: impl FnOnce(&mut Terms)) -> Pair {
    Pair::with(|terms| {
        terms.selective_repeat = true;
        change(terms);
    })
}

fn own() -> Pair {
    own_with(|_| ())
}

/// Loses the `nth` copy of end A's packet `position`.
fn lose(pair: &mut Pair, position: u32, nth: u32) {
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, position)).nth(nth));
}

/// Number of times that end A has sent each of its first `count` packets.
fn copies(pair: &Pair, count: i32) -> Vec<usize> {
    let sequence = pair.sequence(A);
    (0..count).map(|at| sequence.iter().filter(|sent| **sent == at).count()).collect()
}

/// Asserts that of end A's first `count` packets, `lost` were sent `times` times and all others
/// once.
#[track_caller]
fn assert_only_repeated(pair: &Pair, count: i32, lost: &[u32], times: usize) {
    let is_lost = |at: i32| lost.contains(&(at as u32));
    let expected: Vec<_> = (0..count).map(|at| if is_lost(at) { times } else { 1 }).collect();
    assert_eq!(copies(pair, count), expected, "{:#?}", pair.trace(40));
}

/// Times at which end A has sent its packet `position`.
fn times_of(pair: &Pair, position: u32) -> Vec<uroce_transport::Instant> {
    let psn = pair.psn(A, position);
    pair.seen(A).iter().filter(|seen| seen.bth.psn == psn).map(|seen| seen.at).collect()
}

#[test] //= check A25 test
fn a_lost_packet_is_sent_again_alone() {
    for lost in [0, 1, 7, 30, 31, 32, 33, 60] {
        let mut pair = own();
        lose(&mut pair, lost, 1);
        pair.write(A, 64 * 256);
        pair.run();
        assert_only_repeated(&pair, 64, &[lost], 2);
        assert_eq!(naks(&pair, B), []);
        assert_eq!(pair.target(B, 64 * 256), pair.source(A, 64 * 256));
        let counted = [("packet_seq_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
        assert_counted_but(&pair, A, Counter::StaleResponse, &counted);
        assert_eq!(pair.count(B, Counter::OutOfSequence), 1);
        assert_eq!(pair.count(B, Counter::HeldPackets), 63 - u64::from(lost));
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A25 test
fn of_many_packets_only_the_lost_ones_are_sent_again() {
    let mut pair = own();
    let lost = [3, 4, 5, 40, 42, 44, 100, 163];
    for position in lost {
        lose(&mut pair, position, 1);
    }
    let sends: Vec<u64> = (0..10).map(|_| pair.write(A, 20 * 256)).collect();
    pair.run();
    assert_only_repeated(&pair, 200, &lost, 2);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(pair.count(A, Counter::TailProbes), 0);
    assert_eq!(pair.target(B, 20 * 256), pair.source(A, 20 * 256));
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A25 test
fn copies_of_a_selective_acknowledgement_repeat_nothing_twice() {
    for lag in [0, 1, 10, 100] {
        let mut pair = own();
        lose(&mut pair, 5, 1);
        let lag = Duration::from_micros(lag);
        pair.rule(Rule::duplicate(lag).from(B).opcode(OpCode::RC_SELECTIVE_ACKNOWLEDGE));
        pair.write(A, 64 * 256);
        pair.run();
        assert_only_repeated(&pair, 64, &[5], 2);
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A25 test
fn a_repetition_that_is_lost_is_sent_again_within_round_trips() {
    for losses in 2..5 {
        let mut pair = own_with(|terms| terms.half[A].timeout = 14);
        for nth in 1..=losses {
            lose(&mut pair, 10, nth);
        }
        for _ in 0..8 {
            pair.write(A, 512 * 256);
        }
        pair.run();
        assert_only_repeated(&pair, 8 * 512, &[10], losses as usize + 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert_eq!(pair.count(A, Counter::TailProbes), 0);
        let times = times_of(&pair, 10);
        for pair_of in times.windows(2) {
            // A round trip takes some 2 µs, and 256 packets on the wire some 7 µs.
            let waited = pair_of[1].since(pair_of[0]);
            assert!(waited < Duration::from_micros(30), "{waited:?}");
        }
        assert_eq!(pair.target(B, 512 * 256), pair.source(A, 512 * 256));
    }
}

#[test] //= check A25 test
fn a_repetition_that_is_lost_with_nothing_after_it_is_found_by_a_probe() {
    let mut pair = own_with(|terms| terms.half[A].timeout = 14);
    let mut sends = vec![pair.write(A, 256)];
    pair.run();
    lose(&mut pair, 3, 1);
    lose(&mut pair, 3, 2);
    sends.push(pair.write(A, 8 * 256));
    pair.run();
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(pair.count(A, Counter::TailProbes), 1);
    assert_only_repeated(&pair, 9, &[3], 3);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A25 test
fn a_lost_tail_is_found_by_a_probe() {
    for tail in 1..5 {
        let mut pair = own_with(|terms| terms.half[A].timeout = 14);
        let mut sends = vec![pair.write(A, 256)];
        pair.run();
        for position in 9 - tail..9 {
            lose(&mut pair, position, 1);
        }
        sends.push(pair.write(A, 8 * 256));
        pair.run();
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert!(pair.count(A, Counter::TailProbes) > 0);
        // The oldest packet is the probe, and perhaps the lost ones after it in turn.
        let repeated = u64::from(tail);
        let again = pair.count(A, Counter::RetransmittedPackets);
        assert!((repeated..=repeated + 2).contains(&again), "{:#?}", pair.trace(40));
        assert_eq!(pair.target(B, 8 * 256), pair.source(A, 8 * 256));
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    }
}

#[test] //= check A25 test
fn after_the_ack_timeout_everything_is_sent_again() {
    // The peer loses what it has held, as far as the requester can know.
    let mut pair = own();
    pair.cut(0);
    let wr_id = pair.write(A, 8 * 256);
    pair.run_for(TIMEOUT / 2);
    pair.mend(0);
    pair.run();
    assert_eq!(copies(&pair, 8), [2; 8]);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    assert_all_succeeded(&mut pair, A, Side::Send, &[wr_id]);
}

#[test] //= check A25 test
fn a_flag_that_is_held_is_not_visible_before_the_data() {
    for lost in 0..8 {
        let mut pair = own();
        // The round trip is known from an earlier WRITE.
        pair.write_far(A, 256);
        pair.run();
        let lost = 1 + lost;
        lose(&mut pair, lost, 1);
        lose(&mut pair, lost, 2);
        // The data comes in eight packets, and the flag in one after them.
        pair.write(A, 8 * 256);
        let op = pair.write_op(A, 4096, None);
        let source = pair.local(A).sge(0, 8);
        pair.post(A, op, &[source]);
        for _ in 0..64 {
            pair.write_far(A, 256);
        }
        let remote = pair.remote(B);
        let mut is_seen = false;
        while pair.world.step() != Step::Idle {
            if pair.slice(B, remote, 4096, 8) == pair.source(A, 8) {
                is_seen = true;
                assert_eq!(pair.target(B, 8 * 256), pair.source(A, 8 * 256), "{lost}");
            }
        }
        assert!(is_seen);
        // The flag was not sent again: it was held.
        assert_only_repeated(&pair, 10, &[lost], 3);
        assert!(pair.count(B, Counter::HeldPackets) > 0);
    }
}

/// Packets of end A with the PSNs from the first on: a WRITE of `word`, a fetch and add of 2, a
/// READ of the word.
fn requests(pair: &Pair, word: u64) -> [Crafted; 3] {
    let craft = |opcode, position| pair.craft(A, opcode).psn(pair.psn(A, position));
    let write = craft(OpCode::RC_RDMA_WRITE_ONLY, 0).payload(&word.to_ne_bytes());
    let add = craft(OpCode::RC_FETCH_ADD, 1).ext(|ext| ext.atomic.swap_add = 2);
    let read = craft(OpCode::RC_RDMA_READ_REQUEST, 2);
    [write.ext(|ext| ext.reth.dma_len = 8), add, read.ext(|ext| ext.reth.dma_len = 8)]
}

#[test] //= check A25 test
fn atomics_and_reads_that_come_early_are_executed_in_order() {
    for order in [[1, 2, 0], [2, 1, 0], [2, 0, 1], [1, 0, 2], [0, 2, 1]] {
        let mut pair = own();
        pair.set_word(B, 100);
        let packets = requests(&pair, 40);
        for at in order {
            pair.deliver(A, &packets[at]);
        }
        pair.run();
        assert_eq!(pair.word(B), 42, "{order:?}");
        let answers = pair.responses(B);
        let atomic = OpCode::RC_ATOMIC_ACKNOWLEDGE;
        let of = |opcode| answers.iter().filter(move |seen| seen.bth.opcode == opcode);
        let originals: Vec<u64> = of(atomic).map(|seen| seen.ext.atomic_ack.original).collect();
        assert_eq!(originals, [40], "{order:?}");
        let read: Vec<&Seen> = of(OpCode::RC_RDMA_READ_RESPONSE_ONLY).collect();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].payload, 42_u64.to_ne_bytes());
        assert_eq!(pair.count(B, Counter::AtomicRequests), 1);
    }
}

#[test] //= check A25 test
fn a_copy_of_a_held_packet_is_executed_once() {
    let mut pair = own();
    let [write, add, _] = requests(&pair, 40);
    for packet in [&add, &add, &write, &add, &write] {
        pair.deliver(A, packet);
    }
    pair.run();
    assert_eq!(pair.word(B), 42);
    assert_eq!(pair.count(B, Counter::AtomicRequests), 1);
    assert_eq!(pair.count(B, Counter::HeldPackets), 1);
}

#[test] //= check A25 test
fn with_a_read_outstanding_the_requester_goes_back() {
    for lost in [0, 1, 4, 7, 20, 60] {
        let mut pair = own_with(|terms| terms.half[A].timeout = 14);
        let warm = pair.write_far(A, 256);
        pair.run();
        lose(&mut pair, 1 + lost, 1);
        pair.set_word(B, 7);
        let mut sends = vec![warm, pair.write_far(A, 4 * 256), pair.read(A, 3 * 256)];
        sends.extend((0..40).map(|_| pair.write_far(A, 2 * 256)));
        sends.push(pair.fetch_add(A, 5));
        sends.extend((0..40).map(|_| pair.write_far(A, 256)));
        pair.run();
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0, "{lost}");
        assert!(pair.count(A, Counter::RetransmittedPackets) > 1, "{lost}");
        assert_eq!(pair.count(B, Counter::AtomicRequests), 1);
        assert_eq!(pair.word(B), 12);
        assert_eq!(pair.landed_word(A), 7);
        let (remote, half) = (pair.remote(B), pair.bytes(B, pair.remote(B)).len() as u32 / 2);
        assert_eq!(pair.slice(B, remote, half, 4 * 256), pair.source(A, 4 * 256));
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    }
}

#[test] //= check A25 test
fn with_a_second_read_outstanding_the_requester_goes_back_too() {
    // The first READ is answered before the loss is reported, the second one is not.
    let mut pair = own_with(|terms| terms.half[A].timeout = 14);
    pair.write_far(A, 256);
    pair.run();
    lose(&mut pair, 4, 1);
    pair.read(A, 3 * 256);
    for _ in 0..10 {
        pair.write_far(A, 2 * 256);
    }
    pair.read(A, 8 * 256);
    for _ in 0..40 {
        pair.write_far(A, 256);
    }
    pair.run();
    let mut seen = pair.seen(A);
    seen.retain(|seen| seen.bth.opcode == OpCode::RC_RDMA_READ_REQUEST);
    let asked: Vec<_> =
        seen.iter().map(|seen| seen.bth.psn.distance_from(pair.psn(A, 0))).collect();
    // No part of the second READ is asked for before its first response.
    assert!(asked == [1, 24] || asked == [1, 24, 24], "{asked:?}");
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(statuses(&mut pair, A, Side::Send).len(), 53);
}

#[test] //= check A25 test
fn after_the_read_is_answered_lost_packets_are_sent_again_alone() {
    let mut pair = own();
    let mut sends = vec![pair.read(A, 3 * 256)];
    pair.run();
    lose(&mut pair, 8, 1);
    sends.push(pair.write(A, 64 * 256));
    pair.run();
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 1);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A25 test
fn a_send_without_a_receive_among_held_packets_is_sent_again_alone() {
    let mut pair = own();
    lose(&mut pair, 1, 1);
    let mut recvs = vec![pair.recv(B, 600)];
    let mut sends = vec![pair.write(A, 4 * 256), pair.send(A, 100), pair.send(A, 200)];
    sends.extend((0..20).map(|_| pair.write_far(A, 256)));
    sends.push(pair.send(A, 300));
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    pair.run_for(Duration::from_micros(5));
    // What follows the refused SEND waits.
    let half = pair.bytes(B, pair.remote(B)).len() as u32 / 2;
    assert!(pair.is_untouched_from(B, half));
    assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, 100);
    recvs.extend([pair.recv(B, 600), pair.recv(B, 600)]);
    pair.run();
    assert_only_repeated(&pair, 27, &[1, 5], 2);
    assert_eq!(rnr_naks(&pair, B).len(), 1);
    let received: Vec<Cqe> = pair.take(B, Side::Recv);
    assert_eq!(received.iter().map(|cqe| cqe.byte_len).collect::<Vec<_>>(), [200, 300]);
    assert_eq!(received.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), recvs[1..]);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A25 test
fn a_packet_that_three_others_overtake_is_not_sent_again() {
    // A packet of 256 bytes takes some 27 ns on the link.
    for lag in [30, 45, 70, 85] {
        for late in 0..60 {
            let mut pair = own();
            pair.rule(Rule::delay(Duration::from_nanos(lag)).from(A).psn(pair.psn(A, late)));
            pair.write(A, 64 * 256);
            pair.run();
            assert!(pair.count(B, Counter::HeldPackets) > 0);
            assert_only_repeated(&pair, 64, &[], 0);
            assert_eq!(pair.target(B, 64 * 256), pair.source(A, 64 * 256));
            only_success(&mut pair, A, Side::Send);
        }
    }
}

#[test] //= check A25 test
fn without_room_for_what_comes_early_the_peer_is_sent_all_of_it_again() {
    for most_held in 0..6 {
        let mut pair = own_with(|terms| terms.settings.most_held = most_held);
        lose(&mut pair, 10, 1);
        let sends = [pair.write(A, 64 * 256), pair.write(A, 64 * 256)];
        pair.run();
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0, "{most_held}");
        assert_eq!(pair.target(B, 64 * 256), pair.source(A, 64 * 256));
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    }
}

#[test] //= check A27 test
fn what_is_held_is_not_sent_again_when_the_room_for_it_is_full() {
    let mut pair = own_with(|terms| terms.settings.most_held = 20);
    // Tells the requester the round trip.
    let first = pair.write(A, 256);
    pair.run();
    lose(&mut pair, 10, 1);
    lose(&mut pair, 10, 2);
    let sends = [first, pair.write(A, 64 * 256), pair.write(A, 64 * 256)];
    pair.run();
    assert!(pair.drops(B, DropReason::NotHeld) > 0);
    assert_eq!(pair.drops(B, DropReason::AfterNak), 0);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    let held = copies(&pair, 31).split_off(11);
    assert_eq!(held, [1; 20], "{:#?}", pair.trace(40));
    assert_eq!(pair.target(B, 64 * 256), pair.source(A, 64 * 256));
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A27 test
fn a_peer_without_room_is_sent_less_ahead() {
    // Some windows of the least size fit, but not of the size that the long path asks for.
    let [small, large] = [1_200, 8_192].map(|most_held| {
        let mut pair = own_with(|terms| {
            terms.settings.most_held = most_held;
            terms.settings.latency = Duration::from_micros(200);
        });
        pair.world.set_rates(A as u16, B as u16, Rates { loss: 0.02, ..Rates::NONE });
        let mut sends = Vec::new();
        for _ in 0..8 {
            sends.extend((0..60).map(|_| pair.write(A, 64 * 256)));
            pair.run();
        }
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        pair.drops(B, DropReason::NotHeld)
    });
    assert_eq!(large, 0);
    // Without the mark it is more than were sent.
    assert!((1..4_000).contains(&small), "{small} turned away");
}

#[test] //= check A25 test
fn psns_that_wrap_are_repeated_as_any_others() {
    for first in [0xff_fff0, 0xff_ffe0, 0x7f_fff0, 0x00_1ff0] {
        let mut pair = own_with(|terms| terms.half[A].sq_psn = Psn::new(first));
        let lost = [5, 15, 16, 17, 40];
        for position in lost {
            lose(&mut pair, position, 1);
        }
        pair.write(A, 64 * 256);
        pair.run();
        assert_only_repeated(&pair, 64, &lost, 2);
        only_success(&mut pair, A, Side::Send);
    }
}

/// A selective acknowledgement of end B for everything before A's packet `position`, with this
/// bitmap, of which bit n is the packet `position + n`.
fn claim(pair: &Pair, position: u32, bitmap: &[u64]) -> Crafted {
    let bytes: Vec<u8> = bitmap.iter().flat_map(|word| word.to_le_bytes()).collect();
    let packet = pair.craft(B, OpCode::RC_SELECTIVE_ACKNOWLEDGE).payload(&bytes);
    let packet = packet.psn(pair.psn(A, position).minus(1));
    packet.ext(|ext| ext.aeth.syndrome = Syndrome::UNLIMITED)
}

/// Claims that cannot be true if `count` packets are outstanding from A's packet `from` on.
fn lies(pair: &Pair, from: u32, count: u32) -> Vec<Crafted> {
    let mut never_sent = vec![0_u64; count as usize / 64 + 1];
    never_sent[count as usize / 64] = 1 << (count % 64);
    let far = |distance: u32| claim(pair, from, &[2]).psn(pair.psn(A, from).plus(distance));
    vec![
        claim(pair, from, &never_sent),
        claim(pair, from, &[0b110, 0, 0, 1 << 63]),
        claim(pair, from, &[0, 0, 0, 0, 0, 0, 0, 0, 1]),
        claim(pair, from, &[1]),
        claim(pair, from, &[0b111]),
        claim(pair, from, &[0]),
        claim(pair, from, &[0; 32]),
        claim(pair, from, &[u64::MAX]),
        claim(pair, from, &[u64::MAX; 32]),
        claim(pair, from, &[u64::MAX - 1; 32]),
        far(count),
        far(count + 100),
        far(1 << 22),
        far(1 << 23),
        claim(pair, from, &[2]).psn(pair.psn(A, from).minus(2)),
        claim(pair, from, &[2]).psn(pair.psn(A, from).minus(100)),
    ]
}

/// Everything that end A has sent, with the times, and its completions.
fn account(pair: &mut Pair) -> (Vec<Seen>, Vec<Cqe>) {
    (pair.seen(A), pair.take(A, Side::Send))
}

#[test] //= check A26 test
fn a_lie_to_a_silent_requester_changes_nothing() {
    // The peer hears nothing. The requester tries until its retries are used up, lies or not.
    let run = |is_flooded: bool| {
        let mut pair = own_with(|terms| terms.half[A].retry_cnt = 2);
        pair.rule(Rule::drop().from(A));
        pair.write(A, 8 * 256);
        let mut told = 0;
        for _ in 0..40 {
            pair.run_for(TIMEOUT / 10);
            let sent_again = pair.count(A, Counter::RetransmittedPackets);
            for lie in lies(&pair, 0, 8) {
                if is_flooded && pair.qp(A).state() == QpState::Rts {
                    pair.deliver(B, &lie);
                    told += 1;
                }
            }
            assert_eq!(pair.count(A, Counter::RetransmittedPackets), sent_again);
        }
        pair.run();
        assert_eq!(pair.count(A, Counter::StaleResponse), told);
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 0);
        account(&mut pair)
    };
    assert_eq!(run(false), run(true));
}

#[test] //= check A26 test
fn a_lie_amid_a_stream_changes_nothing() {
    let run = |is_flooded: bool| {
        let mut pair = own();
        // All answers are late, so that a known number of packets is outstanding.
        pair.rule(Rule::delay(Duration::from_micros(40)).from(B));
        pair.write(A, 200 * 256);
        let mut told = 0;
        pair.run_for(Duration::from_micros(20));
        assert_eq!(pair.sequence(A).len(), 200);
        for _ in 0..8 {
            pair.run_for(Duration::from_nanos(500));
            for lie in lies(&pair, 0, 200) {
                if is_flooded {
                    pair.deliver(B, &lie);
                    told += 1;
                }
            }
        }
        pair.run();
        assert_eq!(pair.count(A, Counter::StaleResponse), told);
        assert_counted_but(&pair, A, Counter::StaleResponse, &[("rdma_sends", 1)]);
        assert_eq!(pair.target(B, 200 * 256), pair.source(A, 200 * 256));
        assert_eq!(pair.qp(A).state(), QpState::Rts);
        account(&mut pair)
    };
    assert_eq!(run(false), run(true));
}

#[test] //= check A26 test
fn a_lie_while_a_read_or_atomic_is_outstanding_changes_nothing() {
    let run = |is_flooded: bool| {
        let mut pair = own();
        pair.rule(Rule::delay(Duration::from_micros(40)).from(B));
        let sends = [pair.read(A, 8 * 256), pair.write_far(A, 8 * 256), pair.fetch_add(A, 1)];
        pair.run_for(Duration::from_micros(20));
        for _ in 0..8 {
            pair.run_for(Duration::from_nanos(500));
            for lie in lies(&pair, 0, 17) {
                if is_flooded {
                    pair.deliver(B, &lie);
                }
            }
        }
        pair.run();
        assert_counted_but(&pair, A, Counter::StaleResponse, &[("rdma_sends", 3)]);
        let account = account(&mut pair);
        assert_eq!(account.1.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), sends);
        account
    };
    assert_eq!(run(false), run(true));
}

#[test] //= check A26 test
fn without_anything_outstanding_every_selective_acknowledgement_is_stale() {
    let mut pair = own();
    pair.write(A, 8 * 256);
    pair.run();
    let lies = lies(&pair, 8, 0);
    for lie in &lies {
        pair.deliver(B, lie);
    }
    pair.run();
    let counted = [("rdma_sends", 1), ("stale_response", lies.len() as u64)];
    assert_counted(&pair, A, &counted);
    assert_eq!(copies(&pair, 8), [1; 8]);
    lose(&mut pair, 20, 1);
    pair.write(A, 64 * 256);
    pair.run();
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 1);
}

#[test] //= check A26 test
fn the_same_claim_again_and_again_repeats_a_packet_once_and_charges_once() {
    let mut pair = own_with(|terms| terms.half[A].retry_cnt = 1);
    pair.rule(Rule::drop().from(B));
    lose(&mut pair, 0, 1);
    pair.write(A, 32 * 256);
    pair.run_for(Duration::from_micros(5));
    let packet = claim(&pair, 0, &[0xff_fffe]);
    for _ in 0..100 {
        pair.deliver(B, &packet);
    }
    pair.run_for(Duration::from_micros(5));
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
    assert_only_repeated(&pair, 32, &[0], 2);
    assert_eq!(pair.qp(A).state(), QpState::Rts);
}

#[test] //= check A26 test
fn the_same_claim_again_and_again_does_not_put_off_the_ack_timeout() {
    let time_of_end = |is_flooded: bool, is_warm: bool| {
        let mut pair = own_with(|terms| terms.half[A].retry_cnt = 2);
        if is_warm {
            pair.write(A, 256);
            pair.run();
        }
        let (first, begin) = (u32::from(is_warm), pair.world.now());
        pair.rule(Rule::drop().from(A));
        pair.write(A, 32 * 256);
        while pair.qp(A).state() == QpState::Rts {
            pair.run_for(TIMEOUT / 50);
            if is_flooded {
                let packet = claim(&pair, first, &[0xff_fffe]);
                pair.deliver(B, &packet);
            }
            assert!(pair.world.now().since(begin) < 100 * TIMEOUT, "no end");
        }
        pair.world.now().since(begin)
    };
    for is_warm in [false, true] {
        let (alone, flooded) = (time_of_end(false, is_warm), time_of_end(true, is_warm));
        assert!(flooded < 2 * alone, "{flooded:?}, without the claims {alone:?}");
    }
}

#[test] //= check A26 test
fn a_requester_before_rts_takes_no_selective_acknowledgement() {
    let mut pair = Pair::reset(|terms| terms.selective_repeat = true);
    pair.bring_to(B, QpState::Rts);
    for (state, reason) in
        [(QpState::Init, DropReason::QpNotReady), (QpState::Rtr, DropReason::NotRequester)]
    {
        pair.bring_to(A, state);
        let before = pair.drops(A, reason);
        let packet = claim(&pair, 0, &[2]);
        pair.deliver(B, &packet);
        assert_eq!(pair.drops(A, reason), before + 1, "{state:?}");
    }
}
