//! Echo: ICMP and ICMPv6 requests are answered, so that `ping` works.
//!
//! Read first: RFC 792, RFC 4443.
//!
//! A reply goes to the Ethernet address that the request came from. That needs no table, and is
//! right for requests through a gateway, too.

use std::net::{IpAddr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4Packet, Icmpv4Repr, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr,
};
use uroce_transport::Instant;
use uroce_wire::Mac;
use uroce_wire::ethernet::EtherType;

use super::frame::Link;
use super::{Emit, Ignored, Neighbours, ndp};
use crate::path::prefix::is_unicast;

const HOP_LIMIT: u8 = 64;

/// Handles an IPv4 packet that is not RoCE.
pub(super) fn handle_v4(
    port: &Neighbours,
    from: Mac,
    payload: &[u8],
    emit: Emit<'_>,
) -> Result<(), Ignored> {
    let checks = ChecksumCapabilities::default();
    let packet = Ipv4Packet::new_checked(payload).map_err(|_| Ignored::Malformed)?;
    let ip = Ipv4Repr::parse(&packet, &checks).map_err(|_| Ignored::Malformed)?;
    if !port.routes.is_own(ip.dst_addr.into()) || !port.is_peer(ip.src_addr.into()) {
        return Err(Ignored::NotForUs);
    }
    if ip.next_header != IpProtocol::Icmp {
        return Err(Ignored::Unsupported);
    }
    let packet = Icmpv4Packet::new_checked(packet.payload()).map_err(|_| Ignored::Malformed)?;
    let Ok(Icmpv4Repr::EchoRequest { ident, seq_no, data }) = Icmpv4Repr::parse(&packet, &checks)
    else {
        return Err(Ignored::Unsupported);
    };
    let icmp = Icmpv4Repr::EchoReply { ident, seq_no, data };
    let ip = Ipv4Repr {
        src_addr: ip.dst_addr,
        dst_addr: ip.src_addr,
        next_header: IpProtocol::Icmp,
        payload_len: icmp.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let len = ip.buffer_len() + icmp.buffer_len();
    emit(&port.link.frame(from, EtherType::IPV4, len, |payload| {
        let mut packet = Ipv4Packet::new_unchecked(payload);
        ip.emit(&mut packet, &checks);
        icmp.emit(&mut Icmpv4Packet::new_unchecked(packet.payload_mut()), &checks);
    }));
    Ok(())
}

/// Handles an IPv6 packet that is not RoCE.
pub(super) fn handle_v6(
    port: &mut Neighbours,
    now: Instant,
    from: Mac,
    payload: &[u8],
    emit: Emit<'_>,
) -> Result<(), Ignored> {
    let packet = Ipv6Packet::new_checked(payload).map_err(|_| Ignored::Malformed)?;
    let ip = Ipv6Repr::parse(&packet).map_err(|_| Ignored::Malformed)?;
    if ip.next_header == IpProtocol::HopByHop {
        return port.asked_v6(now, &ip, packet.payload());
    }
    if !port.is_to_us(ip.dst_addr) || port.routes.is_own(ip.src_addr.into()) {
        return Err(Ignored::NotForUs);
    }
    if ip.next_header != IpProtocol::Icmpv6 {
        return Err(Ignored::Unsupported);
    }
    let icmp = Icmpv6Packet::new_checked(packet.payload()).map_err(|_| Ignored::Malformed)?;
    if !icmp.verify_checksum(&ip.src_addr, &ip.dst_addr) {
        return Err(Ignored::Malformed);
    }
    match icmp.msg_type() {
        Icmpv6Message::EchoRequest => echo_v6(port, from, &ip, &icmp, emit),
        Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => {
            ndp::handle(port, now, from, &ip, &icmp, emit)
        }
        _ => Err(Ignored::Unsupported),
    }
}

fn echo_v6(
    port: &Neighbours,
    from: Mac,
    ip: &Ipv6Repr,
    icmp: &Icmpv6Packet<&[u8]>,
    emit: Emit<'_>,
) -> Result<(), Ignored> {
    // An answer to a multicast echo could be abused for amplification.
    if !port.routes.is_own(ip.dst_addr.into()) || !is_unicast(ip.src_addr.into()) {
        return Err(Ignored::NotForUs);
    }
    let reply = Icmpv6Repr::EchoReply {
        ident: icmp.echo_ident(),
        seq_no: icmp.echo_seq_no(),
        data: icmp.payload(),
    };
    emit(&message_v6(&port.link, from, ip.dst_addr, ip.src_addr, HOP_LIMIT, &reply));
    Ok(())
}

/// Builds a frame with one ICMPv6 message.
pub(super) fn message_v6(
    link: &Link,
    to: Mac,
    src_addr: Ipv6Addr,
    dst_addr: Ipv6Addr,
    hop_limit: u8,
    icmp: &Icmpv6Repr<'_>,
) -> Vec<u8> {
    let checks = ChecksumCapabilities::default();
    let payload_len = icmp.buffer_len();
    let ip =
        Ipv6Repr { src_addr, dst_addr, next_header: IpProtocol::Icmpv6, payload_len, hop_limit };
    link.frame(to, EtherType::IPV6, ip.buffer_len() + payload_len, |payload| {
        let mut packet = Ipv6Packet::new_unchecked(payload);
        ip.emit(&mut packet);
        let mut packet = Icmpv6Packet::new_unchecked(packet.payload_mut());
        icmp.emit(&src_addr, &dst_addr, &mut packet, &checks);
    })
}

/// Returns the Ethernet address of an IPv6 multicast group (RFC 2464).
pub(super) fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Returns the solicited-node multicast group of an address (RFC 4291).
pub(super) fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

impl Neighbours {
    /// Tells whether the port accepts IPv6 packets with this destination.
    fn is_to_us(&self, dst: Ipv6Addr) -> bool {
        let own = self.routes.own().prefixes().filter_map(|own| match own.address() {
            IpAddr::V6(own) => Some(own),
            IpAddr::V4(_) => None,
        });
        let mut groups = own.map(|own| (own, solicited_node(own)));
        groups.any(|(own, group)| dst == own || dst == group || dst == ndp::ALL_NODES)
    }
}
