//! Checksums of IP headers, of UDP and of TCP, computed anew in a whole frame, as a router or a NIC
//! does.
//!
//! Read first: RFC 791, 768, 1071, 9293; RFC 8200 section 8.1.
//!
//! The invariant CRC of RoCEv2 masks both checksums, so that it stays right.

use crate::bytes::be16;
use crate::ethernet::EtherType;
use crate::ipv6::Ipv6;
use crate::udp::Udp;

/// Place of the EtherType in a frame without a tag.
const ETHER_TYPE: usize = 12;
/// Bytes of an 802.1Q tag.
const TAG: usize = 4;

/// Computes the checksums of a frame anew: of an IPv4 header, and of UDP over IPv4 or IPv6, with or
/// without one 802.1Q tag.
///
/// A UDP checksum of 0 means that there is none, and stays. UDP in fragments and behind extension
/// headers stays too, as do frames that are shorter than their headers tell.
pub fn fill_checksums(frame: &mut [u8]) {
    fill(frame, fill_udp);
}

/// Computes the checksums of a frame that has none yet: as [`fill_checksums`] does, but of UDP in
/// any case, and of TCP.
pub fn make_checksums(frame: &mut [u8]) {
    fill(frame, make_ports);
}

/// Computes the checksum of the protocol behind IP, of this number, between two addresses.
type FillPayload = fn(&[u8], u8, &mut [u8]);

fn fill(frame: &mut [u8], fill_payload: FillPayload) {
    let ether_type = |at: usize, frame: &[u8]| {
        frame.get(at..at + 2).map(|bytes| EtherType(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let mut at = ETHER_TYPE;
    if ether_type(at, frame) == Some(EtherType::VLAN) {
        at += TAG;
    }
    let Some(kind) = ether_type(at, frame) else { return };
    let Some(packet) = frame.get_mut(at + 2..) else { return };
    match kind {
        EtherType::IPV4 => fill_ipv4(packet, fill_payload),
        EtherType::IPV6 => fill_ipv6(packet, fill_payload),
        _ => {}
    }
}

fn fill_ipv4(packet: &mut [u8], fill_payload: FillPayload) {
    const LEAST: usize = 20;
    const FRAGMENT: u16 = 0x3fff;
    let Some(first) = packet.first_chunk::<LEAST>() else { return };
    let (header_len, total_len) = (usize::from(first[0] & 0xf) * 4, usize::from(be16(first, 2)));
    let (protocol, is_whole) = (first[9], be16(first, 6) & FRAGMENT == 0);
    let is_long_enough = (LEAST..=total_len).contains(&header_len);
    if first[0] >> 4 != 4 || !is_long_enough || total_len > packet.len() {
        return;
    }
    let (header, rest) = packet[..total_len].split_at_mut(header_len);
    header[10..12].fill(0);
    let checksum = !sum(header, 0);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    if is_whole {
        fill_payload(&header[12..20], protocol, rest);
    }
}

fn fill_ipv6(packet: &mut [u8], fill_payload: FillPayload) {
    if packet.len() < Ipv6::LEN || packet[0] >> 4 != 6 {
        return;
    }
    let protocol = packet[6];
    let payload_len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    let (header, rest) = packet.split_at_mut(Ipv6::LEN);
    if let Some(payload) = rest.get_mut(..payload_len) {
        fill_payload(&header[8..40], protocol, payload);
    }
}

/// Computes the checksum of a UDP datagram anew, if it has one.
fn fill_udp(addresses: &[u8], protocol: u8, payload: &mut [u8]) {
    let has_one = payload.get(6..8).is_some_and(|checksum| checksum != [0, 0]);
    if protocol == Udp::PROTOCOL && has_one {
        make_ports(addresses, protocol, payload);
    }
}

/// Computes the checksum of a UDP datagram or of a TCP segment.
fn make_ports(addresses: &[u8], protocol: u8, payload: &mut [u8]) {
    const TCP: u8 = 6;
    const TCP_LEN: usize = 20;
    let (message, at) = match protocol {
        Udp::PROTOCOL => {
            let Some(header) = payload.first_chunk::<{ Udp::LEN }>() else { return };
            let len = usize::from(Udp::parse(header).len);
            (payload.get_mut(..len).filter(|datagram| datagram.len() >= Udp::LEN), 6)
        }
        TCP => (Some(payload).filter(|segment| segment.len() >= TCP_LEN), 16),
        _ => return,
    };
    let Some(message) = message else { return };
    message[at..at + 2].fill(0);
    // A packet is shorter than 64 KiB.
    let pseudo = u32::from(sum(addresses, 0)) + u32::from(protocol) + message.len() as u32;
    let checksum = match !sum(message, pseudo) {
        // With UDP, 0 would mean that there is none.
        0 if protocol == Udp::PROTOCOL => 0xffff,
        checksum => checksum,
    };
    message[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// One's complement sum of bytes, at most 64 KiB of them, and of `more`.
fn sum(bytes: &[u8], more: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([word[0], low]))
    });
    let sum: u64 = words.map(u64::from).sum::<u64>() + u64::from(more);
    let once = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header from 10.0.0.1 to 10.0.0.2 with the checksum 0x2645, as in the tests of IPv4.
    const IPV4: [u8; 20] = *b"\x45\x6a\x00\x1e\0\0\x40\0\x40\x11\0\0\x0a\0\0\x01\x0a\0\0\x02";

    /// Makes a frame of a UDP datagram with two bytes, both checksums wrong.
    fn ipv4(tag: &[u8]) -> Vec<u8> {
        let udp = b"\0\x07\0\x09\0\x0a\x12\x34ab";
        [&[2; 12][..], tag, &[0x08, 0x00], &IPV4, udp].concat()
    }

    fn ipv6() -> Vec<u8> {
        let header = [&b"\x60\0\0\0\0\x0b\x11\x40"[..], &[0x20; 16], &[0x30; 16]].concat();
        let udp = b"\0\x07\0\x09\0\x0b\x12\x34abc";
        [&[2; 12][..], &[0x86, 0xdd], &header, udp].concat()
    }

    /// Sums a frame's datagram as a receiver does: 0xffff if its checksum is right.
    fn verify(addresses: &[u8], datagram: &[u8]) -> u16 {
        sum(datagram, u32::from(sum(addresses, 0)) + 17 + datagram.len() as u32)
    }

    #[test]
    fn both_checksums_become_right_with_and_without_a_tag() {
        for tag in [&[][..], &[0x81, 0, 0, 5]] {
            let mut frame = ipv4(tag);
            fill_checksums(&mut frame);
            let packet = &frame[14 + tag.len()..];
            // By hand: the words of the header add up to d999 with the carries.
            assert_eq!(packet[10..12], [0x26, 0x63]);
            assert_eq!(sum(&packet[..20], 0), 0xffff);
            assert_eq!(verify(&packet[12..20], &packet[20..]), 0xffff);
            // 0a00 0001 0a00 0002 0011 000a, 0007 0009 000a 6162.
            assert_eq!(packet[26..28], (!(0x1400_u16 + 0x1e + 0x1a + 0x6162)).to_be_bytes());
        }
        let mut frame = ipv6();
        fill_checksums(&mut frame);
        assert_eq!(verify(&frame[22..54], &frame[54..]), 0xffff, "an odd length");
    }

    #[test]
    fn no_checksum_stays_none_and_what_is_cut_or_a_fragment_stays() {
        let mut none = ipv4(&[]);
        none[40..42].fill(0);
        fill_checksums(&mut none);
        assert_eq!((&none[24..26], &none[40..42]), (&[0x26, 0x63][..], &[0, 0][..]));
        let mut fragment = ipv4(&[]);
        fragment[20] = 0x20;
        fill_checksums(&mut fragment);
        assert_eq!(fragment[40..42], [0x12, 0x34]);
        assert_eq!(sum(&fragment[14..34], 0), 0xffff);
        for whole in [ipv4(&[]), ipv6()] {
            let mut cut = whole[..whole.len() - 1].to_vec();
            fill_checksums(&mut cut);
            assert_eq!(cut, whole[..whole.len() - 1]);
        }
    }

    #[test]
    fn checksums_are_made_where_there_are_none() {
        let mut udp = ipv4(&[]);
        udp[40..42].fill(0);
        make_checksums(&mut udp);
        assert_eq!(verify(&udp[26..34], &udp[34..]), 0xffff);
        let mut tcp = ipv6();
        tcp.truncate(54);
        tcp[20] = 6;
        tcp[18..20].copy_from_slice(&[0, 23]);
        tcp.extend([9; 23]);
        make_checksums(&mut tcp);
        let pseudo = u32::from(sum(&tcp[22..54], 0)) + 6 + 23;
        assert_eq!(sum(&tcp[54..], pseudo), 0xffff);
        let filled = tcp.clone();
        fill_checksums(&mut tcp);
        assert_eq!(tcp, filled, "a router leaves TCP");
    }

    proptest! {
        #[test]
        fn any_bytes_are_made_at_most_once(mut frame: Vec<u8>, is_ip: bool) {
            if is_ip && frame.len() > 15 {
                frame[12..15].copy_from_slice(&[0x08, 0, 0x45]);
            }
            make_checksums(&mut frame);
            let once = frame.clone();
            make_checksums(&mut frame);
            prop_assert_eq!(frame, once);
        }

        #[test]
        fn any_bytes_are_filled_at_most_once(mut frame: Vec<u8>, is_ip: bool) {
            if is_ip && frame.len() > 15 {
                frame[12..15].copy_from_slice(&[0x08, 0, 0x45]);
            }
            fill_checksums(&mut frame);
            let once = frame.clone();
            fill_checksums(&mut frame);
            prop_assert_eq!(frame, once);
        }
    }
}
