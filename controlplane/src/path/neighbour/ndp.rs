//! Neighbour discovery: solicitations and advertisements. Router advertisements are ignored, as
//! routes are configured.
//!
//! Read first: RFC 4861, sections 7.1 and 7.2.
//!
//! Two rules are stricter than the RFC's: an advertisement confirms an entry only while a
//! solicitation of ours is pending, and an unconfirmed address replaces another at most once a
//! second.

use std::net::{IpAddr, Ipv6Addr};

use smoltcp::wire::{
    EthernetAddress, Icmpv6Packet, Icmpv6Repr, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
    RawHardwareAddress,
};
use uroce_transport::Instant;
use uroce_wire::Mac;

use super::frame::Link;
use super::icmp::{message_v6, multicast_mac, solicited_node};
use super::{Emit, Ignored, Neighbours, host_mac};
use crate::path::prefix::is_unicast;

pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Hop limit of all messages; it proves that the packet was not routed.
const HOP_LIMIT: u8 = 255;
/// Length of a solicitation or advertisement without options, from the ICMPv6 type on.
const LEN_MIN: usize = 24;

/// Handles a solicitation or advertisement. Its checksum is already verified.
pub(super) fn handle(
    port: &mut Neighbours,
    now: Instant,
    from: Mac,
    ip: &Ipv6Repr,
    icmp: &Icmpv6Packet<&[u8]>,
    emit: Emit<'_>,
) -> Result<(), Ignored> {
    //= RFC4861 7.1.1, 7.1.2 — hop limit 255, code 0, 24 bytes at least, target not multicast
    if ip.hop_limit != HOP_LIMIT || icmp.msg_code() != 0 || ip.payload_len < LEN_MIN {
        return Err(Ignored::Malformed);
    }
    match NdiscRepr::parse(icmp).map_err(|_| Ignored::Malformed)? {
        NdiscRepr::NeighborSolicit { target_addr, lladdr } if is_unicast(target_addr.into()) => {
            solicitation(port, now, from, ip, target_addr, lladdr, emit)
        }
        NdiscRepr::NeighborAdvert { flags, target_addr, lladdr }
            if is_unicast(target_addr.into()) =>
        {
            advertisement(port, now, ip, flags, target_addr, lladdr)
        }
        _ => Err(Ignored::Malformed),
    }
}

fn solicitation(
    port: &mut Neighbours,
    now: Instant,
    from: Mac,
    ip: &Ipv6Repr,
    target: Ipv6Addr,
    source_mac: Option<RawHardwareAddress>,
    emit: Emit<'_>,
) -> Result<(), Ignored> {
    let is_probe = ip.src_addr.is_unspecified();
    //= RFC4861 7.1.1 — a probe for duplicates goes to the group and carries no address
    if is_probe && (ip.dst_addr != solicited_node(target) || source_mac.is_some()) {
        return Err(Ignored::Malformed);
    }
    if !port.routes.is_own(target.into()) {
        return Err(Ignored::NotForUs);
    }
    if is_probe {
        let all = multicast_mac(ALL_NODES);
        emit(&advertise(&port.link, all, target, ALL_NODES, NdiscNeighborFlags::OVERRIDE));
        return Ok(());
    }
    //= RFC4861 7.2.3 — the sender's address is stored, to be confirmed before use
    if let Some(mac) = source_mac {
        let mac = host_mac(ethernet(mac)?)?;
        if port.is_neighbour(ip.src_addr.into()) {
            port.table.hint(now, ip.src_addr.into(), mac, true);
        }
    }
    let flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
    emit(&advertise(&port.link, from, target, ip.src_addr, flags));
    Ok(())
}

fn advertisement(
    port: &mut Neighbours,
    now: Instant,
    ip: &Ipv6Repr,
    flags: NdiscNeighborFlags,
    target: Ipv6Addr,
    target_mac: Option<RawHardwareAddress>,
) -> Result<(), Ignored> {
    let solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
    //= RFC4861 7.1.2 — an advertisement to a group is not solicited
    if solicited && ip.dst_addr.is_multicast() {
        return Err(Ignored::Malformed);
    }
    let target = IpAddr::from(target);
    if port.routes.is_own(target) {
        return Err(Ignored::AddressConflict);
    }
    let known = port.table.mac(target);
    let mac = match target_mac {
        Some(mac) => host_mac(ethernet(mac)?)?,
        //= RFC4861 7.2.5 — without an address it concerns a known neighbour only
        None => known.ok_or(Ignored::Unsolicited)?,
    };
    let differs = known.is_some_and(|known| known != mac);
    if differs && !flags.contains(NdiscNeighborFlags::OVERRIDE) {
        //= RFC4861 7.2.5 — without Override a different address only makes the entry stale
        port.table.doubt(target);
    } else if solicited && port.table.is_asking(target) {
        port.table.answer(now, target, mac);
    } else {
        port.table.hint(now, target, mac, false);
    }
    Ok(())
}

/// Builds the solicitation for `target`: to its group, or to the last known address `mac`.
pub(super) fn question(
    link: &Link,
    source: Ipv6Addr,
    target: Ipv6Addr,
    mac: Option<Mac>,
) -> Vec<u8> {
    let lladdr = Some(EthernetAddress(link.mac.0).into());
    let icmp = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: target, lladdr });
    let group = solicited_node(target);
    let (to, dst) = mac.map_or((multicast_mac(group), group), |mac| (mac, target));
    message_v6(link, to, source, dst, HOP_LIMIT, &icmp)
}

/// Builds an announcement of `own` to all nodes.
pub(super) fn announcement(link: &Link, own: Ipv6Addr) -> Vec<u8> {
    let all = multicast_mac(ALL_NODES);
    advertise(link, all, own, ALL_NODES, NdiscNeighborFlags::OVERRIDE)
}

fn advertise(
    link: &Link,
    to: Mac,
    target: Ipv6Addr,
    dst: Ipv6Addr,
    flags: NdiscNeighborFlags,
) -> Vec<u8> {
    let lladdr = Some(EthernetAddress(link.mac.0).into());
    let advert = NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr };
    message_v6(link, to, target, dst, HOP_LIMIT, &Icmpv6Repr::Ndisc(advert))
}

fn ethernet(address: RawHardwareAddress) -> Result<Mac, Ignored> {
    address.as_bytes().try_into().map(Mac).map_err(|_| Ignored::Malformed)
}
