//! Why bytes are not a valid packet.

use core::fmt;

/// The first rule a frame or packet broke. A peer's fault, never ours: the caller counts and drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The bytes end inside a header.
    Truncated,
    /// The IP version nibble contradicts the EtherType.
    IpVersion,
    /// IPv4 with options: the invariant CRC is defined for a 20-byte header.
    Ipv4Options,
    /// The IPv4 header checksum does not add up.
    Ipv4Checksum,
    /// An IPv4 fragment; RoCEv2 is sent with "don't fragment".
    Fragment,
    /// UDP behind an IPv6 extension header.
    Ipv6Extension,
    /// The IP length is below the headers it must hold, or beyond the frame.
    IpLength,
    /// The UDP length disagrees with the IP length.
    UdpLength,
    /// BTH transport version other than 0.
    TransportVersion,
    /// No row in the opcode table. The BTH itself can be read with [`crate::Bth::parse`] by a
    /// responder that must answer.
    ReservedOpcode,
    /// Payload where the opcode has none, or of a size the opcode cannot have at any path MTU.
    PayloadLength,
    /// Pad count beyond the payload, on an opcode that fills its packets, or not ending on a
    /// multiple of four bytes.
    Padding,
    /// The invariant CRC does not match: nothing in the packet can be believed.
    Icrc,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "truncated header",
            ParseError::IpVersion => "IP version contradicts the EtherType",
            ParseError::Ipv4Options => "IPv4 options",
            ParseError::Ipv4Checksum => "bad IPv4 header checksum",
            ParseError::Fragment => "IPv4 fragment",
            ParseError::Ipv6Extension => "IPv6 extension header",
            ParseError::IpLength => "bad IP length",
            ParseError::UdpLength => "UDP length disagrees with IP length",
            ParseError::TransportVersion => "BTH transport version not 0",
            ParseError::ReservedOpcode => "reserved BTH opcode",
            ParseError::PayloadLength => "payload length wrong for the opcode",
            ParseError::Padding => "bad pad count",
            ParseError::Icrc => "bad invariant CRC",
        })
    }
}

impl core::error::Error for ParseError {}
