//! The fields of a frame that flow rules name, read from any bytes.

use super::{EthSpec, Ipv4Spec, Ipv6Spec, PortsSpec, eth_bits};
use crate::Mac;
use crate::bytes::{array, be16};
use crate::ethernet::{EtherType, Ethernet};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::udp::Udp;
use core::net::Ipv4Addr;

/// Largest number of tags before the EtherType; a frame with more has the EtherType of a tag.
const TAGS: usize = 2;
/// Largest number of IPv6 extension headers that are read; behind more of them there are no ports.
const EXTENSIONS: usize = 8;
/// Number of TCP in an IP header.
const TCP: u8 = 6;
/// Bits of an IPv4 header's flags and offset that only a fragment has.
const FRAGMENT: u16 = 0x3fff;

/// A protocol with ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortsProtocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl PortsProtocol {
    /// Number in an IP header.
    pub const fn number(self) -> u8 {
        match self {
            PortsProtocol::Udp => Udp::PROTOCOL,
            PortsProtocol::Tcp => TCP,
        }
    }

    fn from_number(number: u8) -> Option<PortsProtocol> {
        match number {
            Udp::PROTOCOL => Some(PortsProtocol::Udp),
            TCP => Some(PortsProtocol::Tcp),
            _ => None,
        }
    }
}

/// The ports of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports {
    /// Protocol that has them.
    pub protocol: PortsProtocol,
    /// The ports.
    pub ports: PortsSpec,
}

/// The IP header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetFields {
    /// IPv4.
    V4(Ipv4Spec),
    /// IPv6.
    V6(Ipv6Spec),
}

/// The fields of a frame that rules name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowFields {
    /// Ethernet destination.
    pub dst: Mac,
    /// Ethernet source.
    pub src: Mac,
    /// Priority, drop eligibility and VLAN of the outer tag.
    pub vlan_tag: Option<u16>,
    /// EtherType behind the tags.
    pub ether_type: EtherType,
    /// Offset of the bytes behind the EtherType.
    pub payload: usize,
    /// The IP header, if there is a whole one.
    pub net: Option<NetFields>,
    /// Number of the protocol behind IP and its options or extension headers; `None` also in a
    /// fragment.
    pub protocol: Option<u8>,
    /// The ports, if they are there.
    pub ports: Option<Ports>,
}

impl FlowFields {
    /// Reads a frame that starts with the destination address; `None` if it is shorter than an
    /// Ethernet header.
    //= check W2 — each layer is read once, and only within the one outside it
    //= check W4 — no byte is read that is not there
    pub fn parse(frame: &[u8]) -> Option<FlowFields> {
        let (header, _) = frame.split_first_chunk::<{ Ethernet::LEN }>()?;
        let mut fields = FlowFields {
            dst: Mac(array(header, 0)),
            src: Mac(array(header, 6)),
            vlan_tag: None,
            ether_type: EtherType(be16(header, 12)),
            payload: Ethernet::LEN,
            net: None,
            protocol: None,
            ports: None,
        };
        for _ in 0..TAGS {
            let is_tag = matches!(fields.ether_type, EtherType::VLAN | EtherType::SERVICE_VLAN);
            let Some(tag) = frame[fields.payload..].first_chunk::<4>().filter(|_| is_tag) else {
                break;
            };
            fields.vlan_tag.get_or_insert(be16(tag, 0));
            fields.ether_type = EtherType(be16(tag, 2));
            fields.payload += tag.len();
        }
        let packet = &frame[fields.payload..];
        match fields.ether_type {
            EtherType::IPV4 => fields.read_ipv4(packet),
            EtherType::IPV6 => fields.read_ipv6(packet),
            _ => None,
        };
        Some(fields)
    }

    /// Returns the IPv6 packet in the frame from which these fields were read, without the padding
    /// behind it. Of one that is cut off, or a jumbogram, it is all that is there. `None` if there
    /// is no IPv6 header.
    pub fn ipv6_packet<'f>(&self, frame: &'f [u8]) -> Option<&'f [u8]> {
        /// Next header of a jumbogram, in which the length field is 0.
        const HOP_BY_HOP: u8 = 0;
        let Some(NetFields::V6(Ipv6Spec { next_header, .. })) = self.net else { return None };
        let packet = frame.get(self.payload..)?;
        let payload_len = usize::from(be16(packet.first_chunk::<{ Ipv6::LEN }>()?, 4));
        let is_jumbo = payload_len == 0 && next_header == HOP_BY_HOP;
        let whole = packet.get(..Ipv6::LEN + payload_len).filter(|_| !is_jumbo);
        Some(whole.unwrap_or(packet))
    }

    /// `None` if a header is cut off or wrong; the layers before it are kept.
    fn read_ipv4(&mut self, packet: &[u8]) -> Option<()> {
        let header = packet.first_chunk::<{ Ipv4::LEN }>()?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let is_whole = (Ipv4::LEN..=packet.len()).contains(&header_len);
        if header[0] >> 4 != 4 || !is_whole {
            return None;
        }
        // As a NIC does, only the headers are asked for, and not that the payload is whole.
        let packet = packet.get(..be16(header, 2).into()).unwrap_or(packet);
        self.net = Some(NetFields::V4(Ipv4Spec {
            src: Ipv4Addr::from_octets(array(header, 12)),
            dst: Ipv4Addr::from_octets(array(header, 16)),
            protocol: header[9],
            traffic_class: header[1],
            ttl: header[8],
        }));
        if be16(header, 6) & FRAGMENT != 0 {
            return None;
        }
        self.read_ports(header[9], packet.get(header_len..)?)
    }

    fn read_ipv6(&mut self, packet: &[u8]) -> Option<()> {
        let (header, rest) = packet.split_first_chunk::<{ Ipv6::LEN }>()?;
        let header = Ipv6::parse(header).ok()?;
        let mut rest = rest.get(..header.payload_len.into()).unwrap_or(rest);
        self.net = Some(NetFields::V6(Ipv6Spec {
            src: header.src,
            dst: header.dst,
            flow_label: header.flow_label,
            next_header: header.next_header,
            traffic_class: header.traffic_class,
            hop_limit: header.hop_limit,
        }));
        let mut kind = header.next_header;
        for _ in 0..EXTENSIONS {
            let Some(len) = extension_len(kind, rest)? else { break };
            kind = rest[0];
            rest = rest.get(len..)?;
        }
        self.read_ports(kind, rest)
    }

    fn read_ports(&mut self, protocol: u8, rest: &[u8]) -> Option<()> {
        self.protocol = Some(protocol);
        let protocol = PortsProtocol::from_number(protocol)?;
        let bytes = rest.first_chunk::<4>()?;
        let ports = PortsSpec { src: be16(bytes, 0), dst: be16(bytes, 2) };
        self.ports = Some(Ports { protocol, ports });
        Some(())
    }

    pub(super) fn eth_bits(&self) -> u128 {
        let FlowFields { dst, src, vlan_tag, ether_type, .. } = *self;
        let vlan_tag = vlan_tag.unwrap_or(0);
        eth_bits(&EthSpec { dst, src, ether_type: ether_type.0, vlan_tag })
    }
}

/// Length of the IPv6 extension header that `rest` begins with, if `kind` is one that a protocol
/// follows. The outer `None`: it is cut off, or the packet is a fragment.
fn extension_len(kind: u8, rest: &[u8]) -> Option<Option<usize>> {
    const OPTIONS: [u8; 3] = [0, 43, 60];
    const FRAGMENT_HEADER: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    let len = || rest.get(1).copied().map(usize::from);
    Some(match kind {
        _ if OPTIONS.contains(&kind) => Some((len()? + 1) * 8),
        AUTHENTICATION => Some((len()? + 2) * 4),
        FRAGMENT_HEADER => {
            let header = rest.first_chunk::<8>()?;
            // The offset, and the bit that more fragments follow.
            (be16(header, 2) & 0xfff9 == 0).then_some(Some(header.len()))?
        }
        _ => None,
    })
}
