//! IPv4 as RoCEv2 uses it: 20 bytes, no options, never a fragment.
//!
//! Read first: RFC 791; RFC 1071 and 1624 for the checksum; IBA Annex A17.
//!
//! The invariant CRC covers identification, flags, lengths and addresses, so nothing on the way may
//! rewrite them. Identification is sent as 0, with "don't fragment" set.

use core::net::Ipv4Addr;

use crate::ParseError;
use crate::bytes::{be16, put};

/// The IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// DSCP in the high six bits, ECN in the low two.
    pub traffic_class: u8,
    /// Bytes of the header and everything after it.
    pub total_len: u16,
    /// Time to live: number of routers that the packet may still pass.
    pub ttl: u8,
    /// Number of the protocol that follows; UDP is 17.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

impl Ipv4 {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 20;

    const VERSION_IHL: u8 = 0x45;
    const DONT_FRAGMENT: u16 = 0x4000;
    /// "More fragments" and the fragment offset; the reserved bit and "don't fragment" may have any
    /// value.
    const FRAGMENT: u16 = 0x3fff;

    /// Reads the header.
    ///
    /// # Errors
    /// [`ParseError::IpVersion`], [`ParseError::Ipv4Options`], [`ParseError::Ipv4Checksum`] or
    /// [`ParseError::Fragment`], the first that applies.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Ipv4, ParseError> {
        if b[0] >> 4 != 4 {
            return Err(ParseError::IpVersion);
        }
        //= check E19 — options and fragments are refused, each under its own name.
        if b[0] != Self::VERSION_IHL {
            return Err(ParseError::Ipv4Options);
        }
        if checksum(b) != 0 {
            return Err(ParseError::Ipv4Checksum);
        }
        if be16(b, 6) & Self::FRAGMENT != 0 {
            return Err(ParseError::Fragment);
        }
        Ok(Ipv4 {
            traffic_class: b[1],
            total_len: be16(b, 2),
            ttl: b[8],
            protocol: b[9],
            src: Ipv4Addr::new(b[12], b[13], b[14], b[15]),
            dst: Ipv4Addr::new(b[16], b[17], b[18], b[19]),
        })
    }

    /// Writes the header with its checksum.
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, [Self::VERSION_IHL, self.traffic_class]);
        put(b, 2, self.total_len.to_be_bytes());
        put(b, 4, [0, 0]);
        put(b, 6, Self::DONT_FRAGMENT.to_be_bytes());
        put(b, 8, [self.ttl, self.protocol]);
        put(b, 10, [0, 0]);
        put(b, 12, self.src.octets());
        put(b, 16, self.dst.octets());
        let checksum = checksum(b);
        put(b, 10, checksum.to_be_bytes());
    }
}

/// The protocol field alone, without a check of the other fields.
#[inline]
pub(crate) fn protocol(b: &[u8; Ipv4::LEN]) -> u8 {
    b[9]
}

/// RFC 1071 checksum of the header; 0 if the header already holds a correct checksum.
#[inline]
fn checksum(b: &[u8; Ipv4::LEN]) -> u16 {
    let sum = (0..Ipv4::LEN / 2).map(|word| be16(b, 2 * word) as u32).sum();
    !fold(sum)
}

/// Folds the carries of a one's complement sum of at most 2^16 words back into 16 bits.
#[inline]
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The checksum after a header word has changed from zero to `word` (RFC 1624).
#[inline]
pub(crate) fn checksum_with(checksum: u16, word: u16) -> u16 {
    !fold(!checksum as u32 + word as u32)
}

/// The checksum after a header word has changed from `before` to `after` (RFC 1624, equation 3).
#[inline]
pub(crate) fn checksum_after(checksum: u16, before: u16, after: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(!before) + u32::from(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A header from 10.0.0.1 to 10.0.0.2, DSCP 26 with ECT(0), 60 bytes in total.
    const BYTES: [u8; 20] = *b"\x45\x6a\x00\x3c\0\0\x40\0\x40\x11\x26\x45\x0a\0\0\x01\x0a\0\0\x02";

    #[test]
    fn known_bytes_are_read_and_written() {
        let value = Ipv4 {
            traffic_class: 0x6a,
            total_len: 60,
            ttl: 64,
            protocol: 17,
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
        };
        assert_eq!(Ipv4::parse(&BYTES), Ok(value));
        let mut out = [0xff; 20];
        value.emit(&mut out);
        assert_eq!(out, BYTES);
    }

    #[test] //= check E19 test
    fn options_fragments_and_other_versions_are_refused_by_name() {
        let with = |at: usize, byte: u8| {
            let mut b = BYTES;
            put(&mut b, 10, [0, 0]);
            b[at] = byte;
            let sum = checksum(&b);
            put(&mut b, 10, sum.to_be_bytes());
            Ipv4::parse(&b).err()
        };
        assert_eq!(with(0, 0x65), Some(ParseError::IpVersion));
        assert_eq!(with(0, 0x46), Some(ParseError::Ipv4Options));
        assert_eq!(with(0, 0x44), Some(ParseError::Ipv4Options));
        assert_eq!(with(6, 0x20), Some(ParseError::Fragment));
        assert_eq!(with(7, 0x01), Some(ParseError::Fragment));
        assert_eq!(with(6, 0x00), None, "DF is not required of a peer");
        assert_eq!(with(4, 0x77), None, "nor is identification 0");
    }

    #[test]
    fn a_flipped_bit_never_passes_the_checksum() {
        for bit in 0..BYTES.len() * 8 {
            let mut b = BYTES;
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(Ipv4::parse(&b).is_err());
        }
    }

    proptest! {
        #[test]
        fn what_is_set_is_what_is_got(
            traffic_class: u8, total_len: u16, ttl: u8, protocol: u8, src: u32, dst: u32,
        ) {
            let (src, dst) = (src.into(), dst.into());
            let value = Ipv4 { traffic_class, total_len, ttl, protocol, src, dst };
            let mut b = [0; 20];
            value.emit(&mut b);
            prop_assert_eq!(Ipv4::parse(&b), Ok(value));

            // Filling in the length afterwards gives the same checksum.
            let mut open = [0; 20];
            Ipv4 { total_len: 0, ..value }.emit(&mut open);
            prop_assert_eq!(checksum_with(be16(&open, 10), total_len), be16(&b, 10));
        }
    }
}
