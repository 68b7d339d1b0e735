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
//! What this lcore has sent to an address of the device's own comes first, and goes the same way
//! ([`looped`]).
//!
//! Invariants
//! - No byte of a packet is believed before its invariant CRC is verified: until then it is only
//!   guessed from them what to fetch ([`ahead`]). A packet that was handed over has been verified by
//!   who handed it over, and one that has not left has nothing to be verified.
//! - An early exit has a [`DropReason`], which is counted. A frame is freed by who drops it, all of
//!   a burst at once.
//!
//! Not here: source address, state, P_Key of the QP (`Qp::handle_packet`).

mod ahead;
mod deliver;
mod group;
mod looped;

use crate::bell::Bell;
use crate::config::{MAX_LCORES, PortAddresses};
use crate::counters::{CounterBlock, EngineCounter};
use crate::mbuf::{BATCH, Mbuf, MbufBatch};
use crate::prefetch::prefetch_read;
use crate::qp_table::{Place, QpFinder, QpTable};
use crate::shard::{Around, Shard};
use crate::sum::{LEAST, summed};
use crate::sync::ArrayQueue;
use crate::tx::Lane;
use crate::waker::Waker;
use ahead::Ahead;
use deliver::{deliver, deliver_verified, sort_reserved};
use std::sync::Arc;
use uroce_transport::{DropReason, Inbound};
use uroce_wire::{Bth, Datagram, Frame, OuterSums, Packet, ParseError, Qpn, Service};

/// Bursts of one port in one turn; a port that has more waits for the next. Packets are acknowledged
/// when a turn ends: a peer's window should be more than a turn takes in, or each waits for the other.
const BURSTS: usize = 2;
/// Packets that may wait for an lcore to which they were handed over.
const HAND_OVER: usize = 1024;
/// How many frames ahead the headers of one are fetched, which the sender's core still has, and how
/// many bytes those take at most.
const HEADERS_AHEAD: usize = 12;
const HEADERS: usize = 128;
/// How many frames ahead the rest is, and the fewest bytes of a frame that takes long enough for it.
const REST_AHEAD: usize = 2;
const LARGE: usize = HEADERS + LEAST;
/// Frames that may wait for the control plane, and as many to QP 1: neither kind is in the
/// other's way.
const SLOW_PATH: usize = 256;

/// A received frame that is not RoCEv2: ARP, neighbour discovery, ICMP …
#[derive(Debug)]
pub struct SlowFrame {
    /// The port it came from, counted from 1.
    pub port: u8,
    /// The frame.
    pub mbuf: Mbuf,
}

/// A received packet to QP 1, the general services interface: a management datagram.
///
/// It is RoCEv2 to an address of the port, its invariant CRC is verified, and it is of UD's service.
#[derive(Debug)]
pub struct GsiFrame {
    /// The port it came from, counted from 1.
    pub port: u8,
    /// The whole frame.
    pub mbuf: Mbuf,
}

/// The queues through which packets leave the lcore that received them.
#[derive(Debug)]
pub(crate) struct Exits {
    /// One per lcore: packets for its QPs, verified, and the port each came from, from 0.
    hand_over: Box<[ArrayQueue<(usize, Mbuf)>]>,
    /// One per lcore, to wake it for that.
    bells: Box<[Arc<Bell>]>,
    /// Frames for the control plane.
    pub(crate) slow_path: ArrayQueue<SlowFrame>,
    /// Packets to QP 1 for the control plane.
    pub(crate) gsi: ArrayQueue<GsiFrame>,
    /// Wakes it for either.
    pub(crate) waker: Arc<Waker>,
}

impl Exits {
    /// Of the lcores that have these bells.
    pub(crate) fn new(bells: Box<[Arc<Bell>]>, waker: Arc<Waker>) -> Exits {
        // One lcore has nobody to hand over to.
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
    /// The frames that are being dealt with.
    burst: MbufBatch,
    /// Of each port, those that come after them, taken already to look ahead into: their turn may
    /// be the lcore's next one.
    next: Box<[MbufBatch]>,
    /// Frames that are dealt with, to be freed together.
    done: MbufBatch,
}

/// Frames in the order in which they came: a burst, and what has been taken of those after it.
#[derive(Clone, Copy)]
struct Frames<'a> {
    burst: &'a [Mbuf],
    next: &'a [Mbuf],
}

impl<'a> Frames<'a> {
    /// The frame at a place counted from the burst's first.
    #[inline]
    fn get(self, at: usize) -> Option<&'a Mbuf> {
        self.burst.get(at).or_else(|| self.next.get(at - self.burst.len()))
    }

    /// Fetches the headers of the frame at this place.
    #[inline]
    fn prefetch_headers(self, at: usize) {
        if let Some(mbuf) = self.get(at) {
            prefetch_read(mbuf.as_slice().as_ptr(), HEADERS.min(mbuf.len()));
        }
    }
}

/// Where a frame goes.
enum Way {
    /// It is dealt with.
    Done,
    Drop(DropReason),
    /// To the lcore of this number, or to the control plane by one of its queues.
    Leave(u8),
    /// To all QPs of a multicast group.
    Group,
}

/// Where a frame was received, and by whom it is sorted.
struct From<'a> {
    /// Counted from 0.
    port: usize,
    lcore: usize,
    finder: &'a QpFinder,
}

/// Above any lcore's number.
const SLOW_PATH_WAY: u8 = u8::MAX;
/// The same.
const GSI_WAY: u8 = u8::MAX - 1;
const _: () = assert!(MAX_LCORES < GSI_WAY as usize && BATCH <= u64::BITS as usize);

impl From<'_> {
    /// The port's number, from 1.
    fn number(&self) -> u8 {
        const _: () = assert!(crate::config::MAX_PORTS <= u8::MAX as usize);
        self.port as u8 + 1
    }

    /// The slot of the QP of this number, if that is an own one.
    fn find_own(&self, qpn: Qpn) -> Option<u32> {
        let place = self.finder.find(qpn).filter(|place| place.owner == self.lcore)?;
        Some(place.index)
    }
}

impl Receiver {
    /// Of an lcore that has so many ports.
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

    /// Takes what has come in at port `port`. Says whether anything had.
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

    /// Takes what other lcores have handed over. Says whether there was anything.
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
                // There is room.
                let _ = self.done.push(mbuf);
            }
            self.done.clear();
        }
        true
    }

    fn sort_burst(&mut self, port: usize, shard: &mut Shard, around: &mut Around<'_>) {
        // Which frames leave for somebody else, and where to; most often none.
        let mut leaving = 0u64;
        let mut ways = [0; BATCH];
        let frames = Frames { burst: self.burst.as_slice(), next: self.next[port].as_slice() };
        (0..HEADERS_AHEAD).for_each(|at| frames.prefetch_headers(at));
        for (at, mbuf) in frames.burst.iter().enumerate() {
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
                    ways[at] = way;
                }
            }
        }
        self.ahead.end(frames.burst.last().map(Mbuf::as_slice));
        if leaving != 0 {
            self.send_off(port, leaving, &ways, shard);
        }
        self.burst.clear();
    }

    /// Moves frames out of the burst, to another lcore or to the control plane.
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
                // Both batches have the same size.
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

/// Injected loss thins a burst out; a link that is down has no frames.
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

/// What follows a frame's headers.
#[inline]
fn rest_of(mbuf: &Mbuf) -> &[u8] {
    mbuf.as_slice().get(HEADERS..).unwrap_or_default()
}

/// What a frame is, and whom it is for. `ahead` is fetched while a large one is summed.
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
    //= check E14 — a packet whose invariant CRC is wrong goes no further, and gets no answer
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

/// A packet to a number that no QP of the engine has: QP 1 is the control plane's.
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
    // At most 255 ports.
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
    // At most 255 ports.
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

/// The port drops these itself: it hands over single segments only.
#[cold]
fn count_not_linear(lane: &mut Lane, counters: &CounterBlock) {
    let drops = lane.queue.multi_segment_drops();
    for _ in lane.not_linear..drops {
        counters.count_drop(DropReason::NotLinear);
    }
    lane.not_linear = drops;
}

/// Is a RoCEv2 datagram addressed to this port? It may see others': it is promiscuous.
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

/// Is any other frame for this host: to its own Ethernet address or to many?
fn is_for_host(frame: &[u8], addresses: &PortAddresses) -> bool {
    let is_multicast = frame.first().is_some_and(|byte| byte & 1 == 1);
    is_multicast || frame.starts_with(&addresses.mac.0)
}
