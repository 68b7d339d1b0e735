//! Explicit congestion notification: the low two bits of the traffic class.
//!
//! Read first: RFC 3168; IBA Annex A17 for what RoCEv2 makes of the mark.
//!
//! The invariant CRC masks the field, so a switch marks a packet without touching anything behind
//! the IP header.

use crate::bytes::{be16, put};
use crate::ethernet::{EtherType, Ethernet};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::Ipv6;

/// An ECN codepoint: what the sender of a packet, or a switch on its way, says about congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not react to marks.
    NotEct,
    /// The sender reacts to marks, ECT(1).
    Ect1,
    /// The sender reacts to marks, ECT(0): what RoCEv2 senders set.
    Ect0,
    /// A switch on the way was congested.
    Ce,
}

impl Ecn {
    /// Bits of the field within a traffic class.
    pub const MASK: u8 = 0b11;

    /// Returns the codepoint of a traffic class.
    #[inline]
    pub fn of(traffic_class: u8) -> Ecn {
        match traffic_class & Self::MASK {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns whether a switch may mark the packet instead of dropping it.
    #[inline]
    pub fn is_capable(self) -> bool {
        matches!(self, Ecn::Ect0 | Ecn::Ect1)
    }
}

/// Marks a frame as a congested switch does, if its sender reacts to marks: sets CE and corrects
/// the IPv4 header's checksum. Returns whether the frame was marked; all others are left as they
/// are, also those that carry the mark already and those that are not IP.
pub fn mark_ce(frame: &mut [u8]) -> bool {
    let Ok((ethernet, _)) = Ethernet::parse(frame) else { return false };
    let l3 = &mut frame[ethernet.wire_len()..];
    match ethernet.ether_type {
        EtherType::IPV4 if l3.len() >= Ipv4::LEN => mark_ipv4(l3),
        EtherType::IPV6 if l3.len() >= Ipv6::LEN => mark_ipv6(l3),
        _ => false,
    }
}

/// Marks an IPv4 header. A header with options has its fields at the same places.
fn mark_ipv4(header: &mut [u8]) -> bool {
    if header[0] >> 4 != 4 || !Ecn::of(header[1]).is_capable() {
        return false;
    }
    let before = be16(header, 0);
    header[1] |= Ecn::MASK;
    let checksum = ipv4::checksum_after(be16(header, 10), before, be16(header, 0));
    put(header, 10, checksum.to_be_bytes());
    true
}

/// Marks an IPv6 header: the traffic class lies across its first two bytes.
fn mark_ipv6(header: &mut [u8]) -> bool {
    let traffic_class = (be16(header, 0) >> 4) as u8;
    if header[0] >> 4 != 6 || !Ecn::of(traffic_class).is_capable() {
        return false;
    }
    header[1] |= Ecn::MASK << 4;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{encaps, frame};
    use crate::{Bth, Encap, ExtHeaders, Frame, OpCode};
    use proptest::prelude::*;

    fn ack(encap: &Encap) -> Vec<u8> {
        let bth = Bth { opcode: OpCode::RC_ACKNOWLEDGE, ..Bth::default() };
        frame(encap, &bth, &ExtHeaders::default())
    }

    #[test]
    fn a_marked_packet_is_the_one_that_was_sent_with_the_mark() {
        for encap in encaps() {
            for dscp in 0..64 {
                for ecn in 0..4 {
                    let sent = Encap { traffic_class: dscp << 2 | ecn, ..encap };
                    let mut bytes = ack(&sent);
                    let is_marked = mark_ce(&mut bytes);
                    assert_eq!(is_marked, ecn == 1 || ecn == 2);
                    let ecn = if is_marked { 3 } else { ecn };
                    let expected = Encap { traffic_class: dscp << 2 | ecn, ..encap };
                    assert_eq!(bytes, ack(&expected), "the checksum and the ICRC are right");
                    let Ok(Frame::Roce(datagram)) = Frame::parse(&bytes) else { panic!("RoCE") };
                    assert_eq!(Ecn::of(datagram.traffic_class) == Ecn::Ce, ecn == 3);
                    assert!(datagram.packet().is_ok());
                }
            }
        }
    }

    #[test]
    fn frames_that_are_not_ip_or_end_early_are_left_alone() {
        for encap in encaps() {
            let encap = Encap { traffic_class: 2, ..encap };
            let whole = ack(&encap);
            let template = encap.template();
            let ip_end = usize::from(template.len) - 8;
            for len in 0..ip_end {
                let mut cut = whole[..len].to_vec();
                assert!(!mark_ce(&mut cut));
                assert_eq!(cut, whole[..len]);
            }
        }
        let mut arp = [0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        arp[14] = 0x45;
        arp[15] = 2;
        assert!(!mark_ce(&mut arp));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut bytes: Vec<u8>) {
            mark_ce(&mut bytes);
        }
    }
}
