//! Loopback: frames that an lcore has sent to one of the device's own addresses, received as if
//! they had arrived at the port that has the address.
//!
//! A packet's path decides whether it is looped ([`HeaderTemplate::is_loopback`]), not its
//! addresses: behind a tap or a vhost socket the kernel may have the same addresses.
//!
//! Invariants
//! - The Ethernet header of a looped frame is ignored: ports of different VLANs of one device reach
//!   each other.
//! - Injected loss applies to a looped frame as to any other. A link that is set down does not: a
//!   looped frame passes no link.
//!
//! [`HeaderTemplate::is_loopback`]: uroce_wire::HeaderTemplate::is_loopback

use super::{
    Around, Datagram, DropReason, EngineCounter, Frame, From, GSI_WAY, Inbound, Mbuf, Packet,
    Receiver, Shard, Way, count_packet, deliver, group, hand_over, no_qp, to_gsi,
};
use crate::tx::Lane;
use uroce_shared::table::mcast::multicast_mac;
use uroce_wire::Gid;

impl Receiver {
    /// Receives the frames that port `port` (counted from 0) has looped back since the last turn.
    #[cold]
    pub(super) fn receive_looped(
        &mut self,
        port: usize,
        shard: &mut Shard,
        around: &mut Around<'_>,
    ) {
        let mut looped = std::mem::take(&mut around.lanes[port].looped);
        for mbuf in looped.drain() {
            if let Some(mbuf) = self.receive_one(port, mbuf, shard, around) {
                // `push` cannot fail: the lane loops back at most what one batch holds.
                let _ = self.done.push(mbuf);
            }
        }
        self.done.clear();
    }

    /// Handles one frame. Returns the frame unless it has left the lcore.
    fn receive_one(
        &self,
        sent_by: usize,
        mbuf: Mbuf,
        shard: &mut Shard,
        around: &mut Around<'_>,
    ) -> Option<Mbuf> {
        let Ok(Frame::Roce(datagram)) = Frame::parse(mbuf.as_slice()) else {
            shard.counters.count_drop(DropReason::Malformed);
            return Some(mbuf);
        };
        let Some(port) = port_of(&datagram, sent_by, around.lanes) else {
            // The device has lost the address since the frame was sent.
            shard.counters.count_drop(DropReason::NotForUs);
            return Some(mbuf);
        };
        if around.lanes[port].rx_loss.loses() {
            shard.counters.count(EngineCounter::RxLost);
            return Some(mbuf);
        }
        let from = From { port, lcore: self.lcore, finder: &self.finder };
        count_packet(mbuf.as_slice(), &shard.counters);
        match sort(&datagram, &from, shard, around) {
            Way::Done => {}
            Way::Drop(reason) => shard.counters.count_drop(reason),
            Way::Group => group::spread(&mbuf, &from, &self.exits, shard, around),
            Way::Leave(GSI_WAY) => {
                let rest = to_gsi(&self.exits, port, mbuf, shard);
                self.exits.waker.wake();
                return rest;
            }
            Way::Leave(owner) => {
                return hand_over(&self.exits, usize::from(owner), port, mbuf, shard);
            }
        }
        Some(mbuf)
    }
}

/// Returns the port that has the destination address; the sending port is preferred. A group's
/// frames stay at the sending port.
fn port_of(datagram: &Datagram<'_>, sent_by: usize, lanes: &[Lane]) -> Option<usize> {
    let has = |lane: &Lane, gid: &Gid| lane.addresses.gids.contains(gid);
    if has(&lanes[sent_by], &datagram.dst) || multicast_mac(datagram.dst).is_some() {
        return Some(sent_by);
    }
    lanes.iter().position(|lane| has(lane, &datagram.dst))
}

/// Decides the destination of a looped frame, and delivers it if its QP is this lcore's.
fn sort(
    datagram: &Datagram<'_>,
    from: &From<'_>,
    shard: &mut Shard,
    around: &mut Around<'_>,
) -> Way {
    if multicast_mac(datagram.dst).is_some() {
        return Way::Group;
    }
    let packet = match Packet::parse(datagram.transport) {
        Ok(packet) => packet,
        Err(error) => return Way::Drop(error.into()),
    };
    let qpn = packet.bth.dest_qpn;
    match from.finder.find(qpn) {
        None => no_qp(&packet),
        Some(place) if place.owner != from.lcore => Way::Leave(place.owner as u8),
        Some(place) => {
            let &Datagram { src, dst, l3, .. } = datagram;
            let inbound = Inbound { src, dst, port: from.number(), l3, packet };
            match deliver(place, qpn, &inbound, shard, around) {
                Ok(()) => Way::Done,
                Err(reason) => Way::Drop(reason),
            }
        }
    }
}
