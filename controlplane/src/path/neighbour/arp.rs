//! ARP.
//!
//! Read first: RFC 826; RFC 5227 for probes and announcements.
//!
//! By RFC 826 the sender of any packet updates its existing entry, and a new entry is created only
//! for a sender that asks for one of our addresses. Only the reply to our own request confirms an
//! entry.

use std::net::{IpAddr, Ipv4Addr};

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};
use uroce_transport::Instant;
use uroce_wire::Mac;
use uroce_wire::ethernet::EtherType;

use super::frame::Link;
use super::{Emit, Ignored, Neighbours, host_mac};

/// Handles the ARP payload of a received frame.
pub(super) fn handle(
    port: &mut Neighbours,
    now: Instant,
    payload: &[u8],
    emit: Emit<'_>,
) -> Result<(), Ignored> {
    let packet = ArpPacket::new_checked(payload).map_err(|_| Ignored::Malformed)?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr: sender,
        target_protocol_addr: target,
        ..
    } = ArpRepr::parse(&packet).map_err(|_| Ignored::Malformed)?
    else {
        return Err(Ignored::Malformed);
    };
    let mac = host_mac(Mac(source_hardware_addr.0))?;
    let for_us = port.routes.is_own(target.into());
    if port.routes.is_own(sender.into()) {
        return Err(Ignored::AddressConflict);
    }
    // RFC 5227: a probe has sender 0.0.0.0. It is answered, and nothing is learned from it.
    if port.is_neighbour(sender.into()) {
        learn(port, now, sender.into(), mac, operation, for_us);
    }
    match operation {
        ArpOperation::Request if for_us => {
            emit(&message(&port.link, ArpOperation::Reply, mac, target, mac, sender));
            Ok(())
        }
        ArpOperation::Request => Err(Ignored::NotForUs),
        _ => Ok(()),
    }
}

//= RFC826 Packet Reception — update an existing entry; add only a sender that asks for us
fn learn(
    port: &mut Neighbours,
    now: Instant,
    sender: IpAddr,
    mac: Mac,
    operation: ArpOperation,
    for_us: bool,
) {
    let is_reply = operation == ArpOperation::Reply;
    if is_reply && for_us && port.table.is_asking(sender) {
        port.table.answer(now, sender, mac);
    } else {
        port.table.hint(now, sender, mac, for_us && !is_reply);
    }
}

/// Builds the request for `target`: broadcast, or to the last known address `mac`.
pub(super) fn question(
    link: &Link,
    source: Ipv4Addr,
    target: Ipv4Addr,
    mac: Option<Mac>,
) -> Vec<u8> {
    let dst = mac.unwrap_or(Mac::BROADCAST);
    message(link, ArpOperation::Request, dst, source, Mac::default(), target)
}

/// Builds a broadcast announcement of `own`.
pub(super) fn announcement(link: &Link, own: Ipv4Addr) -> Vec<u8> {
    message(link, ArpOperation::Request, Mac::BROADCAST, own, Mac::default(), own)
}

fn message(
    link: &Link,
    operation: ArpOperation,
    dst: Mac,
    source: Ipv4Addr,
    target_mac: Mac,
    target: Ipv4Addr,
) -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(link.mac.0),
        source_protocol_addr: source,
        target_hardware_addr: EthernetAddress(target_mac.0),
        target_protocol_addr: target,
    };
    link.frame(dst, EtherType::ARP, arp.buffer_len(), |payload| {
        arp.emit(&mut ArpPacket::new_unchecked(payload));
    })
}
