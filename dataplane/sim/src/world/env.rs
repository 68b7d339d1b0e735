//! The environment of a simulated QP while it handles an input: memory, shared receives, packet
//! sink.

use std::collections::VecDeque;

use uroce_wire::{ICRC_LEN, OpCode, Srqn, headers_len};

use crate::world::checker::Reports;
use crate::world::frame;
use crate::world::memory::Regions;
use crate::world::names::At;
use crate::world::node::{
    CHARGES_KEPT, Completed, Departure, Handle, Happened, NamedQueue, Node, Outlet, Pace, Slot,
};
use uroce_transport::{
    Ah, AsyncEvent, Counter, Cqe, Env, Found, Instant, Outbound, Output, PacketSink, Path, Pd,
    Piece, Qp, QpState, RecvWr, Sge, SharedReceives, Side, TransmitError,
};

/// A QP's [`uroce_transport::Env`] in the simulator.
pub(crate) struct SimEnv<'a> {
    pub(crate) at: At,
    now: Instant,
    memory: &'a mut Regions,
    srq: &'a mut VecDeque<(RecvWr, Vec<Sge>)>,
    named: &'a mut [NamedQueue],
    xrcd: u32,
    handles: &'a [Handle],
    rail: usize,
    counters: &'a mut [u64; Counter::ALL.len()],
    departure: &'a mut Option<Instant>,
    charges: &'a mut VecDeque<Instant>,
    has_refused: &'a mut bool,
    reports: &'a mut Reports,
    is_starved: bool,
    can_hold: bool,
    outlet: &'a mut Outlet,
}

impl Node {
    /// Runs `work` on the QP `at` of this node, with its environment.
    pub(crate) fn with_qp<R>(
        &mut self,
        at: At,
        now: Instant,
        outlet: &mut Outlet,
        work: impl FnOnce(&mut Qp, &mut SimEnv<'_>) -> R,
    ) -> R {
        let is_starved = now < self.starved_until;
        let can_hold = self.held.len() < self.most_held;
        let Node { slots, memory, srq, named, handles, counters, .. } = self;
        let Slot { qp, xrcd, rail, departure, charges, has_refused, reports, .. } =
            &mut slots[usize::from(at.qp)];
        let mut env = SimEnv {
            at,
            now,
            memory,
            srq,
            named,
            xrcd: *xrcd,
            handles,
            rail: *rail,
            counters,
            departure,
            charges,
            has_refused,
            reports,
            is_starved,
            can_hold,
            outlet,
        };
        let result = work(qp, &mut env);
        if !matches!(qp.state(), QpState::Rts | QpState::Sqd) {
            // The datagram that had reserved a time has been flushed.
            *env.departure = None;
        }
        result
    }
}

impl Env for SimEnv<'_> {
    type Memory = Regions;

    fn memory(&mut self) -> &mut Regions {
        self.memory
    }

    fn can_hold(&self) -> bool {
        self.can_hold
    }
}

impl SharedReceives for SimEnv<'_> {
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        take(self.srq, room, place)
    }

    fn queue_named(&self, srqn: Srqn) -> Option<Pd> {
        self.place_of(srqn).map(|at| self.named[at].pd)
    }

    fn take_named(&mut self, srqn: Srqn, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        let Some(at) = self.place_of(srqn) else { return Found::Nothing };
        take(&mut self.named[at].receives, room, place)
    }

    fn receives_waiting(&self) -> u32 {
        0 // Posts reach the core at once.
    }
}

impl SimEnv<'_> {
    /// Place of the XRC shared receive queue with this number, if it is of the QP's XRC domain.
    fn place_of(&self, srqn: Srqn) -> Option<usize> {
        let is_it = |queue: &NamedQueue| (queue.srqn, queue.xrcd) == (srqn, self.xrcd);
        self.named.iter().position(is_it)
    }
}

impl SimEnv<'_> {
    /// Reserves a time for a datagram by a handle with a rate limit, which it keeps while it waits.
    fn await_departure(
        &mut self,
        handle: &Handle,
        packet: &Outbound<'_>,
    ) -> Result<(), TransmitError> {
        let Some(Pace(reserve)) = &handle.pace else { return Ok(()) };
        let headers = headers_len(packet.bth.opcode).expect("the core knows its opcodes") as u32;
        let payload = packet.payload.len() + u32::from(packet.bth.pad_count);
        let len = u32::from(handle.template.len) + headers + payload + ICRC_LEN as u32;
        let now = self.now;
        let departure = *self.departure.get_or_insert_with(|| reserve(len, now));
        if departure > now { Err(TransmitError::Paced(departure)) } else { Ok(()) }
    }
}

/// Takes the oldest receive of a shared queue, if it has room for `room` bytes.
fn take(
    receives: &mut VecDeque<(RecvWr, Vec<Sge>)>,
    room: u32,
    place: impl FnOnce(&RecvWr, &[Sge]),
) -> Found {
    let Some((wr, sges)) = receives.front() else { return Found::Nothing };
    if sges.iter().map(|sge| sge.len).sum::<u32>() < room {
        return Found::TooSmall;
    }
    place(wr, sges);
    receives.pop_front();
    Found::Receive
}

impl PacketSink for SimEnv<'_> {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let sprayed;
        let (template, rail, to) = match packet.path {
            Path::Sprayed(template, index) => {
                sprayed = template.with_port(index);
                (&sprayed, self.rail, None)
            }
            // A CNP of a datagram QP has a path of its own.
            Path::Connected(template) if packet.bth.opcode == OpCode::CNP => {
                (template, self.rail, Some(template.encap().dst))
            }
            Path::Connected(template) => (template, self.rail, None),
            Path::Ah(Ah(number)) => match self.handles.get(number as usize) {
                Some(handle) => {
                    self.await_departure(handle, packet)?;
                    (&handle.template, handle.rail, Some(handle.to))
                }
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
                *self.departure = None;
                Ok(len)
            }
            Err(fault) => {
                outlet.pool.push(frame);
                Err(TransmitError::Memory(fault))
            }
        }
    }
}

impl Output for SimEnv<'_> {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        self.outlet.completions.push(Completed { at: self.at, when: self.now, side, cqe });
    }

    fn count(&mut self, counter: Counter) {
        self.reports.count(counter);
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
        self.reports.event(event);
        *self.has_refused |= matches!(event, AsyncEvent::QpAccessErr | AsyncEvent::QpReqErr);
        self.outlet.events.push(Happened { at: self.at, when: self.now, event });
    }
}
