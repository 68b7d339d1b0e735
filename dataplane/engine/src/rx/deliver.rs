//! A verified packet on its way to the QP of its number.
//!
//! Invariants
//! - A packet reaches a QP only by that QP's own number, at that QP's own port, on its owner lcore.
//!
//! Not here: everything before the QPN is looked up ([`super`]), groups ([`super::group`]).

use super::{
    Around, Bth, Datagram, DropReason, Frame, From, Inbound, Mbuf, Packet, ParseError, Place, Qpn,
    Shard, Way, group,
};
use uroce_transport::Qp;
use uroce_wire::Operation;

/// A packet whose opcode no service has: an RC QP answers it.
#[cold]
pub(super) fn sort_reserved(
    datagram: &Datagram<'_>,
    from: &From<'_>,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Way {
    let place = match bth_of(datagram) {
        Ok(bth) => from.finder.find(bth.dest_qpn),
        Err(error) => return Way::Drop(error.into()),
    };
    match place {
        None => Way::Drop(DropReason::UnknownQpn),
        Some(place) if place.owner != from.lcore => Way::Leave(place.owner as u8),
        Some(place) => match deliver_reserved(place, datagram, from.number(), shard, around) {
            Ok(()) => Way::Done,
            Err(reason) => Way::Drop(reason),
        },
    }
}

/// A packet whose invariant CRC the lcore that handed it over has verified.
pub(super) fn deliver_verified(
    mbuf: &Mbuf,
    from: &From<'_>,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Result<(), DropReason> {
    let Frame::Roce(datagram) = Frame::parse(mbuf.as_slice())? else {
        return Err(DropReason::Malformed);
    };
    let bth = bth_of(&datagram)?;
    if bth.dest_qpn == Qpn::MULTICAST {
        return group::deliver(&datagram, from, shard, around);
    }
    // The QP may be gone, or its number be another QP's, since.
    let place = from.finder.find(bth.dest_qpn).ok_or(DropReason::UnknownQpn)?;
    let packet = match Packet::parse(datagram.transport) {
        Err(ParseError::ReservedOpcode) => {
            return deliver_reserved(place, &datagram, from.number(), shard, around);
        }
        packet => packet?,
    };
    let Datagram { src, dst, l3, .. } = datagram;
    let inbound = Inbound { src, dst, port: from.number(), l3, packet };
    deliver(place, bth.dest_qpn, &inbound, shard, around)
}

/// The QP is of this lcore: the core takes the packet, and may want to answer.
#[inline]
pub(super) fn deliver(
    place: Place,
    qpn: Qpn,
    inbound: &Inbound<'_>,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Result<(), DropReason> {
    let now = around.now;
    let operation = inbound.packet.op.operation;
    let result = shard.input(place.index, around, |qp, feeds, env| {
        check_place(qp, qpn)?;
        // A packet consumes one receive at most. The oldest may be in use by a message.
        let may_consume = matches!(operation, Operation::Send | Operation::Write);
        if may_consume && qp.recv_wrs() <= 1 && !feeds.is_rq_empty() {
            feeds.feed_rq(qp, env);
        }
        qp.handle_packet(now, inbound, env)
    });
    shard.activate(place.index, around.lanes);
    result.unwrap_or(Err(DropReason::UnknownQpn))
}

//= check E7 — the QP's service decides whether a reserved opcode is answered
#[cold]
fn deliver_reserved(
    place: Place,
    datagram: &Datagram<'_>,
    port: u8,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Result<(), DropReason> {
    let bth = bth_of(datagram)?;
    let now = around.now;
    let result = shard.input(place.index, around, |qp, _, env| {
        check_place(qp, bth.dest_qpn)?;
        qp.handle_reserved_opcode(now, datagram.src, datagram.dst, port, &bth, env)
    });
    shard.activate(place.index, around.lanes);
    result.unwrap_or(Err(DropReason::UnknownQpn))
}

/// Is this the QP that the packet is for?
#[inline]
fn check_place(qp: &Qp, qpn: Qpn) -> Result<(), DropReason> {
    if qp.qpn() == qpn { Ok(()) } else { Err(DropReason::UnknownQpn) }
}

fn bth_of(datagram: &Datagram<'_>) -> Result<Bth, ParseError> {
    Bth::parse(datagram.transport.first_chunk().ok_or(ParseError::Truncated)?)
}
