//! QP context: a QP on its lcore, with the lcore's ends of its queues and the route of its
//! completions.
//!
//! Invariants
//! - The control plane makes all of it and gives it to the lcore whole; the lcore allocates and
//!   frees nothing.
//! - A state is published before the completions that follow it. So a thread that polls one of them
//!   reads a state that is at least as new.

use crate::shard::Around;
use crate::tx::Lane;
use crate::{counters::CounterBlock, env::QpEnv};
use std::cell::RefCell;
use std::sync::Arc;
use uroce_shared::queue::cq::CompletionQueue;
use uroce_shared::queue::{QpShared, RecvQueueFeed, SendQueueFeed, SharedReceiveQueue};
use uroce_shared::wake::events::EventRaiser;
use uroce_transport::{Cqe, Instant, Qp, QpState, Side, WorkQueues};

/// Bytes of a QP's boxed context, and of the state that it shares with the application (with the
/// two counters of its `Arc`).
pub(crate) const STATE_BYTES: usize =
    size_of::<QpContext>() + size_of::<QpShared>() + 2 * size_of::<usize>();

/// A QP and all that belongs to it on its lcore.
#[derive(Debug)]
pub(crate) struct QpContext {
    pub(crate) qp: Qp,
    pub(crate) queues: Queues,
    pub(crate) route: Route,
    /// The port that the QP sends on, counted from 0: `qp.attr().port − 1`.
    port: u8,
    /// Whether the QP is in its port's active list.
    pub(crate) active: bool,
    /// Whether the QP is a connection to one of the device's own addresses.
    looper: bool,
    published: QpState,
}

/// The lcore's ends of the work queues.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) sq: SendQueueFeed,
    /// In a cell, since the core may ask at any time how many receives it has.
    pub(crate) rq: RefCell<RecvQueueFeed>,
}

/// The new queues of a QP that is resized.
#[derive(Debug)]
pub(crate) struct Resized {
    pub(crate) core: WorkQueues,
    pub(crate) queues: Queues,
    pub(crate) shared: Arc<QpShared>,
}

/// The lcore's ends of the work queues while the QP handles an input.
pub(crate) struct Feeds<'a> {
    pub(crate) sq: &'a mut SendQueueFeed,
    rq: &'a RefCell<RecvQueueFeed>,
}

impl Feeds<'_> {
    /// Gives the core as many of the receives in the QP's own queue as it has room for.
    #[inline]
    pub(crate) fn feed_rq(&self, qp: &mut Qp, env: &mut QpEnv<'_>) {
        self.rq.borrow_mut().feed(qp, env);
    }

    /// Returns whether the core has refused a posted request.
    #[inline]
    fn has_refused(&self) -> bool {
        self.sq.ring.has_refused() || self.rq.borrow().ring.has_refused()
    }

    /// Frees the places of all posted requests. Called when none of them is left.
    #[cold]
    fn release(&mut self, route: &mut Route) {
        let rq = &mut self.rq.borrow_mut().ring;
        self.sq.ring.release(&route.shared);
        rq.release(&route.shared);
        route.leads = [self.sq.ring.lead(), rq.lead()];
    }

    /// Returns whether the QP's own receive queue is empty.
    #[inline]
    pub(crate) fn is_rq_empty(&self) -> bool {
        self.rq.borrow().is_empty()
    }
}

/// The destinations of a QP's completions, and which of them got completions in this turn.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) events: EventRaiser,
    /// The QP's slot.
    pub(crate) slot: u32,
    /// Whether the control plane gets notices of the QP's events.
    pub(crate) notices: bool,
    /// Difference between the positions of sends and receives and the core's own, by [`Side`].
    leads: [u32; 2],
    /// The shared receive queue, if the QP uses one.
    pub(crate) srq: Option<Arc<SharedReceiveQueue>>,
    /// `Some` if the send CQ got completions in this turn; true if one of them was solicited.
    sent: Option<bool>,
    /// `Some` if the receive CQ got completions in this turn; true if one of them was solicited.
    received: Option<bool>,
    /// Whether a completion found its CQ full.
    overrun: bool,
    /// Whether the QP has migrated to its other path.
    pub(crate) migrated: bool,
    /// The time at which the oldest send request's frame may leave by its address handle, if that
    /// has a rate limit and the frame has reserved a time.
    pub(crate) departure: Option<Instant>,
    /// Whether the last packet of the QP's turn used an address handle with a rate limit.
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

    /// Called with new queues: makes their places free.
    fn open(&mut self) {
        let Queues { sq, rq } = &mut self.queues;
        Feeds { sq, rq }.release(&mut self.route);
    }

    /// Returns the port that the QP sends on, counted from 0.
    pub(crate) fn port(&self) -> usize {
        usize::from(self.port)
    }

    /// Called after Modify QP: updates what is derived from the attributes.
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

    /// Returns whether the QP is a connection to one of the device's own addresses.
    pub(crate) fn is_looper(&self) -> bool {
        self.looper
    }

    /// Returns the number of send requests that were posted and have not left the QP.
    pub(crate) fn sends(&self) -> u32 {
        self.queues.sq.ring.waiting() + self.qp.send_wrs()
    }

    /// Exchanges the queues for others if both are empty. Returns whether it did.
    ///
    /// The application's old ends then show a QP in RESET, which takes no posts.
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

    /// Gives the core one input and publishes the results: state, completions and free places.
    /// Returns the result of `work`.
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

/// Publishes a new state. Requests still in the rings are flushed in ERR and discarded in RESET.
#[cold]
fn enter_state(qp: &mut Qp, feeds: &mut Feeds<'_>, env: &mut QpEnv<'_>, published: &mut QpState) {
    *published = qp.state();
    env.route.shared.publish_state(qp.state());
    RecvQueueFeed::flush_fence();
    if matches!(qp.state(), QpState::Err | QpState::Reset | QpState::Sqe) {
        // The frame that had a time to leave has been flushed.
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
/// further completions.
//= check G6 — a QP with a completion that does not fit goes to ERR
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

    /// Adds to the core's completion the time, the slot and the position.
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
                // Wake the sleeping thread, which would otherwise wait for a completion that never
                // comes.
                solicited = true;
                self.overrun = true;
                counters.count(crate::counters::EngineCounter::CqOverrun);
            }
            *events = Some(events.unwrap_or(false) | solicited);
        }
    }

    /// Returns whether completions have gone out since the last [`notify`](Route::notify).
    #[inline]
    pub(crate) fn has_delivered(&self) -> bool {
        self.sent.is_some() || self.received.is_some()
    }

    /// Notifies the CQs that got completions. Call [`CompletionQueue::notify_fence`] before it.
    pub(crate) fn notify(&mut self) {
        let sides = [(&self.send_cq, self.sent.take()), (&self.recv_cq, self.received.take())];
        for (cq, events) in sides {
            if events.is_some_and(|solicited| cq.wants_event(solicited)) {
                cq.notify();
            }
        }
    }
}
