//! Checks E: coverage of the ICRC, changes by routers, lengths, ports and special cases of IP.

use uroce_sim::{Action, Pair, Rule};
use uroce_transport::{Counter, DropReason, QpState, Side};
use uroce_wire::{OpCode, Operation};

use crate::frames::*;
use crate::scene::*;

#[test] //= check E14 test
fn any_flipped_bit_that_the_icrc_covers_is_as_good_as_a_lost_packet() {
    for (is_ipv6, pair) in families() {
        let len = write_frame(&pair).len();
        let (udp, bth) = (udp(is_ipv6), bth(is_ipv6));
        let ip = if is_ipv6 { &[0, 1, 2, 3, 7][..] } else { &[1, 8, 10, 11] };
        let masked = |at: usize| {
            ip.iter().any(|byte| L3 + byte == at) || [udp + 6, udp + 7, bth + 4].contains(&at)
        };
        for at in (L3..len).filter(|at| !masked(*at)) {
            for bit in 0..8 {
                assert_flip_is_a_loss(is_ipv6, at, 1 << bit);
            }
        }
    }
}

/// Flips bits of a WRITE on its way, and checks that it is dropped, unanswered, and sent again by
/// the timer.
fn assert_flip_is_a_loss(is_ipv6: bool, at: usize, mask: u8) {
    let mut pair = Pair::with(|terms| terms.is_ipv6 = is_ipv6);
    pair.rule(Rule::new(Action::Flip { at, mask }).from(A).nth(1));
    pair.write(A, 8);
    pair.run_for(SHORTLY);
    assert_eq!(pair.seen(B), [], "byte {at} bits {mask:#x} was accepted");
    assert!(pair.is_untouched_from(B, 0));
    // Other checks may find the damage before the ICRC: length, address, port or version.
    let reasons = [DropReason::BadIcrc, DropReason::Malformed, DropReason::NotForUs];
    let dropped = reasons.map(|reason| pair.drops(B, reason));
    assert_eq!(dropped.iter().sum::<u64>(), 1);
    if at >= bth(is_ipv6) {
        assert_eq!(dropped[0], 1, "behind UDP the ICRC judges");
    }
    pair.run();
    assert_eq!(pair.sequence(A), [0, 0]);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check E14 test
fn a_damaged_packet_among_others_is_asked_for_like_a_lost_one() {
    let mut pair = Pair::rts();
    let flip = Action::Flip { at: bth(false) + 30, mask: 4 };
    pair.rule(Rule::new(flip).from(A).psn(pair.psn(A, 2)).nth(1));
    pair.write(A, 8 * 256);
    pair.run();
    assert_eq!(pair.sequence(A), runs(&[upto(8), 2..8]));
    let counted = [
        ("rx_icrc_errors", 1),
        ("out_of_sequence", 1),
        ("rx_after_nak", 4),
        ("rx_write_requests", 1),
    ];
    assert_counted(&pair, B, &counted);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check E15 test
fn what_routers_may_change_does_not_matter() {
    for (is_ipv6, _) in families() {
        let (udp, bth) = (udp(is_ipv6), bth(is_ipv6));
        let ip: &[(&str, usize, u8)] = match is_ipv6 {
            false => &[("DSCP and ECN", 1, 0xff), ("TTL", 8, 0xff)],
            true => &[
                ("traffic class", 0, 0x0f),
                ("traffic class and flow label", 1, 0xff),
                ("flow label", 2, 0xff),
                ("flow label", 3, 0xff),
                ("hop limit", 7, 0xff),
            ],
        };
        let mut fields: Vec<(&str, usize, u8)> =
            ip.iter().map(|(name, at, bits)| (*name, L3 + at, *bits)).collect();
        fields.push(("UDP checksum", udp + 6, 0xff));
        fields.push(("UDP checksum", udp + 7, 0xff));
        fields.push(("FECN, BECN and their byte", bth + 4, 0xff));
        for (name, at, bits) in fields {
            for mask in (0..8).map(|bit| 1 << bit).chain([0xff]) {
                let mut pair = Pair::with(|terms| terms.is_ipv6 = is_ipv6);
                let mut frame = write_frame(&pair);
                frame[at] ^= mask & bits;
                fix_ipv4_checksum(&mut frame);
                pair.deliver_frame(A, frame);
                // All bits at once make the mark of a congested switch.
                let marks = u64::from(at == L3 + 1 && mask == 0xff);
                let marked = ["np_ecn_marked_roce_packets", "np_cnp_sent"].map(|one| (one, marks));
                assert_counted(&pair, B, &[("rx_write_requests", 1), marked[0], marked[1]]);
                assert_eq!(pair.target(B, 8), [1; 8], "{name}, IPv6: {is_ipv6}");
            }
        }
    }
}

#[test] //= check E17 test
fn a_packet_may_come_from_any_udp_port() {
    for (is_ipv6, mut pair) in families() {
        let udp = udp(is_ipv6);
        for port in 0..=u16::MAX {
            let psn = pair.psn(A, u32::from(port));
            let mut frame = pair.frame(A, &pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(psn));
            frame[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
            seal(&mut frame);
            pair.deliver_frame(A, frame);
        }
        assert_counted(&pair, B, &[("rx_write_requests", 1 << 16)]);
    }
}

#[test] //= check E17 test
fn all_packets_of_a_connection_leave_from_the_port_of_its_flow() {
    for (is_ipv6, mut pair) in families() {
        pair.write(A, 1000);
        pair.read(A, 1000);
        pair.run();
        let udp = udp(is_ipv6);
        let record = pair.world.record().unwrap();
        let ports: Vec<[u8; 2]> =
            record.sightings().map(|sent| [sent.frame[udp], sent.frame[udp + 1]]).collect();
        let expected = pair.path(A).src_port;
        assert!(expected >= 0xc000);
        assert!(ports.iter().all(|port| u16::from_be_bytes(*port) == expected));
        assert!(ports.len() > 8);
    }
}

/// A whole packet of every RC opcode, as end A sends it.
fn one_of_each(pair: &Pair) -> Vec<Vec<u8>> {
    let opcodes = (0..0x20).map(OpCode).filter(|opcode| opcode.info().is_some());
    let frame = |opcode: OpCode| {
        let op = opcode.info().unwrap();
        let is_data =
            matches!(op.operation, Operation::Send | Operation::Write | Operation::ReadResponse);
        let payload = vec![7; if is_data { 13 } else { 0 }];
        let packet = pair.craft(A, opcode).payload(&payload).ext(|ext| ext.reth.dma_len = 13);
        pair.frame(A, &packet)
    };
    opcodes.map(frame).collect()
}

#[test] //= check E18 test
fn a_packet_cut_anywhere_is_dropped() {
    for (is_ipv6, pair) in families() {
        for whole in one_of_each(&pair) {
            let mut pair = Pair::with(|terms| terms.is_ipv6 = is_ipv6);
            for len in 0..whole.len() {
                pair.deliver_frame(A, whole[..len].to_vec());
            }
            assert_eq!(pair.seen(B), []);
            assert!(pair.is_untouched_from(B, 0));
            let counted = DropReason::ALL.iter().map(|reason| pair.drops(B, *reason)).sum::<u64>();
            assert_eq!(counted, whole.len() as u64, "each is counted");
            assert_eq!(pair.qp(B).state(), QpState::Rts);
            assert_eq!(Counter::ALL.iter().map(|one| pair.count(B, *one)).sum::<u64>(), 0);
        }
    }
}

#[test] //= check E18 test
fn a_packet_whose_headers_are_cut_under_right_lengths_is_dropped() {
    for (is_ipv6, pair) in families() {
        for whole in one_of_each(&pair) {
            let headers = uroce_wire::headers_len(OpCode(whole[bth(is_ipv6)])).unwrap();
            for left in 12..headers {
                let mut pair = Pair::with(|terms| terms.is_ipv6 = is_ipv6);
                let mut frame = whole[..bth(is_ipv6) + left + 4].to_vec();
                set_lengths(&mut frame, is_ipv6);
                seal(&mut frame);
                pair.deliver_frame(A, frame);
                assert_counted(&pair, B, &[("rx_malformed", 1)]);
                assert_eq!(pair.seen(B), []);
            }
        }
    }
}

/// Sets the lengths of IP and UDP to those of the frame.
fn set_lengths(frame: &mut [u8], is_ipv6: bool) {
    let udp = udp(is_ipv6);
    let len = (frame.len() - udp) as u16;
    frame[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
    match is_ipv6 {
        true => frame[L3 + 4..L3 + 6].copy_from_slice(&len.to_be_bytes()),
        false => frame[L3 + 2..L3 + 4].copy_from_slice(&(len + 20).to_be_bytes()),
    }
}

#[test] //= check E18 test
fn bytes_behind_the_ip_length_are_no_part_of_the_packet() {
    for (is_ipv6, _) in families() {
        for more in 1..50 {
            let mut pair = Pair::with(|terms| terms.is_ipv6 = is_ipv6);
            let mut frame = write_frame(&pair);
            frame.extend(vec![0x55; more]);
            pair.deliver_frame(A, frame);
            assert_counted(&pair, B, &[("rx_write_requests", 1)]);
            assert_eq!(pair.target(B, 8), [1; 8]);
            assert!(pair.is_untouched_from(B, 8));
        }
    }
}

#[test] //= check E6 test
fn a_pad_count_that_does_not_fit_the_payload_is_dropped() {
    let opcodes = [
        OpCode::RC_SEND_FIRST,
        OpCode::RC_SEND_ONLY,
        OpCode::RC_RDMA_WRITE_ONLY,
        OpCode::RC_RDMA_READ_REQUEST,
        OpCode::RC_FETCH_ADD,
        OpCode::RC_ACKNOWLEDGE,
    ];
    for opcode in opcodes {
        for len in 0..9_usize {
            for pad_count in 0..4 {
                let takes_pad = matches!(opcode, OpCode::RC_SEND_ONLY | OpCode::RC_RDMA_WRITE_ONLY);
                let takes_data = takes_pad || opcode == OpCode::RC_SEND_FIRST;
                let is_right = len % 4 == 0
                    && (pad_count == 0 || takes_pad && len > 0)
                    && (len == 0 || takes_data);
                if is_right {
                    continue;
                }
                let mut pair = Pair::rts();
                // `len` bytes after the headers, and a pad count that does not fit.
                let mut packet = pair.craft(A, opcode).payload(&vec![0; len]);
                packet.keeps_pad = true;
                let mut frame = pair.frame(A, &packet);
                frame[bth(false) + 1] = frame[bth(false) + 1] & !0x30 | pad_count << 4;
                seal(&mut frame);
                pair.deliver_frame(A, frame);
                assert_counted(&pair, B, &[("rx_malformed", 1)]);
                assert_eq!(pair.seen(B), [], "{opcode} {len} bytes, pad count {pad_count}");
                assert!(pair.is_untouched_from(B, 0));
            }
        }
    }
}

/// Delivers a WRITE's frame changed by `change`, and asserts that it is not answered.
fn delivered(is_ipv6: bool, change: impl FnOnce(&mut Vec<u8>)) -> Pair {
    let mut pair = Pair::with(|terms| terms.is_ipv6 = is_ipv6);
    let mut frame = write_frame(&pair);
    change(&mut frame);
    pair.deliver_frame(A, frame);
    assert_eq!(pair.seen(B), []);
    assert!(pair.is_untouched_from(B, 0));
    pair
}

#[test] //= check E19 test
fn ipv4_options_and_fragments_are_dropped_and_counted() {
    for words in 6..=15 {
        let pair = delivered(false, |frame| {
            let options = vec![1; (words - 5) * 4]; // no-operation options
            frame[L3] = 0x40 | words as u8;
            let len = u16::from_be_bytes([frame[L3 + 2], frame[L3 + 3]]) + options.len() as u16;
            frame[L3 + 2..L3 + 4].copy_from_slice(&len.to_be_bytes());
            frame.splice(L3 + 20..L3 + 20, options);
            fix_ipv4_checksum(frame);
        });
        assert_counted(&pair, B, &[("rx_malformed", 1)]);
    }
    // "More fragments", and a fragment offset.
    for flags in [[0x20, 0], [0, 1], [0x20, 0x10], [0x1f, 0xff]] {
        let pair = delivered(false, |frame| {
            frame[L3 + 6..L3 + 8].copy_from_slice(&flags);
            seal(frame);
        });
        assert_counted(&pair, B, &[("rx_malformed", 1)]);
    }
}

#[test] //= check E19 test
fn udp_behind_an_ipv6_extension_header_is_dropped_and_counted() {
    for extension in [0, 43, 44, 60] {
        let pair = delivered(true, |frame| {
            frame[L3 + 6] = extension;
            let len = u16::from_be_bytes([frame[L3 + 4], frame[L3 + 5]]) + 8;
            frame[L3 + 4..L3 + 6].copy_from_slice(&len.to_be_bytes());
            frame.splice(L3 + 40..L3 + 40, [17, 0, 1, 4, 0, 0, 0, 0]);
        });
        assert_counted(&pair, B, &[("rx_malformed", 1)]);
    }
}

#[test] //= check E19 test
fn a_vlan_tag_is_read_and_a_second_one_is_not_ours() {
    let tag = [0x81, 0x00, 0x00, 0x05];
    for (is_ipv6, mut pair) in families() {
        let mut frame = write_frame(&pair);
        frame.splice(12..12, tag);
        pair.deliver_frame(A, frame);
        assert_counted(&pair, B, &[("rx_write_requests", 1)]);
        for outer in [tag, [0x88, 0xa8, 0x00, 0x09]] {
            let pair = delivered(is_ipv6, |frame| {
                frame.splice(12..12, tag);
                frame.splice(12..12, outer);
            });
            assert_counted(&pair, B, &[("rx_not_for_us", 1)]);
        }
    }
}
