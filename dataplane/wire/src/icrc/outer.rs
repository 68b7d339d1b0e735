//! Stored CRCs of IP and UDP headers: packets of one path and length have these headers in common.
//!
//! Invariants
//! - A stored sum is used for exactly the same bytes only, so a result never depends on earlier
//!   packets.

use super::{Icrc, MASK_V4, MASK_V6, OF_LOCAL_HEADER, OUTER_V4, OUTER_V6, SHORT, ones};
use crate::{Bth, ICRC_LEN};

/// Number of headers stored for each version of IP; a power of two.
const PLACES: usize = 8;
/// Mask of BTH (FECN, BECN) and of the next word, which the tables sum in one step.
const MASK_BTH: [u8; 16] = ones([4]);

/// Computes invariant CRCs as [`Icrc::of`] does, but stores the sums of recent IP and UDP headers.
#[derive(Debug)]
pub struct OuterSums {
    v4: [Outer<OUTER_V4>; PLACES],
    v6: [Outer<OUTER_V6>; PLACES],
}

/// IP and UDP header of an earlier packet, and their sum.
#[derive(Clone, Copy, Debug)]
struct Outer<const N: usize> {
    bytes: [u8; N],
    sum: Icrc,
}

impl OuterSums {
    /// A store without any headers yet.
    pub fn new() -> OuterSums {
        // No IP header is all zeros, so these entries match none.
        let (v4, v6) = ([0; OUTER_V4], [0; OUTER_V6]);
        OuterSums {
            v4: [Outer { bytes: v4, sum: OF_LOCAL_HEADER }; PLACES],
            v6: [Outer { bytes: v6, sum: OF_LOCAL_HEADER }; PLACES],
        }
    }

    /// The CRC of the beginning of a packet: `l3`, from the IP header at least to the end of BTH.
    /// If `l3` has more than 160 bytes, `long` sums the bytes after BTH, beginning from the CRC
    /// given.
    ///
    /// `None` if `l3` is not IPv4 without options or IPv6, or ends before BTH does.
    #[inline]
    pub fn of_with(&mut self, l3: &[u8], long: impl FnOnce(Icrc, &[u8]) -> Icrc) -> Option<Icrc> {
        let (sum, rest) = match l3.first()? {
            0x45 => {
                let (outer, rest) = l3.split_first_chunk()?;
                // The low byte of the total length, and that of the UDP source port.
                let place = &mut self.v4[place(outer[3], outer[21])];
                (place.sum_of(outer, MASK_V4.first_chunk()?)?, rest)
            }
            0x60..=0x6f => {
                let (outer, rest) = l3.split_first_chunk()?;
                let place = &mut self.v6[place(outer[5], outer[41])];
                (place.sum_of(outer, MASK_V6.first_chunk()?)?, rest)
            }
            _ => return None,
        };
        let of_bth: &[u8; Bth::LEN] = MASK_BTH.first_chunk()?;
        if l3.len() > SHORT {
            let (sum, rest) = sum.and_masked(rest, of_bth)?;
            return Some(long(sum, rest));
        }
        let step = sum.and_masked(rest, &MASK_BTH);
        let (sum, rest) = step.or_else(|| sum.and_masked(rest, of_bth))?;
        Some(sum.and(rest))
    }

    /// The CRC of the beginning of a packet, as [`Icrc::of`] gives it.
    #[inline]
    pub fn of(&mut self, l3: &[u8]) -> Option<Icrc> {
        self.of_with(l3, Icrc::and)
    }

    /// Computes and writes a packet's CRC, as [`seal`](super::seal) does.
    #[inline]
    #[must_use = "a packet without its invariant CRC is lost"]
    pub fn seal(&mut self, l3: &mut [u8]) -> Option<()> {
        let (covered, tail) = l3.split_last_chunk_mut::<ICRC_LEN>()?;
        *tail = self.of(covered)?.to_bytes();
        Some(())
    }
}

impl Default for OuterSums {
    fn default() -> OuterSums {
        OuterSums::new()
    }
}

impl<const N: usize> Outer<N> {
    /// The CRC of the local header's ones and these bytes; computed if the entry holds other bytes.
    #[inline(always)]
    fn sum_of(&mut self, bytes: &[u8; N], mask: &[u8; N]) -> Option<Icrc> {
        if self.bytes != *bytes {
            let (sum, _) = OF_LOCAL_HEADER.and_masked(bytes, mask)?;
            *self = Outer { bytes: *bytes, sum };
        }
        Some(self.sum)
    }
}

/// The entry of a header with these low bytes of length and port. Lengths are multiples of four;
/// consecutive lengths or consecutive ports have different entries.
#[inline(always)]
fn place(len: u8, port: u8) -> usize {
    usize::from((len >> 2).wrapping_add(port)) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{encaps, opcodes, plain_frame};

    /// Packets of all kinds without their CRCs, each also with other bytes that a router may
    /// change, and with ports that share entries or do not.
    fn packets() -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for encap in encaps() {
            for (src_port, hop_limit) in [(0xc000, 64), (0xc000, 1), (0xc001, 64), (0xc008, 64)] {
                let encap = crate::Encap { src_port, hop_limit, ..encap };
                for opcode in opcodes() {
                    let frame = plain_frame(&encap, opcode);
                    let l3 = usize::from(encap.template().l3_offset);
                    packets.push(frame[l3..frame.len() - ICRC_LEN].to_vec());
                }
            }
        }
        let mut long = packets[0].clone();
        long.resize(SHORT + 1, 0x5a);
        packets.push(long);
        packets
    }

    #[test] //= check E14 test
    fn sums_are_right_whatever_came_before() {
        let packets = packets();
        let mut sums = OuterSums::new();
        // Neighbours twice in a row, distant ones alternately, each also with one header bit
        // changed.
        for stride in [1, 7, 101] {
            for at in 0..2 * packets.len() {
                let packet = &packets[at / 2 * stride % packets.len()];
                assert_eq!(sums.of(packet), Icrc::of(packet), "{stride} {at}");
                let mut other = packet.clone();
                other[4 + at % 36] ^= 1 << (at % 8);
                assert_eq!(sums.of(&other), Icrc::of(&other), "{stride} {at}");
            }
        }
    }

    #[test]
    fn a_long_rest_is_summed_by_the_callers_function() {
        let packets = packets();
        let (mut sums, mut summed) = (OuterSums::new(), 0);
        for packet in packets.iter().chain(&packets) {
            let by_halves = |sum: Icrc, rest: &[u8]| {
                summed += 1;
                let (first, second) = rest.split_at(rest.len() / 2);
                sum.and(first).and(second)
            };
            assert_eq!(sums.of_with(packet, by_halves), Icrc::of(packet));
        }
        let long = packets.iter().filter(|packet| packet.len() > SHORT).count();
        assert!(long > 0 && long < packets.len());
        assert_eq!(summed, 2 * long, "small packets are summed here");
    }

    #[test]
    fn what_is_too_short_or_not_ip_has_no_sum() {
        let mut sums = OuterSums::new();
        for packet in packets() {
            for len in 0..packet.len().min(70) {
                assert_eq!(sums.of(&packet[..len]), Icrc::of(&packet[..len]));
            }
        }
        assert_eq!(sums.of(&[0; 64]), None);
        assert_eq!(sums.of(&[0x46; 64]), None);
        assert_eq!(sums.seal(&mut [0x45; 3]), None);
    }

    #[test]
    fn a_packet_is_sealed_as_ever() {
        let (mut sums, mut sealed) = (OuterSums::new(), packets());
        for packet in &mut sealed {
            packet.extend([0; ICRC_LEN]);
            let mut expected = packet.clone();
            assert_eq!(
                (sums.seal(packet), super::super::seal(&mut expected)),
                (Some(()), Some(()))
            );
            assert_eq!(*packet, expected);
        }
    }
}
