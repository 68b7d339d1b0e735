//! Packets of a pair: those that were sent, and those made by hand.

use core::time::Duration;

use uroce_wire::{Bth, Deth, Encap, ExtHeaders, OpCode, Pkey, Psn};

use super::Pair;
use crate::Instant;
use crate::sim::frame;
use crate::sim::record::{Fate, Sighting};

/// A packet that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When.
    pub at: Instant,
    /// By which end.
    pub from: usize,
    /// By which rail.
    pub rail: usize,
    /// Its headers.
    pub bth: Bth,
    /// Its further headers.
    pub ext: ExtHeaders,
    /// Its payload.
    pub payload: Vec<u8>,
    /// What became of it.
    pub fate: Fate,
}

/// A packet made by hand, with all lengths and checks right unless said otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crafted {
    /// Its headers; the pad count is the payload's unless [`Crafted::keeps_pad`].
    pub bth: Bth,
    /// Its further headers.
    pub ext: ExtHeaders,
    /// Its payload.
    pub payload: Vec<u8>,
    /// Leave the pad count as it is in `bth`.
    pub keeps_pad: bool,
}

impl Crafted {
    /// The same packet with this PSN.
    pub fn psn(mut self, psn: Psn) -> Crafted {
        self.bth.psn = psn;
        self
    }

    /// The same packet with this payload.
    pub fn payload(mut self, payload: &[u8]) -> Crafted {
        self.payload = payload.to_vec();
        self
    }

    /// The same packet with further headers changed by `change`.
    pub fn ext(mut self, change: impl FnOnce(&mut ExtHeaders)) -> Crafted {
        change(&mut self.ext);
        self
    }

    /// The same packet with the base header changed by `change`.
    pub fn bth(mut self, change: impl FnOnce(&mut Bth)) -> Crafted {
        change(&mut self.bth);
        self
    }
}

impl Pair {
    /// The packets an end's QP has sent; crafted ones are none of them.
    pub fn seen(&self, from: usize) -> Vec<Seen> {
        let record = self.world.record().expect("pairs record");
        let sent = |sighting: &&Sighting| sighting.from == from && !sighting.fate.is_crafted;
        let seen = record.sightings().filter(sent).map(|sighting| {
            let packet = sighting.packet();
            Seen {
                at: sighting.at,
                from,
                rail: sighting.rail,
                bth: packet.bth,
                ext: packet.ext,
                payload: packet.payload.to_vec(),
                fate: sighting.fate,
            }
        });
        seen.collect()
    }

    /// Position in the sequence of each packet an end has sent: its PSN, from the first one on.
    pub fn sequence(&self, from: usize) -> Vec<i32> {
        let first = self.terms.half[from].sq_psn;
        let requests = self.seen(from).into_iter();
        let requests =
            requests.filter(|seen| seen.bth.opcode.info().is_some_and(|op| op.is_request()));
        requests.map(|seen| seen.bth.psn.distance_from(first)).collect()
    }

    /// The responses an end has sent.
    pub fn responses(&self, from: usize) -> Vec<Seen> {
        let mut seen = self.seen(from);
        seen.retain(|seen| seen.bth.opcode.info().is_some_and(|op| op.is_response()));
        seen
    }

    /// A packet as end `from` would send it next, but for what is yet to be said of it.
    pub fn craft(&self, from: usize, opcode: OpCode) -> Crafted {
        let bth = Bth {
            opcode,
            mig_req: true,
            pkey: Pkey::DEFAULT,
            dest_qpn: self.qpn(1 - from),
            ack_req: true,
            psn: self.terms.half[from].sq_psn,
            ..Bth::default()
        };
        let target = self.remote[1 - from];
        let mut ext = ExtHeaders::default();
        ext.reth.va = target.va(0);
        ext.reth.rkey = target.rkey();
        ext.deth = Deth { qkey: self.terms.half[1 - from].qkey, src_qpn: self.qpn(from) };
        ext.atomic.va = target.va(0);
        ext.atomic.rkey = target.rkey();
        Crafted { bth, ext, payload: Vec::new(), keeps_pad: false }
    }

    /// The frame of a crafted packet of end `from`, by the first rail.
    pub fn frame(&self, from: usize, packet: &Crafted) -> Vec<u8> {
        self.frame_by(&self.path(from), packet)
    }

    /// The frame of a crafted packet by any path.
    pub fn frame_by(&self, path: &Encap, packet: &Crafted) -> Vec<u8> {
        let mut bth = packet.bth;
        if !packet.keeps_pad {
            bth.pad_count = (packet.payload.len().wrapping_neg() & 3) as u8;
        }
        let template = path.template();
        let mut frame = Vec::new();
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(&packet.payload);
            Ok::<(), core::convert::Infallible>(())
        };
        let Ok(()) =
            frame::build(&mut frame, &template, &bth, &packet.ext, packet.payload.len(), fill);
        frame
    }

    /// Has a crafted packet of end `from` arrive at the other end now, and lets things happen
    /// that are due now.
    pub fn deliver(&mut self, from: usize, packet: &Crafted) -> &mut Pair {
        let frame = self.frame(from, packet);
        self.deliver_frame(from, frame)
    }

    /// As [`deliver`](Pair::deliver), with any bytes.
    pub fn deliver_frame(&mut self, from: usize, frame: Vec<u8>) -> &mut Pair {
        self.world.inject(from as u16, 1 - from as u16, frame, Duration::ZERO);
        self.run_for(Duration::ZERO)
    }
}
