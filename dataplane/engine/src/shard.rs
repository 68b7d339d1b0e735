//! The QPs of one lcore, and the way of each input to its QP.
//!
//! Invariants
//! - A QP is in at most one port's active list, at most once; it is there if it may have something
//!   to send.
//! - The wheel's deadline of a QP is never later than the QP's own. It may be earlier: a deadline
//!   that moves away with each ACK is set again only when the old one has come.
//!
//! Not here: where inputs come from ([`crate::rx`], [`crate::lcore`]), who sends when
//! ([`crate::schedule`]).

use crate::context::{Feeds, QpContext, Resized};
use crate::counters::CounterBlock;
use crate::env::QpEnv;
use crate::mr_table::Access;
use crate::qp_table::{Place, QpTable};
use crate::queue::cq::CompletionQueue;
use crate::tables::Tables;
use crate::timer_wheel::TimerWheel;
use crate::tx::Lane;
use std::sync::Arc;
use uroce_transport::{AltPath, Cqe, Instant, PathMigState, Qp, QpChange, QpState, Side};

/// Completions kept until one input is dealt with. One ACK completes at most as many as there are
/// packets in flight; only a flush makes more, see [`crate::context::Route::spill`].
const PENDING: usize = 512;

/// Deadlines that are met in one turn: when many QPs' come at once, receiving does not wait for all.
const DEADLINES: usize = 256;

/// A pointer, a deadline, a place among those with completions, and one in a port's active list.
pub(crate) const BYTES_PER_QP: usize = size_of::<Option<Box<QpContext>>>()
    + crate::timer_wheel::BYTES_PER_INDEX
    + 2 * size_of::<u32>();

/// What every input needs besides the QP.
pub(crate) struct Around<'a> {
    pub(crate) now: Instant,
    pub(crate) memory: &'a Access<'a>,
    pub(crate) tables: &'a Tables,
    pub(crate) lanes: &'a mut [Lane],
}

/// One lcore's QPs.
#[derive(Debug)]
pub(crate) struct Shard {
    lcore: usize,
    qps: Vec<Option<Box<QpContext>>>,
    table: Arc<QpTable>,
    timers: TimerWheel,
    pending: Vec<(Side, Cqe)>,
    /// QPs with completions in this turn.
    completed: Vec<u32>,
    pub(crate) counters: Arc<CounterBlock>,
}

impl Shard {
    /// Room for `max_qps` QPs, none there.
    pub(crate) fn new(
        lcore: usize,
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
            counters,
        }
    }

    /// Takes a QP; from now on packets find it.
    pub(crate) fn insert(&mut self, index: u32, context: Box<QpContext>) -> bool {
        let Some(slot @ None) = self.qps.get_mut(index as usize) else { return false };
        let qpn = context.qp.qpn();
        *slot = Some(context);
        self.table.publish(qpn, Place { index, owner: self.lcore });
        true
    }

    /// Gives a QP back; nothing here knows it any more.
    //= check G12 — its deadline and its places in lists go before it does
    pub(crate) fn remove(&mut self, index: u32, lanes: &mut [Lane]) -> Option<Box<QpContext>> {
        self.notify();
        let context = self.qps.get_mut(index as usize)?.take()?;
        self.table.withdraw(index);
        self.timers.clear(index);
        if context.active {
            lanes[context.port()].active.retain(|&active| active != index);
        }
        context.route.shared.publish_state(QpState::Reset);
        Some(context)
    }

    /// The QP in a slot.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&QpContext> {
        self.qps.get(index as usize)?.as_deref()
    }

    /// Slots that hold a QP.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.qps).filter_map(|(index, qp)| qp.is_some().then_some(index))
    }

    /// The lcore ends: tells of each shared queue that receives of it may be lost.
    pub(crate) fn tell_lost_receives(&self) {
        for context in self.qps.iter().flatten() {
            if let Some(srq) = &context.route.srq {
                srq.lose();
            }
        }
    }

    /// Modify QP. `None` if there is no QP in the slot.
    pub(crate) fn modify(
        &mut self,
        index: u32,
        change: &QpChange,
        around: &mut Around<'_>,
    ) -> Option<Result<(), uroce_transport::ModifyError>> {
        let now = around.now;
        // What was posted before the change is in the core before it, in every state that keeps it.
        let result = self.input(index, around, |qp, feeds, env| {
            feeds.sq.feed(qp, env);
            qp.modify(now, change, env)
        })?;
        let context = self.qps[index as usize].as_mut()?;
        if context.active {
            // The port may be another one now.
            context.active = false;
            around.lanes[context.port()].active.retain(|&active| active != index);
        }
        context.rebuild(around.lanes);
        self.activate(index, around.lanes);
        Some(result)
    }

    /// Gives the QP in a slot one input. `None` if there is none.
    #[inline]
    pub(crate) fn input<R>(
        &mut self,
        index: u32,
        around: &mut Around<'_>,
        work: impl FnOnce(&mut Qp, &mut Feeds<'_>, &mut QpEnv<'_>) -> R,
    ) -> Option<R> {
        let context = self.qps.get_mut(index as usize)?.as_deref_mut()?;
        let noted = context.route.has_delivered();
        let result = context.input(around, &mut self.pending, &self.counters, work);
        if !noted && context.route.has_delivered() {
            self.completed.push(index);
        }
        let migrated = std::mem::take(&mut context.route.migrated);
        if let Some(deadline) = context.qp.next_timeout()
            && self.timers.get(index).is_none_or(|set| deadline < set)
        {
            self.timers.set(index, deadline);
        }
        if migrated {
            self.follow_path(index, around.lanes);
        }
        Some(result)
    }

    /// The QP's path, and with it perhaps its port, is another one than before its last input.
    #[cold]
    fn follow_path(&mut self, index: u32, lanes: &mut [Lane]) {
        let Some(Some(context)) = self.qps.get_mut(index as usize) else { return };
        let port = context.port();
        context.rebuild(lanes);
        if std::mem::take(&mut context.active) {
            lanes[port].active.retain(|&active| active != index);
        }
        self.activate(index, lanes);
    }

    /// The port that a QP sends by, counted from 0.
    #[inline]
    pub(crate) fn port_of(&self, index: u32) -> Option<usize> {
        self.get(index).map(|context| context.port())
    }

    /// Exchanges a QP's queues for others if both are empty, and says whether it did; `None` if
    /// there is no QP in the slot.
    pub(crate) fn resize(&mut self, index: u32, queues: &mut Resized) -> Option<bool> {
        let context = self.qps.get_mut(index as usize)?.as_deref_mut()?;
        Some(context.resize(queues))
    }

    /// Migrates each armed QP that leaves by the port, counted from 0, unless its alternate path
    /// leaves by the same. Says how many have migrated.
    pub(crate) fn migrate_port(&mut self, port: usize, around: &mut Around<'_>) -> u32 {
        let Some(lane) = around.lanes.get_mut(port) else { return 0 };
        // All at once: each that leaves a full list by itself would have it searched.
        for index in lane.active.drain(..) {
            if let Some(Some(context)) = self.qps.get_mut(index as usize) {
                context.active = false;
            }
        }
        let mut migrated = 0;
        for index in 0..self.qps.len() as u32 {
            if self.port_of(index) != Some(port) {
                continue;
            }
            if self.can_leave(index, port) {
                let now = around.now;
                let went = self.input(index, around, |qp, _, env| qp.migrate(now, env));
                migrated += u32::from(went == Some(true));
            }
            self.activate(index, around.lanes);
        }
        migrated
    }

    /// Is the QP armed, with an alternate path by another port than this?
    fn can_leave(&self, index: u32, port: usize) -> bool {
        let Some(attr) = self.get(index).map(|context| context.qp.attr()) else { return false };
        let other = |alt: AltPath| usize::from(alt.port) != port + 1;
        attr.path_mig_state == PathMigState::Armed && attr.alt_path.is_some_and(other)
    }

    /// Something was posted to the QP's send queue.
    #[inline]
    pub(crate) fn ring(&mut self, index: u32) {
        if let Some(Some(context)) = self.qps.get_mut(index as usize) {
            context.queues.sq.ring();
        }
    }

    /// The QP may have something to send: it gets a turn.
    #[inline]
    pub(crate) fn activate(&mut self, index: u32, lanes: &mut [Lane]) {
        let Some(Some(context)) = self.qps.get_mut(index as usize) else { return };
        if !context.active {
            context.active = true;
            lanes[context.port()].active.push_back(index);
        }
    }

    /// The QP has been taken from its active list and has nothing more to send.
    #[inline]
    pub(crate) fn retire(&mut self, index: u32) {
        if let Some(Some(context)) = self.qps.get_mut(index as usize) {
            context.active = false;
        }
    }

    /// Tells the QPs whose time has come; where there are many, the next turn goes on. Says whether
    /// there were any.
    #[inline]
    pub(crate) fn expire(&mut self, around: &mut Around<'_>) -> bool {
        let now = around.now;
        let mut any = false;
        for _ in 0..DEADLINES {
            let Some(index) = self.timers.expire(now) else { break };
            any = true;
            let due = self.get(index).and_then(|context| context.qp.next_timeout());
            match due {
                // It has moved since it was set.
                Some(deadline) if deadline > now => self.timers.set(index, deadline),
                Some(_) => self.time_out(index, around),
                None => {}
            }
        }
        any
    }

    #[cold]
    fn time_out(&mut self, index: u32, around: &mut Around<'_>) {
        let now = around.now;
        self.input(index, around, |qp, _, env| qp.handle_timeout(now, env));
        self.activate(index, around.lanes);
    }

    /// A time before which no QP's deadline is met; `None` if no QP has one.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Wakes who waits for the completions of this turn.
    #[inline]
    pub(crate) fn notify(&mut self) {
        if self.completed.is_empty() {
            return;
        }
        CompletionQueue::notify_fence();
        for index in self.completed.drain(..) {
            if let Some(Some(context)) = self.qps.get_mut(index as usize) {
                context.route.notify();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ah_table::AhTable;
    use crate::key::Numbers;
    use crate::mcast::GroupTable;
    use crate::mr_table::{MrReader, MrTable};
    use crate::notices::Notices;
    use crate::waker::Waker;

    #[test]
    fn deadlines_that_come_all_at_once_are_met_in_several_turns() {
        const QPS: u32 = 600;
        let numbers = Numbers::random(QPS).unwrap();
        let regions = Arc::new(MrTable::new(1, 1, numbers.clone()));
        let tables = Tables {
            handles: Arc::new(AhTable::new(1, Arc::clone(regions.turns()))),
            groups: Arc::new(GroupTable::new(Arc::clone(regions.turns()))),
            notices: Arc::new(Notices::new(1, Waker::new().unwrap())),
        };
        let table = Arc::new(QpTable::new(QPS, numbers));
        let mut shard = Shard::new(0, QPS, table, Arc::new(CounterBlock::new()));
        (0..QPS).for_each(|index| shard.timers.set(index, Instant::from_nanos(u64::from(index))));
        let reader = MrReader::new(regions, 0);
        let (memory, now) = (reader.enter(), Instant::from_nanos(1_000_000));
        let mut around = Around { now, memory: &memory, tables: &tables, lanes: &mut [] };
        for left in [344, 88, 0] {
            assert!(shard.expire(&mut around));
            let waiting = (0..QPS).filter(|&index| shard.timers.get(index).is_some()).count();
            assert_eq!(waiting, left);
        }
        assert!(!shard.expire(&mut around));
    }
}
