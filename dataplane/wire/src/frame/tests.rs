use super::*;
use crate::OpCode;
use crate::testing::{encap, encaps, opcodes, plain_frame};
use proptest::prelude::*;

const UNTAGGED_V4: usize = 14;

fn roce(bytes: &[u8]) -> Datagram<'_> {
    match Frame::parse(bytes) {
        Ok(Frame::Roce(datagram)) => datagram,
        other => panic!("{other:?}"),
    }
}

/// A valid IPv4 frame with one byte replaced and the header checksum corrected.
fn ipv4_with(at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = plain_frame(&encap(true, false), OpCode::RC_SEND_ONLY);
    bytes[UNTAGGED_V4 + at] = byte;
    bytes[UNTAGGED_V4 + 10..UNTAGGED_V4 + 12].fill(0);
    let words = bytes[UNTAGGED_V4..UNTAGGED_V4 + 20].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[UNTAGGED_V4 + 10..UNTAGGED_V4 + 12].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn every_opcode_on_every_path_is_sorted_and_read() {
    for encap in encaps() {
        for opcode in opcodes() {
            let bytes = plain_frame(&encap, opcode);
            let datagram = roce(&bytes);
            assert!(datagram.icrc_ok());
            let packet = datagram.packet().unwrap();
            assert_eq!(packet.bth.opcode, opcode);
            assert_eq!(Frame::likely_dest_qpn(&bytes), Some(packet.bth.dest_qpn));
            assert!((1..).zip(packet.payload).all(|(n, byte)| n as u8 == *byte));
            assert_eq!(datagram.l3.len(), bytes.len() - encap.template().l3_offset as usize);
        }
    }
}

#[test] //= check E18 test
fn a_frame_cut_anywhere_is_an_error() {
    for encap in encaps() {
        for opcode in opcodes() {
            let bytes = plain_frame(&encap, opcode);
            let whole = Frame::likely_dest_qpn(&bytes);
            for len in 0..bytes.len() {
                assert!(Frame::parse(&bytes[..len]).is_err(), "{opcode} at {len}");
                let guess = Frame::likely_dest_qpn(&bytes[..len]);
                assert!(guess.is_none() || guess == whole, "{opcode} at {len}");
            }
        }
    }
}

#[test] //= check E18 test
fn ethernet_padding_is_not_part_of_the_packet() {
    for encap in encaps() {
        let bytes = plain_frame(&encap, OpCode::RC_ACKNOWLEDGE);
        for trailing in [1, 2, 18, 1000] {
            let mut padded = bytes.clone();
            padded.resize(bytes.len() + trailing, 0xee);
            assert_eq!(Frame::parse(&padded), Frame::parse(&bytes));
        }
    }
}

#[test] //= check E18 test
fn udp_must_fill_the_ip_payload_exactly() {
    for encap in encaps() {
        let bytes = plain_frame(&encap, OpCode::RC_SEND_ONLY);
        let at = encap.template().len as usize - 4;
        let len = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        for wrong in [0, 7, 8, len - 4, len - 1, len + 1, 0xffff] {
            let mut bytes = bytes.clone();
            bytes[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
            assert_eq!(Frame::parse(&bytes), Err(ParseError::UdpLength));
        }
    }
}

#[test] //= check E18 test
fn an_ip_length_short_of_its_headers_or_beyond_the_frame_is_refused() {
    for total_len in [0, 19, 27, 255] {
        assert_eq!(Frame::parse(&ipv4_with(3, total_len)), Err(ParseError::IpLength));
    }
    let mut bytes = plain_frame(&encap(false, false), OpCode::RC_SEND_ONLY);
    for payload_len in [0, 7, 255] {
        bytes[14 + 5] = payload_len;
        assert_eq!(Frame::parse(&bytes), Err(ParseError::IpLength));
    }
}

#[test]
fn a_datagram_without_room_for_bth_and_crc_is_truncated() {
    for encap in encaps() {
        let template = encap.template();
        for transport_len in 0..16 {
            let mut bytes = [0; 66 + 16];
            let len = template.emit(&mut bytes, transport_len) + transport_len;
            assert_eq!(Frame::parse(&bytes[..len]), Err(ParseError::Truncated));
        }
    }
}

#[test] //= check E19 test
fn options_fragments_and_bad_checksums_are_refused_by_name() {
    assert_eq!(Frame::parse(&ipv4_with(0, 0x46)), Err(ParseError::Ipv4Options));
    assert_eq!(Frame::parse(&ipv4_with(0, 0x65)), Err(ParseError::IpVersion));
    assert_eq!(Frame::parse(&ipv4_with(6, 0x20)), Err(ParseError::Fragment));
    let mut bytes = ipv4_with(8, 63);
    assert!(Frame::parse(&bytes).is_ok());
    bytes[UNTAGGED_V4 + 8] = 62;
    assert_eq!(Frame::parse(&bytes), Err(ParseError::Ipv4Checksum));
}

#[test] //= check E19 test
fn udp_behind_an_ipv6_extension_is_refused_and_all_else_is_not_ours() {
    let mut bytes = plain_frame(&encap(false, false), OpCode::RC_SEND_ONLY);
    for extension in [0, 43, 44, 51, 60] {
        bytes[14 + 6] = extension;
        bytes[14 + 40] = Udp::PROTOCOL;
        assert_eq!(Frame::parse(&bytes), Err(ParseError::Ipv6Extension));
        bytes[14 + 40] = 58;
        let other = Other::IpProtocol(extension);
        assert_eq!(Frame::parse(&bytes), Ok(Frame::Other(other)), "a multicast report");
    }
    bytes[14 + 6] = 58;
    assert_eq!(Frame::parse(&bytes), Ok(Frame::Other(Other::IpProtocol(58))));
}

#[test]
fn what_is_not_roce_is_other() {
    assert_eq!(Frame::parse(&ipv4_with(9, 1)), Ok(Frame::Other(Other::IpProtocol(1))));
    let mut bytes = plain_frame(&encap(true, false), OpCode::RC_SEND_ONLY);
    bytes[UNTAGGED_V4 + 23] += 1;
    assert_eq!(Frame::parse(&bytes), Ok(Frame::Other(Other::UdpPort(4792))));
    bytes[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
    assert_eq!(Frame::parse(&bytes), Ok(Frame::Other(Other::EtherType(EtherType::ARP))));
}

#[test] //= check E19 test
fn a_second_tag_is_other() {
    let mut bytes = plain_frame(&encap(true, true), OpCode::RC_SEND_ONLY);
    for outer in [[0x81, 0x00], [0x88, 0xa8]] {
        bytes[16..18].copy_from_slice(&outer);
        let ether_type = EtherType(u16::from_be_bytes(outer));
        assert_eq!(Frame::parse(&bytes), Ok(Frame::Other(Other::EtherType(ether_type))));
    }
}

#[test] //= check E17 test
fn every_source_port_is_accepted() {
    for src_port in 0..=u16::MAX {
        let encap = crate::Encap { src_port, ..encap(true, false) };
        let bytes = plain_frame(&encap, OpCode::RC_ACKNOWLEDGE);
        assert_eq!(roce(&bytes).src_port, src_port);
        assert!(roce(&bytes).icrc_ok());
    }
}

#[test]
fn a_packet_with_a_bad_crc_is_not_parsed() {
    let mut bytes = plain_frame(&encap(true, false), OpCode::RC_SEND_ONLY);
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(roce(&bytes).packet(), Err(ParseError::Icrc));
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(
        shape in 0..4_usize,
        len in 0..200_usize,
        edits in prop::collection::vec((0..100_usize, any::<u8>()), 0..8),
        noise in prop::collection::vec(any::<u8>(), 200),
    ) {
        // Random bytes after valid headers, then a few changed bytes anywhere.
        let mut bytes = noise;
        let transport_len = len.max(16);
        let headers = encaps()[shape].template().emit(&mut bytes, transport_len);
        bytes.truncate(headers + len);
        for (at, byte) in edits.into_iter().filter(|(at, _)| *at < headers + len) {
            bytes[at] = byte;
        }
        if let Ok(Frame::Roce(datagram)) = Frame::parse(&bytes) {
            prop_assert!(datagram.transport.len() >= Bth::LEN);
            prop_assert!(!datagram.to_string().is_empty());
            // Bytes after the invariant CRC check, as an attacker that computes the CRC can send.
            let _ = Packet::parse(datagram.transport);
        }
    }
}
