//! Reasons for which received bytes are not a valid packet.

use core::fmt;

/// The first rule that a received frame or packet broke. The caller counts and drops the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The bytes end inside a header.
    Truncated,
    /// The IP version nibble contradicts the EtherType.
    IpVersion,
    /// IPv4 with options. The invariant CRC is defined for a 20-byte header only.
    Ipv4Options,
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum,
    /// An IPv4 fragment; RoCEv2 is sent with "don't fragment".
    Fragment,
    /// UDP after an IPv6 extension header.
    Ipv6Extension,
    /// The IP length is shorter than its headers or longer than the frame.
    IpLength,
    /// The UDP length differs from the length of the IP payload.
    UdpLength,
    /// The BTH transport version is not 0.
    TransportVersion,
    /// The opcode is reserved. A responder that must answer reads the BTH with
    /// [`crate::Bth::parse`].
    ReservedOpcode,
    /// The opcode allows no payload, or not this size at any path MTU.
    PayloadLength,
    /// The pad is longer than the payload, or the opcode allows none, or payload and pad together
    /// are not a multiple of four bytes.
    Padding,
    /// The invariant CRC does not match: no byte of the packet is reliable.
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
