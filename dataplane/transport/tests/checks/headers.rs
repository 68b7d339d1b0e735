//! Checks E: opcodes, lengths, headers, and what is dropped in silence.

use uroce_transport::sim::{Crafted, Pair, Rule};
use uroce_transport::{Counter, DropReason, QpState, Side, WcStatus};
use uroce_wire::{NakCode, OpCode, PathMtu, Pkey, Qpn, icrc};

use crate::scene::*;

/// Delivers packets of end A with consecutive PSNs, of these opcodes and payload lengths.
fn deliver_all(pair: &mut Pair, packets: &[(OpCode, usize)]) {
    for (index, (opcode, len)) in packets.iter().enumerate() {
        let psn = pair.psn(A, index as u32);
        let packet = pair.craft(A, *opcode).psn(psn).payload(&vec![0x5c; *len]);
        let packet = packet.ext(|ext| ext.reth.dma_len = 3 * 256);
        pair.deliver(A, &packet);
    }
}

/// After these packets the responder has refused the last one as an invalid request.
fn assert_invalid(packets: &[(OpCode, usize)]) {
    let mut pair = Pair::rts();
    let recv = pair.recv(B, 2000);
    deliver_all(&mut pair, packets);
    let refused = pair.psn(A, packets.len() as u32 - 1);
    assert_eq!(naks(&pair, B), [(NakCode::InvalidRequest, refused)], "{packets:?}");
    assert_eq!(pair.qp(B).state(), QpState::Err);
    assert_eq!(statuses(&mut pair, B, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
    let executed = 256 * (packets.len() as u32 - 1);
    assert!(pair.is_untouched_from(B, executed), "{packets:?}");
}

#[test] //= check E1 test
fn a_message_that_does_not_begin_is_an_invalid_request() {
    use OpCode as O;
    let opcodes = [
        O::RC_SEND_MIDDLE,
        O::RC_SEND_LAST,
        O::RC_SEND_LAST_WITH_IMMEDIATE,
        O::RC_RDMA_WRITE_MIDDLE,
        O::RC_RDMA_WRITE_LAST,
        O::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
    ];
    for opcode in opcodes {
        assert_invalid(&[(opcode, 256)]);
    }
}

#[test] //= check E2 test
fn a_message_that_begins_before_the_last_one_ended_is_an_invalid_request() {
    use OpCode as O;
    for first in [O::RC_SEND_FIRST, O::RC_RDMA_WRITE_FIRST] {
        for second in [
            (O::RC_SEND_FIRST, 256),
            (O::RC_SEND_ONLY, 10),
            (O::RC_SEND_ONLY_WITH_IMMEDIATE, 10),
            (O::RC_RDMA_WRITE_FIRST, 256),
            (O::RC_RDMA_WRITE_ONLY, 10),
            (O::RC_RDMA_READ_REQUEST, 0),
            (O::RC_FETCH_ADD, 0),
            (O::RC_COMPARE_SWAP, 0),
        ] {
            assert_invalid(&[(first, 256), second]);
        }
    }
}

#[test] //= check E3 test
fn a_message_that_goes_on_as_another_operation_is_an_invalid_request() {
    use OpCode as O;
    assert_invalid(&[(O::RC_SEND_FIRST, 256), (O::RC_RDMA_WRITE_MIDDLE, 256)]);
    assert_invalid(&[(O::RC_SEND_FIRST, 256), (O::RC_RDMA_WRITE_LAST, 10)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_FIRST, 256), (O::RC_SEND_MIDDLE, 256)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_FIRST, 256), (O::RC_SEND_LAST, 10)]);
}

#[test] //= check E4 test
fn a_payload_that_does_not_fit_its_place_is_an_invalid_request() {
    use OpCode as O;
    for first in [O::RC_SEND_FIRST, O::RC_RDMA_WRITE_FIRST] {
        for len in [0, 4, 252, 260, 512] {
            assert_invalid(&[(first, len)]);
        }
    }
    for (first, middle, last) in [
        (O::RC_SEND_FIRST, O::RC_SEND_MIDDLE, O::RC_SEND_LAST),
        (O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_WRITE_MIDDLE, O::RC_RDMA_WRITE_LAST),
    ] {
        for len in [0, 252, 260] {
            assert_invalid(&[(first, 256), (middle, len)]);
        }
        for len in [0, 257, 512] {
            assert_invalid(&[(first, 256), (last, len)]);
        }
    }
    assert_invalid(&[(O::RC_SEND_ONLY, 257)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_ONLY, 257)]);
}

#[test] //= check E5 test
fn a_write_with_more_or_fewer_bytes_than_announced_is_an_invalid_request() {
    use OpCode as O;
    let (first, middle) = ((O::RC_RDMA_WRITE_FIRST, 256), (O::RC_RDMA_WRITE_MIDDLE, 256));
    // 768 bytes are announced.
    assert_invalid(&[(O::RC_RDMA_WRITE_ONLY, 256)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_ONLY, 0)]);
    assert_invalid(&[first, (O::RC_RDMA_WRITE_LAST, 256)]);
    assert_invalid(&[first, middle, (O::RC_RDMA_WRITE_LAST, 255)]);
    assert_invalid(&[first, middle, middle]);
    let mut pair = Pair::rts();
    deliver_all(&mut pair, &[first, middle, (O::RC_RDMA_WRITE_LAST, 256)]);
    assert_eq!(naks(&pair, B), [], "768 bytes are right");
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
}

#[test] //= check E5 test
fn a_write_of_one_packet_may_be_shorter_than_announced_by_nothing() {
    let mut pair = Pair::rts();
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&[1; 8]);
    pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = 7));
    assert_refused(&pair, NakCode::InvalidRequest);
    assert!(pair.is_untouched_from(B, 0));
}

#[test] //= check E7 test
fn an_rc_opcode_that_is_not_served_is_an_invalid_request() {
    use OpCode as O;
    for opcode in [O::RC_SEND_ONLY_WITH_INVALIDATE, O::RC_SEND_LAST_WITH_INVALIDATE] {
        let mut pair = Pair::rts();
        pair.recv(B, 100);
        let packet = pair.craft(A, opcode).payload(&[1; 8]);
        pair.deliver(A, &packet);
        assert_refused(&pair, NakCode::InvalidRequest);
        assert_eq!(pair.count(B, Counter::RecvMessages), 0);
    }
}

/// Delivers a packet to an idle pair in RTS and expects silence.
fn assert_silent(change: impl FnOnce(&mut Crafted), reason: DropReason) {
    let mut pair = Pair::rts();
    let mut packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&[1; 8]);
    packet.ext.reth.dma_len = 8;
    change(&mut packet);
    pair.deliver(A, &packet);
    assert_silence(&pair, reason);
}

/// Exactly one frame was dropped at B, for this reason, and nothing else has happened.
fn assert_silence(pair: &Pair, reason: DropReason) {
    assert_eq!(pair.drops(B, reason), 1, "{reason:?}");
    assert_eq!(pair.seen(B), []);
    assert!(pair.is_untouched_from(B, 0));
}

/// A WRITE of eight bytes as a frame.
fn write_frame(pair: &Pair) -> Vec<u8> {
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&[1; 8]);
    pair.frame(A, &packet.ext(|ext| ext.reth.dma_len = 8))
}

/// Where the IP header and BTH begin in a frame without a VLAN.
const L3: usize = 14;
const BTH: usize = L3 + 20 + 8;

/// Makes the ICRC right again.
fn seal(frame: &mut [u8]) {
    let end = frame.len() - 4;
    let crc = icrc(&frame[L3..end]).unwrap();
    frame[end..].copy_from_slice(&crc);
}

#[test] //= check E8 test
fn another_transport_version_is_dropped() {
    for version in 1..16 {
        let mut pair = Pair::rts();
        let mut frame = write_frame(&pair);
        frame[BTH + 1] |= version;
        seal(&mut frame);
        pair.deliver_frame(A, frame);
        assert_silence(&pair, DropReason::Malformed);
    }
}

#[test] //= check E9 test
fn opcodes_of_other_services_are_dropped() {
    let others = (0..=255).map(OpCode).filter(|opcode| {
        opcode.info().is_some_and(|op| {
            !matches!(op.service, uroce_wire::Service::Rc | uroce_wire::Service::Cnp)
        })
    });
    let mut count = 0;
    for opcode in others {
        assert_silent(
            |packet| {
                packet.bth.opcode = opcode;
                let may_carry = matches!(
                    opcode.info().unwrap().payload,
                    uroce_wire::PayloadRule::OneToMtu | uroce_wire::PayloadRule::UpToMtu
                );
                if !may_carry {
                    packet.payload.clear();
                }
            },
            DropReason::WrongService,
        );
        count += 1;
    }
    assert!(count > 40, "{count}");
}

#[test] //= check E10 test
fn packets_to_unknown_qps_are_dropped() {
    for qpn in [0, 1, 0xff_ffff, 0x12_3400] {
        assert_silent(|packet| packet.bth.dest_qpn = Qpn::new(qpn), DropReason::UnknownQpn);
    }
}

#[test] //= check E11 test
fn packets_to_a_qp_below_rtr_or_in_err_are_dropped() {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        let mut pair = Pair::reset(|_| ());
        if state == QpState::Err {
            pair.bring_to(B, QpState::Rts);
            pair.world.fail(pair.at(B));
        } else {
            pair.bring_to(B, state);
        }
        let frame = write_frame(&pair);
        pair.deliver_frame(A, frame);
        assert_silence(&pair, DropReason::QpNotReady);
    }
}

#[test] //= check E11 test
fn a_qp_in_rtr_serves_requests() {
    let mut pair = Pair::reset(|_| ());
    pair.bring_to(B, QpState::Rtr);
    pair.bring_to(A, QpState::Rts);
    pair.recv(B, 10);
    pair.send(A, 10);
    pair.write(A, 300);
    pair.read(A, 300);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 3);
    assert_eq!(pair.target(B, 300), pair.source(A, 300));
    only_success(&mut pair, B, Side::Recv);
}

#[test] //= check E12 test
fn a_pkey_that_does_not_match_is_dropped() {
    for pkey in [0, 0x7ffe, 0x8000, 0xfffe] {
        assert_silent(|packet| packet.bth.pkey = Pkey(pkey), DropReason::BadPkey);
    }
    // A limited member of the same partition talks to a full one.
    let mut pair = Pair::rts();
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).bth(|bth| bth.pkey = Pkey(0x7fff));
    pair.deliver(A, &packet);
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
}

#[test] //= check E14 test
fn any_flipped_bit_that_the_icrc_covers_is_as_good_as_a_lost_packet() {
    let len = write_frame(&Pair::rts()).len();
    let masked = |at: usize| {
        let ip = [L3 + 1, L3 + 8, L3 + 10, L3 + 11];
        let udp = [L3 + 26, L3 + 27];
        ip.contains(&at) || udp.contains(&at) || at == BTH + 4
    };
    for at in (L3..len).filter(|at| !masked(*at)) {
        for bit in 0..8 {
            let mut pair = Pair::rts();
            let flip = uroce_transport::sim::Action::Flip { at, mask: 1 << bit };
            pair.rule(Rule::new(flip).from(A).nth(1));
            pair.write(A, 8);
            pair.run_for(SHORTLY);
            assert_eq!(pair.seen(B), [], "byte {at} bit {bit} was believed");
            assert!(pair.is_untouched_from(B, 0));
            let dropped: u64 = [DropReason::BadIcrc, DropReason::Malformed, DropReason::NotForUs]
                .map(|reason| pair.drops(B, reason))
                .iter()
                .sum();
            assert_eq!(dropped, 1);
            pair.run();
            only_success(&mut pair, A, Side::Send);
        }
    }
}

#[test] //= check E14 test
fn a_flipped_bit_in_the_payload_is_counted_as_an_icrc_error() {
    let mut pair = Pair::rts();
    let mut frame = write_frame(&pair);
    let at = frame.len() - 6;
    frame[at] ^= 1;
    pair.deliver_frame(A, frame);
    assert_silence(&pair, DropReason::BadIcrc);
}

#[test] //= check E15 test
fn what_routers_may_change_does_not_matter() {
    let changes: [(&str, &[usize]); 4] = [
        ("DSCP and ECN", &[L3 + 1]),
        ("TTL", &[L3 + 8]),
        ("UDP checksum", &[L3 + 26, L3 + 27]),
        ("FECN and BECN", &[BTH + 4]),
    ];
    for (name, bytes) in changes {
        for at in bytes {
            for mask in [1, 0x40, 0x80, 0xff] {
                let mut pair = Pair::rts();
                let mut frame = write_frame(&pair);
                frame[*at] ^= mask;
                fix_ipv4_checksum(&mut frame);
                pair.deliver_frame(A, frame);
                assert_eq!(pair.count(B, Counter::WriteRequests), 1, "{name}");
                assert_eq!(pair.target(B, 8), [1; 8]);
            }
        }
    }
}

fn fix_ipv4_checksum(frame: &mut [u8]) {
    let header = &mut frame[L3..L3 + 20];
    header[10..12].fill(0);
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
}

#[test] //= check E16 test
fn packets_of_a_stranger_are_dropped_before_the_qp_sees_them() {
    // Everything is right but the source address.
    let mut pair = Pair::rts();
    let mut frame = write_frame(&pair);
    frame[L3 + 15] = 77;
    fix_ipv4_checksum(&mut frame);
    seal(&mut frame);
    pair.deliver_frame(A, frame);
    assert_silence(&pair, DropReason::WrongSource);
    assert_eq!(pair.count(B, Counter::WriteRequests), 0);
    // And the same packet from the right address is still the next one.
    let frame = write_frame(&pair);
    pair.deliver_frame(A, frame);
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
}

#[test] //= check E16 test
fn packets_to_another_address_are_dropped() {
    let mut pair = Pair::rts();
    let mut frame = write_frame(&pair);
    frame[L3 + 19] = 77;
    fix_ipv4_checksum(&mut frame);
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
