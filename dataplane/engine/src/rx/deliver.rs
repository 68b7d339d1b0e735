//! Delivers a verified packet to the QP that its QP number names.
//!
//! Invariants
//! - A packet reaches a QP only by the QP's own number, at the QP's own port, on its owner lcore.
//!
//! Not here: everything before the QPN is looked up ([`super`]), groups ([`super::group`]).

use super::{
    Around, Bth, Datagram, DropReason, Frame, From, Inbound, Mbuf, Packet, ParseError, Place, Qpn,
    Shard, Way, group,
};
use uroce_transport::Qp;
use uroce_wire::Operation;

/// Decides about a packet with a reserved opcode, and delivers it if this lcore owns the QP: an RC
/// QP answers it.
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

/// Delivers a packet that another lcore has verified and handed over.
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
    // Since then the QP may have gone, and its number may belong to another QP.
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

/// Delivers a packet to a QP of this lcore. The QP may have an answer to send, so it is scheduled.
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
        // A packet consumes at most one receive. The oldest may be in use by a message.
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

/// Checks that the QP has the number that the packet is for: the slot may be another QP's by now.
#[inline]
fn check_place(qp: &Qp, qpn: Qpn) -> Result<(), DropReason> {
    if qp.qpn() == qpn { Ok(()) } else { Err(DropReason::UnknownQpn) }
}

fn bth_of(datagram: &Datagram<'_>) -> Result<Bth, ParseError> {
    Bth::parse(datagram.transport.first_chunk().ok_or(ParseError::Truncated)?)
}
