//! The environment of a simulated QP while it handles an input: memory, shared receives, packet
//! sink.

use std::collections::VecDeque;

use uroce_wire::{ICRC_LEN, OpCode, Qpn, Srqn, headers_len};

use crate::world::checker::Reports;
use crate::world::frame;
use crate::world::memory::Regions;
use crate::world::names::At;
use crate::world::node::{
    CHARGES_KEPT, Completed, Departure, Handle, Happened, NamedQueue, Node, Outlet, Pace, Slot,
};
use uroce_transport::{
    Ah, AsyncEvent, Counter, Cqe, Env, Found, Instant, Outbound, Output, PacketSink, Path, Pd,
    Piece, Qp, QpState, QpType, RecvWr, Sge, SharedReceives, Side, TransmitError,
};

/// A QP's [`uroce_transport::Env`] in the simulator.
pub(crate) struct SimEnv<'a> {
    pub(crate) at: At,
    now: Instant,
    /// All QPs of the node; those that are being worked on are not in their slots.
    slots: &'a mut [Slot],
    memory: &'a mut Regions,
    srq: &'a mut VecDeque<(RecvWr, Vec<Sge>)>,
    named: &'a mut [NamedQueue],
    handles: &'a [Handle],
    counters: &'a mut [u64; Counter::ALL.len()],
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
        let place = usize::from(at.qp);
        let mut qp = self.slots[place].home.take().expect("a QP that is not being worked on");
        let Node { slots, memory, srq, named, handles, counters, .. } = self;
        let mut env = SimEnv {
            at,
            now,
            slots,
            memory,
            srq,
            named,
            handles,
            counters,
            is_starved,
            can_hold,
            outlet,
        };
        let result = work(&mut qp, &mut env);
        if !matches!(qp.state(), QpState::Rts | QpState::Sqd) {
            // The datagram that had reserved a time has been flushed.
            self.slots[place].departure = None;
        }
        self.slots[place].home = Some(qp);
        result
    }
}

impl Env for SimEnv<'_> {
    type Memory = Regions;

    type Other<'o> = SimEnv<'o>;

    fn memory(&mut self) -> &mut Regions {
        self.memory
    }

    fn can_hold(&self) -> bool {
        self.can_hold
    }

    fn with_other<R>(
        &mut self,
        number: Qpn,
        work: impl FnOnce(&mut Qp, &mut SimEnv<'_>) -> R,
    ) -> Option<R> {
        let place = (number.value() & 0xff) as usize;
        let home = &mut self.slots.get_mut(place)?.home;
        let mut qp = home.take_if(|qp| qp.qpn() == number)?;
        let before = core::mem::replace(&mut self.at.qp, place as u16);
        let result = work(&mut qp, self);
        let slot = &mut self.slots[place];
        let has_reported = slot.reports != Reports::default();
        // A receive of an RD QP that fails is a refusal of the EEC.
        let has_refused = qp.qp_type() == QpType::Rd && core::mem::take(&mut slot.has_refused);
        if has_reported {
            // What it has reported is to be checked.
            self.wake();
        }
        self.at.qp = before;
        self.slots[usize::from(before)].has_refused |= has_refused;
        self.slots[place].home = Some(qp);
        Some(result)
    }

    fn wake(&mut self) {
        self.outlet.woken.push(self.at);
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
        let xrcd = self.slots[usize::from(self.at.qp)].xrcd;
        let is_its = |queue: &NamedQueue| queue.xrcd == xrcd || takes_any_domain();
        self.named.iter().position(|queue| queue.srqn == srqn && is_its(queue))
    }
}

/// Returns whether the bug is planted that the XRC domain of a queue is not checked.
fn takes_any_domain() -> bool {
    #[cfg(feature = "seeded-bugs")]
    return uroce_transport::is_planted(uroce_transport::Bug::XrcForeignQueue);
    #[cfg(not(feature = "seeded-bugs"))]
    false
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
        let reserved = &mut self.slots[usize::from(self.at.qp)].departure;
        let departure = *reserved.get_or_insert_with(|| reserve(len, now));
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
        let own_rail = self.slots[usize::from(self.at.qp)].rail;
        let (template, rail, to) = match packet.path {
            Path::Sprayed(template, index) => {
                sprayed = template.with_port(index);
                (&sprayed, own_rail, None)
            }
            // A CNP of a datagram QP has a path of its own.
            Path::Connected(template) if packet.bth.opcode == OpCode::CNP => {
                (template, own_rail, Some(template.encap().dst))
            }
            Path::Connected(template) => (template, own_rail, None),
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
                self.slots[usize::from(self.at.qp)].departure = None;
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
        let slot = &mut self.slots[usize::from(self.at.qp)];
        slot.reports.count(counter);
        self.counters[counter as usize] += 1;
        slot.has_refused |= matches!(
            counter,
            Counter::OutOfBuffer
                | Counter::RespCqeError
                | Counter::RespRdViolations
                | Counter::RespRemoteAccessErrors
                | Counter::RespRemoteInvalidRequests
        );
        let is_charge = matches!(
            counter,
            Counter::LocalAckTimeoutErr | Counter::PacketSeqErr | Counter::ImpliedNakSeqErr
        );
        if is_charge {
            if slot.charges.len() == CHARGES_KEPT {
                slot.charges.pop_front();
            }
            slot.charges.push_back(self.now);
        }
    }

    fn event(&mut self, event: AsyncEvent) {
        let slot = &mut self.slots[usize::from(self.at.qp)];
        slot.reports.event(event);
        slot.has_refused |= matches!(event, AsyncEvent::QpAccessErr | AsyncEvent::QpReqErr);
        self.outlet.events.push(Happened { at: self.at, when: self.now, event });
    }
}
