//! Flow rules: which frames a raw queue pair receives.
//!
//! Read first: RFC 791 and RFC 8200 for the headers; `struct ibv_flow_spec` of the verbs for what a
//! rule can name.
//!
//! ```text
//!   FlowSpec, one per layer ─▶ FlowMatch ─┐
//!                                         ├─▶ yes or no
//!   frame ─▶ FlowFields ──────────────────┘
//! ```
//!
//! Invariants
//! - A layer that a frame does not have, or of which a header is cut off, matches no rule about it.
//! - The fragments of a packet have no ports, the first one neither: all of them go the same way.
//! - Two [`FlowMatch`]es are equal if they name the same bits with the same values, whatever was
//!   given for bits outside of the masks.
//!
//! Not here: priorities and queue pairs (the engine's table of flows).

mod fields;

pub use fields::{FlowFields, NetFields, Ports, PortsProtocol};

use crate::ethernet::EtherType;
use crate::{Gid, Mac};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Values of an Ethernet header, or a mask of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthSpec {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// EtherType behind the tags.
    pub ether_type: u16,
    /// Priority, drop eligibility and VLAN of the outer tag. A frame without a tag matches only if
    /// the mask is 0.
    pub vlan_tag: u16,
}

/// Values of an IPv4 header, or a mask of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Spec {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// Number of the protocol after IP.
    pub protocol: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live.
    pub ttl: u8,
}

impl Default for Ipv4Spec {
    fn default() -> Ipv4Spec {
        let any = Ipv4Addr::UNSPECIFIED;
        Ipv4Spec { src: any, dst: any, protocol: 0, traffic_class: 0, ttl: 0 }
    }
}

/// Values of an IPv6 header, or a mask of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Spec {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// The header's own next-header number: that of an extension header if there is one.
    pub next_header: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Default for Ipv6Spec {
    fn default() -> Ipv6Spec {
        let any = Ipv6Addr::UNSPECIFIED;
        let (flow_label, next_header, traffic_class, hop_limit) = (0, 0, 0, 0);
        Ipv6Spec { src: any, dst: any, flow_label, next_header, traffic_class, hop_limit }
    }
}

/// Values of the ports of UDP or TCP, or a mask of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortsSpec {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
}

/// What a rule demands of one layer: that the layer is there, and that its fields have the values
/// where the mask has ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowSpec {
    /// Ethernet: value and mask.
    Eth(EthSpec, EthSpec),
    /// IPv4: value and mask.
    Ipv4(Ipv4Spec, Ipv4Spec),
    /// IPv6: value and mask.
    Ipv6(Ipv6Spec, Ipv6Spec),
    /// UDP, over either version of IP: value and mask.
    Udp(PortsSpec, PortsSpec),
    /// TCP, over either version of IP: value and mask.
    Tcp(PortsSpec, PortsSpec),
}

impl FlowSpec {
    /// All frames to one Ethernet address.
    pub fn to_mac(dst: Mac) -> FlowSpec {
        let of = |dst| EthSpec { dst, ..EthSpec::default() };
        FlowSpec::Eth(of(dst), of(Mac::BROADCAST))
    }

    /// All frames to multicast addresses, broadcast among them.
    pub fn multicast() -> FlowSpec {
        let group = EthSpec { dst: GROUP, ..EthSpec::default() };
        FlowSpec::Eth(group, group)
    }

    /// All frames of one EtherType.
    pub fn ether_type(ether_type: EtherType) -> FlowSpec {
        let EtherType(value) = ether_type;
        let of = |ether_type| EthSpec { ether_type, ..EthSpec::default() };
        FlowSpec::Eth(of(value), of(u16::MAX))
    }

    /// All packets to one IP address.
    pub fn to_ip(dst: Gid) -> FlowSpec {
        match dst.to_ip() {
            IpAddr::V4(dst) => {
                let of = |dst| Ipv4Spec { dst, ..Ipv4Spec::default() };
                FlowSpec::Ipv4(of(dst), of(Ipv4Addr::BROADCAST))
            }
            IpAddr::V6(dst) => {
                let of = |dst| Ipv6Spec { dst, ..Ipv6Spec::default() };
                FlowSpec::Ipv6(of(dst), of(Ipv6Addr::from_bits(u128::MAX)))
            }
        }
    }

    /// All UDP datagrams to one port.
    pub fn to_udp_port(dst: u16) -> FlowSpec {
        let of = |dst| PortsSpec { src: 0, dst };
        FlowSpec::Udp(of(dst), of(u16::MAX))
    }
}

/// Reason for which the layers make no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowError {
    /// Two specifications are of one layer.
    TwiceOneLayer,
    /// No frame can match: the EtherType or the protocol is not that of the next layer.
    Impossible,
    /// A flow label has more than 20 bits.
    FlowLabel,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FlowError::TwiceOneLayer => {
                "two specifications of one layer: of Ethernet, of IP, or of UDP and TCP"
            }
            FlowError::Impossible => {
                "the EtherType or the protocol is not that of the next layer: no frame can match"
            }
            FlowError::FlowLabel => "a flow label has more than 20 bits",
        })
    }
}

impl core::error::Error for FlowError {}

/// Bits of one layer, and which of them count. Bits that do not count are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Masked<const N: usize> {
    value: [u128; N],
    mask: [u128; N],
}

impl<const N: usize> Default for Masked<N> {
    fn default() -> Masked<N> {
        Masked { value: [0; N], mask: [0; N] }
    }
}

impl<const N: usize> Masked<N> {
    fn new(value: [u128; N], mask: [u128; N]) -> Masked<N> {
        Masked { value: core::array::from_fn(|at| value[at] & mask[at]), mask }
    }

    fn accepts(&self, bits: [u128; N]) -> bool {
        (0..N).all(|at| bits[at] & self.mask[at] == self.value[at])
    }

    /// Returns whether all these bits count.
    fn covers(&self, bits: [u128; N]) -> bool {
        (0..N).all(|at| bits[at] & !self.mask[at] == 0)
    }
}

/// The IP layer of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NetMatch {
    V4(Masked<1>),
    V6(Masked<3>),
}

/// What a rule demands of a frame: the layers that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowMatch {
    eth: Masked<1>,
    net: Option<NetMatch>,
    ports: Option<(PortsProtocol, Masked<1>)>,
}

impl FlowMatch {
    /// The rule of these layers, in any order. Without any, all frames match.
    ///
    /// # Errors
    /// [`FlowError`].
    pub fn new(specs: &[FlowSpec]) -> Result<FlowMatch, FlowError> {
        let mut rule = FlowMatch::default();
        let (mut has_eth, mut protocol) = (false, Masked::<1>::default());
        for spec in specs {
            match *spec {
                FlowSpec::Eth(value, mask) if !has_eth => {
                    has_eth = true;
                    rule.eth = Masked::new([eth_bits(&value)], [eth_bits(&mask)]);
                }
                FlowSpec::Ipv4(value, mask) if rule.net.is_none() => {
                    let [own, own_mask] = [value.protocol, mask.protocol].map(u128::from);
                    protocol = Masked::new([own], [own_mask]);
                    let masked = Masked::new([ipv4_bits(&value)], [ipv4_bits(&mask)]);
                    rule.net = Some(NetMatch::V4(masked));
                }
                FlowSpec::Ipv6(value, mask) if rule.net.is_none() => {
                    if (value.flow_label & mask.flow_label) >> 20 != 0 {
                        return Err(FlowError::FlowLabel);
                    }
                    let masked = Masked::new(ipv6_bits(&value), ipv6_bits(&mask));
                    rule.net = Some(NetMatch::V6(masked));
                }
                FlowSpec::Udp(value, mask) if rule.ports.is_none() => {
                    rule.ports = Some((PortsProtocol::Udp, ports_match(&value, &mask)));
                }
                FlowSpec::Tcp(value, mask) if rule.ports.is_none() => {
                    rule.ports = Some((PortsProtocol::Tcp, ports_match(&value, &mask)));
                }
                _ => return Err(FlowError::TwiceOneLayer),
            }
        }
        rule.check(&protocol)?;
        Ok(rule)
    }

    /// Frames of a type to one Ethernet address.
    pub fn to_mac(dst: Mac, kind: EtherType) -> FlowMatch {
        FlowMatch::of_type(dst, Mac::BROADCAST, kind)
    }

    /// Frames of a type to multicast addresses, broadcast among them.
    pub fn multicast(kind: EtherType) -> FlowMatch {
        FlowMatch::of_type(GROUP, GROUP, kind)
    }

    fn of_type(dst: Mac, mask: Mac, kind: EtherType) -> FlowMatch {
        let of = |dst, ether_type| EthSpec { dst, ether_type, ..EthSpec::default() };
        let eth = Masked::new([eth_bits(&of(dst, kind.0))], [eth_bits(&of(mask, u16::MAX))]);
        FlowMatch { eth, ..FlowMatch::default() }
    }

    //= check W3 — an EtherType or protocol that is not the next layer's
    /// Checks that the layers fit each other; `protocol` is that of an IPv4 layer.
    fn check(&self, protocol: &Masked<1>) -> Result<(), FlowError> {
        let ether_types: &[EtherType] = match (self.net, self.ports) {
            (Some(NetMatch::V4(_)), _) => &[EtherType::IPV4],
            (Some(NetMatch::V6(_)), _) => &[EtherType::IPV6],
            (None, Some(_)) => &[EtherType::IPV4, EtherType::IPV6],
            (None, None) => &[],
        };
        let of_type = |kind: &EtherType| {
            let mask = [self.eth.mask[0] & eth_bits(&ETHER_TYPE)];
            let value = eth_bits(&EthSpec { ether_type: kind.0, ..EthSpec::default() });
            Masked::new(self.eth.value, mask).accepts([value])
        };
        let fits_type = ether_types.is_empty() || ether_types.iter().any(of_type);
        let fits_protocol =
            self.ports.is_none_or(|(kind, _)| protocol.accepts([u128::from(kind.number())]));
        if fits_type && fits_protocol { Ok(()) } else { Err(FlowError::Impossible) }
    }

    /// Returns whether a frame with these fields matches.
    //= check W1 — each field of each layer under its mask
    pub fn accepts(&self, fields: &FlowFields) -> bool {
        let needs_tag = self.eth.mask[0] & u128::from(u16::MAX) != 0;
        if needs_tag && fields.vlan_tag.is_none() || !self.eth.accepts([fields.eth_bits()]) {
            return false;
        }
        let net = match (&self.net, &fields.net) {
            (None, _) => true,
            (Some(NetMatch::V4(rule)), Some(NetFields::V4(spec))) => {
                rule.accepts([ipv4_bits(spec)])
            }
            (Some(NetMatch::V6(rule)), Some(NetFields::V6(spec))) => rule.accepts(ipv6_bits(spec)),
            _ => false,
        };
        let ports = match (&self.ports, &fields.ports) {
            (None, _) => true,
            (Some((kind, rule)), Some(Ports { protocol, ports })) => {
                kind == protocol && rule.accepts([ports_bits(ports)])
            }
            (Some(_), None) => false,
        };
        net && ports
    }

    /// Returns whether this names the kind of a frame that it accepts by all bits: the protocol of
    /// an IP packet, or the EtherType of another frame.
    pub fn names_kind_of(&self, fields: &FlowFields) -> bool {
        let ether_type = eth_bits(&ETHER_TYPE);
        match (&self.net, fields.ether_type) {
            (Some(NetMatch::V4(rule)), _) => {
                let all = Ipv4Spec { protocol: u8::MAX, ..Ipv4Spec::default() };
                rule.covers([ipv4_bits(&all)])
            }
            (Some(NetMatch::V6(rule)), _) => {
                let all = Ipv6Spec { next_header: u8::MAX, ..Ipv6Spec::default() };
                rule.covers(ipv6_bits(&all))
            }
            (None, EtherType::IPV4 | EtherType::IPV6) => false,
            (None, _) => self.eth.covers([ether_type]),
        }
    }
}

/// The bit that all multicast addresses have.
const GROUP: Mac = Mac([1, 0, 0, 0, 0, 0]);
/// Mask of the EtherType.
const ETHER_TYPE: EthSpec =
    EthSpec { dst: Mac([0; 6]), src: Mac([0; 6]), ether_type: u16::MAX, vlan_tag: 0 };

/// The 128 bits of an Ethernet layer; the tag's are the lowest.
fn eth_bits(spec: &EthSpec) -> u128 {
    let EthSpec { dst, src, ether_type, vlan_tag } = spec;
    mac_bits(*dst) << 80
        | mac_bits(*src) << 32
        | u128::from(*ether_type) << 16
        | u128::from(*vlan_tag)
}

fn mac_bits(mac: Mac) -> u128 {
    mac.0.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
}

fn ipv4_bits(spec: &Ipv4Spec) -> u128 {
    let Ipv4Spec { src, dst, protocol, traffic_class, ttl } = spec;
    let rest = u32::from_be_bytes([0, *protocol, *traffic_class, *ttl]);
    u128::from(src.to_bits()) << 64 | u128::from(dst.to_bits()) << 32 | u128::from(rest)
}

fn ipv6_bits(spec: &Ipv6Spec) -> [u128; 3] {
    let Ipv6Spec { src, dst, flow_label, next_header, traffic_class, hop_limit } = spec;
    let rest = u32::from_be_bytes([0, *next_header, *traffic_class, *hop_limit]);
    [src.to_bits(), dst.to_bits(), u128::from(*flow_label) << 32 | u128::from(rest)]
}

fn ports_bits(spec: &PortsSpec) -> u128 {
    u128::from(spec.src) << 16 | u128::from(spec.dst)
}

fn ports_match(value: &PortsSpec, mask: &PortsSpec) -> Masked<1> {
    Masked::new([ports_bits(value)], [ports_bits(mask)])
}

#[cfg(test)]
mod tests;
