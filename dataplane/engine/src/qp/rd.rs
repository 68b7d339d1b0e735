//! Reliable datagrams: inputs of RD QPs and EECs, which work on each other.
//!
//! ```text
//!   input ─▶ QP out of its slot ─▶ work ─▶ state, completions, timer, turn ─▶ into its slot
//!                                   └─▶ another QP, in the same way
//! ```
//!
//! Invariants
//! - All RD QPs and EECs of a domain are in one shard. They are in one schedule, the last one,
//!   whatever their ports.
//! - What follows an input follows it for each QP that has been worked on.
//! - No QP fails for a completion queue that is full before the input is over: it could not leave
//!   the EEC that is being worked on.
//! - Completions that wait in the shard's buffer while another QP is worked on are the caller's;
//!   those behind them are that QP's.
//!
//! Not here: inputs of all other QPs ([`crate::qp::context`]); which EEC a packet is for
//! ([`crate::rx`]).

use crate::control::Migrated;
use crate::lane::Lane;
use crate::lane::binding::PortSet;
use crate::qp::completions::Completions;
use crate::qp::context::{PathState, QpContext, QpEvents, QueueFeeds};
use crate::qp::env::{QpEnv, QpMemory, TurnContext};
use crate::qp::held::HeldPackets;
use crate::qp::shard::Shard;
use std::cell::RefCell;
use uroce_shared::memory::mr_table::MrView;
use uroce_shared::queue::{QpShared, RecvQueueFeed, SharedReceiveQueue};
use uroce_shared::seat::Work;
use uroce_shared::table::qp_table::RD_BIT;
use uroce_transport::{
    AsyncEvent, Counter, Cqe, Env, Found, Instant, ModifyError, Outbound, Output, PacketSink,
    Progress, Qp, QpChange, QpState, QpType, RecvWr, Sge, SharedReceives, Side, TransmitError,
};
use uroce_wire::Qpn;

/// Largest number of packets that an EEC sends before the next one's turn.
const QUANTUM: u32 = 32;
/// Packets after which EECs send no more in one turn of the lcore.
const TURN: u64 = 256;
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
        let (index, context) = self.shard.take_rd(number)?;
        if self.shard.pending.capacity() - self.shard.pending.len() < ROOM {
            self.deliver();
        }
        let RdEnv { now, memory: QpMemory { view, tables }, lanes, held, shard, .. } = self;
        let mut turn = TurnContext { now: *now, memory: view, tables, lanes, held };
        Some(shard.serve(index, context, &mut turn, |qp, _, env| work(qp, env)))
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

impl Shard {
    /// The place of RD QPs and EECs among the schedules.
    fn rd_schedule(&self) -> usize {
        self.schedules.len() - 1
    }

    /// Returns whether the QP in a slot is an RD QP or EEC.
    pub(crate) fn is_rd(&self, index: u32) -> bool {
        self.get(index).is_some_and(QpContext::is_rd)
    }

    /// Takes the RD QP or EEC of this number out of its slot. `None` if there is none, or it is
    /// being worked on.
    fn take_rd(&mut self, number: Qpn) -> Option<(u32, Box<QpContext>)> {
        let place = self.table.find(number)?;
        if place.owner != self.lcore | RD_BIT {
            return None;
        }
        let slot = self.qps.get_mut(place.index as usize)?;
        let context = slot.take_if(|context| context.qp.qpn() == number)?;
        Some((place.index, context))
    }

    /// Gives the RD QP or EEC in a slot one input. `None` if there is none.
    pub(crate) fn input_rd<R>(
        &mut self,
        index: u32,
        turn: &mut TurnContext<'_>,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut RdEnv<'_>) -> R,
    ) -> Option<R> {
        let slot = self.qps.get_mut(index as usize)?;
        let context = slot.take_if(|context| context.is_rd())?;
        let result = self.serve(index, context, turn, work);
        while std::mem::take(&mut self.has_overrun) {
            self.fail_overrun(turn);
        }
        Some(result)
    }

    /// Gives a QP, which is not in its slot, to `work`, puts it back, and does what follows an
    /// input.
    fn serve<R>(
        &mut self,
        index: u32,
        mut context: Box<QpContext>,
        turn: &mut TurnContext<'_>,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut RdEnv<'_>) -> R,
    ) -> R {
        let first = self.pending.len();
        let noted = context.completions.has_delivered();
        let lane = context.lane();
        let QpContext { qp, queues, completions, events, path, shared, srq, published, .. } =
            &mut *context;
        let feeds = &mut queues.feeds();
        let (rq, srq) = (feeds.rq, srq.as_deref());
        let own = Own { rq, srq, completions, events, path, lane, first, is_woken: false };
        let TurnContext { now, memory, tables, lanes, held } = turn;
        let memory: &MrView<'_> = memory;
        let memory = QpMemory { view: memory, tables };
        let mut env = RdEnv { now: *now, memory, lanes, held, shard: self, own };
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
        // The schedule of another port is the same.
        env.own.path.migrated = false;
        if !noted && context.completions.has_delivered() {
            self.completed.push(index);
        }
        if let Some(deadline) = context.qp.next_near_timeout()
            && self.timers.get(index).is_none_or(|set| deadline < set)
        {
            self.timers.set(index, deadline);
        }
        self.qps[index as usize] = Some(context);
        if wants_turn {
            self.activate(index);
        }
        result
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
            if self.get(index).is_some_and(is_over)
                && let Some(context) = self.qps[index as usize].take()
            {
                self.serve(index, context, turn, |qp, _, env| qp.fail(env));
            }
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
        self.set_timer(index);
        self.activate(index);
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
    /// through one of the ports `to`.
    #[cold]
    pub(super) fn migrate_eecs(
        &mut self,
        port: usize,
        to: PortSet,
        turn: &mut TurnContext<'_>,
        all: &mut Migrated,
    ) {
        for index in 0..self.qps.len() as u32 {
            let is_there =
                |context: &QpContext| context.qp.qp_type() == QpType::Eec && context.lane() == port;
            if !self.get(index).is_some_and(is_there) {
                continue;
            }
            let now = turn.now;
            let has_migrated = self.can_leave(index, to)
                && self.input_rd(index, turn, |qp, _, env| qp.migrate(now, env)) == Some(true);
            all.count(has_migrated, self.get(index));
            self.activate(index);
        }
    }

    /// Returns whether RD QPs or EECs may have something to do.
    #[inline]
    pub(crate) fn has_active_rd(&self) -> bool {
        self.schedules.last().is_some_and(|schedule| !schedule.active.is_empty())
    }

    /// Returns whether EECs send before the QPs of the ports in this turn. Both take turns, or one
    /// could leave a busy port no room for the other.
    pub(crate) fn rd_comes_first(&mut self) -> bool {
        self.rd_is_first ^= true;
        self.rd_is_first
    }

    /// Lets the active RD QPs take what was posted, and the active EECs send. Returns whether any
    /// had a turn, and whether any made progress.
    #[cold]
    pub(crate) fn transmit_rd(&mut self, turn: &mut TurnContext<'_>) -> Work {
        let at = self.rd_schedule();
        // The EECs that the RD QPs wake have their turns too.
        let mut turns = 2 * self.schedules[at].active.len();
        let taken = |turn: &TurnContext<'_>| turn.lanes.iter().map(Lane::taken).sum::<u64>();
        let begin = taken(turn);
        let mut work = Work::Nothing;
        while turns > 0 && taken(turn) < begin + TURN {
            turns -= 1;
            let Some(index) = self.schedules[at].active.pop_front() else { break };
            let progress = self.visit_rd(index, turn);
            let is_blocked = progress == Some(Progress::Blocked);
            work = work.max(if is_blocked { Work::Blocked } else { Work::Done });
            if is_blocked && let Some(lane) = self.get(index).map(QpContext::lane) {
                // Another QP at that port is not to be taken for the one that was refused.
                turn.lanes[lane].take_was_refused_alone();
            }
            match progress {
                // One that is blocked makes room: the others may have other ports.
                Some(Progress::More | Progress::Blocked) => {
                    self.schedules[at].active.push_back(index);
                }
                Some(Progress::Idle) | None => self.retire(index),
            }
        }
        work.max((taken(turn) > begin).into())
    }

    /// Gives an RD QP or EEC its turn.
    fn visit_rd(&mut self, index: u32, turn: &mut TurnContext<'_>) -> Option<Progress> {
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
