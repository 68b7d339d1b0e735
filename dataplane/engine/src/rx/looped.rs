//! Loopback: frames that an lcore has sent to one of the device's own addresses, received as if
//! they had arrived at the port that has the address.
//!
//! The sending QP's path decides whether a packet is looped ([`HeaderTemplate::is_loopback`]). The
//! destination address alone cannot decide it: a kernel behind a TAP port or a vhost socket may
//! have the same address.
//!
//! Invariants
//! - The Ethernet header of a looped frame is ignored: ports of different VLANs of one device reach
//!   each other.
//! - Frames of raw QPs to the port's own address are received as if they had come from the port,
//!   with all checks. Copies of others are for raw QPs only.
//! - The lane's packet tap records a looped frame twice: as sent and as received.
//! - Injected loss applies to a looped frame as to any other; other faults do not. A link that is
//!   set down does not stop a looped frame, which crosses no link.
//!
//! [`HeaderTemplate::is_loopback`]: uroce_wire::HeaderTemplate::is_loopback

use super::deliver::deliver_here;
use super::destination::{Arrival, Destination};
use super::{Receiver, count_packet, group, raw};
use crate::dpdk::mbuf::Mbuf;
use crate::lane::Lane;
use crate::lane::loopback::RawFrames;
use crate::qp::env::TurnContext;
use crate::qp::shard::Shard;
use uroce_shared::table::mcast::multicast_mac;
use uroce_transport::DropReason;
use uroce_wire::{Datagram, Frame, Gid, Packet};

impl Receiver {
    /// Receives the frames that port `port` (counted from 0) has looped back since the last turn.
    #[cold]
    pub(super) fn receive_looped(
        &mut self,
        port: usize,
        shard: &mut Shard,
        turn: &mut TurnContext<'_>,
    ) {
        let mut looped = turn.lanes[port].looped.take();
        for mbuf in looped.drain() {
            if let Some(mbuf) = self.receive_one(port, mbuf, shard, turn) {
                let pushed = self.done.push(mbuf);
                debug_assert!(pushed.is_ok(), "the lane loops back at most what one batch holds");
            }
        }
        self.done.clear();
        if let Some(raw) = turn.lanes[port].looped.take_raw() {
            self.receive_raw(port, raw, shard, turn);
        }
    }

    /// Receives the frames of raw QPs that port `port` (counted from 0) has looped back.
    #[cold]
    fn receive_raw(
        &mut self,
        port: usize,
        RawFrames { own, heard, senders }: RawFrames,
        shard: &mut Shard,
        turn: &mut TurnContext<'_>,
    ) {
        //= check W13 — as from the port: what says that it is RoCE is verified
        if !own.is_empty() {
            self.burst = own;
            self.sort_burst(port, shard, turn);
        }
        let arrival = Arrival { port, lcore: self.lcore, finder: &self.finder };
        for (mbuf, sender) in heard.as_slice().iter().zip(senders) {
            raw::hear(mbuf, sender, &arrival, &self.exits, shard, turn);
        }
    }

    /// Handles one frame that port `sent_by` (counted from 0) has looped back. Returns the frame
    /// unless it has left the lcore or is held.
    fn receive_one(
        &self,
        sent_by: usize,
        mbuf: Mbuf,
        shard: &mut Shard,
        turn: &mut TurnContext<'_>,
    ) -> Option<Mbuf> {
        let Ok(Frame::Roce(datagram)) = Frame::parse(mbuf.as_slice()) else {
            shard.counters.count_drop(DropReason::Malformed);
            return Some(mbuf);
        };
        let Some(port) = port_of(&datagram, sent_by, turn.lanes) else {
            // The device has lost the address since the frame was sent.
            shard.counters.count_drop(DropReason::NotForUs);
            return Some(mbuf);
        };
        turn.lanes[port].tap_received(&mbuf);
        let qp = Frame::likely_dest_qpn(mbuf.as_slice());
        if qp.is_some_and(|qp| turn.lanes[port].rx.loses(qp, &shard.counters)) {
            return Some(mbuf);
        }
        let arrival = Arrival { port, lcore: self.lcore, finder: &self.finder };
        count_packet(mbuf.as_slice(), &shard.counters);
        match destination(mbuf.as_slice(), &datagram, &arrival, shard, turn) {
            Destination::Done => {}
            Destination::Held => {
                turn.held.keep(mbuf);
                return None;
            }
            Destination::Drop(reason) => {
                shard.counters.count_drop(reason);
                turn.lanes[port].tap_dropped(&mbuf, reason);
            }
            Destination::Group => group::spread(&mbuf, &arrival, &self.exits, shard, turn),
            // The destination of a packet is none of a raw QP.
            Destination::Raw | Destination::RawAndHost => {}
            destination => {
                let rest = self.exits.carry(destination, port, mbuf, &shard.counters);
                if destination == Destination::Gsi {
                    self.exits.waker.wake();
                }
                return rest;
            }
        }
        Some(mbuf)
    }
}

/// Returns the port that has the destination address; the sending port is preferred. A datagram to
/// a multicast group is received at the sending port.
fn port_of(datagram: &Datagram<'_>, sent_by: usize, lanes: &[Lane]) -> Option<usize> {
    let has = |lane: &Lane, gid: &Gid| lane.addresses.gids.contains(gid);
    if has(&lanes[sent_by], &datagram.dst) || multicast_mac(datagram.dst).is_some() {
        return Some(sent_by);
    }
    lanes.iter().position(|lane| has(lane, &datagram.dst))
}

/// Decides the destination of a looped frame, and delivers it if its QP is this lcore's.
fn destination(
    frame: &[u8],
    datagram: &Datagram<'_>,
    arrival: &Arrival<'_>,
    shard: &mut Shard,
    turn: &mut TurnContext<'_>,
) -> Destination {
    if multicast_mac(datagram.dst).is_some() {
        return Destination::Group;
    }
    match Packet::parse(datagram.transport) {
        Ok(packet) => deliver_here(frame, datagram, packet, arrival, shard, turn),
        Err(error) => Destination::Drop(error.into()),
    }
}
