//! Classification of a received frame: RoCEv2 or something else.
//!
//! Read first: IBA Annex A17 (RoCEv2 packet format).
//!
//! Each layer is read once, from the outside in. A length is trusted only within the layer outside
//! it: the IP length cuts off Ethernet padding, and the UDP length must fill the IP payload
//! exactly.
//!
//! Invariants
//! - A frame other than UDP to port 4791 is [`Frame::Other`] and not a RoCE error. The exception is
//!   UDP with a port that cannot be read: in IPv4 with options, in a fragment, or after an IPv6
//!   extension header.
//! - A [`Datagram`] has room for BTH and the invariant CRC, and its slices lie within each other.

use crate::ethernet::{EtherType, Ethernet, Vlan};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::udp::Udp;
use crate::{Bth, Gid, Icrc, Mac, Packet, ParseError, Qpn};

/// A received frame, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// UDP to port 4791.
    Roce(Datagram<'a>),
    /// Any other frame: ARP, neighbour discovery, ICMP, UDP to another port, and so on.
    Other(Other),
}

/// Type of a frame that is not RoCEv2: the number at which classification stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// The EtherType is neither IPv4 nor IPv6; this includes a second VLAN tag.
    EtherType(EtherType),
    /// The frame is IP, but not UDP: the protocol or next-header number.
    IpProtocol(u8),
    /// The frame is UDP to this other port.
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
    /// Bytes from the IP header to the end of the invariant CRC.
    pub l3: &'a [u8],
    /// Bytes from BTH to the end of the pad.
    pub transport: &'a [u8],
    /// The invariant CRC as received.
    pub icrc: [u8; 4],
}

impl<'a> Frame<'a> {
    /// Classifies a frame that starts with the destination MAC and has no Ethernet FCS.
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

    /// The BTH that a frame has if it is a valid RoCEv2 packet. A guess from a few bytes, before
    /// the frame is parsed; `None` if the frame is not IP or too short.
    #[inline]
    pub fn likely_bth(frame: &[u8]) -> Option<Bth> {
        let (ethernet, l3) = Ethernet::parse(frame).ok()?;
        let ip_len = match ethernet.ether_type {
            EtherType::IPV4 => Ipv4::LEN,
            EtherType::IPV6 => Ipv6::LEN,
            _ => return None,
        };
        let bth = l3.get(ip_len + Udp::LEN..)?.first_chunk()?;
        Bth::parse(bth).ok()
    }

    /// The destination QPN of the BTH that [`likely_bth`](Frame::likely_bth) guesses.
    #[inline]
    pub fn likely_dest_qpn(frame: &[u8]) -> Option<Qpn> {
        Frame::likely_bth(frame).map(|bth| bth.dest_qpn)
    }
}

/// The IP layer of a UDP packet, of either version.
struct Ip<'a> {
    src: Gid,
    dst: Gid,
    traffic_class: u8,
    hop_limit: u8,
    /// Bytes from the IP header to the end that the IP length states.
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
        //= check E19 — an extension header hides the port, so UDP after one is refused.
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
    /// Returns whether the invariant CRC matches. Until it does, no byte of the packet is reliable.
    #[inline]
    pub fn icrc_ok(&self) -> bool {
        self.icrc_ok_by(Icrc::of)
    }

    /// Returns whether the invariant CRC matches, where `sum` computes the CRC of the covered
    /// bytes.
    #[inline]
    pub fn icrc_ok_by(&self, sum: impl FnOnce(&[u8]) -> Option<Icrc>) -> bool {
        //= check E14 — one flipped bit that the CRC covers spoils the packet.
        let covered = self.l3.len() - self.icrc.len();
        sum(&self.l3[..covered]).map(Icrc::to_bytes) == Some(self.icrc)
    }

    /// The packet, after its invariant CRC has been verified.
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
