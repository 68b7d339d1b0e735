//! The receive side of a node, in the engine's order: address, QPN, then the QP.

use uroce_wire::{Bth, Datagram, Frame, Gid, OpCode, Packet, ParseError, Psn, Qpn, Service};

use crate::world::World;
use crate::world::checker::apm::{Came, Due, is_off_path};
use crate::world::names::At;
use crate::world::node::Node;
use crate::world::tap::Flight;
use uroce_transport::{DropReason, Handled, Inbound};

/// ECN bits of a packet that a switch has marked.
const CE: u8 = 0b11;

impl World {
    /// Handles the arrival of the frame at `place` at node `to`.
    pub(crate) fn arrive(&mut self, to: u16, place: u32) {
        if self.lacks_buffer(to, place) {
            return;
        }
        let flight = core::mem::take(&mut self.flying[place as usize]);
        self.free_places.push(place);
        self.landed(to, &flight);
        if let Err(reason) = self.receive(to, &flight) {
            self.node_mut(to).drops[reason as usize] += 1;
        }
        self.outlet.pool.push(flight.frame);
    }

    /// Counts that a frame of a QP has arrived.
    pub(crate) fn landed(&mut self, to: u16, flight: &Flight) {
        if let Some(from) = flight.from {
            let links = &mut self.links[usize::from(from.node)][usize::from(to)];
            links[flight.rail].tally.landed += 1;
        }
    }

    fn receive(&mut self, to: u16, flight: &Flight) -> Result<(), DropReason> {
        let opened = open(&flight.frame);
        self.tap_opened(flight, opened.as_ref().err().copied());
        let (datagram, packet) = opened?;
        let node = self.node(to);
        match packet {
            Ok(packet) if packet.bth.dest_qpn == Qpn::MULTICAST => {
                self.receive_multicast(to, &datagram, &packet, flight)
            }
            _ if datagram.dst != node.rail(flight.rail).gid => Err(DropReason::NotForUs),
            Ok(packet) if packet.op.service == Service::Rd => {
                //= check R20 — an EEC of the number in RDETH, or the packet is dropped
                // A receiver that looks at BTH only hands over what is not for an EEC, too.
                let eecn = Qpn::new(packet.ext.rdeth.eecn);
                let at = find(node, to, eecn).or_else(|_| find(node, to, packet.bth.dest_qpn));
                let at = at.map_err(|_| DropReason::UnknownEecn)?;
                self.hand_over(at, &datagram, &packet, flight)
            }
            Ok(packet) => {
                let at = find(node, to, packet.bth.dest_qpn)?;
                self.hand_over(at, &datagram, &packet, flight)
            }
            Err(_) => {
                let bth = datagram.transport.first_chunk().ok_or(ParseError::Truncated)?;
                let bth = Bth::parse(bth)?;
                let at = find(node, to, bth.dest_qpn)?;
                let (src, dst) = (datagram.src, datagram.dst);
                let port = node.rail(flight.rail).port;
                let result = self.with_qp(at, |qp, now, env| {
                    qp.handle_reserved_opcode(now, src, dst, port, &bth, env)
                });
                self.settle(at);
                result
            }
        }
    }

    /// Delivers one copy to each QP of the group; a QP that refuses it does not affect the others.
    fn receive_multicast(
        &mut self,
        to: u16,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        flight: &Flight,
    ) -> Result<(), DropReason> {
        let is_in = |(group, _): &&(Gid, At)| *group == datagram.dst;
        let members: Vec<At> =
            self.node(to).groups.iter().filter(is_in).map(|(_, at)| *at).collect();
        if members.is_empty() {
            return Err(DropReason::UnknownQpn);
        }
        for at in members {
            if let Err(reason) = self.hand_over(at, datagram, packet, flight) {
                self.node_mut(to).drops[reason as usize] += 1;
            }
        }
        Ok(())
    }

    fn hand_over(
        &mut self,
        at: At,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        flight: &Flight,
    ) -> Result<(), DropReason> {
        let Datagram { src, dst, l3, .. } = *datagram;
        let port = self.node(at.node).rail(flight.rail).port;
        let inbound = Inbound { src, dst, port, l3, frame: &flight.frame, packet: *packet };
        let state = self.slot(at).qp().state();
        let is_cnp = packet.bth.opcode == OpCode::CNP;
        if datagram.traffic_class & CE == CE {
            self.tap_marked(at);
        }
        let result = self.with_qp(at, |qp, now, env| qp.handle_packet(now, &inbound, env));
        let result = result.map(|handled| match handled {
            Handled::Held => self.hold(at, packet.bth.psn, flight),
            Handled::Done => self.give_held(at),
        });
        self.depart();
        // A packet by a path that is not the connection's counts as never arrived.
        let dropped = result.err();
        if self.slot(at).reports.has_moved() {
            self.tap_migrated(at);
        }
        if !is_off_path(dropped) {
            self.tap_arrived(at, flight);
        }
        self.tap_taken(at, state, dropped.is_none());
        let (pkey, mig_req) = (packet.bth.pkey, packet.bth.mig_req);
        if is_cnp {
            self.check_reports(at, Due::default());
        } else {
            self.check_packet(at, &Came { port, src, dst, pkey, mig_req }, dropped);
        }
        self.tap_settled(at);
        self.settle(at);
        result
    }
}

impl World {
    /// Holds a frame that came early.
    fn hold(&mut self, at: At, psn: Psn, flight: &Flight) {
        let frame = flight.frame.clone();
        self.node_mut(at.node).held.insert((at.qp, psn), frame);
    }

    /// Gives a QP the held packets that are due.
    fn give_held(&mut self, at: At) {
        while let Some(psn) = self.slot(at).qp().next_held() {
            let frame = self.node_mut(at.node).held.remove(&(at.qp, psn)).expect("it is held");
            let packet = open(&frame).and_then(|(_, packet)| Ok(packet?)).expect("it was parsed");
            let result = self.with_qp(at, |qp, now, env| qp.handle_held(now, &packet, env));
            if let Err(reason) = result {
                self.node_mut(at.node).drops[reason as usize] += 1;
            }
        }
        // A QP that has ended wants none of its former packets.
        let Node { held, slots, .. } = self.node_mut(at.node);
        if !held.is_empty() && !slots[usize::from(at.qp)].qp().state().serves_requests() {
            held.retain(|(slot, _), _| *slot != at.qp);
        }
    }
}

/// A datagram, and its packet unless the opcode is reserved.
type Opened<'a> = (Datagram<'a>, Result<Packet<'a>, ParseError>);

fn open(frame: &[u8]) -> Result<Opened<'_>, DropReason> {
    let Frame::Roce(datagram) = Frame::parse(frame)? else { return Err(DropReason::NotForUs) };
    let packet = datagram.packet();
    match packet {
        Err(error) if error != ParseError::ReservedOpcode => Err(error.into()),
        packet => Ok((datagram, packet)),
    }
}

fn find(node: &Node, number: u16, qpn: Qpn) -> Result<At, DropReason> {
    let qp = node.find(qpn).ok_or(DropReason::UnknownQpn)?;
    Ok(At { node: number, qp: qp as u16 })
}
