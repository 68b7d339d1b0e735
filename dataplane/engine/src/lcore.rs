//! An lcore: each turn receives, runs timers, sends and completes for all its QPs.
//!
//! ```text
//!   commands ─▶ receive ─▶ timers ─▶ doorbells ─▶ transmit ─▶ completions ─▶ quiescent
//! ```
//!
//! Invariants
//! - One thread drives an lcore at a time, and a turn runs to its end.
//! - A turn reads the clock once. It does not allocate, lock, log or enter the kernel, except to
//!   raise an event of an armed completion queue, and to wake the control plane, another lcore or a
//!   peer if it sleeps.
//! - A turn that panics is the lcore's last; a fatal device event is raised for the application.
//!
//! Not here: which thread drives the lcore, and what it does between two turns
//! ([`uroce_shared::seat`]).

pub(crate) mod command;
mod guard;
pub(crate) mod profile;
mod rest;
pub(crate) mod thread;

pub use guard::{AdoptError, LcoreGuard};
pub use profile::{LcoreProfile, Stage, StageProfile};

use crate::dpdk::mbuf::Mbuf;
use crate::lane::Lane;
use crate::qp::env::TurnContext;
use crate::qp::held::HeldPackets;
use crate::qp::shard::Shard;
use crate::qp::tables::Tables;
use crate::rx::Receiver;
use command::CommandReceiver;
use profile::{Laps, NoLaps, Profile};
use rtrb::Consumer;
use std::sync::Arc;
use uroce_shared::memory::mr_table::{MrReader, MrView};
use uroce_shared::seat::Work;
use uroce_shared::time::clock::Clock;
use uroce_shared::wake::doorbell::DoorbellReader;
use uroce_shared::wake::events::{EventGuard, EventKind};
use uroce_shared::wake::waker::Waker;
use uroce_transport::Instant;

/// Largest number of doorbells that are answered in one turn; further ones wait for the next turn.
const DOORBELLS: usize = 256;

/// An lcore and all the state that it owns.
#[derive(Debug)]
pub(crate) struct Lcore {
    regions: MrReader,
    duties: Duties,
    profile: Profile,
    fatal: Option<Fatal>,
}

/// The parts that are notified when an lcore's turn has panicked, or the device has lost its last
/// port.
#[derive(Clone, Debug)]
pub(crate) struct Fatal {
    device: Arc<EventGuard>,
    waker: Arc<Waker>,
}

/// A turn in progress. If it is dropped before [`end`](Turning::end), the turn has panicked.
struct Turning<'l> {
    duties: &'l mut Duties,
    memory: &'l MrView<'l>,
    fatal: Option<&'l Fatal>,
}

/// The parts of an lcore that a turn runs, in the order of the turn.
#[derive(Debug)]
pub(crate) struct Duties {
    pub(crate) clock: Clock,
    pub(crate) commands: CommandReceiver,
    pub(crate) receiver: Receiver,
    pub(crate) doorbell: DoorbellReader,
    pub(crate) shard: Shard,
    pub(crate) held: HeldPackets,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) tables: Tables,
    /// For each port, the control plane's frames that this lcore has to send.
    pub(crate) injected: Vec<Consumer<Mbuf>>,
}

impl Lcore {
    pub(crate) fn new(
        regions: MrReader,
        duties: Duties,
        profile: Profile,
        fatal: Option<Fatal>,
    ) -> Lcore {
        Lcore { regions, duties, profile, fatal }
    }

    /// Runs one turn. Returns whether there was anything to do, and whether any of it was done.
    pub(crate) fn run_turn(&mut self) -> Work {
        let memory = self.regions.enter();
        let fatal = self.fatal.as_ref();
        let turning = Turning { duties: &mut self.duties, memory: &memory, fatal };
        let duties = &mut *turning.duties;
        let now = Instant::from_nanos(duties.clock.now());
        let work = match self.profile.is_asked(now) {
            false => duties.turn(now, &memory, &mut NoLaps),
            true => duties.measured_turn(now, &memory, &mut self.profile),
        };
        turning.end();
        // Dropping `memory` is the quiescent point.
        work
    }
}

impl Fatal {
    pub(crate) fn new(device: EventGuard, waker: &Arc<Waker>) -> Fatal {
        Fatal { device: Arc::new(device), waker: Arc::clone(waker) }
    }

    /// Raises a fatal event of the device.
    pub(crate) fn raise(&self) {
        self.device.raise(EventKind::DeviceFatal);
        self.waker.wake();
    }
}

impl Turning<'_> {
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turning<'_> {
    /// Reports as lost the receives that the lcore's QPs took from shared queues and will not
    /// complete.
    #[cold]
    fn drop(&mut self) {
        let Duties { shard, tables, .. } = &*self.duties;
        shard.tell_lost_receives(&tables.xrc, self.memory.turn());
        self.fatal.into_iter().for_each(Fatal::raise);
    }
}

impl Drop for Lcore {
    /// Removes all QPs: posts are refused from now on.
    fn drop(&mut self) {
        let shard = &mut self.duties.shard;
        for index in shard.indices().collect::<Vec<_>>() {
            shard.remove(index);
        }
    }
}

impl Duties {
    /// Runs the stages of a turn. Returns whether there was anything to do, and whether any of it
    /// was done.
    #[inline(always)]
    fn turn(&mut self, now: Instant, memory: &MrView<'_>, laps: &mut impl Laps) -> Work {
        self.lanes.iter_mut().for_each(|lane| lane.begin(now));
        let mut busy = laps.lap(Stage::Commands, self.obey_commands(now, memory));
        busy |= laps.lap(Stage::Receive, self.receive(now, memory));
        busy |= laps.lap(Stage::Timers, self.expire_timers(now, memory));
        busy |= laps.lap(Stage::Doorbells, self.answer_doorbells());
        let sent = laps.lap(Stage::Transmit, self.transmit(now, memory));
        laps.lap(Stage::Completions, self.shard.notify());
        sent.max(busy.into())
    }

    /// Runs the stages of a turn and adds the cycles that they take to the profile.
    #[cold]
    #[inline(never)]
    fn measured_turn(&mut self, now: Instant, memory: &MrView<'_>, profile: &mut Profile) -> Work {
        let mut laps = profile.begin();
        let work = self.turn(now, memory, &mut laps);
        let ended = laps.ended();
        profile.end(ended, work);
        work
    }

    fn receive(&mut self, now: Instant, memory: &MrView<'_>) -> bool {
        let Duties { tables, lanes, held, .. } = self;
        let mut turn = TurnContext { now, memory, tables, lanes, held };
        let mut any = self.receiver.take_over(&mut self.shard, &mut turn);
        for port in 0..turn.lanes.len() {
            any |= self.receiver.receive(port, &mut self.shard, &mut turn);
        }
        if !self.held.has_room() {
            let shard = &mut self.shard;
            self.held.sweep(now, |slot, psn, is_old| shard.keeps_held(slot, psn, is_old));
        }
        any
    }

    fn expire_timers(&mut self, now: Instant, memory: &MrView<'_>) -> bool {
        let Duties { tables, lanes, held, .. } = self;
        self.shard.expire(&mut TurnContext { now, memory, tables, lanes, held })
    }

    fn answer_doorbells(&mut self) -> bool {
        let mut any = false;
        for _ in 0..DOORBELLS {
            let Some(index) = self.doorbell.next_rung() else { break };
            self.shard.ring(index);
            self.shard.activate(index);
            any = true;
        }
        any
    }

    fn transmit(&mut self, now: Instant, memory: &MrView<'_>) -> Work {
        let mut work = Work::from(self.take_injected());
        let Duties { tables, lanes, held, .. } = self;
        let mut turn = TurnContext { now, memory, tables, lanes, held };
        let has_rd = self.shard.has_active_rd();
        let rd_is_first = has_rd && self.shard.rd_comes_first();
        let rd_is_last = has_rd && !rd_is_first;
        if rd_is_first {
            work = work.max(self.shard.transmit_rd(&mut turn));
        }
        for port in 0..turn.lanes.len() {
            work = work.max(self.shard.transmit(port, &mut turn));
            // A lane is flushed once in a turn, after all that send through it.
            if !rd_is_last {
                work = work.max(turn.lanes[port].flush(now, &self.shard.counters).into());
            }
        }
        if rd_is_last {
            work = work.max(self.shard.transmit_rd(&mut turn));
            for lane in &mut *turn.lanes {
                work = work.max(lane.flush(now, &self.shard.counters).into());
            }
        }
        work
    }

    /// Sends the control plane's frames, which are few, before those of QPs. Frames for a full port
    /// stay in that port's ring and delay no other port. Returns whether any frame was sent.
    fn take_injected(&mut self) -> bool {
        let mut any = false;
        for (ring, lane) in self.injected.iter_mut().zip(&mut self.lanes) {
            while ring.peek().is_ok_and(|frame| lane.can_inject(frame))
                && let Ok(frame) = ring.pop()
            {
                lane.inject(frame, &self.shard.counters);
                any = true;
            }
        }
        any
    }

    fn obey_commands(&mut self, now: Instant, memory: &MrView<'_>) -> bool {
        let mut any = false;
        while let Ok(command) = self.commands.commands.pop() {
            let Duties { shard, tables, lanes, held, .. } = &mut *self;
            let mut turn = TurnContext { now, memory, tables, lanes, held };
            let reply = command.obey(shard, &mut turn);
            // `push` cannot fail: the ring of replies is as deep as the ring of commands, and one
            // command is under way at a time.
            let pushed = self.commands.replies.push(reply);
            debug_assert!(pushed.is_ok(), "a reply for each command");
            any = true;
        }
        any
    }
}

#[cfg(test)]
pub(crate) use tests::without_ports;

#[cfg(test)]
mod tests {
    use super::command::{Command, CommandSender, CreateQp, ModifyQp, command_rings};
    use super::profile::ProfileBlock;
    use super::*;
    use crate::counters::CounterBlock;
    use crate::qp::completions::Completions;
    use crate::qp::context::{QpContext, QpEvents, Queues};
    use crate::rx::Exits;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use uroce_shared::memory::mr_table::MrTable;
    use uroce_shared::queue::places::Places;
    use uroce_shared::queue::{
        CompletionQueue, QpShared, RingSpec, SendQueueEnd, SendSpec, SharedReceiveQueue,
        recv_queue, send_queue,
    };
    use uroce_shared::table::key::Numbers;
    use uroce_shared::table::qp_table::QpTable;
    use uroce_shared::wake::doorbell::Doorbell;
    use uroce_shared::wake::events::{EventChannel, Subject};
    use uroce_transport::{AccessFlags, Pd, Qp, QpCaps, QpChange, QpInit, QpState, QpType, RdAttr};
    use uroce_wire::{Qkey, Qpn};

    const CAPS: QpCaps = QpCaps {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };

    /// Makes an lcore without a port. No engine has one: the first input to a QP panics.
    pub(crate) fn without_ports(events: &Arc<EventChannel>) -> (Lcore, CommandSender) {
        let numbers = Numbers::random(1).unwrap();
        let regions = Arc::new(MrTable::new(1, 1, numbers.clone()));
        let waker = Waker::new().unwrap();
        let tables = Tables {
            handles: Arc::new(uroce_shared::table::ah_table::AhTable::new(
                1,
                Arc::clone(regions.turns()),
            )),
            groups: Arc::new(uroce_shared::table::mcast::GroupTable::new(Arc::clone(
                regions.turns(),
            ))),
            flows: Arc::new(uroce_shared::table::flows::FlowTable::new(Arc::clone(
                regions.turns(),
            ))),
            xrc: Arc::new(uroce_shared::queue::xrc::XrcTable::new(Arc::clone(regions.turns()))),
            notices: Arc::new(uroce_shared::wake::notices::Notices::new(1, Arc::clone(&waker))),
        };
        let table = Arc::new(QpTable::new(1, numbers));
        let exits = Arc::new(Exits::new(Box::new([Arc::default()]), Arc::clone(&waker)));
        let (sender, commands) = command_rings();
        let duties = Duties {
            clock: Clock::new(),
            commands,
            receiver: Receiver::new(0, 0, Arc::clone(&table), exits),
            doorbell: DoorbellReader::new(Arc::new(Doorbell::new(1, Arc::default()))),
            shard: Shard::new(0, 0, 1, table, Arc::new(CounterBlock::new())),
            held: HeldPackets::new(0),
            lanes: Vec::new(),
            tables,
            injected: Vec::new(),
        };
        let profile = Profile::new(Arc::new(ProfileBlock::new()), Arc::new(CounterBlock::new()));
        let fatal = Fatal::new(events.admit(Subject::Device).unwrap(), &waker);
        (Lcore::new(MrReader::new(regions, 0), duties, profile, Some(fatal)), sender)
    }

    /// A QP with a shared receive queue in slot 0, its command, and the ends of its posts.
    fn create(events: &Arc<EventChannel>, init: QpInit) -> (CreateQp, EventGuard, SendQueueEnd) {
        let qpn = Qpn::new(2);
        let guard = events.admit(Subject::Qp(qpn)).unwrap();
        let srq = events.admit(Subject::Srq(5)).unwrap();
        let srq = Arc::new(SharedReceiveQueue::new(Pd(1), 1, 1, srq).unwrap());
        let cq = CompletionQueue::new(1, None).unwrap();
        let places = Places::new(1).begin(0, qpn).unwrap();
        let shared = Arc::new(QpShared::new(places));
        let doorbell = Arc::new(Doorbell::new(1, Arc::default()));
        let ring =
            RingSpec { shared: Arc::clone(&shared), doorbell, index: 0, depth: 1, max_sge: 1 };
        let send = SendSpec { qp_type: init.qp_type, max_inline: 0 };
        let (sq_end, sq) = send_queue(ring.clone(), send);
        let (_rq, rq) = recv_queue(ring, true);
        let cqs = [Arc::clone(&cq), cq];
        let completions = Completions::new(cqs, 0);
        let qp_events = QpEvents { raiser: guard.raiser(), notices: None };
        let queues = Queues { sq, rq: RefCell::new(rq) };
        let qp = Qp::new(qpn, Pd(1), &QpInit { srq: Some(Pd(1)), ..init });
        let context =
            Box::new(QpContext::new(qp, queues, shared, completions, qp_events, Some(srq), None));
        (CreateQp { index: 0, context }, guard, sq_end)
    }

    /// An lcore panics while it works on a QP: the application is told of the device and of the
    /// QP's shared queue, and when the lcore has been taken apart the QP takes no posts.
    fn panics(qp_type: QpType, changes: &[QpChange]) {
        let events = EventChannel::new(4).unwrap();
        let (mut lcore, mut sender) = without_ports(&events);
        let (created, _guard, sq) = create(&events, QpInit::new(qp_type, CAPS));
        sender.commands.push(Command::from(created)).unwrap();
        assert_eq!(lcore.run_turn(), Work::Done);
        assert!(events.try_next().unwrap().is_none());

        let turn = catch_unwind(AssertUnwindSafe(|| {
            for change in changes {
                let change = ModifyQp { index: 0, change: *change, memory: None };
                sender.commands.push(Command::from(change)).unwrap();
                lcore.run_turn();
            }
        }));
        assert!(turn.is_err());
        let mut told = Vec::new();
        while let Some(event) = events.try_next().unwrap() {
            told.push((event.subject, event.kind));
        }
        let expected =
            [(Subject::Srq(5), EventKind::SrqErr), (Subject::Device, EventKind::DeviceFatal)];
        assert_eq!(told, expected);
        drop(lcore);
        assert_eq!(sq.state(), QpState::Reset);
    }

    #[test]
    fn an_lcore_that_panics_is_told_of_and_so_are_its_shared_queues() {
        panics(QpType::Rc, &[QpChange::to(QpState::Err)]);
    }

    #[test]
    fn a_panic_leaves_an_rd_qp_and_an_eec_in_their_places() {
        let attr = RdAttr { access: AccessFlags::empty(), max_dest_rd_atomic: 0, min_rnr_timer: 1 };
        panics(QpType::Rd, &QpChange::reliable_datagram_steps(Qkey(1), &attr));
        panics(QpType::Eec, &[QpChange::to_init(1)]);
    }
}
