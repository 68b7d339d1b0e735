//! The invariant CRC (ICRC): covers everything that no switch or router may change.
//!
//! Read first: IBA 7.8.1; Annex A17 for the fields masked on RoCEv2.
//!
//! The CRC is CRC-32 with the polynomial and bit order of Ethernet and zlib. It covers eight bytes
//! of ones, in place of the InfiniBand local header that RoCEv2 does not have, then the packet from
//! the IP header to the end of the pad. Fields that change on the way are read as ones: TOS, TTL
//! and checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; the BTH
//! byte with FECN and BECN. The result follows the pad, low byte first.
//!
//! Speed: the headers (at most 64 bytes) are masked on the stack by a few wide ORs and summed by
//! tables, as is the rest of a small packet. A longer rest is summed in place by carry-less
//! multiplication, either here or by a caller that goes over the same bytes anyway, for instance to
//! copy them. IP and UDP headers mostly repeat those of an earlier packet, so [`OuterSums`] keeps
//! their sums.

mod field;
mod outer;
mod table;

pub use field::IcrcField;
pub use outer::OuterSums;

use crc32fast::Hasher;

use crate::Bth;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::udp::Udp;

/// CRC-32 of eight bytes of ones.
const OF_LOCAL_HEADER: Icrc = Icrc(0x2144_df1c);

/// Length of the invariant CRC, in bytes.
pub const ICRC_LEN: usize = 4;

/// Longest input, in bytes, for which tables are faster than carry-less multiplication.
const SHORT: usize = 160;

/// Length of IP and UDP header together, in bytes.
const OUTER_V4: usize = Ipv4::LEN + Udp::LEN;
const OUTER_V6: usize = Ipv6::LEN + Udp::LEN;

/// Mask of an IPv4 packet: ones for TOS, TTL, both checksums, and the BTH byte with FECN and BECN.
const MASK_V4: [u8; OUTER_V4 + Bth::LEN] =
    ones([1, 8, 10, 11, Ipv4::LEN + 6, Ipv4::LEN + 7, OUTER_V4 + 4]);

/// Mask of an IPv6 packet; its traffic class and flow label begin within the first byte.
const MASK_V6: [u8; OUTER_V6 + Bth::LEN] = {
    let mut mask = ones([1, 2, 3, 7, Ipv6::LEN + 6, Ipv6::LEN + 7, OUTER_V6 + 4]);
    mask[0] = 0x0f;
    mask
};

/// `N` zeros, with all ones in the bytes at the offsets `at`.
const fn ones<const N: usize, const BYTES: usize>(at: [usize; BYTES]) -> [u8; N] {
    let (mut mask, mut i) = ([0; N], 0);
    while i < BYTES {
        mask[at[i]] = 0xff;
        i += 1;
    }
    mask
}

/// An invariant CRC in progress: the CRC-32 of the local header's ones and of a packet so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Icrc(
    /// The CRC as zlib keeps it: 0 for no bytes; the shift register holds its complement.
    pub u32,
);

impl Icrc {
    /// The CRC of the beginning of a packet: `l3`, from the IP header at least to the end of BTH.
    ///
    /// `None` if `l3` is not IPv4 without options or IPv6, or ends before BTH does.
    #[inline]
    pub fn of(l3: &[u8]) -> Option<Icrc> {
        let (sum, rest) = match l3.first()? {
            0x45 => OF_LOCAL_HEADER.and_masked(l3, &MASK_V4)?,
            0x60..=0x6f => OF_LOCAL_HEADER.and_masked(l3, &MASK_V6)?,
            _ => return None,
        };
        Some(sum.and(rest))
    }

    /// The CRC after the first `N` bytes of `bytes`, masked, and the rest of `bytes`. `None` if
    /// there are fewer than `N` bytes.
    #[inline(always)]
    fn and_masked<'a, const N: usize>(
        self,
        bytes: &'a [u8],
        mask: &[u8; N],
    ) -> Option<(Icrc, &'a [u8])> {
        //= check E15 — fields that a router may rewrite are not covered.
        let (headers, rest) = bytes.split_first_chunk::<N>()?;
        let masked: [u8; N] = core::array::from_fn(|i| headers[i] | mask[i]);
        Some((Icrc(table::update(self.0, &masked)), rest))
    }

    /// The CRC after `bytes` too.
    #[inline]
    #[must_use = "the sum goes on from what is returned"]
    pub fn and(self, bytes: &[u8]) -> Icrc {
        if bytes.len() <= SHORT {
            return Icrc(table::update(self.0, bytes));
        }
        let mut crc = Hasher::new_with_initial(self.0);
        crc.update(bytes);
        Icrc(crc.finalize())
    }

    /// The CRC as the packet carries it after the pad.
    #[inline]
    pub fn to_bytes(self) -> [u8; ICRC_LEN] {
        self.0.to_le_bytes()
    }
}

/// The invariant CRC of `l3`, from IP header to end of pad, in wire order.
///
/// `None` if `l3` is not IPv4 without options or IPv6, or ends before BTH does.
#[inline]
pub fn icrc(l3: &[u8]) -> Option<[u8; ICRC_LEN]> {
    Icrc::of(l3).map(Icrc::to_bytes)
}

/// Computes the invariant CRC of `l3`, from IP header to end of CRC, and writes it to the last four
/// bytes.
///
/// `None`, with nothing written, if [`icrc`] gives none.
#[inline]
#[must_use = "a packet without its invariant CRC is lost"]
pub fn seal(l3: &mut [u8]) -> Option<()> {
    let (covered, tail) = l3.split_last_chunk_mut::<ICRC_LEN>()?;
    *tail = icrc(covered)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{encaps, frame, opcodes, plain_frame};
    use crate::{Bth, ExtHeaders, Frame, OpCode};

    /// CRC-32, one bit at a time, for comparison.
    fn slow_crc32(bytes: impl Iterator<Item = u8>) -> u32 {
        !bytes.fold(!0, |crc, byte| {
            (0..8).fold(crc ^ byte as u32, |crc, _| (crc >> 1) ^ ((crc & 1) * 0xedb8_8320))
        })
    }

    /// Returns whether the CRC matches; `None` if the frame is no longer RoCEv2.
    fn verdict(bytes: &[u8]) -> Option<bool> {
        match Frame::parse(bytes) {
            Ok(Frame::Roce(datagram)) => Some(datagram.icrc_ok()),
            _ => None,
        }
    }

    #[test]
    fn the_local_header_of_ones_is_summed_in_advance() {
        assert_eq!(OF_LOCAL_HEADER.0, slow_crc32([0xff; 8].into_iter()));
        assert_eq!(OF_LOCAL_HEADER.0, !0xdebb_20e3);
    }

    #[test]
    fn the_fast_way_agrees_with_the_rules_spelled_out() {
        for encap in encaps() {
            for opcode in opcodes() {
                let mut frame = plain_frame(&encap, opcode);
                let sealed: [u8; 4] = *frame.last_chunk().unwrap();
                let l3 = &mut frame[encap.template().l3_offset as usize..];
                let (masked, udp): (&[usize], usize) = match l3[0] >> 4 {
                    4 => (&[1, 8, 10, 11], 20),
                    _ => (&[1, 2, 3, 7], 40),
                };
                masked.iter().for_each(|at| l3[*at] = 0xff);
                l3[0] |= if udp == 40 { 0x0f } else { 0 };
                [udp + 6, udp + 7, udp + 12].iter().for_each(|at| l3[*at] = 0xff);
                let covered = l3[..l3.len() - 4].iter().copied();
                let expected = slow_crc32([0xff; 8].into_iter().chain(covered));
                assert_eq!(u32::from_le_bytes(sealed), expected);
            }
        }
    }

    /// Offsets from the IP header of the fields that a router may rewrite, as (byte, bits).
    fn variant_bits(v4: bool) -> Vec<(usize, u8)> {
        let (ip, udp): (&[_], _) = match v4 {
            true => (&[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)], 20),
            false => (&[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)], 40),
        };
        [ip, &[(udp + 6, 0xff), (udp + 7, 0xff), (udp + 12, 0xff)]].concat()
    }

    #[test] //= check E14 test
    fn every_covered_bit_spoils_the_packet() {
        for encap in encaps() {
            let l3 = encap.template().l3_offset as usize;
            let frame = plain_frame(&encap, OpCode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE);
            let variant = variant_bits(encap.src.to_ipv4().is_some());
            for bit in l3 * 8..frame.len() * 8 {
                let mut bytes = frame.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let at = bit / 8 - l3;
                if !variant.iter().any(|(byte, bits)| *byte == at && bits >> (bit % 8) & 1 == 1) {
                    assert_ne!(verdict(&bytes), Some(true), "byte {at} after IP");
                }
            }
        }
    }

    #[test] //= check E15 test
    fn what_routers_and_switches_rewrite_is_accepted() {
        for encap in encaps() {
            let v4 = encap.src.to_ipv4().is_some();
            let udp = encap.template().len as usize - 8;
            let bth = Bth { opcode: OpCode::RC_ACKNOWLEDGE, ..Bth::default() };
            let frame = frame(&encap, &bth, &ExtHeaders::default());
            assert_eq!(verdict(&frame), Some(true));

            // A router's changes: TTL, DSCP and ECN, and the header checksum to match.
            let rerouted = crate::Encap { traffic_class: 0x03, hop_limit: 1, ..encap };
            let rerouted = crate::Encap { flow_label: 0x5_4321, ..rerouted };
            let mut bytes = frame.clone();
            rerouted.template().emit(&mut bytes, frame.len() - udp - 8);
            assert_ne!(bytes, frame);
            assert_eq!(verdict(&bytes), Some(true), "v4: {v4}");

            for (at, bits) in [(udp + 6, 0xff), (udp + 7, 0xff), (udp + 12, 0xff)] {
                let mut bytes = frame.clone();
                bytes[at] ^= bits;
                assert_eq!(verdict(&bytes), Some(true));
            }
        }
    }

    #[test]
    fn a_sum_may_be_taken_in_parts() {
        for encap in encaps() {
            let frame = plain_frame(&encap, OpCode::RC_RDMA_WRITE_MIDDLE);
            let template = encap.template();
            let l3 = &frame[template.l3_offset as usize..frame.len() - ICRC_LEN];
            let headers = usize::from(template.len) - template.l3_offset as usize + Bth::LEN;
            let whole = icrc(l3).unwrap();
            for cut in headers..=l3.len() {
                let sum = Icrc::of(&l3[..cut]).unwrap();
                assert_eq!(sum.and(&l3[cut..]).to_bytes(), whole, "{cut}");
            }
        }
    }

    #[test]
    fn what_is_too_short_or_not_ip_has_no_crc() {
        let frame = plain_frame(&encaps()[0], OpCode::RC_SEND_ONLY);
        let l3 = &frame[14..];
        for len in 0..40 {
            assert_eq!(icrc(&l3[..len]), None);
        }
        assert!(icrc(&l3[..40]).is_some());
        let mut options = l3.to_vec();
        options[0] = 0x46;
        assert_eq!(icrc(&options), None);
        assert_eq!(seal(&mut options), None);
        assert_eq!(options[1..], l3[1..]);
        assert_eq!(seal(&mut [0x45; 3]), None);
    }
}
