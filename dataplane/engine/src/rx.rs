//! Burst in: each received frame goes to a QP of this lcore, to another lcore, to the control
//! plane, or is dropped for a counted reason.
//!
//! ```text
//!   rx_burst ─▶ Frame ─▶ ours? ─▶ ICRC ─▶ Packet ─▶ QPN ─▶ Qp::handle_packet
//!                 │                                  ├───▶ the owner's hand-over queue
//!                 │                                  ├───▶ a group's QPs ([`group`])
//!                 │                                  └───▶ QP 1: the control plane's other queue
//!                 └ not RoCEv2 ─▶ the control plane's queue
//! ```
//!
//! Frames that this lcore has sent to one of the device's own addresses are received first, by the
//! same steps ([`looped`]).
//!
//! Read first: IBA 9.6; Annex A17 for what RoCEv2 changes.
//!
//! Invariants
//! - Nothing is decided from a packet's bytes before its invariant CRC is verified; before that
//!   they only choose what to prefetch ([`ahead`]) and which frame to take first ([`order`]). A
//!   packet that another lcore handed over was verified by that lcore. A looped packet never left
//!   the host and is not verified.
//! - Each early exit has a [`DropReason`], which is counted. The lcore that drops a frame frees it;
//!   all frames of a burst are freed at once.
//!
//! Not here: checks of the source address, the QP's state and its P_Key (`Qp::handle_packet`).

mod ahead;
mod deliver;
mod group;
mod looped;
mod order;

use crate::config::{MAX_LCORES, PortAddresses};
use crate::counters::{CounterBlock, EngineCounter};
use crate::mbuf::{BATCH, Mbuf, MbufBatch};
use crate::shard::{Around, Shard};
use crate::tx::Lane;
use ahead::Ahead;
use deliver::{deliver, deliver_verified, sort_reserved};
use std::sync::Arc;
use uroce_shared::copy::prefetch::prefetch_read;
use uroce_shared::copy::sum::{LEAST, summed};
use uroce_shared::sync::ArrayQueue;
use uroce_shared::table::qp_table::{Place, QpFinder, QpTable};
use uroce_shared::wake::bell::Bell;
use uroce_shared::wake::waker::Waker;
use uroce_transport::{DropReason, Inbound};
use uroce_wire::{Bth, Datagram, Frame, OuterSums, Packet, ParseError, Qpn, Service};

/// Most bursts that are taken from one port in one turn; further frames wait for the next turn.
/// Packets are acknowledged at the end of a turn, so a peer's window should be larger than what one
/// turn takes, or the two sides wait for each other.
const BURSTS: usize = 2;
/// Capacity of an lcore's hand-over queue, in packets.
const HAND_OVER: usize = 1024;
/// How many frames ahead of the current one a frame's headers are prefetched (the sender's core may
/// still hold them), and how many bytes of headers at most.
const HEADERS_AHEAD: usize = 12;
const HEADERS: usize = 128;
/// How many frames ahead the rest of a frame is prefetched, and the fewest bytes of a frame for
/// which summing takes long enough to prefetch meanwhile.
const REST_AHEAD: usize = 2;
const LARGE: usize = HEADERS + LEAST;
/// Capacity, in frames, of each of the two queues to the control plane. The queues are separate, so
/// that neither kind of frame takes the other's room.
const SLOW_PATH: usize = 256;

/// A received frame that is not RoCEv2: ARP, neighbour discovery, ICMP …
#[derive(Debug)]
pub struct SlowFrame {
    /// The port that received the frame, counted from 1.
    pub port: u8,
    /// The frame.
    pub mbuf: Mbuf,
}

/// A received packet to QP 1, the general services interface: a management datagram.
///
/// It is RoCEv2 to an address of the port, its invariant CRC is verified, and its service is UD.
#[derive(Debug)]
pub struct GsiFrame {
    /// The port that received the packet, counted from 1.
    pub port: u8,
    /// The whole frame.
    pub mbuf: Mbuf,
}

/// The queues through which packets leave the lcore that received them.
#[derive(Debug)]
pub(crate) struct Exits {
    /// One queue per lcore: verified packets for its QPs, each with the port that received it, from
    /// 0.
    hand_over: Box<[ArrayQueue<(usize, Mbuf)>]>,
    /// One bell per lcore, rung after a packet was put into its queue.
    bells: Box<[Arc<Bell>]>,
    /// Frames for the control plane.
    pub(crate) slow_path: ArrayQueue<SlowFrame>,
    /// Packets to QP 1 for the control plane.
    pub(crate) gsi: ArrayQueue<GsiFrame>,
    /// Wakes the control plane for either queue.
    pub(crate) waker: Arc<Waker>,
}

impl Exits {
    /// Makes the queues of an engine that has one lcore per bell.
    pub(crate) fn new(bells: Box<[Arc<Bell>]>, waker: Arc<Waker>) -> Exits {
        // A single lcore never hands over.
        let depth = if bells.len() > 1 { HAND_OVER } else { 1 };
        Exits {
            hand_over: (0..bells.len()).map(|_| ArrayQueue::new(depth)).collect(),
            slow_path: ArrayQueue::new(SLOW_PATH),
            gsi: ArrayQueue::new(SLOW_PATH),
            bells,
            waker,
        }
    }
}

/// The receiving half of an lcore.
#[derive(Debug)]
pub(crate) struct Receiver {
    lcore: usize,
    finder: QpFinder,
    ahead: Ahead,
    sums: OuterSums,
    exits: Arc<Exits>,
    /// The frames that are being handled.
    burst: MbufBatch,
    /// For each port, the frames that follow `burst`, taken early to look ahead into them. They may
    /// be handled in the lcore's next turn.
    next: Box<[MbufBatch]>,
    /// Frames that are done with and are freed together.
    done: MbufBatch,
}

/// Frames in the order of arrival: a burst, and the frames taken after it.
#[derive(Clone, Copy)]
struct Frames<'a> {
    burst: &'a [Mbuf],
    next: &'a [Mbuf],
}

impl<'a> Frames<'a> {
    /// Returns the frame at place `at`, counted from the burst's first frame.
    #[inline]
    fn get(self, at: usize) -> Option<&'a Mbuf> {
        self.burst.get(at).or_else(|| self.next.get(at - self.burst.len()))
    }

    /// Prefetches the headers of the frame at place `at`.
    #[inline]
    fn prefetch_headers(self, at: usize) {
        if let Some(mbuf) = self.get(at) {
            prefetch_read(mbuf.as_slice().as_ptr(), HEADERS.min(mbuf.len()));
        }
    }
}

/// A frame's destination, as [`sort`] decides it.
enum Way {
    /// The frame has been handled.
    Done,
    Drop(DropReason),
    /// The frame leaves for the lcore of this number, or, with [`SLOW_PATH_WAY`] or [`GSI_WAY`],
    /// for a queue of the control plane.
    Leave(u8),
    /// The frame goes to all QPs of a multicast group.
    Group,
}

/// The port that received a frame, and the lcore that sorts it.
struct From<'a> {
    /// Counted from 0.
    port: usize,
    lcore: usize,
    finder: &'a QpFinder,
}

/// Destination value for the control plane's slow-path queue; above any lcore number.
const SLOW_PATH_WAY: u8 = u8::MAX;
/// Destination value for the control plane's GSI queue; above any lcore number.
const GSI_WAY: u8 = u8::MAX - 1;
const _: () = assert!(MAX_LCORES < GSI_WAY as usize && BATCH <= u64::BITS as usize);

impl From<'_> {
    /// Returns the port's number, counted from 1.
    fn number(&self) -> u8 {
        const _: () = assert!(crate::config::MAX_PORTS <= u8::MAX as usize);
        self.port as u8 + 1
    }

    /// Returns the slot of the QP of number `qpn` if this lcore owns that QP.
    fn find_own(&self, qpn: Qpn) -> Option<u32> {
        let place = self.finder.find(qpn).filter(|place| place.owner == self.lcore)?;
        Some(place.index)
    }
}

impl Receiver {
    /// Makes the receiver of lcore number `lcore`, which has `ports` ports.
    pub(crate) fn new(
        lcore: usize,
        ports: usize,
        table: Arc<QpTable>,
        exits: Arc<Exits>,
    ) -> Receiver {
        let (burst, done) = (MbufBatch::new(), MbufBatch::new());
        let next = (0..ports).map(|_| MbufBatch::new()).collect();
        let (finder, ahead, sums) = (QpFinder::new(table), Ahead::new(), OuterSums::new());
        Receiver { lcore, finder, ahead, sums, exits, burst, next, done }
    }

    /// Receives what has arrived at port `port` (counted from 0), looped frames first. Returns
    /// whether there was anything.
    pub(crate) fn receive(
        &mut self,
        port: usize,
        shard: &mut Shard,
        around: &mut Around<'_>,
    ) -> bool {
        let mut any = !around.lanes[port].looped.is_empty();
        if any {
            self.receive_looped(port, shard, around);
        }
        for _ in 0..BURSTS {
            let lane = &mut around.lanes[port];
            if self.next[port].is_empty() {
                take_burst(&mut self.burst, lane, shard);
            } else {
                std::mem::swap(&mut self.burst, &mut self.next[port]);
            }
            if self.burst.is_empty() {
                break;
            }
            any = true;
            let is_full = self.burst.room() == 0;
            if is_full && self.ahead.is_looking() {
                take_burst(&mut self.next[port], lane, shard);
            }
            if lane.is_cut() || lane.rx_loss.is_on() {
                lose(&mut self.burst, lane, shard);
            }
            self.sort_burst(port, shard, around);
            if !is_full {
                break;
            }
        }
        any
    }

    /// Receives the packets that other lcores have handed over. Returns whether there were any.
    pub(crate) fn take_over(&mut self, shard: &mut Shard, around: &mut Around<'_>) -> bool {
        let queue = &self.exits.hand_over[self.lcore];
        if queue.is_empty() {
            return false;
        }
        for _ in 0..BURSTS {
            while self.done.room() > 0 {
                let Some((port, mbuf)) = queue.pop() else { break };
                let from = From { port, lcore: self.lcore, finder: &self.finder };
                if let Err(reason) = deliver_verified(&mbuf, &from, shard, around) {
                    shard.counters.count_drop(reason);
                }
                // `push` cannot fail: the loop checks for room.
                let _ = self.done.push(mbuf);
            }
            self.done.clear();
        }
        true
    }

    fn sort_burst(&mut self, port: usize, shard: &mut Shard, around: &mut Around<'_>) {
        // Bit *n*: frame *n* of the burst leaves the lcore, to `ways[n]`. Most often no bit is set.
        let mut leaving = 0u64;
        let mut ways = [0; BATCH];
        let frames = Frames { burst: self.burst.as_slice(), next: self.next[port].as_slice() };
        (0..HEADERS_AHEAD).for_each(|at| frames.prefetch_headers(at));
        order::begin(self.burst.as_mut_slice());
        for (at, way_of) in ways.iter_mut().enumerate().take(self.burst.len()) {
            order::come_to(at, self.burst.as_mut_slice());
            let frames = Frames { burst: self.burst.as_slice(), next: self.next[port].as_slice() };
            let mbuf = &frames.burst[at];
            frames.prefetch_headers(at + HEADERS_AHEAD);
            let from = From { port, lcore: self.lcore, finder: &self.finder };
            self.ahead.come_to(at, frames, &from, shard, around.memory);
            let mut ahead = frames.get(at + REST_AHEAD).map_or(&[][..], rest_of);
            if mbuf.len() < LARGE {
                prefetch_read(ahead.as_ptr(), ahead.len());
                ahead = &[];
            }
            match sort(mbuf, ahead, &mut self.sums, &from, shard, around) {
                Way::Done => {}
                Way::Drop(reason) => shard.counters.count_drop(reason),
                Way::Group => group::spread(mbuf, &from, &self.exits, shard, around),
                Way::Leave(way) => {
                    leaving |= 1 << at;
                    *way_of = way;
                }
            }
        }
        self.ahead.end(self.burst.as_slice().last().map(Mbuf::as_slice));
        if leaving != 0 {
            self.send_off(port, leaving, &ways, shard);
        }
        self.burst.clear();
    }

    /// Moves the frames that leave out of the burst, to another lcore or to the control plane.
    #[cold]
    fn send_off(&mut self, port: usize, leaving: u64, ways: &[u8; BATCH], shard: &Shard) {
        let mut staying = MbufBatch::new();
        for (at, mbuf) in self.burst.drain().enumerate() {
            let rest = match ways[at] {
                _ if leaving >> at & 1 == 0 => Some(mbuf),
                SLOW_PATH_WAY => to_slow_path(&self.exits, port, mbuf, shard),
                GSI_WAY => to_gsi(&self.exits, port, mbuf, shard),
                owner => hand_over(&self.exits, usize::from(owner), port, mbuf, shard),
            };
            if let Some(mbuf) = rest {
                // `push` cannot fail: both batches have the same capacity.
                let _ = staying.push(mbuf);
            }
        }
        self.burst = staying;
        if ways.iter().any(|&way| way >= GSI_WAY) {
            self.exits.waker.wake();
        }
    }
}

/// Takes the next frames from a port.
#[inline]
fn take_burst(burst: &mut MbufBatch, lane: &mut Lane, shard: &Shard) {
    lane.queue.rx_burst(burst);
    if lane.queue.multi_segment_drops() != lane.not_linear {
        count_not_linear(lane, &shard.counters);
    }
}

/// Applies injected loss to a burst; drops all of it if the link is set down.
#[cold]
fn lose(burst: &mut MbufBatch, lane: &mut Lane, shard: &Shard) {
    if lane.is_cut() {
        shard.counters.add(EngineCounter::RxLinkDown, burst.len() as u64);
        return burst.clear();
    }
    let mut kept = MbufBatch::new();
    for mbuf in burst.drain() {
        let is_roce = matches!(Frame::parse(mbuf.as_slice()), Ok(Frame::Roce(_)));
        if is_roce && lane.rx_loss.loses() {
            shard.counters.count(EngineCounter::RxLost);
        } else {
            let _ = kept.push(mbuf);
        }
    }
    *burst = kept;
}

/// Returns the bytes of a frame after its headers.
#[inline]
fn rest_of(mbuf: &Mbuf) -> &[u8] {
    mbuf.as_slice().get(HEADERS..).unwrap_or_default()
}

/// Decides the destination of a frame, and delivers it if its QP is this lcore's. `ahead` is
/// prefetched while the checksum of a large frame is computed.
#[inline]
fn sort(
    mbuf: &Mbuf,
    ahead: &[u8],
    sums: &mut OuterSums,
    from: &From<'_>,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Way {
    let bytes = mbuf.as_slice();
    let addresses = &around.lanes[from.port].addresses;
    let datagram = match Frame::parse(bytes) {
        Ok(Frame::Roce(datagram)) => datagram,
        Ok(Frame::Other(_)) if is_for_host(bytes, addresses) => return Way::Leave(SLOW_PATH_WAY),
        Ok(Frame::Other(_)) => return Way::Drop(DropReason::NotForUs),
        Err(error) => return Way::Drop(error.into()),
    };
    let is_ours = is_ours(&datagram, addresses);
    if !is_ours && !group::is_ours(&datagram, addresses, around) {
        return Way::Drop(DropReason::NotForUs);
    }
    //= check E14 — a packet with a wrong invariant CRC goes no further, and gets no answer
    let sum = |covered: &_| sums.of_with(covered, |sum, bytes| summed(bytes, sum, ahead));
    if !datagram.icrc_ok_by(sum) {
        return Way::Drop(ParseError::Icrc.into());
    }
    let packet = match Packet::parse(datagram.transport) {
        Ok(packet) => packet,
        Err(ParseError::ReservedOpcode) if is_ours => {
            count_packet(bytes, &shard.counters);
            return sort_reserved(&datagram, from, shard, around);
        }
        Err(error) => return Way::Drop(error.into()),
    };
    count_packet(bytes, &shard.counters);
    if !is_ours {
        return Way::Group;
    }
    //= check E10 — a number that no QP has: dropped, without an answer
    match from.finder.find(packet.bth.dest_qpn) {
        None => no_qp(&packet),
        Some(place) if place.owner != from.lcore => Way::Leave(place.owner as u8),
        Some(place) => {
            let Datagram { src, dst, l3, .. } = datagram;
            let inbound = Inbound { src, dst, port: from.number(), l3, packet };
            let qpn = inbound.packet.bth.dest_qpn;
            match deliver(place, qpn, &inbound, shard, around) {
                Ok(()) => Way::Done,
                Err(reason) => Way::Drop(reason),
            }
        }
    }
}

/// Decides about a packet to a QPN that no QP of the engine has. QP 1 is the control plane's.
#[cold]
fn no_qp(packet: &Packet<'_>) -> Way {
    if packet.bth.dest_qpn != Qpn::GSI {
        return Way::Drop(DropReason::UnknownQpn);
    }
    match packet.op.service {
        Service::Ud => Way::Leave(GSI_WAY),
        _ => Way::Drop(DropReason::WrongService),
    }
}

#[inline]
fn count_packet(frame: &[u8], counters: &CounterBlock) {
    counters.count(EngineCounter::RxPackets);
    counters.add(EngineCounter::RxBytes, frame.len() as u64);
}

fn hand_over(exits: &Exits, owner: usize, port: usize, mbuf: Mbuf, shard: &Shard) -> Option<Mbuf> {
    let Some(queue) = exits.hand_over.get(owner) else { return Some(mbuf) };
    match queue.push((port, mbuf)) {
        Ok(()) => {
            exits.bells[owner].ring();
            shard.counters.count(EngineCounter::HandedOver);
            None
        }
        Err((_, mbuf)) => {
            shard.counters.count_drop(DropReason::HandOverFull);
            Some(mbuf)
        }
    }
}

fn to_slow_path(exits: &Exits, port: usize, mbuf: Mbuf, shard: &Shard) -> Option<Mbuf> {
    // A device has at most 255 ports.
    let port = (port + 1) as u8;
    match exits.slow_path.push(SlowFrame { port, mbuf }) {
        Ok(()) => {
            shard.counters.count(EngineCounter::RxOther);
            None
        }
        Err(frame) => {
            shard.counters.count_drop(DropReason::SlowPathFull);
            Some(frame.mbuf)
        }
    }
}

//= check J13 — what the control plane does not take in time is dropped, and nothing else
fn to_gsi(exits: &Exits, port: usize, mbuf: Mbuf, shard: &Shard) -> Option<Mbuf> {
    // A device has at most 255 ports.
    let port = (port + 1) as u8;
    match exits.gsi.push(GsiFrame { port, mbuf }) {
        Ok(()) => {
            shard.counters.count(EngineCounter::RxGsi);
            None
        }
        Err(frame) => {
            shard.counters.count_drop(DropReason::GsiFull);
            Some(frame.mbuf)
        }
    }
}

/// Counts the multi-segment frames that the port itself has dropped since the last call: the port
/// hands over single segments only.
#[cold]
fn count_not_linear(lane: &mut Lane, counters: &CounterBlock) {
    let drops = lane.queue.multi_segment_drops();
    for _ in lane.not_linear..drops {
        counters.count_drop(DropReason::NotLinear);
    }
    lane.not_linear = drops;
}

/// Returns whether a RoCEv2 datagram is addressed to this port. The port is promiscuous, so it may
/// also receive frames for others.
#[inline]
fn is_ours(datagram: &Datagram<'_>, addresses: &PortAddresses) -> bool {
    datagram.dst_mac == addresses.mac
        && is_in_vlan(datagram, addresses)
        && addresses.gids.contains(&datagram.dst)
}

#[inline]
fn is_in_vlan(datagram: &Datagram<'_>, addresses: &PortAddresses) -> bool {
    // A tag with VLAN 0 carries a priority only.
    let vlan = datagram.vlan.map(|vlan| vlan.vid).filter(|&vid| vid != 0);
    vlan == addresses.vlan
}

/// Returns whether a non-RoCEv2 frame is for this host: sent to its Ethernet address or to a
/// multicast or broadcast address.
fn is_for_host(frame: &[u8], addresses: &PortAddresses) -> bool {
    let is_multicast = frame.first().is_some_and(|byte| byte & 1 == 1);
    is_multicast || frame.starts_with(&addresses.mac.0)
}
