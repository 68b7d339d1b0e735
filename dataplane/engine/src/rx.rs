//! Receive path: delivers each received frame to a QP of this lcore, passes it to another lcore or
//! to the control plane, or drops and counts it.
//!
//! ```text
//!   rx_burst ─▶ Frame ─▶ ours? ─▶ ICRC ─▶ Packet ─▶ QPN ─▶ Qp::handle_packet
//!                 │                                  │        └ held ─▶ given later ([`early`])
//!                 │                                  ├───▶ an EEC, for RD ([`datagram`])
//!                 │                                  ├───▶ the owner's hand-over queue
//!                 │                                  ├───▶ a group's QPs ([`group`])
//!                 │                                  └───▶ QP 1: the control plane's GSI queue
//!                 └ not RoCEv2 ─┬▶ raw QPs, if there are flows ([`raw`])
//!                               └▶ the control plane's slow-path queue
//! ```
//!
//! Looped frames are received first, by a shorter path without the ICRC check ([`looped`]).
//!
//! Read first: IBA 9.6; Annex A17 for what RoCEv2 changes.
//!
//! Invariants
//! - A packet from a port goes to no QP, no other lcore and no control-plane queue before its
//!   invariant CRC is verified, by the lcore that received it or by the port. Two kinds of frames
//!   are not verified: looped ones of QPs that are not raw, which never left the host, and
//!   forwarded ones ([`crate::lane::forward`]). What the frames of raw QPs contain is not verified.
//! - Before that, a packet's bytes decide only whether it is well formed, whether it is for this
//!   port or a group, which injected fault applies, what is prefetched ([`ahead`]) and which frame
//!   is taken first ([`order`]).
//! - Each dropped frame is counted, most by a [`DropReason`].
//! - The lcore that drops a frame frees it. The frames of a burst that neither leave the lcore nor
//!   are held are freed together.
//!
//! Not here: checks of the QP's state, the source address and the P_Key (`Qp::handle_packet`).

mod ahead;
mod datagram;
mod deliver;
mod destination;
mod early;
mod exits;
mod forward;
mod frames;
mod group;
mod looped;
mod order;
mod raw;

use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::{BATCH, Mbuf, MbufBatch};
use crate::qp::env::TurnContext;
use crate::qp::held::HeldPackets;
use crate::qp::shard::Shard;
use ahead::Ahead;
use deliver::{deliver_here, deliver_reserved_here, deliver_verified};
use destination::{Arrival, Destination, is_for_host, is_ours};
pub(crate) use exits::Exits;
use exits::Purpose;
pub use exits::{GsiFrame, SlowFrame};
use frames::{Frames, HEADERS, HEADERS_AHEAD};
use std::sync::Arc;
use uroce_shared::copy::prefetch::prefetch_read;
use uroce_shared::copy::sum::{LEAST, summed};
use uroce_shared::table::qp_table::{QpFinder, QpTable};
use uroce_transport::{DropReason, Handled};
use uroce_wire::{Frame, OuterSums, Packet, ParseError};

/// Largest number of bursts that one turn takes from one port, or from the hand-over queue. Further
/// frames wait for the next turn. Packets are acknowledged at the end of a turn, so a peer's window
/// should be larger than what one turn takes, or the two sides wait for each other.
const BURSTS: usize = 2;
/// How many frames ahead of the current frame a frame's rest (the bytes after its headers) is
/// prefetched.
const REST_AHEAD: usize = 2;
/// Length in bytes of the shortest frame that counts as large: its checksum takes long enough to
/// prefetch another frame meanwhile.
const LARGE: usize = HEADERS + LEAST;

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
    /// For each port, the burst that follows `burst`, if it was taken early so that its bytes can
    /// be prefetched while `burst` is handled. It may stay here until the lcore's next turn.
    next: Box<[MbufBatch]>,
    /// Frames that are done with and are freed together.
    done: MbufBatch,
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
        turn: &mut TurnContext<'_>,
    ) -> bool {
        let mut any = !turn.lanes[port].looped.is_empty();
        if any {
            self.receive_looped(port, shard, turn);
        }
        for _ in 0..BURSTS {
            let lane = &mut turn.lanes[port];
            if self.next[port].is_empty() {
                lane.take_burst(&mut self.burst, &shard.counters);
            } else {
                std::mem::swap(&mut self.burst, &mut self.next[port]);
            }
            any |= !self.burst.is_empty();
            let is_full = self.burst.room() == 0;
            if lane.is_watched() {
                if lane.is_sniffed() {
                    let arrival = Arrival { port, lcore: self.lcore, finder: &self.finder };
                    raw::sniff(self.burst.as_slice(), &arrival, &self.exits, shard, turn);
                }
                let lane = &mut turn.lanes[port];
                lane.watch_burst(&mut self.burst, &shard.counters);
                if let Some(forward) = lane.forward() {
                    self.forward_burst(port, forward, &shard.counters, turn.lanes);
                    break;
                }
            }
            if self.burst.is_empty() {
                break;
            }
            any = true;
            if is_full && self.ahead.is_looking() {
                turn.lanes[port].take_burst(&mut self.next[port], &shard.counters);
            }
            self.sort_burst(port, shard, turn);
            if !is_full {
                break;
            }
        }
        any
    }

    /// Receives the packets that other lcores have handed over. Returns whether there were any.
    pub(crate) fn take_over(&mut self, shard: &mut Shard, turn: &mut TurnContext<'_>) -> bool {
        let queue = self.exits.handed_over(self.lcore);
        if queue.is_empty() {
            return false;
        }
        for _ in 0..BURSTS {
            while self.done.room() > 0 {
                let Some(handed) = queue.pop() else { break };
                let (port, purpose, mbuf) = handed.into_parts();
                let arrival = Arrival { port, lcore: self.lcore, finder: &self.finder };
                let delivered = match purpose {
                    Purpose::Packet => deliver_verified(&mbuf, &arrival, shard, turn),
                    Purpose::Raw | Purpose::Heard(_) | Purpose::Sniffed => {
                        raw::take_over(purpose, &mbuf, &arrival, shard, turn);
                        Ok(Handled::Done)
                    }
                };
                match delivered {
                    Ok(Handled::Done) => {}
                    Ok(Handled::Held) => {
                        turn.held.keep(mbuf);
                        continue;
                    }
                    Err(reason) => {
                        shard.counters.count_drop(reason);
                        turn.lanes[port].tap_dropped(&mbuf, reason);
                    }
                }
                let pushed = self.done.push(mbuf);
                debug_assert!(pushed.is_ok(), "the loop checks for room");
            }
            self.done.clear();
        }
        true
    }

    /// Handles the frames of a burst, one after the other.
    fn sort_burst(&mut self, port: usize, shard: &mut Shard, turn: &mut TurnContext<'_>) {
        // `destinations` is used for frames that leave the lcore. Usually there are none.
        let mut leaves = false;
        let mut destinations = [Destination::Done; BATCH];
        let frames = Frames { burst: self.burst.as_slice(), next: self.next[port].as_slice() };
        (0..HEADERS_AHEAD).for_each(|at| frames.prefetch_headers(at));
        order::begin(self.burst.as_mut_slice());
        let arrival = Arrival { port, lcore: self.lcore, finder: &self.finder };
        let mut at = 0;
        while at < self.burst.len() {
            order::come_to(at, self.burst.as_mut_slice());
            let frames = Frames { burst: self.burst.as_slice(), next: self.next[port].as_slice() };
            let mbuf = &frames.burst[at];
            frames.prefetch_headers(at + HEADERS_AHEAD);
            self.ahead.come_to(at, frames, &arrival, shard, turn.memory);
            let mut ahead = frames.get(at + REST_AHEAD).map_or(&[][..], frames::rest_of);
            if mbuf.len() < LARGE {
                prefetch_read(ahead.as_ptr(), ahead.len());
                ahead = &[];
            }
            match receive_frame(mbuf, ahead, &mut self.sums, &arrival, shard, turn) {
                Destination::Done => {}
                Destination::Drop(reason) => {
                    shard.counters.count_drop(reason);
                    turn.lanes[port].tap_dropped(mbuf, reason);
                }
                Destination::Group => group::spread(mbuf, &arrival, &self.exits, shard, turn),
                Destination::Raw => raw::spread(mbuf, &arrival, &self.exits, shard, turn),
                Destination::RawAndHost => {
                    raw::spread(mbuf, &arrival, &self.exits, shard, turn);
                    leaves = true;
                    destinations[at] = Destination::SlowPath;
                }
                Destination::Held => {
                    // The next frame takes its place, so `at` stays.
                    keep_held(at, &mut self.burst, turn.held);
                    continue;
                }
                destination => {
                    leaves = true;
                    destinations[at] = destination;
                }
            }
            at += 1;
        }
        self.ahead.end(self.burst.as_slice().last().map(Mbuf::as_slice));
        if leaves {
            self.send_off(port, &destinations, &shard.counters);
        }
        self.burst.clear();
    }

    /// Moves the frames that leave this lcore out of the burst, to another lcore or to the control
    /// plane.
    #[cold]
    fn send_off(&mut self, port: usize, to: &[Destination; BATCH], counters: &CounterBlock) {
        let mut staying = MbufBatch::new();
        for (&destination, mbuf) in to.iter().zip(self.burst.drain()) {
            if let Some(mbuf) = self.exits.carry(destination, port, mbuf, counters) {
                let pushed = staying.push(mbuf);
                debug_assert!(pushed.is_ok(), "both batches have the same capacity");
            }
        }
        self.burst = staying;
        if to.iter().any(|to| matches!(to, Destination::Gsi | Destination::SlowPath)) {
            self.exits.waker.wake();
        }
    }
}

/// Decides the destination of a frame, and delivers it if its QP is this lcore's. `ahead` is
/// prefetched while the checksum of a large frame is computed.
#[inline]
fn receive_frame(
    mbuf: &Mbuf,
    ahead: &[u8],
    sums: &mut OuterSums,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Destination {
    let bytes = mbuf.as_slice();
    let addresses = &turn.lanes[arrival.port].addresses;
    let datagram = match Frame::parse(bytes) {
        Ok(Frame::Roce(datagram)) => datagram,
        Ok(Frame::Other(_)) => return of_other(bytes, arrival, turn),
        Err(error) => return raw::or_else(Destination::Drop(error.into()), bytes, arrival, turn),
    };
    let is_ours = is_ours(&datagram, addresses);
    if !is_ours && !group::is_ours(&datagram, addresses, turn) {
        let otherwise = Destination::Drop(DropReason::NotForUs);
        return raw::or_else(otherwise, bytes, arrival, turn);
    }
    //= check E14 — a packet with a wrong invariant CRC goes no further, and gets no answer
    let sum = |covered: &_| sums.of_with(covered, |sum, bytes| summed(bytes, sum, ahead));
    if !mbuf.has_good_icrc() && !datagram.icrc_ok_by(sum) {
        return Destination::Drop(ParseError::Icrc.into());
    }
    let packet = match Packet::parse(datagram.transport) {
        Ok(packet) => packet,
        Err(ParseError::ReservedOpcode) if is_ours => {
            count_packet(bytes, &shard.counters);
            return deliver_reserved_here(&datagram, arrival, shard, turn);
        }
        Err(error) => return Destination::Drop(error.into()),
    };
    count_packet(bytes, &shard.counters);
    if !is_ours {
        return Destination::Group;
    }
    deliver_here(bytes, &datagram, packet, arrival, shard, turn)
}

/// Decides the destination of a frame that is not RoCEv2.
#[cold]
fn of_other(frame: &[u8], arrival: &Arrival<'_>, turn: &TurnContext<'_>) -> Destination {
    let otherwise = match is_for_host(frame, &turn.lanes[arrival.port].addresses) {
        true => Destination::SlowPath,
        false => Destination::Drop(DropReason::NotForUs),
    };
    raw::or_else(otherwise, frame, arrival, turn)
}

/// Moves the frame at place `at` of a burst to the held packets.
#[cold]
fn keep_held(at: usize, burst: &mut MbufBatch, held: &mut HeldPackets) {
    if let Some(mbuf) = burst.take(at) {
        held.keep(mbuf);
    }
}

#[inline]
fn count_packet(frame: &[u8], counters: &CounterBlock) {
    counters.count(EngineCounter::RxPackets);
    counters.add(EngineCounter::RxBytes, frame.len() as u64);
}
