//! Faults that the simulator has found in the transport, as scenes. Each fails without its fix.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{Counter, Side};
use uroce_wire::{OpCode, Syndrome};

const A: usize = 0;
const B: usize = 1;

/// Longer than a round trip.
const SHORTLY: Duration = Duration::from_micros(20);

#[test]
fn an_rnr_nak_that_was_overtaken_by_its_request_is_not_sent() {
    let mut pair = Pair::rts();
    pair.rule(Rule::duplicate(2 * SHORTLY).opcode(OpCode::RC_SEND_ONLY).nth(1));
    pair.send(A, 10);
    pair.run_for(Duration::from_nanos(500));
    // B refuses the SEND, cannot send the RNR NAK, and then has a receive for the copy.
    pair.world.set_full_rate(1.0);
    pair.run_for(SHORTLY);
    assert_eq!(pair.count(B, Counter::OutOfBuffer), 1);
    pair.recv(B, 10);
    pair.run_for(2 * SHORTLY);
    assert_eq!(pair.take(B, Side::Recv).len(), 1);
    pair.world.set_full_rate(0.0);
    pair.run();
    let answers = pair.responses(B);
    let syndromes: Vec<Syndrome> = answers.iter().map(|seen| seen.ext.aeth.syndrome).collect();
    assert!(matches!(syndromes[..], [Syndrome::Ack { .. }]), "{:#?}", pair.trace(20));
    assert_eq!(pair.seen(A).len(), 1);
}

#[test]
fn the_ack_timer_of_what_is_sent_again_starts_when_it_is_sent() {
    let mut pair = Pair::rts();
    let timeout = Duration::from_nanos(4096 << 8);
    // Both WRITEs stay unanswered. When the timer returns to the first, the sink is full. Then the
    // first one's ACK arrives, and there is still no room for the second.
    pair.rule(Rule::delay(timeout + SHORTLY).from(B).nth(1));
    pair.write(A, 10);
    pair.run_for(SHORTLY);
    pair.rule(Rule::drop().from(A).opcode(OpCode::RC_RDMA_WRITE_ONLY));
    pair.write(A, 20);
    pair.run_for(timeout - SHORTLY - SHORTLY);
    pair.world.set_full_rate(1.0);
    pair.run_for(timeout / 2);
    pair.world.set_full_rate(0.0);
    pair.run_for(4 * timeout);
    let sent: Vec<_> = pair.seen(A).iter().map(|seen| (seen.bth.psn, seen.at)).collect();
    let second: Vec<_> = sent.iter().filter(|(psn, _)| *psn == pair.psn(A, 1)).collect();
    assert!(second.len() >= 3, "{:#?}", pair.trace(20));
    for times in second.windows(2) {
        let apart = times[1].1.since(times[0].1);
        assert!(apart >= timeout, "{apart:?} {:#?}", pair.trace(20));
    }
}

#[test]
fn many_packets_that_ask_for_no_ack_may_stand_before_a_long_write() {
    let mut pair = Pair::rts();
    for _ in 0..10 {
        for _ in 0..30 {
            pair.read(A, 0);
        }
        pair.run();
    }
    pair.write(A, 3000);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 301);
}
