//! Host: what of the frames on a port is the host's own, whatever flows of raw QPs say.

use super::binding::PortAddresses;
use uroce_wire::flow::{FlowFields, NetFields, Ports, PortsProtocol};
use uroce_wire::{EtherType, Gid};

/// UDP port of RoCEv2.
const ROCE: u16 = 4791;
/// Numbers of ICMP, IGMP and ICMPv6.
const ICMP: [u8; 2] = [1, 2];
const ICMPV6: u8 = 58;

impl PortAddresses {
    /// Returns whether a frame is RoCEv2 to an address of the port.
    //= check W11 — not taken away by any flow
    pub(crate) fn has_roce(&self, fields: &FlowFields) -> bool {
        let is_roce = matches!(
            fields.ports,
            Some(Ports { protocol: PortsProtocol::Udp, ports }) if ports.dst == ROCE
        );
        let dst: Option<Gid> = fields.net.map(|net| match net {
            NetFields::V4(header) => header.dst.into(),
            NetFields::V6(header) => header.dst.into(),
        });
        let is_ours = dst.is_some_and(|dst| self.gids.contains(&dst));
        is_roce && is_ours && fields.dst == self.mac
    }

    /// Returns whether the control plane needs a frame: address resolution, ICMP and multicast
    /// listeners of the port's VLAN.
    pub(crate) fn needs(&self, fields: &FlowFields) -> bool {
        // A tag with VLAN 0 carries a priority only.
        let vlan = fields.vlan_tag.map(|tag| tag & 0xfff).filter(|&vid| vid != 0);
        let is_to_host = fields.dst.is_multicast() || fields.dst == self.mac;
        let is_of_kind = match (fields.ether_type, fields.protocol) {
            (EtherType::ARP, _) => true,
            (EtherType::IPV4, Some(protocol)) => ICMP.contains(&protocol),
            (EtherType::IPV6, Some(protocol)) => protocol == ICMPV6,
            _ => false,
        };
        is_to_host && vlan == self.vlan && is_of_kind
    }
}
