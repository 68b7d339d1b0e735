//! Shard: the QPs of one lcore. Each input passes through it to its QP.
//!
//! Invariants
//! - A QP is in the active list of its own schedule only, at most once; it is there if it may have
//!   something to send.
//! - RD QPs and EECs have inputs of their own ([`crate::qp::rd`]).
//! - The timer wheel's deadline of a QP is never later than the QP's own. It may be earlier: each
//!   ACK moves the QP's deadline, and the wheel is set again only when the old one has come. The
//!   keepalive's time moves forward only with a Modify QP or an expired timer, so that only these
//!   set the wheel for it.
//!
//! Not here: the source of inputs ([`crate::rx`], [`crate::lcore`]); the order in which QPs send
//! ([`crate::qp::schedule`]).

use crate::counters::CounterBlock;
use crate::lane::Lane;
use crate::lane::binding::PortSet;
use crate::qp::context::{Migrated, QpContext, QueueFeeds, Resized};
use crate::qp::env::{QpEnv, TurnContext};
use crate::qp::schedule::Schedule;
use std::sync::Arc;
use uroce_shared::queue::cq::CompletionQueue;
use uroce_shared::queue::xrc::XrcTable;
use uroce_shared::table::qp_table::{EEC_BIT, Place, QpTable, RD_BIT};
use uroce_shared::table::qsbr::InTurn;
use uroce_shared::time::timer_wheel::TimerWheel;
use uroce_transport::{
    AltPath, Cqe, Instant, PathMigState, Qp, QpChange, QpState, QpType, SelectiveRepeat, Side,
};
use uroce_wire::Psn;

/// Completions that are kept until an input has been handled. One ACK completes at most the packets
/// in flight; only a flush makes more, which go out early ([`QpEnv`]).
const PENDING: usize = 512;

/// Largest number of deadlines handled in one turn, so that many at once do not delay receiving.
const DEADLINES: usize = 256;

/// Bytes per QP: a pointer, a deadline, and a place each in `completed` and in the list of its
/// schedule. (The lists of the other schedules have places for it, which are never touched.)
pub(crate) const BYTES_PER_QP: usize = size_of::<Option<Box<QpContext>>>()
    + uroce_shared::time::timer_wheel::BYTES_PER_INDEX
    + 2 * size_of::<u32>();

/// The QPs of one lcore.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) lcore: usize,
    pub(super) qps: Vec<Option<Box<QpContext>>>,
    pub(super) table: Arc<QpTable>,
    pub(super) timers: TimerWheel,
    /// Completions of the input that is being handled.
    pub(super) pending: Vec<(Side, Cqe)>,
    /// QPs that have completed something in this turn.
    pub(super) completed: Vec<u32>,
    /// For each port, the QPs that may have something to send; then, for each port, the EECs; then
    /// the RD QPs.
    pub(super) schedules: Box<[Schedule]>,
    /// Number of RD QPs and EECs.
    pub(super) rds: u32,
    /// Whether a completion of an RD QP has found its CQ full, and the QP is not in ERR yet.
    pub(super) has_overrun: bool,
    /// Whether EECs had their turns before the QPs of the ports in the last turn with both.
    pub(super) rd_is_first: bool,
    pub(crate) counters: Arc<CounterBlock>,
}

impl Shard {
    /// Makes a shard without QPs, with room for `max_qps`, of an lcore with `ports` ports.
    pub(crate) fn new(
        lcore: usize,
        ports: usize,
        max_qps: u32,
        table: Arc<QpTable>,
        counters: Arc<CounterBlock>,
    ) -> Shard {
        Shard {
            lcore,
            qps: std::iter::repeat_with(|| None).take(max_qps as usize).collect(),
            table,
            timers: TimerWheel::new(max_qps, Instant::ZERO),
            pending: Vec::with_capacity(PENDING),
            completed: Vec::with_capacity(max_qps as usize),
            schedules: (0..=2 * ports).map(|_| Schedule::new(max_qps)).collect(),
            rds: 0,
            has_overrun: false,
            rd_is_first: false,
            counters,
        }
    }

    /// Takes a QP into slot `index`; from now on packets find it.
    ///
    /// # Errors
    /// The slot is not free. The QP is given back.
    pub(crate) fn insert(
        &mut self,
        index: u32,
        mut context: Box<QpContext>,
    ) -> Result<(), Box<QpContext>> {
        let Some(slot @ None) = self.qps.get_mut(index as usize) else { return Err(context) };
        let qpn = context.qp.qpn();
        let mut mark = 0;
        if context.is_rd() {
            self.rds += 1;
            context.set_rd_schedule(self.schedules.len() / 2);
            let is_eec = context.qp.qp_type() == QpType::Eec;
            mark = if is_eec { RD_BIT | EEC_BIT } else { RD_BIT };
        }
        *slot = Some(context);
        self.table.publish(qpn, Place { index, owner: self.lcore | mark });
        Ok(())
    }

    /// Takes a QP out of its slot and returns it; nothing here refers to it any more.
    //= check G12 — its deadline and its places in lists go before it does
    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<QpContext>> {
        self.notify();
        let context = self.qps.get_mut(index as usize)?.take()?;
        self.rds -= u32::from(context.is_rd());
        self.table.withdraw(index);
        self.timers.clear(index);
        if context.active {
            self.schedules[context.port()].remove(index);
        }
        context.shared.publish_state(QpState::Reset);
        Some(context)
    }

    /// Returns the QP in a slot, to change it.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut QpContext> {
        self.qps.get_mut(index as usize)?.as_deref_mut()
    }

    /// Returns the QP in a slot.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&QpContext> {
        self.qps.get(index as usize)?.as_deref()
    }

    /// Returns whether the QP in a slot still waits for the held packet `psn`. It gives up one that
    /// `is_old`.
    pub(crate) fn keeps_held(&mut self, index: u32, psn: Psn, is_old: bool) -> bool {
        let Some(Some(context)) = self.qps.get_mut(index as usize) else { return false };
        if is_old {
            context.qp.lose_held(psn);
        }
        context.qp.holds(psn)
    }

    /// Returns the slots that hold a QP.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.qps).filter_map(|(index, qp)| qp.is_some().then_some(index))
    }

    /// Called when the lcore has ended: raises an event for each shared receive queue that may have
    /// lost receives.
    pub(crate) fn tell_lost_receives(&self, xrc: &XrcTable, turn: &InTurn<'_>) {
        for context in self.qps.iter().flatten() {
            if let Some(srq) = &context.srq {
                srq.lose();
            }
            // Any queue of the domain, as several may complete where the target does.
            if let Some(xrcd) = context.path.xrcd.filter(|_| context.qp.recv_wrs() > 0) {
                xrc.of_domain(xrcd, turn).for_each(|queue| queue.srq.lose());
            }
        }
    }

    /// Performs Modify QP. `None` if there is no QP in the slot. The QP takes `memory`, that of
    /// selective repeat, if it has none yet, even if the change is refused.
    pub(crate) fn modify(
        &mut self,
        index: u32,
        change: &QpChange,
        memory: &mut Option<SelectiveRepeat>,
        turn: &mut TurnContext<'_>,
    ) -> Option<Result<(), uroce_transport::ModifyError>> {
        if self.is_rd(index) {
            return self.modify_rd(index, change, turn);
        }
        let now = turn.now;
        let admitted = self.get(index)?.admit(change);
        // Requests that were posted before the change are given to the core before it.
        let result = self.input(index, turn, |qp, feeds, env| {
            feeds.sq.feed(qp, env);
            *memory = memory.take().and_then(|memory| qp.equip(memory));
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

    /// Gives the QP in a slot, which is no RD QP or EEC, one input. `None` if there is no QP.
    #[inline]
    pub(crate) fn input<R>(
        &mut self,
        index: u32,
        turn: &mut TurnContext<'_>,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut QpEnv<'_>) -> R,
    ) -> Option<R> {
        let context = self.qps.get_mut(index as usize)?.as_deref_mut()?;
        let noted = context.completions.has_delivered();
        let result = context.input(turn, &mut self.pending, &self.counters, work);
        if !noted && context.completions.has_delivered() {
            self.completed.push(index);
        }
        let migrated = std::mem::take(&mut context.path.migrated);
        if let Some(deadline) = context.qp.next_near_timeout()
            && self.timers.get(index).is_none_or(|set| deadline < set)
        {
            self.timers.set(index, deadline);
        }
        if migrated {
            self.follow_path(index, turn.lanes);
        }
        Some(result)
    }

    /// Called when the QP's last input has changed its path, and with it perhaps its port. It may
    /// have something to send.
    #[cold]
    pub(super) fn follow_path(&mut self, index: u32, lanes: &[Lane]) {
        let Some(Some(context)) = self.qps.get_mut(index as usize) else { return };
        let port = context.port();
        context.rebuild(lanes);
        if std::mem::take(&mut context.active) {
            self.schedules[port].remove(index);
        }
        self.note_looper(index);
        self.activate(index);
    }

    /// Called after a QP's path was set: notes at its port if it is a connection to this device.
    fn note_looper(&mut self, index: u32) {
        let Some(context) = self.get(index) else { return };
        let (port, is_looper) = (context.port(), context.is_looper());
        if let Some(schedule) = self.schedules.get_mut(port) {
            schedule.has_loopers |= is_looper;
        }
    }

    /// Returns the port, counted from 0, through which a QP sends.
    #[inline]
    pub(crate) fn port_of(&self, index: u32) -> Option<usize> {
        self.get(index).map(|context| context.port())
    }

    /// Exchanges a QP's queues for others if both are empty. Returns whether it did; `None` if
    /// there is no QP in the slot.
    pub(crate) fn resize(&mut self, index: u32, queues: &mut Resized) -> Option<bool> {
        let context = self.qps.get_mut(index as usize)?.as_deref_mut()?;
        Some(context.resize(queues))
    }

    /// Migrates each armed QP that sends through `port`, counted from 0, and has an alternate path
    /// through one of the ports `to`.
    pub(crate) fn migrate_port(
        &mut self,
        port: usize,
        to: PortSet,
        turn: &mut TurnContext<'_>,
    ) -> Migrated {
        let mut all = Migrated::default();
        if port >= turn.lanes.len() {
            return all;
        }
        // Cleared at once, the list of the EECs too: removing one by one would search it for each.
        for at in [port, self.schedules.len() / 2 + port] {
            for index in self.schedules[at].active.drain(..) {
                if let Some(Some(context)) = self.qps.get_mut(index as usize) {
                    context.active = false;
                }
            }
        }
        for index in 0..self.qps.len() as u32 {
            if self.port_of(index) != Some(port) {
                continue;
            }
            let now = turn.now;
            let has_migrated = self.can_leave(index, to)
                && self.input(index, turn, |qp, _, env| qp.migrate(now, env)) == Some(true);
            all.count(has_migrated, self.get(index));
            self.activate(index);
        }
        self.migrate_eecs(port, to, turn, &mut all);
        all
    }

    /// Returns whether the QP is armed and its alternate path uses one of the ports `to`.
    pub(super) fn can_leave(&self, index: u32, to: PortSet) -> bool {
        let Some(attr) = self.get(index).map(|context| context.qp.attr()) else { return false };
        let leads_there = |alt: AltPath| to.has(alt.port);
        attr.path_mig_state == PathMigState::Armed && attr.alt_path.is_some_and(leads_there)
    }

    /// Called when the doorbell of a QP's send queue was rung.
    #[inline]
    pub(crate) fn ring(&mut self, index: u32) {
        if let Some(Some(context)) = self.qps.get_mut(index as usize) {
            context.queues.sq.ring();
        }
    }

    /// Puts the QP into the active list of its schedule: it may have something to send.
    #[inline]
    pub(crate) fn activate(&mut self, index: u32) {
        let Some(Some(context)) = self.qps.get_mut(index as usize) else { return };
        if !context.active {
            context.active = true;
            self.schedules[context.port()].active.push_back(index);
        }
    }

    /// Called after the QP was taken from its active list with nothing more to send.
    #[inline]
    pub(crate) fn retire(&mut self, index: u32) {
        if let Some(Some(context)) = self.qps.get_mut(index as usize) {
            context.active = false;
        }
    }

    /// Handles the QPs with a deadline that has come, at most `DEADLINES` in a turn. Returns
    /// whether there were any.
    #[inline]
    pub(crate) fn expire(&mut self, turn: &mut TurnContext<'_>) -> bool {
        let now = turn.now;
        let mut any = false;
        for _ in 0..DEADLINES {
            let Some(index) = self.timers.expire(now) else { break };
            any = true;
            let due = self.get(index).and_then(|context| context.qp.next_timeout());
            match due {
                // The QP's deadline has moved since the wheel was set.
                Some(deadline) if deadline > now => self.timers.set(index, deadline),
                Some(_) => self.time_out(index, turn),
                None => {}
            }
        }
        any
    }

    #[cold]
    fn time_out(&mut self, index: u32, turn: &mut TurnContext<'_>) {
        if self.is_rd(index) {
            return self.time_out_rd(index, turn);
        }
        let now = turn.now;
        self.input(index, turn, |qp, _, env| qp.handle_timeout(now, env));
        self.set_timer(index);
        self.activate(index);
    }

    /// Sets the wheel to the QP's deadline, with that of its keepalive, unless an earlier one is
    /// set.
    pub(super) fn set_timer(&mut self, index: u32) {
        let Some(deadline) = self.get(index).and_then(|context| context.qp.next_timeout()) else {
            return;
        };
        if self.timers.get(index).is_none_or(|set| deadline < set) {
            self.timers.set(index, deadline);
        }
    }

    /// Returns whether RD QPs or EECs may have something to do.
    #[inline]
    pub(crate) fn has_active_rd(&self) -> bool {
        self.rds > 0 && self.has_rd_turns()
    }

    #[cold]
    fn has_rd_turns(&self) -> bool {
        let (_, of_rd) = self.schedules.split_at(self.schedules.len() / 2);
        of_rd.iter().any(|schedule| !schedule.active.is_empty())
    }

    /// Returns whether no QP may have something to send.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.schedules.iter().all(|schedule| schedule.active.is_empty())
    }

    /// Returns a time before which no QP's deadline comes; `None` if no QP has a deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Notifies the completion queues that got completions in this turn. Returns whether there
    /// were any.
    #[inline]
    pub(crate) fn notify(&mut self) -> bool {
        if self.completed.is_empty() {
            return false;
        }
        CompletionQueue::notify_fence();
        for index in self.completed.drain(..) {
            if let Some(Some(context)) = self.qps.get_mut(index as usize) {
                context.completions.notify();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::held::HeldPackets;
    use crate::qp::tables::Tables;
    use uroce_shared::memory::mr_table::{MrReader, MrTable};
    use uroce_shared::table::ah_table::AhTable;
    use uroce_shared::table::key::Numbers;
    use uroce_shared::table::mcast::GroupTable;
    use uroce_shared::wake::notices::Notices;
    use uroce_shared::wake::waker::Waker;

    #[test]
    fn deadlines_that_come_all_at_once_are_met_in_several_turns() {
        const QPS: u32 = 600;
        let numbers = Numbers::random(QPS).unwrap();
        let regions = Arc::new(MrTable::new(1, 1, numbers.clone()));
        let tables = Tables {
            handles: Arc::new(AhTable::new(1, Arc::clone(regions.turns()))),
            groups: Arc::new(GroupTable::new(Arc::clone(regions.turns()))),
            flows: Arc::new(uroce_shared::table::flows::FlowTable::new(Arc::clone(
                regions.turns(),
            ))),
            xrc: Arc::new(uroce_shared::queue::xrc::XrcTable::new(Arc::clone(regions.turns()))),
            notices: Arc::new(Notices::new(1, Waker::new().unwrap())),
        };
        let table = Arc::new(QpTable::new(QPS, numbers));
        let mut shard = Shard::new(0, 0, QPS, table, Arc::new(CounterBlock::new()));
        (0..QPS).for_each(|index| shard.timers.set(index, Instant::from_nanos(u64::from(index))));
        let reader = MrReader::new(regions, 0);
        let (memory, now) = (reader.enter(), Instant::from_nanos(1_000_000));
        let (memory, held) = (&memory, &mut HeldPackets::new(0));
        let mut turn = TurnContext { now, memory, tables: &tables, lanes: &mut [], held };
        for left in [344, 88, 0] {
            assert!(shard.expire(&mut turn));
            let waiting = (0..QPS).filter(|&index| shard.timers.get(index).is_some()).count();
            assert_eq!(waiting, left);
        }
        assert!(!shard.expire(&mut turn));
    }
}
