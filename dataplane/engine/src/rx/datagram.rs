//! Packets to RD QPs and EECs. A packet of RD names an EEC in its RDETH and an RD QP in its BTH: it
//! goes to the EEC, which finds the RD QP, or refuses the request if there is none.
//!
//! Invariants
//! - The RD QP that a packet names decides nothing here: it may be of another service, of another
//!   domain, or gone.

use super::destination::{Arrival, Destination};
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_shared::table::qp_table::Place;
use uroce_transport::{DropReason, Handled, Inbound};
use uroce_wire::{Packet, Qpn, Service};

/// Returns whether a packet is of RD.
#[inline]
pub(super) fn is_datagram(packet: &Packet<'_>) -> bool {
    packet.op.service == Service::Rd
}

/// Delivers a packet of RD, or one to the number of an RD QP or EEC, if this lcore owns what it is
/// for. Otherwise the result says where the packet goes.
//= check R20 — a number that no EEC has: dropped, without an answer
#[cold]
pub(super) fn deliver_here(
    inbound: &Inbound<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Destination {
    match find(&inbound.packet, arrival) {
        Ok((place, number)) if place.lcore() == arrival.lcore => {
            deliver(place, number, inbound, shard, turn).into()
        }
        Ok((place, _)) => Destination::Lcore(place.lcore() as u8),
        Err(reason) => Destination::Drop(reason),
    }
}

/// Delivers such a packet that another lcore has handed over.
#[cold]
pub(super) fn take_over(
    inbound: &Inbound<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<Handled, DropReason> {
    let (place, number) = find(&inbound.packet, arrival)?;
    // Since the packet was handed over, the number may have become that of another lcore's EEC.
    if place.lcore() != arrival.lcore {
        return Err(unknown(&inbound.packet));
    }
    deliver(place, number, inbound, shard, turn).map(|()| Handled::Done)
}

/// Finds the EEC that a packet is for, or the RD QP or EEC that its BTH names.
fn find(packet: &Packet<'_>, arrival: &Arrival<'_>) -> Result<(Place, Qpn), DropReason> {
    let number = match is_datagram(packet) {
        true => Qpn::new(packet.ext.rdeth.eecn),
        false => packet.bth.dest_qpn,
    };
    let place = arrival.finder.find(number).filter(Place::is_rd);
    place.map(|place| (place, number)).ok_or_else(|| unknown(packet))
}

/// The reason for which a packet is dropped when nothing has the number that counts.
fn unknown(packet: &Packet<'_>) -> DropReason {
    if is_datagram(packet) { DropReason::UnknownEecn } else { DropReason::UnknownQpn }
}

fn deliver(
    place: Place,
    number: Qpn,
    inbound: &Inbound<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<(), DropReason> {
    let now = turn.now;
    let result = shard.input_rd(place.index, turn, |qp, _, env| {
        if qp.qpn() != number {
            return Err(unknown(&inbound.packet));
        }
        env.note_received(inbound.frame.len());
        // RD has no selective repeat, so nothing is held.
        qp.handle_packet(now, inbound, env).map(|_| ())
    });
    shard.activate(place.index);
    result.unwrap_or_else(|| Err(unknown(&inbound.packet)))
}
