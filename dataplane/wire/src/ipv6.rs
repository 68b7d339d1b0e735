//! IPv6 as RoCEv2 uses it: the 40-byte header without extension headers.
//!
//! Read first: RFC 8200; IBA Annex A17.

use core::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{array, be16, be32, put};

/// The IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// DSCP in the high six bits, ECN in the low two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_len: u16,
    /// Number of the protocol or extension that follows; UDP is 17.
    pub next_header: u8,
    /// Number of routers that the packet may still pass.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6 {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 40;

    /// Reads the header.
    ///
    /// # Errors
    /// [`ParseError::IpVersion`] if the version is not 6.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Ipv6, ParseError> {
        let word = be32(b, 0);
        if word >> 28 != 6 {
            return Err(ParseError::IpVersion);
        }
        Ok(Ipv6 {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_len: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            src: Ipv6Addr::from_octets(array(b, 8)),
            dst: Ipv6Addr::from_octets(array(b, 24)),
        })
    }

    /// Writes the header, with the low 20 bits of `flow_label`.
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        let word = 6 << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0xf_ffff;
        put(b, 0, word.to_be_bytes());
        put(b, 4, self.payload_len.to_be_bytes());
        put(b, 6, [self.next_header, self.hop_limit]);
        put(b, 8, self.src.octets());
        put(b, 24, self.dst.octets());
    }
}

/// Returns whether a next-header number is an extension header that begins with another next-header
/// number.
pub(crate) const fn is_extension(next_header: u8) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_bytes_are_read_and_written() {
        let value = Ipv6 {
            traffic_class: 0x6a,
            flow_label: 0x1_2345,
            payload_len: 0x0678,
            next_header: 17,
            hop_limit: 64,
            src: "2001:db8::1".parse().unwrap(),
            dst: "fe80::2".parse().unwrap(),
        };
        let mut bytes = [0; 40];
        bytes[..12].copy_from_slice(b"\x66\xa1\x23\x45\x06\x78\x11\x40\x20\x01\x0d\xb8");
        bytes[23] = 1;
        put(&mut bytes, 24, [0xfe, 0x80]);
        bytes[39] = 2;
        assert_eq!(Ipv6::parse(&bytes), Ok(value));
        let mut out = [0xff; 40];
        value.emit(&mut out);
        assert_eq!(out, bytes);
    }

    proptest! {
        #[test]
        fn any_bytes_of_version_6_survive_reading_and_writing(
            head: [u8; 8], src: [u8; 16], dst: [u8; 16],
        ) {
            let mut bytes = [0; 40];
            put(&mut bytes, 0, head);
            put(&mut bytes, 8, src);
            put(&mut bytes, 24, dst);
            bytes[0] = 0x60 | bytes[0] & 0x0f;
            let mut out = [0xff; 40];
            Ipv6::parse(&bytes).unwrap().emit(&mut out);
            prop_assert_eq!(out, bytes);

            bytes[0] ^= 0x20;
            prop_assert_eq!(Ipv6::parse(&bytes), Err(ParseError::IpVersion));
        }
    }
}
