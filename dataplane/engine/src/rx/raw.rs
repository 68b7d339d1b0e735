//! Frames to raw QPs, as the flows say.
//!
//! ```text
//!   not RoCEv2 of this host ─▶ or_else ─▶ Destination::Raw ─▶ spread ─┬▶ QPs of this lcore
//!                                  └ otherwise: the control plane …   └▶ copies to other lcores
//!   copies of what raw QPs send ─▶ hear ─▶ the same, except the sender's domain
//!   port with a sniffer: received, and copies of sent ─▶ sniff ─▶ the same
//! ```
//!
//! Invariants
//! - RoCEv2 to an address of the port is never given to a raw QP, except copies to a sniffer.
//! - What the host needs reaches it, unless a rule takes it that names its kind.
//! - If one QP refuses the frame, the others still receive it. Each refusal is counted.
//! - Nothing here is reached by a packet for a QP of this host, unless its port has a sniffer.

use super::destination::{Arrival, Destination};
use super::exits::{Exits, Handed, Purpose};
use super::group;
use crate::counters::EngineCounter;
use crate::dpdk::mbuf::Mbuf;
use crate::lane::binding::PortAddresses;
use crate::limits::MAX_LCORES;
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_shared::table::flows::{Flow, Flows};
use uroce_transport::{DropReason, InboundFrame, Pd};
use uroce_wire::Frame;
use uroce_wire::flow::FlowFields;

/// Returns the destination of a frame that is no packet for a QP of this host: its raw QPs if flows
/// take it, else `otherwise`.
#[cold]
#[inline(never)]
pub(super) fn or_else(
    otherwise: Destination,
    frame: &[u8],
    arrival: &Arrival<'_>,
    turn: &TurnContext<'_>,
) -> Destination {
    let Some(flows) = turn.tables.flows.get(turn.memory.turn()) else { return otherwise };
    let addresses = &turn.lanes[arrival.port].addresses;
    let Some(fields) = fields_of(frame, addresses) else { return otherwise };
    let is_needed = addresses.needs(&fields);
    // Those that share a frame have equal rules, so one of them tells.
    match flows.takers(arrival.port, &fields, is_needed, None).next() {
        Some(flow) if is_needed && !flow.names_kind_of(&fields) => match otherwise {
            Destination::SlowPath => Destination::RawAndHost,
            _ => Destination::Raw,
        },
        Some(_) => Destination::Raw,
        None => otherwise,
    }
}

/// Reads the fields of a frame that flows may take.
fn fields_of(frame: &[u8], addresses: &PortAddresses) -> Option<FlowFields> {
    FlowFields::parse(frame).filter(|fields| !addresses.has_roce(fields))
}

/// Gives a frame to the raw QPs that take it, on this lcore and on others.
#[cold]
pub(super) fn spread(
    mbuf: &Mbuf,
    arrival: &Arrival<'_>,
    exits: &Exits,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) {
    shard.counters.count(EngineCounter::RxRaw);
    share(Purpose::Raw, mbuf, arrival, exits, shard, turn);
    give(Purpose::Raw, mbuf.as_slice(), arrival, shard, turn);
}

/// Gives the copy of a frame that a raw QP of this port has sent to those of other domains.
#[cold]
pub(super) fn hear(
    mbuf: &Mbuf,
    sender: Pd,
    arrival: &Arrival<'_>,
    exits: &Exits,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) {
    let addresses = &turn.lanes[arrival.port].addresses;
    if let Ok(Frame::Roce(datagram)) = Frame::parse(mbuf.as_slice())
        && group::is_ours(&datagram, addresses, turn)
    {
        return;
    }
    let purpose = Purpose::Heard(sender.into());
    shard.counters.count(EngineCounter::RxRaw);
    share(purpose, mbuf, arrival, exits, shard, turn);
    give(purpose, mbuf.as_slice(), arrival, shard, turn);
}

/// Gives the port's sniffers the frames that it has sent since the last turn, and those of a burst.
#[cold]
pub(super) fn sniff(
    burst: &[Mbuf],
    arrival: &Arrival<'_>,
    exits: &Exits,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) {
    // The control plane says so too, if this lcore has answered it.
    let flows = turn.tables.flows.get(turn.memory.turn());
    if flows.is_none_or(|flows| flows.sniffers(arrival.port).next().is_none()) {
        return turn.lanes[arrival.port].end_sniffing();
    }
    let give_all = |frames: &[Mbuf], shard: &mut Shard, turn: &mut TurnContext<'_>| {
        for mbuf in frames {
            share(Purpose::Sniffed, mbuf, arrival, exits, shard, turn);
            give(Purpose::Sniffed, mbuf.as_slice(), arrival, shard, turn);
        }
    };
    loop {
        let sent = turn.lanes[arrival.port].take_sniffed(&shard.counters);
        if sent.is_empty() {
            break;
        }
        give_all(sent.as_slice(), shard, turn);
    }
    // Nothing comes in by a link that is set down.
    if !turn.lanes[arrival.port].is_cut() {
        give_all(burst, shard, turn);
    }
}

/// Gives this lcore's QPs a frame that another lcore has handed over.
#[cold]
pub(super) fn take_over(
    purpose: Purpose,
    mbuf: &Mbuf,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) {
    give(purpose, mbuf.as_slice(), arrival, shard, turn);
}

/// Hands copies of a frame over to the other lcores that have QPs for it.
fn share(
    purpose: Purpose,
    mbuf: &Mbuf,
    arrival: &Arrival<'_>,
    exits: &Exits,
    shard: &Shard,
    turn: &mut TurnContext<'_>,
) {
    const { assert!(MAX_LCORES <= u64::BITS as usize) };
    let (memory, tables) = (turn.memory, turn.tables);
    let Some(flows) = tables.flows.get(memory.turn()) else { return };
    let addresses = &turn.lanes[arrival.port].addresses;
    let owners = chosen(purpose, flows, mbuf.as_slice(), arrival.port, addresses)
        .fold(0u64, |owners, flow| owners | 1 << flow.place.owner);
    for owner in (0..MAX_LCORES).filter(|&lcore| owners >> lcore & 1 == 1) {
        if owner == arrival.lcore {
            continue;
        }
        let lane = &mut turn.lanes[arrival.port];
        // What a flow takes from the host is at no other place; sniffers and listeners get copies
        // of what arrives elsewhere.
        let copy = match purpose {
            Purpose::Packet | Purpose::Raw => lane.copy_of(mbuf),
            Purpose::Heard(_) | Purpose::Sniffed => lane.spare_copy_of(mbuf),
        };
        let is_shared = copy.map(|copy| {
            let handed = Handed::new(arrival.port, purpose, copy);
            exits.share(owner, handed, &shard.counters)
        });
        match (is_shared, purpose) {
            (Some(true), _) => {}
            (_, Purpose::Sniffed) => shard.counters.count(EngineCounter::SniffMissed),
            (Some(false), _) => shard.counters.count_drop(DropReason::HandOverFull),
            (None, _) => shard.counters.count_drop(DropReason::NoBuffer),
        }
    }
}

/// Returns the flows that get a frame.
fn chosen<'f>(
    purpose: Purpose,
    flows: &'f Flows,
    frame: &[u8],
    port: usize,
    addresses: &PortAddresses,
) -> impl Iterator<Item = &'f Flow> + use<'f> {
    let is_sniffed = purpose == Purpose::Sniffed;
    let sniffers = is_sniffed.then(|| flows.sniffers(port));
    let sender = match purpose {
        Purpose::Heard(sender) => Some(sender.into()),
        Purpose::Packet | Purpose::Raw | Purpose::Sniffed => None,
    };
    let fields = fields_of(frame, addresses).filter(|_| !is_sniffed);
    let takers = fields.map(|fields| flows.takers(port, &fields, addresses.needs(&fields), sender));
    sniffers.into_iter().flatten().chain(takers.into_iter().flatten())
}

/// Gives a frame to those QPs of this lcore that are to get it.
fn give(
    purpose: Purpose,
    bytes: &[u8],
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) {
    let (memory, tables) = (turn.memory, turn.tables);
    let Some(flows) = tables.flows.get(memory.turn()) else { return };
    let ipv6 = FlowFields::parse(bytes).and_then(|fields| fields.ipv6_packet(bytes));
    let frame = InboundFrame { port: arrival.number(), bytes, ipv6 };
    let addresses = &turn.lanes[arrival.port].addresses;
    let flows = chosen(purpose, flows, bytes, arrival.port, addresses);
    for flow in flows.filter(|flow| flow.place.owner == arrival.lcore) {
        if let Err(reason) = deliver(flow, &frame, shard, turn) {
            shard.counters.count_drop(reason);
        }
    }
}

fn deliver(
    flow: &Flow,
    frame: &InboundFrame<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Result<(), DropReason> {
    let now = turn.now;
    let result = shard.input(flow.place.index, turn, |qp, feeds, env| {
        // The slot may hold another QP by now.
        if qp.qpn() != flow.qpn {
            return Err(DropReason::UnknownQpn);
        }
        env.path.traffic.rx_packets += 1;
        env.path.traffic.rx_bytes += frame.bytes.len() as u64;
        if qp.recv_wrs() <= 1 && !feeds.is_rq_empty() {
            feeds.pull_receives(qp, env);
        }
        qp.handle_frame(now, frame, env)
    });
    result.unwrap_or(Err(DropReason::UnknownQpn))
}
