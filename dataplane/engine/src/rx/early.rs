//! Gives a QP the packets that arrived before their turn (a PSN after the expected one), once all
//! packets before them have come.
//!
//! Not here: keeping the packets until then ([`crate::qp::held`]).

use super::deliver::may_consume;
use crate::dpdk::mbuf::Mbuf;
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_transport::DropReason;
use uroce_wire::{Frame, Packet};

/// Gives the QP in slot `slot` its held packets that are due, each as a separate input. If a packet
/// is no longer kept, the QP treats it as lost.
#[cold]
pub(super) fn give_due(slot: u32, shard: &mut Shard, turn: &mut TurnContext<'_>) {
    while let Some(psn) = shard.get(slot).and_then(|context| context.qp.next_held()) {
        // The mbuf is freed at the end of the loop's body.
        let mbuf = turn.held.take(slot, psn);
        let Some(Ok(packet)) = mbuf.as_ref().map(packet_of) else {
            shard.input(slot, turn, |qp, _, _| qp.lose_held(psn));
            continue;
        };
        if let Err(reason) = give(slot, &packet, shard, turn) {
            shard.counters.count_drop(reason);
        }
    }
}

fn give(
    slot: u32,
    packet: &Packet<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<(), DropReason> {
    let now = turn.now;
    let result = shard.input(slot, turn, |qp, feeds, env| {
        if may_consume(packet) && qp.recv_wrs() <= 1 && !feeds.is_rq_empty() {
            feeds.pull_receives(qp, env);
        }
        qp.handle_held(now, packet, env)
    });
    result.unwrap_or(Err(DropReason::UnknownQpn))
}

/// Parses a packet that was verified when it arrived.
fn packet_of(mbuf: &Mbuf) -> Result<Packet<'_>, DropReason> {
    match Frame::parse(mbuf.as_slice())? {
        Frame::Roce(datagram) => Ok(Packet::parse(datagram.transport)?),
        Frame::Other(_) => Err(DropReason::Malformed),
    }
}
