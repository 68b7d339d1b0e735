//! QP environment: through it the core uses the engine's memory, lanes, queues and events.

use crate::counters::CounterBlock;
use crate::lane::Lane;
use crate::lane::binding::PortAddresses;
use crate::qp::completions::Completions;
use crate::qp::context::{PathLoader, PathState, QpEvents};
use crate::qp::held::HeldPackets;
use crate::qp::tables::Tables;
use std::cell::RefCell;
use uroce_shared::memory::mr_table::MrView;
use uroce_shared::queue::xrc::XrcQueue;
use uroce_shared::queue::{RecvQueueFeed, SharedReceiveQueue};
use uroce_shared::table::ah_table::Handle;
use uroce_shared::table::flows::Flows;
use uroce_transport::{
    Accessor, Ah, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, Env, Flush, Found, FrameError,
    Instant, Memory, MemoryFault, Outbound, OutboundFrame, Output, PacketSink, Path, Pd, RecvWr,
    Region, Sge, SharedReceives, Side, TransmitError,
};
use uroce_wire::flow::FlowFields;
use uroce_wire::{Gid, HeaderTemplate, ICRC_LEN, Qpn, Rkey, Srqn, Va, headers_len};

/// State that each input in a turn needs besides its QP.
pub(crate) struct TurnContext<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: &'a MrView<'a>,
    pub(crate) tables: &'a Tables,
    pub(crate) lanes: &'a mut [Lane],
    pub(crate) held: &'a mut HeldPackets,
}

/// The environment in which the core handles one input: memory is found by the key table, packets
/// leave through the QP's port, and completions go into the shard's buffer.
pub(crate) struct QpEnv<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: QpMemory<'a>,
    pub(crate) lane: &'a mut Lane,
    pub(crate) held: &'a mut HeldPackets,
    /// The lane's port, counted from 0.
    pub(crate) port: usize,
    pub(crate) rq: &'a RefCell<RecvQueueFeed>,
    pub(crate) srq: Option<&'a SharedReceiveQueue>,
    pub(crate) completions: &'a mut Completions,
    pub(crate) events: &'a QpEvents,
    pub(crate) path: &'a mut PathState,
    pub(crate) pending: &'a mut Vec<(Side, Cqe)>,
    pub(crate) counters: &'a CounterBlock,
}

/// Registered memory, found by the key table. The control plane is woken when memory turns out to
/// be gone.
pub(crate) struct QpMemory<'a> {
    pub(crate) view: &'a MrView<'a>,
    pub(crate) tables: &'a Tables,
}

impl Memory for QpMemory<'_> {
    #[inline]
    fn check(
        &self,
        by: Accessor,
        region: Region,
        access: uroce_transport::AccessKind,
    ) -> Result<(), MemoryFault> {
        self.view.check(by, region, access)
    }

    #[inline]
    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.view.write(by, region, bytes).inspect_err(|fault| self.tell(*fault))
    }

    fn atomic(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        self.view.atomic(by, rkey, va, op).inspect_err(|fault| self.tell(*fault))
    }

    fn write_word(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        bytes: [u8; 8],
    ) -> Result<(), MemoryFault> {
        self.view.write_word(by, rkey, va, bytes).inspect_err(|fault| self.tell(*fault))
    }

    fn flush(&mut self, by: Accessor, flush: &Flush) -> Result<(), MemoryFault> {
        self.view.flush(by, flush)
    }

    fn bind(&mut self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        self.view.bind(by, bind)
    }

    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        self.view.invalidate(by, rkey)
    }
}

impl QpMemory<'_> {
    /// Wakes the control plane if the fault is that memory is gone: the control plane reports it.
    #[cold]
    fn tell(&self, fault: MemoryFault) {
        if fault == MemoryFault::Gone {
            self.tables.notices.wake();
        }
    }
}

impl<'a> Env for QpEnv<'a> {
    type Memory = QpMemory<'a>;

    type Other<'o> = QpEnv<'o>;

    #[inline]
    fn memory(&mut self) -> &mut QpMemory<'a> {
        &mut self.memory
    }

    //= check A27 — no more packets are held than the mempool can spare
    fn can_hold(&self) -> bool {
        self.held.has_room()
    }
}

impl SharedReceives for QpEnv<'_> {
    #[inline]
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        self.srq.map_or(Found::Nothing, |srq| srq.take(room, place))
    }

    fn queue_named(&self, srqn: Srqn) -> Option<Pd> {
        self.find_named(srqn).map(|queue| queue.srq.pd())
    }

    fn take_named(&mut self, srqn: Srqn, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        // `None` if the queue was destroyed since the core has asked for its domain.
        let Some(queue) = self.find_named(srqn) else { return Found::Nothing };
        let found = queue.srq.take(room, place);
        if found == Found::Receive {
            self.completions.receive_in(&queue.cq);
        }
        found
    }

    fn receives_waiting(&self) -> u32 {
        // The core does not ask while the queue is borrowed to feed it.
        self.rq.try_borrow().map_or(0, |rq| rq.waiting())
    }
}

impl PacketSink for QpEnv<'_> {
    #[inline]
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let sent = match packet.path {
            Path::Sprayed(template, index) => self.transmit_sprayed(template, index, packet),
            Path::Connected(template) => {
                self.lane.transmit(template, packet, self.memory.view, self.counters)
            }
            Path::Ah(ah) => self.transmit_datagram(ah, packet),
        };
        if let Err(TransmitError::Memory(fault)) = sent {
            self.memory.tell(fault);
        }
        sent
    }

    fn transmit_frame(&mut self, frame: &OutboundFrame<'_>) -> Result<u32, FrameError> {
        let QpMemory { view, tables } = &self.memory;
        let flows = tables.flows.get(view.turn());
        let sender = Some(frame.by.pd);
        let hears = |fields: &FlowFields, addresses: &PortAddresses| {
            let of = |flows: &Flows| {
                flows.takers(self.port, fields, addresses.needs(fields), sender).next().is_some()
            };
            flows.is_some_and(of)
        };
        let sent = self.lane.transmit_frame(frame, hears, view, self.counters);
        if let Err(FrameError::Memory(fault)) = sent {
            self.memory.tell(fault);
        }
        sent
    }
}

impl<'a> QpEnv<'a> {
    /// The XRC shared receive queue with this number, if it is of the QP's XRC domain.
    fn find_named(&self, srqn: Srqn) -> Option<&'a XrcQueue> {
        let QpMemory { view, tables } = &self.memory;
        tables.xrc.find(srqn, self.path.xrcd?, view.turn())
    }

    /// Sends a packet of a connection with the UDP source port of this index.
    #[cold]
    #[inline(never)]
    fn transmit_sprayed(
        &mut self,
        template: &HeaderTemplate,
        index: u16,
        packet: &Outbound<'_>,
    ) -> Result<u32, TransmitError> {
        let template = template.with_port(index);
        self.lane.transmit(&template, packet, self.memory.view, self.counters)
    }

    fn transmit_datagram(&mut self, ah: Ah, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let (pd, turn) = (packet.by.pd, self.memory.view.turn());
        let handle = self.memory.tables.handles.find(ah, pd, self.port, turn);
        let handle = handle.ok_or(TransmitError::UnknownAh)?;
        if handle.pace.is_limited() {
            return self.transmit_paced(handle, packet);
        }
        self.transmit_by(handle, packet)
    }

    /// Sends a datagram by an address handle with a rate limit. Each frame reserves a time to
    /// leave, and keeps it while it waits.
    //= check S3 — the handle's pace is one for all QPs and lcores
    #[cold]
    fn transmit_paced(
        &mut self,
        handle: &Handle,
        packet: &Outbound<'_>,
    ) -> Result<u32, TransmitError> {
        let now = self.now;
        let reserve = || handle.pace.reserve(frame_len(handle, packet), now);
        let departure = *self.path.departure.get_or_insert_with(reserve);
        if departure > now {
            self.path.is_paced = true;
            return Err(TransmitError::Paced(departure));
        }
        let len = self.transmit_by(handle, packet)?;
        self.path.departure = None;
        self.path.is_paced = true;
        Ok(len)
    }

    #[inline]
    fn transmit_by(
        &mut self,
        handle: &Handle,
        packet: &Outbound<'_>,
    ) -> Result<u32, TransmitError> {
        let (template, memory, counters) = (&handle.template, self.memory.view, self.counters);
        match handle.group {
            Some(group) if self.is_heard_here(group, packet) => {
                self.lane.transmit_to_group(template, packet, memory, counters)
            }
            _ => self.lane.transmit(template, packet, memory, counters),
        }
    }

    /// Returns whether the datagram is for a multicast group that QPs of this device are in.
    fn is_heard_here(&self, group: Gid, packet: &Outbound<'_>) -> bool {
        let members = self.memory.tables.groups.find(group, self.memory.view.turn());
        packet.bth.dest_qpn == Qpn::MULTICAST && members.is_some()
    }
}

/// Returns the bytes of a datagram's frame, from the destination MAC to the ICRC.
fn frame_len(handle: &Handle, packet: &Outbound<'_>) -> u32 {
    // An opcode without headers is refused later.
    let headers = headers_len(packet.bth.opcode).unwrap_or(0) as u32;
    let (payload, pad) = (packet.payload.len(), u32::from(packet.bth.pad_count));
    u32::from(handle.template.len) + headers + payload + pad + ICRC_LEN as u32
}

impl Output for QpEnv<'_> {
    #[inline]
    fn complete(&mut self, side: Side, cqe: Cqe) {
        if self.pending.len() == self.pending.capacity() {
            // The buffer is full only when one QP flushes, so all of it belongs to this QP.
            self.completions.deliver(self.pending.drain(..), self.counters);
        }
        self.pending.push((side, self.completions.finish(side, self.now, cqe)));
    }

    #[inline]
    fn count(&mut self, counter: Counter) {
        self.counters.count_transport(counter);
    }

    fn round_trip(&mut self, nanos: u32) {
        self.counters.round_trips.record(nanos);
    }

    fn event(&mut self, event: AsyncEvent) {
        self.path.migrated |= event == AsyncEvent::PathMig;
        let is_hidden = match event {
            AsyncEvent::PathMig | AsyncEvent::PathMigErr => {
                self.path.loader == PathLoader::ControlPlane
            }
            other => other == AsyncEvent::PeerLost,
        };
        if !is_hidden {
            self.events.raiser.raise(event.into());
        }
        if let Some(slot) = self.events.notices {
            self.memory.tables.notices.raise(slot, event.into());
        }
    }
}
