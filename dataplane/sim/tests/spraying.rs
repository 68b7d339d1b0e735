//! Requests by several UDP source ports in turn, over a network that gives each port a path of its
//! own, some of them longer than others.

use core::time::Duration;
use std::collections::BTreeSet;

use uroce_sim::{Pair, Rule};
use uroce_transport::{Counter, Side, WcStatus};
use uroce_wire::{Frame, OpCode};

const PORTS: u8 = 4;

/// Number of WRITEs of 8 packets each.
const WRITES: u32 = 100;

/// A pair with `PORTS` source ports, each with a path of its own. Two of the paths are 30 and 7 µs
/// longer than the others, so that packets are overtaken by many.
fn pair() -> Pair {
    let mut pair = Pair::with(|terms| {
        terms.selective_repeat = true;
        terms.udp_source_ports = PORTS;
        terms.is_tapped = true;
    });
    let first = pair.path(0).src_port;
    for (port, micros) in [(1, 30), (2, 7)] {
        pair.rule(Rule::delay(Duration::from_micros(micros)).from(0).port(first ^ port));
    }
    pair
}

fn write_all(pair: &mut Pair) {
    for _ in 0..WRITES {
        pair.write(0, 2048);
    }
    pair.run();
    let done = pair.take(0, Side::Send);
    assert_eq!(done.len() as u32, WRITES);
    assert!(done.iter().all(|cqe| cqe.status == WcStatus::Success));
    assert_eq!(pair.world.take_flaw(), None);
}

/// UDP source ports of the frames of an end with these opcodes.
fn ports(pair: &Pair, from: usize, is_meant: impl Fn(OpCode) -> bool) -> BTreeSet<u16> {
    let record = pair.world.record().expect("pairs record");
    let meant = |packet: OpCode| is_meant(packet);
    let sightings = record.sightings().filter(|it| it.from == from);
    let meant = sightings.filter(|it| meant(it.packet().bth.opcode));
    meant
        .map(|it| match Frame::parse(&it.frame) {
            Ok(Frame::Roce(datagram)) => datagram.src_port,
            _ => unreachable!("a QP sends RoCE datagrams only"),
        })
        .collect()
}

#[test] //= check E22 test
fn packets_that_other_paths_overtake_are_not_sent_again() {
    let mut pair = pair();
    write_all(&mut pair);
    assert_eq!(pair.count(0, Counter::RetransmittedPackets), 0);
    assert!(pair.count(1, Counter::HeldPackets) > 100);
    assert_eq!(ports(&pair, 0, |_| true).len(), PORTS.into());
    assert_eq!(ports(&pair, 1, |_| true).len(), 1, "answers keep to one port");
}

#[test] //= check E22 test
fn a_lost_packet_among_them_is_sent_again_alone() {
    let mut pair = pair();
    for nth in [10, 20, 33] {
        pair.rule(Rule::drop().from(0).psn(pair.psn(0, 8 * nth + 4)).nth(1));
    }
    write_all(&mut pair);
    assert_eq!(pair.count(0, Counter::RetransmittedPackets), 3);
    assert_eq!(pair.count(0, Counter::LocalAckTimeoutErr), 0);
}

#[test] //= check E22 test
fn a_read_waits_for_what_is_on_other_paths() {
    let mut pair = pair();
    for _ in 0..20 {
        pair.write(0, 2048);
        pair.read(0, 1024);
    }
    pair.run();
    assert_eq!(pair.take(0, Side::Send).len(), 40);
    assert_eq!(pair.world.take_flaw(), None);
    assert_eq!(pair.count(0, Counter::RetransmittedPackets), 0);
    let reads = |opcode| opcode == OpCode::RC_RDMA_READ_REQUEST;
    assert_eq!(ports(&pair, 0, reads).len(), 1);
}

#[test] //= check E22 test
//= check A27 test
fn a_peer_without_room_for_what_other_paths_bring_ends_no_connection() {
    let mut pair = Pair::with(|terms| {
        terms.selective_repeat = true;
        terms.udp_source_ports = PORTS;
        terms.settings.most_held = 2;
        terms.half.iter_mut().for_each(|half| half.retry_cnt = 1);
    });
    let slow = pair.path(0).src_port ^ 1;
    pair.rule(Rule::delay(Duration::from_micros(30)).from(0).port(slow));
    write_all(&mut pair);
    assert!(pair.count(1, Counter::OutOfSequence) > 0);
}
