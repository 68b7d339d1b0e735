//! Checks E: header fields for which a packet does not belong to the QP and is dropped silently.

use uroce_sim::{Crafted, Pair};
use uroce_transport::{Counter, DropReason, QpType, Side};
use uroce_wire::{OpCode, PathMtu, Pkey, Qpn};

use crate::frames::*;
use crate::scene::*;

/// Delivers a packet to an idle pair in RTS and asserts that it is dropped silently.
fn assert_silent(change: impl FnOnce(&mut Crafted), reason: DropReason) {
    let mut pair = Pair::rts();
    let mut packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&[1; 8]);
    packet.ext.reth.dma_len = 8;
    change(&mut packet);
    pair.deliver(A, &packet);
    assert_silence(&pair, reason);
}

/// Asserts that exactly one frame was dropped at B, for this reason, and that nothing else
/// happened.
fn assert_silence(pair: &Pair, reason: DropReason) {
    assert_eq!(pair.drops(B, reason), 1, "{reason:?}");
    assert_eq!(pair.seen(B), []);
    assert!(pair.is_untouched_from(B, 0));
}

#[test] //= check E8 test
fn another_transport_version_is_dropped() {
    for version in 1..16 {
        let mut pair = Pair::rts();
        let mut frame = write_frame(&pair);
        frame[bth(false) + 1] |= version;
        seal(&mut frame);
        pair.deliver_frame(A, frame);
        assert_silence(&pair, DropReason::Malformed);
    }
}

#[test] //= check E10 test
fn packets_to_qpns_that_nobody_has_are_dropped() {
    let services = [
        (QpType::Rc, OpCode::RC_RDMA_WRITE_ONLY),
        (QpType::Uc, OpCode::UC_RDMA_WRITE_ONLY),
        (QpType::Ud, OpCode::UD_SEND_ONLY),
    ];
    for (qp_type, opcode) in services {
        let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
        let recv = pair.recv(B, 100);
        // Multicast without a group, the two special QPs, and numbers that are partly right.
        let strangers = [0, 1, 0xff_ffff, 0x12_3400, pair.qpn(B).value() ^ 1 << 23];
        for qpn in strangers {
            let packet = pair.craft(A, opcode).payload(&[1; 8]).ext(|ext| ext.reth.dma_len = 8);
            pair.deliver(A, &packet.bth(|bth| bth.dest_qpn = Qpn::new(qpn)));
        }
        assert_counted(&pair, B, &[("rx_unknown_qpn", strangers.len() as u64)]);
        assert_eq!(pair.seen(B), []);
        assert!(pair.is_untouched_from(B, 0));
        assert_eq!(pair.qp(B).recv_wrs(), 1, "{recv} is still there");
    }
}

#[test] //= check E12 test
fn a_pkey_that_does_not_match_is_dropped() {
    for pkey in [0, 0x7ffe, 0x8000, 0xfffe] {
        assert_silent(|packet| packet.bth.pkey = Pkey(pkey), DropReason::BadPkey);
    }
    // A limited member of the partition may communicate with a full member.
    let mut pair = Pair::rts();
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).bth(|bth| bth.pkey = Pkey(0x7fff));
    pair.deliver(A, &packet);
    assert_counted(&pair, B, &[("rx_write_requests", 1)]);
}

#[test] //= check E12 test
fn wrong_pkeys_are_counted_beyond_16_bits_and_harm_nobody() {
    const STRANGERS: u64 = 0x1_0001;
    let mut pair = Pair::rts();
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).bth(|bth| bth.pkey = Pkey(0x8001));
    for _ in 0..STRANGERS {
        pair.deliver(A, &packet);
    }
    assert_counted(&pair, B, &[("bad_pkey", STRANGERS)]);
    assert_eq!(pair.seen(B), []);
    pair.write(A, 10);
    pair.run();
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check E16 test
fn packets_of_a_stranger_are_dropped_before_the_qp_sees_them() {
    // Only the source address is wrong.
    let mut pair = Pair::rts();
    let mut frame = write_frame(&pair);
    frame[L3 + 15] = 77;
    seal(&mut frame);
    pair.deliver_frame(A, frame);
    assert_silence(&pair, DropReason::WrongSource);
    assert_eq!(pair.count(B, Counter::WriteRequests), 0);
    // The same packet from the right address is still the expected one.
    let frame = write_frame(&pair);
    pair.deliver_frame(A, frame);
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
}

#[test] //= check E16 test
fn packets_to_another_address_are_dropped() {
    let mut pair = Pair::rts();
    let mut frame = write_frame(&pair);
    frame[L3 + 19] = 77;
    seal(&mut frame);
    pair.deliver_frame(A, frame);
    assert_silence(&pair, DropReason::NotForUs);
}

#[test] //= check I1 test
fn without_an_alternate_path_every_packet_says_migrated() {
    let mut pair = Pair::rts();
    pair.recv(B, 600);
    pair.send(A, 600);
    pair.read(A, 600);
    pair.fetch_add(A, 1);
    pair.run();
    let mut all = pair.seen(A).into_iter().chain(pair.seen(B));
    assert!(all.all(|seen| seen.bth.mig_req));
}

#[test]
fn every_path_mtu_cuts_messages_into_full_packets() {
    for code in 1..=5 {
        let mtu = PathMtu::from_code(code).unwrap();
        let mut pair = Pair::with(|terms| terms.mtu = mtu);
        let len = 3 * mtu.bytes() + 1;
        pair.recv(B, len);
        pair.send(A, len);
        pair.write(A, len);
        pair.run();
        let lens: Vec<u32> = pair.seen(A).iter().map(|seen| seen.payload.len() as u32).collect();
        let full = mtu.bytes();
        assert_eq!(lens, [full, full, full, 1, full, full, full, 1]);
        assert_eq!(pair.received_bytes(B, len), pair.source(A, len));
        assert_eq!(pair.target(B, len), pair.source(A, len));
    }
}
