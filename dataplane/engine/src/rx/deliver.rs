//! Delivers a verified packet to the QP that its QP number names.
//!
//! Invariants
//! - A packet reaches a QP only by the QP's own number, through a group or through an EEC, and only
//!   on the QP's owner lcore. The QP itself checks the port (`Qp::handle_packet`).
//!
//! Not here: everything before the QPN is looked up ([`super`]), groups ([`super::group`]).

use super::destination::{Arrival, Destination, of_unknown_qpn};
use super::{datagram, early, group};
use crate::dpdk::mbuf::Mbuf;
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_shared::table::qp_table::Place;
use uroce_transport::{DropReason, Handled, Inbound, Qp};
use uroce_wire::{Bth, Datagram, Frame, Operation, Packet, ParseError, Qpn};

/// Delivers the packet of `frame` if this lcore owns its QP. Otherwise the result says where the
/// packet goes.
//= check E10 — a number that no QP has: dropped, without an answer
// Called, it would get a copy of the packet's headers.
#[inline(always)]
pub(super) fn deliver_here(
    frame: &[u8],
    datagram: &Datagram<'_>,
    packet: Packet<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Destination {
    use DropReason::{UnknownEecn, WrongService};
    let qpn = packet.bth.dest_qpn;
    let place = arrival.finder.find(qpn);
    let &Datagram { src, dst, l3, .. } = datagram;
    let inbound = Inbound { src, dst, port: arrival.number(), l3, frame, packet };
    match place {
        Some(place) if place.owner == arrival.lcore => {
            match deliver(place, qpn, &inbound, shard, turn) {
                // Not an EEC, or another one than the packet names.
                Err(WrongService | UnknownEecn) if datagram::is_datagram(&inbound.packet) => {
                    datagram::deliver_here(&inbound, arrival, shard, turn)
                }
                delivered => delivered.into(),
            }
        }
        place => deliver_elsewhere(place, &inbound, arrival, shard, turn),
    }
}

/// Delivers a packet that is not for a QP of this lcore by the number in its BTH.
#[inline(never)]
fn deliver_elsewhere(
    place: Option<Place>,
    inbound: &Inbound<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Destination {
    if datagram::is_datagram(&inbound.packet) || place.is_some_and(|place| place.is_rd()) {
        return datagram::deliver_here(inbound, arrival, shard, turn);
    }
    match place {
        None => of_unknown_qpn(&inbound.packet),
        Some(place) => Destination::Lcore(place.owner as u8),
    }
}

/// Delivers a packet with a reserved opcode if this lcore owns its QP: an RC QP answers it.
/// Otherwise the result says where the packet goes.
#[cold]
pub(super) fn deliver_reserved_here(
    datagram: &Datagram<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Destination {
    let place = match bth_of(datagram) {
        Ok(bth) => arrival.finder.find(bth.dest_qpn),
        Err(error) => return Destination::Drop(error.into()),
    };
    match place {
        None => Destination::Drop(DropReason::UnknownQpn),
        Some(place) if place.is_rd() => Destination::Drop(DropReason::ReservedOpCode),
        Some(place) if place.owner != arrival.lcore => Destination::Lcore(place.owner as u8),
        Some(place) => deliver_reserved(place, datagram, arrival.number(), shard, turn).into(),
    }
}

/// Delivers a packet that another lcore has handed over. Its invariant CRC is not checked again.
pub(super) fn deliver_verified(
    mbuf: &Mbuf,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<Handled, DropReason> {
    let Frame::Roce(datagram) = Frame::parse(mbuf.as_slice())? else {
        return Err(DropReason::Malformed);
    };
    let bth = bth_of(&datagram)?;
    // RD has no groups: a packet that names no RD QP is its EEC's to refuse.
    if bth.dest_qpn == Qpn::MULTICAST && !bth.opcode.is_of_rd() {
        return group::deliver(mbuf.as_slice(), &datagram, arrival, shard, turn)
            .map(|()| Handled::Done);
    }
    // Since the packet was handed over, the QP may have gone, and another QP may have its number.
    let place = arrival.finder.find(bth.dest_qpn);
    let is_rd = place.is_some_and(|place| place.is_rd());
    let own = place.filter(|_| !is_rd).ok_or(DropReason::UnknownQpn);
    let packet = match Packet::parse(datagram.transport) {
        Err(ParseError::ReservedOpcode) => {
            let port = arrival.number();
            return deliver_reserved(own?, &datagram, port, shard, turn).map(|()| Handled::Done);
        }
        packet => packet?,
    };
    let Datagram { src, dst, l3, .. } = datagram;
    let frame = mbuf.as_slice();
    let inbound = Inbound { src, dst, port: arrival.number(), l3, frame, packet };
    if is_rd || datagram::is_datagram(&inbound.packet) {
        return datagram::take_over(&inbound, arrival, shard, turn);
    }
    deliver(own?, bth.dest_qpn, &inbound, shard, turn)
}

/// Delivers a packet to a QP of this lcore. The QP may have an answer to send, so it is scheduled.
/// If the QP holds the packet, the caller gives its mbuf to [`HeldPackets::keep`].
///
/// [`HeldPackets::keep`]: crate::qp::held::HeldPackets::keep
#[inline]
pub(super) fn deliver(
    place: Place,
    qpn: Qpn,
    inbound: &Inbound<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<Handled, DropReason> {
    let now = turn.now;
    let result = shard.input(place.index, turn, |qp, feeds, env| {
        check_place(qp, qpn)?;
        env.path.traffic.rx_packets += 1;
        env.path.traffic.rx_bytes += inbound.frame.len() as u64;
        // A packet consumes at most one receive. If the QP holds only one, an incomplete message
        // may be using that one, so more are pulled from the queue.
        if may_consume(&inbound.packet) && qp.recv_wrs() <= 1 && !feeds.is_rq_empty() {
            feeds.pull_receives(qp, env);
        }
        qp.handle_packet(now, inbound, env)
    });
    shard.activate(place.index);
    let handled = result.unwrap_or(Err(DropReason::UnknownQpn))?;
    if handled == Handled::Held {
        turn.held.promise(place.index, inbound.packet.bth.psn, now);
    } else if !turn.held.is_empty() {
        early::give_due(place.index, shard, turn);
    }
    Ok(handled)
}

/// Returns whether a packet's operation may consume a receive.
#[inline]
pub(super) fn may_consume(packet: &Packet<'_>) -> bool {
    matches!(packet.op.operation, Operation::Send | Operation::Write)
}

/// Gives a packet with a reserved opcode to a QP of this lcore. The QP may have an answer to send,
/// so it is scheduled.
//= check E7 — the QP's service decides whether a reserved opcode is answered
#[cold]
fn deliver_reserved(
    place: Place,
    datagram: &Datagram<'_>,
    port: u8,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<(), DropReason> {
    let bth = bth_of(datagram)?;
    let now = turn.now;
    let result = shard.input(place.index, turn, |qp, _, env| {
        check_place(qp, bth.dest_qpn)?;
        qp.handle_reserved_opcode(now, datagram.src, datagram.dst, port, &bth, env)
    });
    shard.activate(place.index);
    result.unwrap_or(Err(DropReason::UnknownQpn))
}

/// Checks that the QP in the slot has the expected QPN: the slot may hold another QP by now.
#[inline]
fn check_place(qp: &Qp, qpn: Qpn) -> Result<(), DropReason> {
    if qp.qpn() == qpn { Ok(()) } else { Err(DropReason::UnknownQpn) }
}

fn bth_of(datagram: &Datagram<'_>) -> Result<Bth, ParseError> {
    Bth::parse(datagram.transport.first_chunk().ok_or(ParseError::Truncated)?)
}
