//! A received frame: RoCEv2 or something else.
//!
//! Each layer is read once, from the outside in, and lengths are believed only as far as the
//! layer outside allows: the IP length trims Ethernet padding, the UDP length must fill the IP
//! payload exactly.
//!
//! Invariants
//! - What is not UDP to port 4791 is [`Frame::Other`], never an error of RoCE's, unless its port
//!   cannot be seen: UDP in IPv4 with options, in a fragment, or behind an IPv6 extension.
//! - A [`Datagram`] has room for BTH and the invariant CRC, and its slices lie in each other.

use crate::ethernet::{EtherType, Ethernet, Vlan};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::udp::Udp;
use crate::{Bth, Gid, Icrc, Mac, Packet, ParseError, Qpn};

/// A frame, sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// UDP to port 4791.
    Roce(Datagram<'a>),
    /// Somebody else's: ARP, neighbour discovery, ICMP, other UDP …
    Other(Other),
}

/// What a frame is that is not RoCEv2: the number at which sorting stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// Neither IPv4 nor IPv6; a second VLAN tag too.
    EtherType(EtherType),
    /// IP, but not UDP.
    IpProtocol(u8),
    /// UDP to this port.
    UdpPort(u16),
}

/// A RoCEv2 datagram, its invariant CRC not yet verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Ethernet source.
    pub src_mac: Mac,
    /// Ethernet destination.
    pub dst_mac: Mac,
    /// 802.1Q tag.
    pub vlan: Option<Vlan>,
    /// IP source.
    pub src: Gid,
    /// IP destination.
    pub dst: Gid,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// UDP source port.
    pub src_port: u16,
    /// From the IP header to the end of the invariant CRC.
    pub l3: &'a [u8],
    /// From BTH to the end of the pad.
    pub transport: &'a [u8],
    /// The invariant CRC as received.
    pub icrc: [u8; 4],
}

impl<'a> Frame<'a> {
    /// Sorts a frame that starts with the destination MAC and has no Ethernet FCS.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or one of the variants about IP and UDP.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Frame<'a>, ParseError> {
        let (ethernet, l3) = Ethernet::parse(frame)?;
        match ethernet.ether_type {
            EtherType::IPV4 => parse_ipv4(&ethernet, l3),
            EtherType::IPV6 => parse_ipv6(&ethernet, l3),
            other => Ok(Frame::Other(Other::EtherType(other))),
        }
    }

    /// The number of the QP that a frame would be for if it were a sound RoCEv2 packet: a guess
    /// before its turn comes to be parsed, from the few bytes that tell.
    #[inline]
    pub fn likely_dest_qpn(frame: &[u8]) -> Option<Qpn> {
        let (ethernet, l3) = Ethernet::parse(frame).ok()?;
        let ip_len = match ethernet.ether_type {
            EtherType::IPV4 => Ipv4::LEN,
            EtherType::IPV6 => Ipv6::LEN,
            _ => return None,
        };
        let bth = l3.get(ip_len + Udp::LEN..)?.first_chunk()?;
        Bth::parse(bth).ok().map(|bth| bth.dest_qpn)
    }
}

/// The IP layer of a UDP packet, either version.
struct Ip<'a> {
    src: Gid,
    dst: Gid,
    traffic_class: u8,
    hop_limit: u8,
    /// Header to the end by IP's own length.
    l3: &'a [u8],
    header_len: usize,
}

#[inline]
fn parse_ipv4<'a>(ethernet: &Ethernet, l3: &'a [u8]) -> Result<Frame<'a>, ParseError> {
    let header = l3.first_chunk().ok_or(ParseError::Truncated)?;
    if ipv4::protocol(header) != Udp::PROTOCOL {
        return Ok(Frame::Other(Other::IpProtocol(ipv4::protocol(header))));
    }
    let header = Ipv4::parse(header)?;
    let l3 = l3.get(..header.total_len as usize).ok_or(ParseError::IpLength)?;
    let ip = Ip {
        src: header.src.into(),
        dst: header.dst.into(),
        traffic_class: header.traffic_class,
        hop_limit: header.ttl,
        l3,
        header_len: Ipv4::LEN,
    };
    parse_udp(ethernet, &ip)
}

#[inline]
fn parse_ipv6<'a>(ethernet: &Ethernet, l3: &'a [u8]) -> Result<Frame<'a>, ParseError> {
    let (header, rest) = l3.split_first_chunk().ok_or(ParseError::Truncated)?;
    let header = Ipv6::parse(header)?;
    if header.next_header != Udp::PROTOCOL {
        //= check E19 — an extension header hides the port, so UDP behind one is refused.
        let hides_udp = ipv6::is_extension(header.next_header);
        return match rest.first() {
            Some(&Udp::PROTOCOL) if hides_udp => Err(ParseError::Ipv6Extension),
            _ => Ok(Frame::Other(Other::IpProtocol(header.next_header))),
        };
    }
    let total_len = Ipv6::LEN + header.payload_len as usize;
    let l3 = l3.get(..total_len).ok_or(ParseError::IpLength)?;
    let ip = Ip {
        src: header.src.into(),
        dst: header.dst.into(),
        traffic_class: header.traffic_class,
        hop_limit: header.hop_limit,
        l3,
        header_len: Ipv6::LEN,
    };
    parse_udp(ethernet, &ip)
}

#[inline]
fn parse_udp<'a>(ethernet: &Ethernet, ip: &Ip<'a>) -> Result<Frame<'a>, ParseError> {
    let datagram = ip.l3.get(ip.header_len..).ok_or(ParseError::IpLength)?;
    let (udp, rest) = datagram.split_first_chunk().ok_or(ParseError::IpLength)?;
    let udp = Udp::parse(udp);
    if udp.dst_port != Udp::ROCE_PORT {
        return Ok(Frame::Other(Other::UdpPort(udp.dst_port)));
    }
    //= check E18 — nothing beyond the IP and UDP lengths is ever part of the packet.
    if udp.len as usize != datagram.len() {
        return Err(ParseError::UdpLength);
    }
    let (transport, icrc) = rest.split_last_chunk().ok_or(ParseError::Truncated)?;
    if transport.len() < Bth::LEN {
        return Err(ParseError::Truncated);
    }
    Ok(Frame::Roce(Datagram {
        src_mac: ethernet.src,
        dst_mac: ethernet.dst,
        vlan: ethernet.vlan,
        src: ip.src,
        dst: ip.dst,
        traffic_class: ip.traffic_class,
        hop_limit: ip.hop_limit,
        src_port: udp.src_port,
        l3: ip.l3,
        transport,
        icrc: *icrc,
    }))
}

impl<'a> Datagram<'a> {
    /// Whether the invariant CRC matches; until then no byte of the packet can be believed.
    #[inline]
    pub fn icrc_ok(&self) -> bool {
        self.icrc_ok_by(Icrc::of)
    }

    /// The same, where `sum` is how what the CRC covers is summed.
    #[inline]
    pub fn icrc_ok_by(&self, sum: impl FnOnce(&[u8]) -> Option<Icrc>) -> bool {
        //= check E14 — one flipped bit that the CRC covers spoils the packet.
        let covered = self.l3.len() - self.icrc.len();
        sum(&self.l3[..covered]).map(Icrc::to_bytes) == Some(self.icrc)
    }

    /// The packet, after its invariant CRC is verified.
    ///
    /// # Errors
    /// [`ParseError::Icrc`], or what [`Packet::parse`] finds.
    #[inline]
    pub fn packet(&self) -> Result<Packet<'a>, ParseError> {
        if self.icrc_ok() { Packet::parse(self.transport) } else { Err(ParseError::Icrc) }
    }
}

#[cfg(test)]
mod tests;
