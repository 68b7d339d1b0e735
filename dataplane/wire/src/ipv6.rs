//! IPv6 as RoCEv2 uses it: the 40-byte header and no extension.

use core::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{be16, be32, put};

/// The IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// DSCP in the high six bits, ECN in the low two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_len: u16,
    /// What follows.
    pub next_header: u8,
    /// Routers left to pass.
    pub hop_limit: u8,
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
}

impl Ipv6 {
    /// Bytes on the wire.
    pub const LEN: usize = 40;

    /// Reads the header.
    ///
    /// # Errors
    /// [`ParseError::IpVersion`].
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Ipv6, ParseError> {
        let word = be32(b, 0);
        if word >> 28 != 6 {
            return Err(ParseError::IpVersion);
        }
        let address = |at: usize| Ipv6Addr::from_octets(core::array::from_fn(|i| b[at + i]));
        Ok(Ipv6 {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_len: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            src: address(8),
            dst: address(24),
        })
    }

    /// Writes the header, of `flow_label` the low 20 bits.
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        let word = 6 << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0xf_ffff;
        put(b, 0, word.to_be_bytes());
        put(b, 4, self.payload_len.to_be_bytes());
        put(b, 6, [self.next_header, self.hop_limit]);
        put(b, 8, self.src.octets());
        put(b, 24, self.dst.octets());
    }
}

/// Whether a next-header number is an extension that begins with the number of the one after it.
pub(crate) const fn is_extension(next_header: u8) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION: u8 = 60;
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}
