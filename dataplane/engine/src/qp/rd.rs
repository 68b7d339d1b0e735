//! Reliable datagrams: inputs of RD QPs and EECs, which work on each other.
//!
//! ```text
//!   input ─▶ QP out of its slot ─▶ work ─▶ state, completions, timer, turn ─▶ into its slot
//!                                   └─▶ another QP, in the same way
//! ```
//!
//! Invariants
//! - All RD QPs and EECs of a domain are in one shard. EECs have a schedule for each port, and RD
//!   QPs, which send nothing themselves, one for all.
//! - What is worked on is back in its slot afterwards, also if the turn panics.
//! - What follows an input follows it for each QP that has been worked on.
//! - No QP fails for a completion queue that is full before the input is over: it could not leave
//!   the EEC that is being worked on.
//! - Completions that wait in the shard's buffer while another QP is worked on are the caller's;
//!   those behind them are that QP's.
//!
//! Not here: inputs of all other QPs ([`crate::qp::context`]); which EEC a packet is for
//! ([`crate::rx`]).

use crate::lane::Lane;
use crate::lane::binding::PortSet;
use crate::qp::completions::Completions;
use crate::qp::context::{PathState, QpContext, QpEvents, QueueFeeds};
use crate::qp::env::{QpEnv, QpMemory, TurnContext};
use crate::qp::held::HeldPackets;
use crate::qp::schedule::TURN;
use crate::qp::shard::Shard;
use std::cell::RefCell;
use uroce_shared::memory::mr_table::MrView;
use uroce_shared::queue::{QpShared, RecvQueueFeed, SharedReceiveQueue};
use uroce_shared::seat::Work;
use uroce_shared::table::qp_table::Place;
use uroce_transport::{
    AsyncEvent, Counter, Cqe, Env, Found, Instant, ModifyError, Outbound, Output, PacketSink,
    Progress, Qp, QpChange, QpState, RecvWr, Sge, SharedReceives, Side, TransmitError,
};
use uroce_wire::Qpn;

/// Largest number of packets that an EEC sends before the next one's turn.
const QUANTUM: u32 = 32;
/// Places for completions that a QP finds at least when it is worked on by another.
const ROOM: usize = 64;

/// The environment in which the core handles one input of an RD QP or EEC.
pub(crate) struct RdEnv<'a> {
    now: Instant,
    memory: QpMemory<'a>,
    lanes: &'a mut [Lane],
    held: &'a mut HeldPackets,
    shard: &'a mut Shard,
    own: Own<'a>,
}

/// An RD QP or EEC that is out of its slot while it is worked on. It is back when this is dropped.
struct Away<'s> {
    shard: &'s mut Shard,
    index: u32,
    context: Option<Box<QpContext>>,
}

/// What is the QP's own that is being worked on.
struct Own<'a> {
    rq: &'a RefCell<RecvQueueFeed>,
    srq: Option<&'a SharedReceiveQueue>,
    completions: &'a mut Completions,
    events: &'a QpEvents,
    path: &'a mut PathState,
    /// Its port, counted from 0.
    lane: usize,
    /// Where its completions begin in the shard's buffer.
    first: usize,
    /// Whether it asks for a turn.
    is_woken: bool,
}

impl RdEnv<'_> {
    /// The environment of a QP that works on no other.
    #[inline]
    fn plain(&mut self) -> QpEnv<'_> {
        let RdEnv { now, memory: QpMemory { view, tables }, lanes, held, shard, own } = self;
        QpEnv {
            now: *now,
            memory: QpMemory { view, tables },
            lane: &mut lanes[own.lane],
            held,
            port: own.lane,
            rq: own.rq,
            srq: own.srq,
            completions: own.completions,
            events: own.events,
            path: own.path,
            pending: &mut shard.pending,
            counters: &shard.counters,
        }
    }

    /// Counts a received packet, with the bytes of its frame.
    pub(crate) fn note_received(&mut self, bytes: usize) {
        let traffic = &mut self.own.path.traffic;
        traffic.rx_packets += 1;
        traffic.rx_bytes += bytes as u64;
    }

    /// Puts the QP's completions into their queues.
    fn deliver(&mut self) {
        let Shard { pending, counters, .. } = &mut *self.shard;
        if pending.len() > self.own.first {
            self.own.completions.deliver(pending.drain(self.own.first..), counters);
            self.shard.has_overrun |= self.own.completions.overrun;
        }
    }

    /// Publishes a new state, as is done for every QP. Requests still in the rings are flushed in
    /// ERR (in SQE, only sends) and discarded in RESET.
    #[cold]
    fn enter_state(
        &mut self,
        qp: &mut Qp,
        feeds: &mut QueueFeeds<'_>,
        shared: &QpShared,
        published: &mut QpState,
    ) {
        *published = qp.state();
        shared.publish_state(qp.state());
        RecvQueueFeed::flush_fence();
        if matches!(qp.state(), QpState::Err | QpState::Reset | QpState::Sqe) {
            feeds.sq.feed_datagrams(qp, self);
        }
        if matches!(qp.state(), QpState::Err | QpState::Reset) {
            feeds.pull_receives(qp, self);
        }
        if qp.state() == QpState::Reset {
            feeds.release(shared, self.own.completions);
        }
    }
}

impl<'a> Env for RdEnv<'a> {
    type Memory = QpMemory<'a>;

    type Other<'o> = RdEnv<'o>;

    fn memory(&mut self) -> &mut QpMemory<'a> {
        &mut self.memory
    }

    fn with_other<R>(
        &mut self,
        number: Qpn,
        work: impl FnOnce(&mut Qp, &mut RdEnv<'_>) -> R,
    ) -> Option<R> {
        let index = self.shard.find_rd(number)?;
        if self.shard.pending.capacity() - self.shard.pending.len() < ROOM {
            self.deliver();
        }
        let RdEnv { now, memory: QpMemory { view, tables }, lanes, held, shard, .. } = self;
        let mut turn = TurnContext { now: *now, memory: view, tables, lanes, held };
        let is_it = |context: &QpContext| context.qp.qpn() == number;
        shard.serve(index, is_it, &mut turn, |qp, _, env| work(qp, env))
    }

    fn has_eec_elsewhere(&self, number: Qpn) -> bool {
        let place = self.shard.table.find(number).filter(Place::is_eec);
        place.is_some_and(|place| place.lcore() != self.shard.lcore)
    }

    fn wake(&mut self) {
        self.own.is_woken = true;
    }
}

impl SharedReceives for RdEnv<'_> {
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        self.own.srq.map_or(Found::Nothing, |srq| srq.take(room, place))
    }

    fn receives_waiting(&self) -> u32 {
        self.own.rq.try_borrow().map_or(0, |rq| rq.waiting())
    }
}

impl PacketSink for RdEnv<'_> {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        self.plain().transmit(packet)
    }
}

impl Output for RdEnv<'_> {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        let cqe = self.own.completions.finish(side, self.now, cqe);
        if self.shard.pending.len() == self.shard.pending.capacity() {
            self.deliver();
        }
        self.shard.pending.push((side, cqe));
    }

    fn count(&mut self, counter: Counter) {
        self.shard.counters.count_transport(counter);
    }

    fn round_trip(&mut self, nanos: u32) {
        self.shard.counters.round_trips.record(nanos);
    }

    fn event(&mut self, event: AsyncEvent) {
        self.plain().event(event);
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.shard.qps.get_mut(self.index as usize) {
            *slot = self.context.take();
        }
    }
}

impl Away<'_> {
    /// Gives the QP to `work`, and publishes the results. Returns that of `work`, and whether the
    /// QP asks for a turn.
    fn input<R>(
        &mut self,
        turn: &mut TurnContext<'_>,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut RdEnv<'_>) -> R,
    ) -> Option<(R, bool)> {
        let Away { shard, context, .. } = self;
        let context = context.as_deref_mut()?;
        let (first, lane) = (shard.pending.len(), context.lane());
        let QpContext { qp, queues, completions, events, path, shared, srq, published, .. } =
            context;
        let feeds = &mut queues.feeds();
        let (rq, srq) = (feeds.rq, srq.as_deref());
        let own = Own { rq, srq, completions, events, path, lane, first, is_woken: false };
        let TurnContext { now, memory, tables, lanes, held } = turn;
        let memory: &MrView<'_> = memory;
        let memory = QpMemory { view: memory, tables };
        let mut env = RdEnv { now: *now, memory, lanes, held, shard, own };
        // A packet of an EEC needs the receives that were posted to the RD QP.
        rq.borrow_mut().feed_datagrams(qp, &mut env);
        let result = work(qp, feeds, &mut env);
        if qp.state() != *published {
            env.enter_state(qp, feeds, shared, published);
        }
        if feeds.has_refused() {
            feeds.release(shared, env.own.completions);
        }
        env.deliver();
        let wants_turn = env.own.is_woken || feeds.sq.has_more_for(qp);
        Some((result, wants_turn))
    }
}

impl Shard {
    /// Returns whether the QP in a slot is an RD QP or EEC.
    pub(crate) fn is_rd(&self, index: u32) -> bool {
        self.get(index).is_some_and(QpContext::is_rd)
    }

    /// Returns the slot of the RD QP or EEC of this number, if this shard has it.
    fn find_rd(&self, number: Qpn) -> Option<u32> {
        let place = self.table.find(number).filter(Place::is_rd)?;
        (place.lcore() == self.lcore).then_some(place.index)
    }

    /// Gives the RD QP or EEC in a slot one input. `None` if there is none.
    pub(crate) fn input_rd<R>(
        &mut self,
        index: u32,
        turn: &mut TurnContext<'_>,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut RdEnv<'_>) -> R,
    ) -> Option<R> {
        let result = self.serve(index, QpContext::is_rd, turn, work)?;
        while std::mem::take(&mut self.has_overrun) {
            self.fail_overrun(turn);
        }
        Some(result)
    }

    /// Gives the RD QP or EEC in a slot to `work`, and does what follows an input. `None` if there
    /// is none that `is_it`, or it is being worked on.
    fn serve<R>(
        &mut self,
        index: u32,
        is_it: impl FnOnce(&QpContext) -> bool,
        turn: &mut TurnContext<'_>,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut RdEnv<'_>) -> R,
    ) -> Option<R> {
        let context = self.qps.get_mut(index as usize)?.take_if(|context| is_it(context))?;
        let noted = context.completions.has_delivered();
        let mut away = Away { shard: self, index, context: Some(context) };
        let result = away.input(turn, work);
        drop(away);
        let (result, wants_turn) = result?;

        let context = self.qps.get_mut(index as usize)?.as_deref_mut()?;
        if !noted && context.completions.has_delivered() {
            self.completed.push(index);
        }
        if let Some(deadline) = context.qp.next_near_timeout()
            && self.timers.get(index).is_none_or(|set| deadline < set)
        {
            self.timers.set(index, deadline);
        }
        if std::mem::take(&mut context.path.migrated) {
            self.follow_path(index, turn.lanes);
        }
        if wants_turn {
            self.activate(index);
        }
        Some(result)
    }

    /// Takes each QP with a completion that did not fit to ERR.
    //= check G6 — a QP with a completion that does not fit goes to ERR
    #[cold]
    fn fail_overrun(&mut self, turn: &mut TurnContext<'_>) {
        // All that have completed something in this turn are in the list, which may grow.
        let mut at = 0;
        while let Some(&index) = self.completed.get(at) {
            at += 1;
            let is_over = |context: &QpContext| {
                let is_alive = !matches!(context.qp.state(), QpState::Err | QpState::Reset);
                context.is_rd() && context.completions.overrun && is_alive
            };
            self.serve(index, is_over, turn, |qp, _, env| qp.fail(env));
        }
    }

    /// Performs Modify QP on an RD QP or EEC. `None` if there is none in the slot.
    #[cold]
    pub(super) fn modify_rd(
        &mut self,
        index: u32,
        change: &QpChange,
        turn: &mut TurnContext<'_>,
    ) -> Option<Result<(), ModifyError>> {
        let now = turn.now;
        let admitted = self.get(index)?.admit(change);
        // Requests that were posted before the change are given to the core before it.
        let result = self.input_rd(index, turn, |qp, feeds, env| {
            feeds.sq.feed_datagrams(qp, env);
            qp.modify(now, &admitted, env)
        })?;
        let context = self.qps[index as usize].as_mut()?;
        if result.is_ok() {
            context.note_loader(change);
        }
        // The port may have changed.
        self.follow_path(index, turn.lanes);
        self.set_timer(index);
        Some(result)
    }

    /// Handles a deadline of an RD QP or EEC.
    #[cold]
    pub(super) fn time_out_rd(&mut self, index: u32, turn: &mut TurnContext<'_>) {
        let now = turn.now;
        self.input_rd(index, turn, |qp, _, env| qp.handle_timeout(now, env));
        self.set_timer(index);
        self.activate(index);
    }

    /// Ends what an RD QP or EEC does together with others, and takes it out of its slot.
    #[cold]
    pub(crate) fn remove_rd(
        &mut self,
        index: u32,
        turn: &mut TurnContext<'_>,
    ) -> Option<Box<QpContext>> {
        self.input_rd(index, turn, |qp, _, env| qp.detach(env))?;
        self.remove(index)
    }

    /// Migrates each armed EEC that sends through `port`, counted from 0, and has an alternate path
    /// through one of the ports `to`. Returns how many have migrated.
    #[cold]
    pub(super) fn migrate_eecs(
        &mut self,
        port: usize,
        to: PortSet,
        turn: &mut TurnContext<'_>,
    ) -> u32 {
        let mut migrated = 0;
        let slots = if self.rds > 0 { self.qps.len() } else { 0 };
        for index in 0..slots as u32 {
            let is_there = |context: &QpContext| context.is_rd() && context.lane() == port;
            if !self.get(index).is_some_and(is_there) || !self.can_leave(index, to) {
                continue;
            }
            let now = turn.now;
            let went = self.input_rd(index, turn, |qp, _, env| qp.migrate(now, env));
            migrated += u32::from(went == Some(true));
            self.activate(index);
        }
        migrated
    }

    /// Returns whether EECs send before the QPs of the ports in this turn. Both take turns, or one
    /// could leave a busy port no room for the other.
    pub(crate) fn rd_comes_first(&mut self) -> bool {
        self.rd_is_first ^= true;
        self.rd_is_first
    }

    /// Lets the active RD QPs take what was posted, then the active EECs send, those that RD QPs
    /// have woken among them. Returns whether any had a turn, and whether any made progress.
    #[cold]
    pub(crate) fn transmit_rd(&mut self, turn: &mut TurnContext<'_>) -> Work {
        let mut work = Work::Nothing;
        let at = self.schedules.len() - 1;
        for _ in 0..self.schedules[at].active.len() {
            let Some(index) = self.schedules[at].active.pop_front() else { break };
            self.visit_rd(index, turn);
            // It sends nothing itself, and has taken all that was posted.
            self.retire(index);
            work = Work::Done;
        }
        for port in 0..turn.lanes.len() {
            work = work.max(self.transmit_eecs(port, turn));
        }
        work
    }

    /// Lets the active EECs of a port send, as [`Shard::transmit`] does the port's QPs. One that
    /// finds the port full ends the turn of all.
    fn transmit_eecs(&mut self, port: usize, turn: &mut TurnContext<'_>) -> Work {
        let at = self.schedules.len() / 2 + port;
        let begin = turn.lanes[port].taken();
        let mut work = Work::Nothing;
        for _ in 0..self.schedules[at].active.len() {
            if turn.lanes[port].taken() >= begin + TURN {
                break;
            }
            let Some(index) = self.schedules[at].active.pop_front() else { break };
            let progress = self.visit_rd(index, turn);
            let is_blocked = progress == Some(Progress::Blocked);
            work = work.max(if is_blocked { Work::Blocked } else { Work::Done });
            let active = &mut self.schedules[at].active;
            match progress {
                Some(Progress::More) => active.push_back(index),
                Some(Progress::Blocked) if turn.lanes[port].take_was_refused_alone() => {
                    active.push_back(index);
                }
                Some(Progress::Blocked) => {
                    active.push_front(index);
                    if self.schedules[at].has_loopers {
                        self.transmit_loopers(at, port, turn);
                    }
                    break;
                }
                Some(Progress::Idle) | None => self.retire(index),
            }
        }
        // An EEC that is blocked now may have sent something before.
        work.max((turn.lanes[port].taken() > begin).into())
    }

    /// Gives an RD QP or EEC its turn.
    pub(super) fn visit_rd(&mut self, index: u32, turn: &mut TurnContext<'_>) -> Option<Progress> {
        let now = turn.now;
        self.input_rd(index, turn, |qp, feeds, env| {
            feeds.sq.answer_datagrams(qp, env);
            if qp.state() == QpState::Err {
                feeds.pull_receives(qp, env);
            }
            let sent = |env: &RdEnv<'_>| {
                let lane = &env.lanes[env.own.lane];
                (lane.taken(), lane.taken_bytes())
            };
            let (packets, bytes) = sent(env);
            let progress = qp.poll_transmit(now, QUANTUM, env);
            let after = sent(env);
            env.own.path.traffic.tx_packets += after.0 - packets;
            env.own.path.traffic.tx_bytes += after.1 - bytes;
            progress
        })
    }
}
