//! Datagrams to multicast groups: each QP of the group receives the datagram.
//!
//! The lcore that received the datagram gives it to its own QPs in place, and hands a copy of the
//! frame to each other lcore that has QPs in the group. That lcore gives the copy to its own QPs.
//!
//! Read first: IBA 10.5 (multicast).
//!
//! Invariants
//! - If one QP refuses the datagram, the others still receive it. Each refusal is counted.
//! - The received frame stays with its lcore. Each copy is put into one lcore's queue, or is freed.

use super::destination::{Arrival, Destination, is_in_vlan};
use super::exits::Exits;
use crate::dpdk::mbuf::Mbuf;
use crate::lane::binding::PortAddresses;
use crate::limits::MAX_LCORES;
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_shared::table::mcast::multicast_mac;
use uroce_transport::{DropReason, Inbound};
use uroce_wire::{Bth, Datagram, Frame, Packet};

/// Returns whether a datagram is addressed to a group that has QPs of this device.
//= check E10 — QPN 0xFFFFFF without a group is dropped
#[cold]
pub(super) fn is_ours(
    datagram: &Datagram<'_>,
    addresses: &PortAddresses,
    turn: &TurnContext<'_>,
) -> bool {
    let qpn = datagram.transport.first_chunk::<{ Bth::LEN }>().map(|bth| [bth[5], bth[6], bth[7]]);
    qpn == Some([0xff; 3])
        && multicast_mac(datagram.dst) == Some(datagram.dst_mac)
        && is_in_vlan(datagram, addresses)
        && turn.tables.groups.find(datagram.dst, turn.memory.turn()).is_some()
}

/// Delivers a verified datagram to the QPs of its group, on this lcore and on others.
//= check L5 — the others get theirs though one QP refuses, and no copy is leaked
#[cold]
pub(super) fn spread(
    mbuf: &Mbuf,
    arrival: &Arrival<'_>,
    exits: &Exits,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) {
    // This cannot fail: the caller has parsed the frame before.
    let Ok(Frame::Roce(datagram)) = Frame::parse(mbuf.as_slice()) else { return };
    for owner in others(&datagram, arrival.lcore, turn) {
        match turn.lanes[arrival.port].copy_of(mbuf) {
            Some(copy) => {
                let owner = Destination::Lcore(owner as u8);
                // A copy that found no room has been counted and is freed here.
                drop(exits.carry(owner, arrival.port, copy, &shard.counters));
            }
            None => shard.counters.count_drop(DropReason::NoBuffer),
        }
    }
    if let Err(reason) = deliver(mbuf.as_slice(), &datagram, arrival, shard, turn) {
        shard.counters.count_drop(reason);
    }
}

/// Delivers a verified datagram to those QPs of its group that this lcore owns.
pub(super) fn deliver(
    frame: &[u8],
    datagram: &Datagram<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<(), DropReason> {
    let packet = Packet::parse(datagram.transport)?;
    let &Datagram { src, dst, l3, .. } = datagram;
    let inbound = Inbound { src, dst, port: arrival.number(), l3, frame, packet };
    let (memory, tables) = (turn.memory, turn.tables);
    // There are no members if the last QP has left the group since the datagram was received.
    let members = tables.groups.find(dst, memory.turn()).unwrap_or(&[]);
    for member in members.iter().filter(|member| member.place.owner == arrival.lcore) {
        let result = super::deliver::deliver(member.place, member.qpn, &inbound, shard, turn);
        if let Err(reason) = result {
            shard.counters.count_drop(reason);
        }
    }
    Ok(())
}

/// Returns the numbers of the other lcores that have QPs in the datagram's group.
fn others(
    datagram: &Datagram<'_>,
    own: usize,
    turn: &TurnContext<'_>,
) -> impl Iterator<Item = usize> + use<> {
    let members = turn.tables.groups.find(datagram.dst, turn.memory.turn()).unwrap_or(&[]);
    const { assert!(MAX_LCORES <= u64::BITS as usize) };
    let all = members.iter().fold(0u64, |all, member| all | 1 << member.place.owner);
    (0..MAX_LCORES).filter(move |&lcore| lcore != own && all >> lcore & 1 == 1)
}
