//! Ethernet II with at most one 802.1Q tag.
//!
//! Not here: stacked tags. A frame with two tags is reported with the EtherType of the tag that is
//! not read.

use crate::bytes::{array, be16, put};
use crate::{Mac, ParseError};

/// An EtherType.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Internet protocol version 4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Address resolution protocol.
    pub const ARP: EtherType = EtherType(0x0806);
    /// 802.1Q VLAN tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// 802.1ad tag of a service provider, before an 802.1Q tag.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
    /// Internet protocol version 6.
    pub const IPV6: EtherType = EtherType(0x86dd);
}

/// An 802.1Q tag. The drop-eligible bit is sent as zero and not examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vlan {
    /// VLAN identifier, 12 bits; 0 carries a priority only.
    pub vid: u16,
    /// Priority, 0..=7.
    pub pcp: u8,
}

/// The Ethernet header, including its tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: Mac,
    /// Source address.
    pub src: Mac,
    /// VLAN tag, if there is one.
    pub vlan: Option<Vlan>,
    /// Type of the payload: the EtherType after the tag.
    pub ether_type: EtherType,
}

impl Ethernet {
    /// Length without a tag, in bytes.
    pub const LEN: usize = 14;
    /// Length with a tag, in bytes.
    pub const TAGGED_LEN: usize = Self::LEN + 4;

    /// Length on the wire in bytes: 14, or 18 with a tag.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        if self.vlan.is_some() { Self::TAGGED_LEN } else { Self::LEN }
    }

    /// Reads the header; returns it and the bytes that follow it.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] if the frame ends inside the header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Ethernet, &[u8]), ParseError> {
        let (b, rest) = frame.split_first_chunk::<{ Self::LEN }>().ok_or(ParseError::Truncated)?;
        let mut header = Ethernet {
            dst: Mac(array(b, 0)),
            src: Mac(array(b, 6)),
            vlan: None,
            ether_type: EtherType(be16(b, 12)),
        };
        if header.ether_type != EtherType::VLAN {
            return Ok((header, rest));
        }
        let (tag, rest) = rest.split_first_chunk::<4>().ok_or(ParseError::Truncated)?;
        header.vlan = Some(Vlan { vid: be16(tag, 0) & 0x0fff, pcp: tag[0] >> 5 });
        header.ether_type = EtherType(be16(tag, 2));
        Ok((header, rest))
    }

    /// Writes the header to the front of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Ethernet::wire_len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        put(out, 0, self.dst.0);
        put(out, 6, self.src.0);
        if let Some(Vlan { vid, pcp }) = self.vlan {
            put(out, 12, EtherType::VLAN.0.to_be_bytes());
            put(out, 14, ((pcp as u16) << 13 | vid & 0x0fff).to_be_bytes());
        }
        put(out, self.wire_len() - 2, self.ether_type.0.to_be_bytes());
        self.wire_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 16] = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\x00hi";
    const TAGGED: [u8; 20] = *b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x81\x00\xa1\x23\x86\xddhi";

    fn header(vlan: Option<Vlan>, ether_type: EtherType) -> Ethernet {
        Ethernet { dst: Mac([2, 0, 0, 0, 0, 2]), src: Mac([2, 0, 0, 0, 0, 1]), vlan, ether_type }
    }

    #[test]
    fn known_bytes_are_read_and_written() {
        let tag = Some(Vlan { vid: 0x123, pcp: 5 });
        for (bytes, value) in [
            (&PLAIN[..], header(None, EtherType::IPV4)),
            (&TAGGED[..], header(tag, EtherType::IPV6)),
        ] {
            assert_eq!(Ethernet::parse(bytes), Ok((value, &b"hi"[..])));
            let mut out = [0; 20];
            let len = value.emit(&mut out);
            assert_eq!(out[..len], bytes[..bytes.len() - 2]);
        }
    }

    #[test]
    fn every_tag_comes_back_without_its_drop_eligible_bit() {
        for tag in 0..=u16::MAX {
            let mut bytes = TAGGED;
            put(&mut bytes, 14, tag.to_be_bytes());
            let (value, _) = Ethernet::parse(&bytes).unwrap();
            let mut out = [0; 20];
            value.emit(&mut out);
            assert_eq!(be16(&out, 14), tag & 0xefff);
        }
    }

    #[test]
    fn a_header_cut_short_is_truncated() {
        for len in 0..Ethernet::LEN {
            assert_eq!(Ethernet::parse(&PLAIN[..len]), Err(ParseError::Truncated));
        }
        for len in 0..Ethernet::TAGGED_LEN {
            assert_eq!(Ethernet::parse(&TAGGED[..len]), Err(ParseError::Truncated));
        }
    }
}
