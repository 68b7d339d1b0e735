//! Packets of a pair: packets that were sent, and packets made by a test.

use core::time::Duration;

use uroce_wire::{Bth, Deth, Encap, ExtHeaders, OpCode, Pkey, Placement, Psn};

use super::{Pair, SRQN};
use crate::record::{Fate, Sighting};
use crate::world::frame;
use uroce_transport::Instant;

/// A packet that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Time of sending.
    pub at: Instant,
    /// End that sent it.
    pub from: usize,
    /// Rail that it was sent on.
    pub rail: usize,
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers.
    pub ext: ExtHeaders,
    /// Payload without pad.
    pub payload: Vec<u8>,
    /// Effect of the link on it.
    pub fate: Fate,
}

/// A packet made by a test, with correct lengths and checksums unless the test changes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crafted {
    /// Base transport header; the pad count is the payload's unless [`Crafted::keeps_pad`].
    pub bth: Bth,
    /// Extended headers.
    pub ext: ExtHeaders,
    /// Payload without pad.
    pub payload: Vec<u8>,
    /// Keeps the pad count that `bth` has.
    pub keeps_pad: bool,
}

impl Crafted {
    /// Replaces the PSN.
    pub fn psn(mut self, psn: Psn) -> Crafted {
        self.bth.psn = psn;
        self
    }

    /// Replaces the payload.
    pub fn payload(mut self, payload: &[u8]) -> Crafted {
        self.payload = payload.to_vec();
        self
    }

    /// Changes the extended headers by `change`.
    pub fn ext(mut self, change: impl FnOnce(&mut ExtHeaders)) -> Crafted {
        change(&mut self.ext);
        self
    }

    /// Changes the base transport header by `change`.
    pub fn bth(mut self, change: impl FnOnce(&mut Bth)) -> Crafted {
        change(&mut self.bth);
        self
    }
}

impl Pair {
    /// The packets that an end's QP has sent, without crafted ones.
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

    /// The request packets that an end has sent, each as the distance of its PSN from the first.
    pub fn sequence(&self, from: usize) -> Vec<i32> {
        let first = self.terms.half[from].sq_psn;
        let requests = self.seen(from).into_iter();
        let requests =
            requests.filter(|seen| seen.bth.opcode.info().is_some_and(|op| op.is_request()));
        requests.map(|seen| seen.bth.psn.distance_from(first)).collect()
    }

    /// The response packets that an end has sent.
    pub fn responses(&self, from: usize) -> Vec<Seen> {
        let mut seen = self.seen(from);
        seen.retain(|seen| seen.bth.opcode.info().is_some_and(|op| op.is_response()));
        seen
    }

    /// A packet with the header fields that end `from` would use, to be completed by the test.
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
        ext.rdeth.eecn = self.qpn(1 - from).value();
        ext.atomic.va = target.va(0);
        ext.atomic.rkey = target.rkey();
        ext.feth.placement = Placement::GLOBAL;
        ext.xrceth.srqn = SRQN;
        Crafted { bth, ext, payload: Vec::new(), keeps_pad: false }
    }

    /// The frame of a crafted packet of end `from`, on the first rail.
    pub fn frame(&self, from: usize, packet: &Crafted) -> Vec<u8> {
        self.frame_by(&self.path(from), packet)
    }

    /// The frame of a crafted packet on any path.
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

    /// Delivers a crafted packet of end `from` to the other end now, and runs everything that is
    /// due now.
    pub fn deliver(&mut self, from: usize, packet: &Crafted) -> &mut Pair {
        let frame = self.frame(from, packet);
        self.deliver_frame(from, frame)
    }

    /// Delivers any bytes as a frame of end `from` to the other end, and runs everything due now.
    pub fn deliver_frame(&mut self, from: usize, frame: Vec<u8>) -> &mut Pair {
        self.world.inject(from as u16, 1 - from as u16, frame, Duration::ZERO);
        self.run_for(Duration::ZERO)
    }
}
