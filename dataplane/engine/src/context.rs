//! A QP as its lcore keeps it: the core's QP, its queues' lcore ends, and where its completions go.
//!
//! Invariants
//! - Everything is made by the control plane and given to the lcore whole; the lcore allocates and
//!   frees none of it.
//! - A state is published before completions. So who polls one finds the state at least as new.

use crate::events::EventRaiser;
use crate::queue::cq::CompletionQueue;
use crate::queue::{QpShared, RecvQueueFeed, SendQueueFeed, SharedReceiveQueue};
use crate::shard::Around;
use crate::tx::Lane;
use crate::{counters::CounterBlock, env::QpEnv};
use std::cell::RefCell;
use std::sync::Arc;
use uroce_transport::{Cqe, Instant, Qp, QpState, Side, WorkQueues};

/// The context of a QP in its box, and what it shares with the application behind the two counters
/// of an `Arc`.
pub(crate) const STATE_BYTES: usize =
    size_of::<QpContext>() + size_of::<QpShared>() + 2 * size_of::<usize>();

/// A QP and all that belongs to it on its lcore.
#[derive(Debug)]
pub(crate) struct QpContext {
    pub(crate) qp: Qp,
    pub(crate) queues: Queues,
    pub(crate) route: Route,
    /// The port it sends on, counted from 0: `qp.attr().port − 1`.
    port: u8,
    /// It stands in its port's active list.
    pub(crate) active: bool,
    /// Its path is to an address of the device's own.
    looper: bool,
    published: QpState,
}

/// The lcore's ends of the work queues.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) sq: SendQueueFeed,
    /// In a cell, since the core may ask in the middle of anything how much is in it.
    pub(crate) rq: RefCell<RecvQueueFeed>,
}

/// What a QP has in the place of its queues once it is resized.
#[derive(Debug)]
pub(crate) struct Resized {
    pub(crate) core: WorkQueues,
    pub(crate) queues: Queues,
    pub(crate) shared: Arc<QpShared>,
}

/// The same while the QP has an input.
pub(crate) struct Feeds<'a> {
    pub(crate) sq: &'a mut SendQueueFeed,
    rq: &'a RefCell<RecvQueueFeed>,
}

impl Feeds<'_> {
    /// Gives the core what was posted to the QP's own receive queue, as far as it fits.
    #[inline]
    pub(crate) fn feed_rq(&self, qp: &mut Qp, env: &mut QpEnv<'_>) {
        self.rq.borrow_mut().feed(qp, env);
    }

    /// Has the core refused something that was posted?
    #[inline]
    fn has_refused(&self) -> bool {
        self.sq.ring.has_refused() || self.rq.borrow().ring.has_refused()
    }

    /// Nothing is left of what was posted: all of it has its places back.
    #[cold]
    fn release(&mut self, route: &mut Route) {
        let rq = &mut self.rq.borrow_mut().ring;
        self.sq.ring.release(&route.shared);
        rq.release(&route.shared);
        route.leads = [self.sq.ring.lead(), rq.lead()];
    }

    /// Does nothing wait in the QP's own receive queue?
    #[inline]
    pub(crate) fn is_rq_empty(&self) -> bool {
        self.rq.borrow().is_empty()
    }
}

/// Where a QP's completions go, and which have gone in this turn.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) events: EventRaiser,
    /// Its slot.
    pub(crate) slot: u32,
    /// The control plane is to learn what happens to it.
    pub(crate) notices: bool,
    /// How far positions of sends and of receives are ahead of the core's.
    leads: [u32; 2],
    /// Where its receives come from, if not from its own queue.
    pub(crate) srq: Option<Arc<SharedReceiveQueue>>,
    /// Completions went to the send CQ in this turn; whether one of them was solicited.
    sent: Option<bool>,
    /// The same of the receive CQ.
    received: Option<bool>,
    /// A completion found its CQ full.
    overrun: bool,
    /// The QP has another path than before.
    pub(crate) migrated: bool,
    /// When the oldest send work request's frame may leave by its address handle, if that has a rate
    /// and the frame has asked.
    pub(crate) departure: Option<Instant>,
    /// The last packet that it wanted to send in its turn went by such a handle.
    pub(crate) is_paced: bool,
}

impl QpContext {
    pub(crate) fn new(qp: Qp, queues: Queues, route: Route) -> QpContext {
        let published = qp.state();
        let mut context =
            QpContext { qp, queues, route, port: 0, active: false, looper: false, published };
        context.open();
        context
    }

    /// Its queues are new: what is posted to them has places.
    fn open(&mut self) {
        let Queues { sq, rq } = &mut self.queues;
        Feeds { sq, rq }.release(&mut self.route);
    }

    /// The port it sends on, counted from 0.
    pub(crate) fn port(&self) -> usize {
        usize::from(self.port)
    }

    /// After a modify: what was derived from the attributes is derived again.
    pub(crate) fn rebuild(&mut self, lanes: &mut [Lane]) {
        let attr = self.qp.attr();
        self.port = attr.port.saturating_sub(1);
        self.looper = attr.path.encap.is_loopback() && !self.qp.qp_type().is_datagram();
        let Some(lane) = lanes.get_mut(usize::from(self.port)) else { return };
        lane.has_loopers |= self.looper;
        if let Some(mtu) = lane.path_mtu {
            self.qp.set_port_mtu(mtu);
        }
    }

    /// Is it a connection that sends to an address of the device's own?
    pub(crate) fn is_looper(&self) -> bool {
        self.looper
    }

    /// Work requests that were sent to it and have not left it.
    pub(crate) fn sends(&self) -> u32 {
        self.queues.sq.ring.waiting() + self.qp.send_wrs()
    }

    /// Exchanges the queues for others if both are empty. Says whether it did.
    ///
    /// Whoever still has the ends of the old ones finds a QP in RESET, which takes no posts.
    pub(crate) fn resize(&mut self, fresh: &mut Resized) -> bool {
        let Queues { sq, rq } = &mut self.queues;
        let is_empty = sq.is_empty() && rq.get_mut().is_empty();
        if !is_empty || !self.qp.exchange_queues(&mut fresh.core) {
            return false;
        }
        std::mem::swap(&mut self.queues, &mut fresh.queues);
        std::mem::swap(&mut self.route.shared, &mut fresh.shared);
        self.open();
        self.route.shared.publish_state(self.qp.state());
        fresh.shared.publish_state(QpState::Reset);
        true
    }

    /// Gives the core one input and publishes what came of it. Says whether there are completions
    /// to notify of.
    #[inline]
    pub(crate) fn input<R>(
        &mut self,
        around: &mut Around<'_>,
        pending: &mut Vec<(Side, Cqe)>,
        counters: &CounterBlock,
        work: impl FnOnce(&mut Qp, &mut Feeds<'_>, &mut QpEnv<'_>) -> R,
    ) -> R {
        let QpContext { qp, queues, route, published, port, .. } = self;
        let Queues { sq, rq } = queues;
        let (memory, tables, port) = (around.memory, around.tables, usize::from(*port));
        let lane = &mut around.lanes[port];
        let now = around.now;
        let mut env = QpEnv { now, memory, tables, lane, port, rq, route, pending, counters };
        let feeds = &mut Feeds { sq, rq };
        let result = work(qp, feeds, &mut env);
        if qp.state() != *published {
            enter_state(qp, feeds, &mut env, published);
        }
        if feeds.has_refused() {
            feeds.release(env.route);
        }
        if !env.pending.is_empty() {
            deliver(qp, feeds, &mut env, published);
        }
        result
    }
}

/// Publishes a new state. What is still in the rings meets it too: flushed in ERR, gone in RESET.
#[cold]
fn enter_state(qp: &mut Qp, feeds: &mut Feeds<'_>, env: &mut QpEnv<'_>, published: &mut QpState) {
    *published = qp.state();
    env.route.shared.publish_state(qp.state());
    RecvQueueFeed::flush_fence();
    if matches!(qp.state(), QpState::Err | QpState::Reset | QpState::Sqe) {
        // What had a time to leave has been flushed.
        env.route.departure = None;
        feeds.sq.feed(qp, env);
    }
    if matches!(qp.state(), QpState::Err | QpState::Reset) {
        feeds.feed_rq(qp, env);
    }
    if qp.state() == QpState::Reset {
        feeds.release(env.route);
    }
}

/// Puts the pending completions into their queues. An overrun takes the QP to ERR, which makes
/// more of them.
//= check G6 — a QP whose completion does not fit goes to ERR
fn deliver(qp: &mut Qp, feeds: &mut Feeds<'_>, env: &mut QpEnv<'_>, published: &mut QpState) {
    env.route.deliver(env.pending, env.counters);
    if env.route.overrun && qp.state() != QpState::Err {
        qp.fail(env);
        enter_state(qp, feeds, env, published);
        env.route.deliver(env.pending, env.counters);
    }
}

impl Route {
    pub(crate) fn new(
        [send_cq, recv_cq]: [Arc<CompletionQueue>; 2],
        shared: Arc<QpShared>,
        events: EventRaiser,
        (slot, notices): (u32, bool),
        srq: Option<Arc<SharedReceiveQueue>>,
    ) -> Route {
        let (sent, received) = (None, None);
        Route {
            send_cq,
            recv_cq,
            shared,
            events,
            slot,
            notices,
            leads: [0; 2],
            srq,
            sent,
            received,
            overrun: false,
            migrated: false,
            departure: None,
            is_paced: false,
        }
    }

    /// A completion of the core's, with what the core does not know.
    #[inline]
    pub(crate) fn finish(&self, side: Side, at: Instant, cqe: Cqe) -> Cqe {
        let position = cqe.position.wrapping_add(self.leads[side as usize]);
        Cqe { at, position, slot: self.slot, ..cqe }
    }

    pub(crate) fn deliver(&mut self, pending: &mut Vec<(Side, Cqe)>, counters: &CounterBlock) {
        for (side, cqe) in pending.drain(..) {
            let (cq, events) = match side {
                Side::Send => (&self.send_cq, &mut self.sent),
                Side::Recv => (&self.recv_cq, &mut self.received),
            };
            let mut solicited = cqe.solicited;
            if cq.push(cqe).is_err() {
                // Whoever sleeps for a completion shall learn that none will come.
                solicited = true;
                self.overrun = true;
                counters.count(crate::counters::EngineCounter::CqOverrun);
            }
            *events = Some(events.unwrap_or(false) | solicited);
        }
    }

    /// Have completions gone out since the last [`notify`](Route::notify)?
    #[inline]
    pub(crate) fn has_delivered(&self) -> bool {
        self.sent.is_some() || self.received.is_some()
    }

    /// Wakes who waits for what has gone out; [`CompletionQueue::notify_fence`] stands before it.
    pub(crate) fn notify(&mut self) {
        let sides = [(&self.send_cq, self.sent.take()), (&self.recv_cq, self.received.take())];
        for (cq, events) in sides {
            if events.is_some_and(|solicited| cq.wants_event(solicited)) {
                cq.notify();
            }
        }
    }
}
