//! Datagrams to multicast groups: one copy for each QP of the group.
//!
//! The lcore that received the datagram gives it to its own QPs in place, and hands one copied
//! frame to each other lcore that has QPs in the group, which does likewise.
//!
//! Read first: IBA 10.5 (multicast).
//!
//! Invariants
//! - A QP that refuses its copy has no effect on the others; each refusal is counted.
//! - The received frame stays with its lcore; a copy belongs to the queue it was put in, or is
//!   freed.

use super::{
    Around, Bth, Datagram, DropReason, Exits, Frame, From, Inbound, Mbuf, Packet, PortAddresses,
    Shard, hand_over, is_in_vlan,
};
use crate::config::MAX_LCORES;
use uroce_shared::table::mcast::multicast_mac;

/// Returns whether a datagram is addressed to a group that QPs of this device are in.
//= check E10 — QPN 0xFFFFFF without a group is dropped
#[cold]
pub(super) fn is_ours(
    datagram: &Datagram<'_>,
    addresses: &PortAddresses,
    around: &Around<'_>,
) -> bool {
    let qpn = datagram.transport.first_chunk::<{ Bth::LEN }>().map(|bth| [bth[5], bth[6], bth[7]]);
    qpn == Some([0xff; 3])
        && multicast_mac(datagram.dst) == Some(datagram.dst_mac)
        && is_in_vlan(datagram, addresses)
        && around.tables.groups.find(datagram.dst, around.memory.turn()).is_some()
}

/// Delivers a verified datagram to the QPs of its group, on this lcore and on others.
//= check L5 — the others get theirs though one QP refuses, and no copy is leaked
#[cold]
pub(super) fn spread(
    mbuf: &Mbuf,
    from: &From<'_>,
    exits: &Exits,
    shard: &mut Shard,
    around: &mut Around<'_>,
) {
    // The caller has parsed the frame before.
    let Ok(Frame::Roce(datagram)) = Frame::parse(mbuf.as_slice()) else { return };
    for owner in others(&datagram, from.lcore, around) {
        match around.lanes[from.port].copy_of(mbuf) {
            // `hand_over` has counted a copy that found no room; it is freed here.
            Some(copy) => drop(hand_over(exits, owner, from.port, copy, shard)),
            None => shard.counters.count_drop(DropReason::NoBuffer),
        }
    }
    if let Err(reason) = deliver(&datagram, from, shard, around) {
        shard.counters.count_drop(reason);
    }
}

/// Delivers a verified datagram to those QPs of its group that this lcore owns.
pub(super) fn deliver(
    datagram: &Datagram<'_>,
    from: &From<'_>,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Result<(), DropReason> {
    let packet = Packet::parse(datagram.transport)?;
    let &Datagram { src, dst, l3, .. } = datagram;
    let inbound = Inbound { src, dst, port: from.number(), l3, packet };
    let (memory, tables) = (around.memory, around.tables);
    // If the last QP has left the group since, there are no members.
    let members = tables.groups.find(dst, memory.turn()).unwrap_or(&[]);
    for member in members.iter().filter(|member| member.place.owner == from.lcore) {
        let result = super::deliver(member.place, member.qpn, &inbound, shard, around);
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
    around: &Around<'_>,
) -> impl Iterator<Item = usize> + use<> {
    let members = around.tables.groups.find(datagram.dst, around.memory.turn()).unwrap_or(&[]);
    const { assert!(MAX_LCORES <= u64::BITS as usize) };
    let all = members.iter().fold(0u64, |all, member| all | 1 << member.place.owner);
    (0..MAX_LCORES).filter(move |&lcore| lcore != own && all >> lcore & 1 == 1)
}
