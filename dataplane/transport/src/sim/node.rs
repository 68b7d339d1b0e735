//! A node: its QPs, its memory, and what surrounds a QP while it handles an input.

use std::collections::VecDeque;

use fastrand::Rng;
use uroce_wire::{Bth, Encap, Gid, HeaderTemplate, Qpn, Rkey, Va};

use super::frame;
use super::memory::Regions;
use super::oversight::{Oversight, Said};
use super::rails::Rail;
use crate::{
    Access, Accessor, Ah, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, DropReason, Instant, Memory,
    MemoryFault, Outbound, Output, PacketSink, Path, Piece, Qp, QpInit, QpState, RecvWr, Region,
    Sge, SharedReceives, Side, TransmitError,
};

/// Where a QP is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct At {
    /// Number of the node.
    pub node: u16,
    /// Number of the QP in the node; not its QPN.
    pub qp: u16,
}

/// A completion, and where and when it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The QP.
    pub at: At,
    /// The time.
    pub when: Instant,
    /// The queue.
    pub side: Side,
    /// The entry.
    pub cqe: Cqe,
}

/// An event, and where and when it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// The QP.
    pub at: At,
    /// The time.
    pub when: Instant,
    /// What happened.
    pub event: AsyncEvent,
}

/// Charges against a retry counter that are remembered for the oracle.
const CHARGES_KEPT: usize = 8;

/// A QP and what its node keeps for it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) qp: Qp,
    pub(super) init: QpInit,
    /// What is derived of its path: headers, and the rail they go by.
    pub(super) rail: usize,
    /// Its state when it was looked at last.
    pub(super) state_known: QpState,
    /// The peer, and number of the connection.
    pub(super) peer: At,
    pub(super) connection: usize,
    /// When the timer event that counts is due.
    pub(super) timer_at: Option<Instant>,
    /// A later look at the QP is on the agenda.
    pub(super) is_kicked: bool,
    /// The newest times that something was charged to the transport retry counter.
    pub(super) charges: VecDeque<Instant>,
    /// A request was refused for another reason than its PSN, and nobody has looked yet.
    pub(super) has_refused: bool,
    /// What it has said since the last input.
    pub(super) said: Said,
    pub(super) oversight: Oversight,
    /// Migrations in all its lives.
    pub(super) migrations: u64,
}

impl Slot {
    pub(super) fn new(qp: Qp, init: QpInit) -> Slot {
        Slot {
            qp,
            init,
            rail: 0,
            state_known: QpState::Reset,
            peer: At { node: 0, qp: 0 },
            connection: usize::MAX,
            timer_at: None,
            is_kicked: false,
            charges: VecDeque::new(),
            has_refused: false,
            said: Said::default(),
            oversight: Oversight::default(),
            migrations: 0,
        }
    }
}

/// An address handle: where its packets go, and what stands in front of them.
#[derive(Debug)]
struct Handle {
    to: Gid,
    rail: usize,
    template: HeaderTemplate,
}

/// One machine.
#[derive(Debug)]
pub struct Node {
    /// Its addresses, one for each way to another node.
    pub(super) rails: Vec<Rail>,
    /// Its registered memory.
    pub memory: Regions,
    /// Receives of the shared receive queue, oldest first; QPs created with `uses_srq` share it.
    pub srq: VecDeque<(RecvWr, Vec<Sge>)>,
    /// Multicast groups and the QPs attached to them.
    pub groups: Vec<(Gid, At)>,
    handles: Vec<Handle>,
    /// The lcore does nothing until then.
    pub(super) stalled_until: Instant,
    /// Frames that wait for the stalled lcore.
    pub(super) backlog: u32,
    /// There is no packet buffer until then: nothing is sent, what arrives is lost.
    pub(super) starved_until: Instant,
    pub(super) slots: Vec<Slot>,
    pub(super) counters: [u64; Counter::ALL.len()],
    pub(super) drops: [u64; DropReason::ALL.len()],
}

impl Node {
    pub(super) fn new(first: Rail) -> Node {
        Node {
            rails: vec![first],
            memory: Regions::default(),
            srq: VecDeque::new(),
            groups: Vec::new(),
            handles: Vec::new(),
            stalled_until: Instant::ZERO,
            backlog: 0,
            starved_until: Instant::ZERO,
            slots: Vec::new(),
            counters: [0; Counter::ALL.len()],
            drops: [0; DropReason::ALL.len()],
        }
    }

    /// One of the node's addresses, counted from 0.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn rail(&self, rail: usize) -> Rail {
        self.rails[rail]
    }

    /// The rail that has this port and this address, if one has.
    pub fn rail_at(&self, port: u8, gid: Gid) -> Option<usize> {
        self.rails.iter().position(|rail| (rail.port, rail.gid) == (port, gid))
    }

    /// The rail that a port and a source address stand for; a port alone has its first one.
    pub(super) fn rail_of(&self, port: u8, gid: Gid) -> usize {
        let of_port = || self.rails.iter().position(|rail| rail.port == port);
        self.rail_at(port, gid).or_else(of_port).unwrap_or(0)
    }

    /// Makes an address handle.
    pub fn create_ah(&mut self, path: Encap) -> Ah {
        let rail = self.rails.iter().position(|rail| rail.gid == path.src).unwrap_or(0);
        self.handles.push(Handle { to: path.dst, rail, template: path.template() });
        Ah(self.handles.len() as u32 - 1)
    }

    /// How often `counter` was counted by the node's QPs.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// How many received frames were dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// The QP with this number. QPNs carry the slot in their low byte.
    pub(super) fn find(&self, qpn: Qpn) -> Option<usize> {
        let index = (qpn.value() & 0xff) as usize;
        self.slots.get(index).is_some_and(|slot| slot.qp.qpn() == qpn).then_some(index)
    }
}

/// A frame on its way out of a node.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    pub(super) from: At,
    pub(super) rail: usize,
    /// Where it goes, if it does not go to the sender's peer.
    pub(super) to: Option<Gid>,
    pub(super) bth: Bth,
    pub(super) frame: Vec<u8>,
}

/// What all QPs of the world share while they work.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) departures: Vec<Departure>,
    pub(super) completions: Vec<Completed>,
    pub(super) events: Vec<Happened>,
    /// Frames no longer in use.
    pub(super) pool: Vec<Vec<u8>>,
    pub(super) rng: Rng,
    /// Chance that the sink is full.
    pub(super) full_rate: f64,
    pub(super) refused: u64,
}

/// A QP's [`crate::Env`] in the simulator.
pub(super) struct Surroundings<'a> {
    pub(super) at: At,
    now: Instant,
    memory: &'a mut Regions,
    srq: &'a mut VecDeque<(RecvWr, Vec<Sge>)>,
    handles: &'a [Handle],
    rail: usize,
    counters: &'a mut [u64; Counter::ALL.len()],
    charges: &'a mut VecDeque<Instant>,
    has_refused: &'a mut bool,
    said: &'a mut Said,
    is_starved: bool,
    outlet: &'a mut Outlet,
}

impl Node {
    /// Lets a QP of this node, which is `at`, work in its surroundings.
    pub(super) fn with_qp<R>(
        &mut self,
        at: At,
        now: Instant,
        outlet: &mut Outlet,
        work: impl FnOnce(&mut Qp, &mut Surroundings<'_>) -> R,
    ) -> R {
        let is_starved = now < self.starved_until;
        let Node { slots, memory, srq, handles, counters, .. } = self;
        let Slot { qp, rail, charges, has_refused, said, .. } = &mut slots[usize::from(at.qp)];
        let mut surroundings = Surroundings {
            at,
            now,
            memory,
            srq,
            handles,
            rail: *rail,
            counters,
            charges,
            has_refused,
            said,
            is_starved,
            outlet,
        };
        work(qp, &mut surroundings)
    }
}

impl Memory for Surroundings<'_> {
    fn check(&self, by: Accessor, region: Region, access: Access) -> Result<(), MemoryFault> {
        self.memory.check(by, region, access)
    }

    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.memory.write(by, region, bytes)
    }

    fn atomic(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        self.memory.atomic(by, rkey, va, op)
    }

    fn bind(&mut self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        self.memory.bind(by, bind)
    }

    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        self.memory.invalidate(by, rkey)
    }
}

impl SharedReceives for Surroundings<'_> {
    fn take_receive(&mut self, place: impl FnOnce(&RecvWr, &[Sge])) -> bool {
        let oldest = self.srq.pop_front();
        if let Some((wr, sges)) = &oldest {
            place(wr, sges);
        }
        oldest.is_some()
    }

    fn receives_waiting(&self) -> u32 {
        0 // posts reach the core at once
    }
}

impl PacketSink for Surroundings<'_> {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let (template, rail, to) = match packet.path {
            Path::Connected(template) => (template, self.rail, None),
            Path::Ah(Ah(number)) => match self.handles.get(number as usize) {
                Some(handle) => (&handle.template, handle.rail, Some(handle.to)),
                None => return Err(TransmitError::UnknownAh),
            },
        };
        let outlet = &mut *self.outlet;
        let is_full =
            self.is_starved || outlet.full_rate > 0.0 && outlet.rng.f64() < outlet.full_rate;
        if is_full {
            outlet.refused += 1;
            return Err(TransmitError::Full);
        }
        let len = packet.payload.len();
        assert_eq!((len + u32::from(packet.bth.pad_count)) % 4, 0, "the pad fills whole words");
        let mut frame = outlet.pool.pop().unwrap_or_default();
        let memory = &*self.memory;
        let fill = |mut out: &mut [u8]| {
            for piece in packet.payload.clone() {
                let (place, rest) = out.split_at_mut(piece.len() as usize);
                place.copy_from_slice(match piece {
                    Piece::Region(region) => memory.read(packet.by, region)?,
                    Piece::Bytes(bytes) => bytes,
                });
                out = rest;
            }
            assert!(out.is_empty(), "a gather list is as long as it says");
            Ok(())
        };
        match frame::build(&mut frame, template, &packet.bth, &packet.ext, len as usize, fill) {
            Ok(()) => {
                let (from, bth) = (self.at, packet.bth);
                let len = frame.len() as u32;
                outlet.departures.push(Departure { from, rail, to, bth, frame });
                Ok(len)
            }
            Err(fault) => {
                outlet.pool.push(frame);
                Err(TransmitError::Memory(fault))
            }
        }
    }
}

impl Output for Surroundings<'_> {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        self.outlet.completions.push(Completed { at: self.at, when: self.now, side, cqe });
    }

    fn count(&mut self, counter: Counter) {
        self.said.count(counter);
        self.counters[counter as usize] += 1;
        *self.has_refused |= matches!(counter, Counter::OutOfBuffer | Counter::RespCqeError);
        let is_charge = matches!(
            counter,
            Counter::LocalAckTimeoutErr | Counter::PacketSeqErr | Counter::ImpliedNakSeqErr
        );
        if is_charge {
            if self.charges.len() == CHARGES_KEPT {
                self.charges.pop_front();
            }
            self.charges.push_back(self.now);
        }
    }

    fn event(&mut self, event: AsyncEvent) {
        self.said.event(event);
        *self.has_refused |= matches!(event, AsyncEvent::QpAccessErr | AsyncEvent::QpReqErr);
        self.outlet.events.push(Happened { at: self.at, when: self.now, event });
    }
}
