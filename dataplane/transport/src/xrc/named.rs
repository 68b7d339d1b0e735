//! The environment of the roles of RC in an XRC QP: packets get XRC's opcodes, and receives come
//! from the queue that a request names.

use uroce_wire::{OpCodeRange, Srqn};

use crate::counter::Counter;
use crate::cqe::Cqe;
use crate::env::{
    AsyncEvent, Env, Found, Outbound, Output, PacketSink, SharedReceives, Side, TransmitError,
};
use crate::wqe::{RecvWr, Sge};

/// An environment for one input of an XRC QP.
pub(super) struct Named<'e, E> {
    env: &'e mut E,
    /// The queue that the request names that is being handled.
    srqn: Srqn,
}

impl<'e, E> Named<'e, E> {
    pub(super) fn new(env: &'e mut E, srqn: Srqn) -> Named<'e, E> {
        Named { env, srqn }
    }
}

impl<E: Env> Env for Named<'_, E> {
    type Memory = E::Memory;

    type Other<'o> = E::Other<'o>;

    const NAMES_QUEUES: bool = true;

    fn memory(&mut self) -> &mut E::Memory {
        self.env.memory()
    }
}

impl<E: Env> PacketSink for Named<'_, E> {
    /// The packet has an opcode of RC.
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let mut packet = packet.clone();
        packet.bth.opcode = packet.bth.opcode.in_range(OpCodeRange::XRC);
        self.env.transmit(&packet)
    }
}

impl<E: Env> SharedReceives for Named<'_, E> {
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        self.env.take_named(self.srqn, room, place)
    }

    fn receives_waiting(&self) -> u32 {
        self.env.receives_waiting()
    }
}

impl<E: Env> Output for Named<'_, E> {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        self.env.complete(side, cqe);
    }

    fn count(&mut self, counter: Counter) {
        self.env.count(counter);
    }

    fn event(&mut self, event: AsyncEvent) {
        self.env.event(event);
    }

    fn round_trip(&mut self, nanos: u32) {
        self.env.round_trip(nanos);
    }
}
