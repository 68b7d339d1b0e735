//! QP context: a QP on its lcore, with the lcore's ends of its queues and the destinations of its
//! completions and events.
//!
//! Invariants
//! - The control plane creates the whole context and gives it to the lcore. The lcore neither
//!   allocates nor frees memory for it.
//! - A state is published before the completions that follow it. So a thread that polls one of them
//!   reads a state that is at least as new.

use crate::counters::CounterBlock;
use crate::lane::Lane;
use crate::qp::completions::Completions;
use crate::qp::env::{QpEnv, QpMemory, TurnContext};
use std::cell::RefCell;
use std::sync::Arc;
use uroce_shared::queue::xrc::Xrcd;
use uroce_shared::queue::{QpShared, RecvQueueFeed, SendQueueFeed, SharedReceiveQueue};
use uroce_shared::wake::events::EventRaiser;
use uroce_transport::{
    Cqe, Env, Instant, PathMigState, Qp, QpChange, QpState, QpType, Side, WorkQueues,
};

/// Bytes of a QP's boxed context, and of the state that it shares with the application (with the
/// two counters of its `Arc`).
pub(crate) const STATE_BYTES: usize =
    size_of::<QpContext>() + size_of::<QpShared>() + 2 * size_of::<usize>();

/// A QP and all that belongs to it on its lcore.
#[derive(Debug)]
pub(crate) struct QpContext {
    pub(crate) qp: Qp,
    pub(crate) queues: Queues,
    pub(crate) completions: Completions,
    pub(crate) events: QpEvents,
    pub(crate) path: PathState,
    /// State that pollers and posting threads read.
    pub(crate) shared: Arc<QpShared>,
    /// The shared receive queue, if the QP uses one.
    pub(crate) srq: Option<Arc<SharedReceiveQueue>>,
    /// The place of its schedule. It is the port that the QP sends on, counted from 0, which is
    /// `qp.attr().port − 1`; RD QPs and EECs have others ([`QpContext::set_rd_schedule`]).
    port: u16,
    /// Whether the QP is in the active list of its schedule.
    pub(crate) active: bool,
    /// Whether the QP is a connection to one of the device's own addresses.
    looper: bool,
    /// The state last published in `shared`.
    pub(super) published: QpState,
}

/// The lcore's ends of the work queues.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) sq: SendQueueFeed,
    /// In a cell, since the core may ask at any time how many receives are waiting in it.
    pub(crate) rq: RefCell<RecvQueueFeed>,
}

/// The destinations of a QP's asynchronous events.
#[derive(Debug)]
pub(crate) struct QpEvents {
    pub(crate) raiser: EventRaiser,
    /// The QP's slot, by which the control plane gets notices of its events; `None` if it gets
    /// none.
    pub(crate) notices: Option<u32>,
}

/// Packets of a QP since it was created, and the bytes of their frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpTraffic {
    /// Packets sent; those that injected loss or a link that is down have dropped included.
    pub tx_packets: u64,
    /// Bytes of the packets sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of the packets received, Ethernet headers included.
    pub rx_bytes: u64,
}

/// The QPs and EECs that were to leave a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Migrated {
    /// How many have migrated.
    pub migrated: u32,
    /// How many still use the port: from INIT on, and not in ERR.
    pub stayed: u32,
}

impl Migrated {
    /// Adds those of another lcore.
    pub(crate) fn add(&mut self, other: Migrated) {
        self.migrated += other.migrated;
        self.stayed += other.stayed;
    }

    /// Counts one of them.
    pub(crate) fn count(&mut self, has_migrated: bool, context: Option<&QpContext>) {
        let is_in_use =
            |context: &QpContext| !matches!(context.qp.state(), QpState::Reset | QpState::Err);
        self.migrated += u32::from(has_migrated);
        self.stayed += u32::from(!has_migrated && context.is_some_and(is_in_use));
    }
}

/// The side that has loaded an alternate path into a QP last, since its RESET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathLoader {
    /// Neither: there is none.
    #[default]
    None,
    /// The application, by Modify QP. The control plane's paths are refused from then on.
    Application,
    /// The control plane ([`Control::adopt_alternate`](crate::Control::adopt_alternate)).
    ControlPlane,
}

/// State of a QP's path, of the pacing of its packets, and their count; and the XRC domain of a
/// target.
#[derive(Debug, Default)]
pub(crate) struct PathState {
    pub(crate) traffic: QpTraffic,
    /// Whether the QP has migrated to its other path during the current input.
    pub(crate) migrated: bool,
    /// The side that has loaded an alternate path last. If it is the control plane, the application
    /// gets no events of path migration.
    pub(crate) loader: PathLoader,
    /// Whether the application has put its path in the place of an armed one of the control plane,
    /// and has not asked for REARM since.
    owes_rearm: bool,
    /// The time at which the frame of the oldest send request may leave. It is reserved with the
    /// request's address handle if that has a rate limit; otherwise `None`.
    pub(crate) departure: Option<Instant>,
    /// Whether the last packet of the QP's turn used an address handle with a rate limit.
    pub(crate) is_paced: bool,
    /// The domain of an XRC target, in which requests name shared receive queues.
    pub(crate) xrcd: Option<Xrcd>,
}

/// The new queues of a QP that is resized.
#[derive(Debug)]
pub(crate) struct Resized {
    pub(crate) core: WorkQueues,
    pub(crate) queues: Queues,
    pub(crate) shared: Arc<QpShared>,
}

/// The lcore's ends of the work queues while the QP handles an input.
pub(crate) struct QueueFeeds<'a> {
    pub(crate) sq: &'a mut SendQueueFeed,
    pub(super) rq: &'a RefCell<RecvQueueFeed>,
}

impl Queues {
    /// The queues while the QP handles an input.
    pub(super) fn feeds(&mut self) -> QueueFeeds<'_> {
        QueueFeeds { sq: &mut self.sq, rq: &self.rq }
    }
}

impl QueueFeeds<'_> {
    /// Gives the core as many of the receives in the QP's own queue as it has room for.
    #[inline]
    pub(crate) fn pull_receives(&self, qp: &mut Qp, env: &mut impl Env) {
        self.rq.borrow_mut().feed(qp, env);
    }

    /// Returns whether the core has refused a posted request.
    #[inline]
    pub(super) fn has_refused(&self) -> bool {
        self.sq.ring.has_refused() || self.rq.borrow().ring.has_refused()
    }

    /// Frees the places of all posted requests. Called when no posted request is left.
    #[cold]
    pub(super) fn release(&mut self, shared: &QpShared, completions: &mut Completions) {
        let rq = &mut self.rq.borrow_mut().ring;
        self.sq.ring.release(shared);
        rq.release(shared);
        completions.leads = [self.sq.ring.lead(), rq.lead()];
    }

    /// Returns whether the QP's own receive queue is empty.
    #[inline]
    pub(crate) fn is_rq_empty(&self) -> bool {
        self.rq.borrow().is_empty()
    }
}

impl QpContext {
    pub(crate) fn new(
        qp: Qp,
        queues: Queues,
        shared: Arc<QpShared>,
        completions: Completions,
        events: QpEvents,
        srq: Option<Arc<SharedReceiveQueue>>,
        xrcd: Option<Xrcd>,
    ) -> QpContext {
        let mut context = QpContext {
            published: qp.state(),
            qp,
            queues,
            completions,
            events,
            path: PathState { xrcd, ..PathState::default() },
            shared,
            srq,
            port: 0,
            active: false,
            looper: false,
        };
        context.open();
        context
    }

    /// Called when the QP has got new queues: makes their places free.
    fn open(&mut self) {
        let Queues { sq, rq } = &mut self.queues;
        QueueFeeds { sq, rq }.release(&self.shared, &mut self.completions);
    }

    /// Returns the place of the QP's schedule: except for RD QPs and EECs the port that the QP
    /// sends on, counted from 0.
    pub(crate) fn port(&self) -> usize {
        usize::from(self.port)
    }

    /// Returns whether it is an RD QP or EEC.
    pub(crate) fn is_rd(&self) -> bool {
        self.qp.rdd().is_some()
    }

    /// RD QPs and EECs: returns the port that the QP sends on, counted from 0.
    pub(crate) fn lane(&self) -> usize {
        usize::from(self.qp.port().saturating_sub(1))
    }

    /// RD QPs and EECs: sets the place of the schedule, on an lcore with `ports` ports. Those of
    /// EECs are behind those of the ports, one for each port. The last one is that of RD QPs.
    pub(super) fn set_rd_schedule(&mut self, ports: usize) {
        const { assert!(2 * crate::limits::MAX_PORTS <= u16::MAX as usize) };
        let is_eec = self.qp.qp_type() == QpType::Eec;
        let place = if is_eec { ports + self.lane() } else { 2 * ports };
        self.port = place as u16;
    }

    /// Called after Modify QP: updates what is derived from the attributes.
    pub(crate) fn rebuild(&mut self, lanes: &[Lane]) {
        let attr = self.qp.attr();
        self.looper = attr.path.encap.is_loopback() && self.qp.qp_type().is_connected();
        if self.is_rd() {
            return self.set_rd_schedule(lanes.len());
        }
        self.port = attr.port.saturating_sub(1).into();
        if let Some(mtu) = lanes.get(usize::from(self.port)).and_then(|lane| lane.path_mtu) {
            self.qp.set_port_mtu(mtu);
        }
    }

    /// Adapts a change by which the application asks for REARM, with an alternate path or after it.
    /// A QP that the control plane has armed, unseen by the application, stays as it is.
    pub(crate) fn admit(&self, change: &QpChange) -> QpChange {
        let is_unseen = match self.path.loader {
            PathLoader::ControlPlane => change.alt_path.is_some(),
            PathLoader::Application => self.path.owes_rearm,
            PathLoader::None => false,
        };
        let is_rearmed = is_unseen
            && change.path_mig_state == Some(PathMigState::Rearm)
            && self.qp.attr().path_mig_state != PathMigState::Migrated;
        let path_mig_state = change.path_mig_state.filter(|_| !is_rearmed);
        QpChange { path_mig_state, ..*change }
    }

    /// Called after Modify QP, with the application's change: notes the loader of the alternate
    /// path, and tunes a path of the control plane to the path in use.
    pub(crate) fn note_loader(&mut self, change: &QpChange) {
        let was_armed = self.path.loader == PathLoader::ControlPlane
            && self.qp.attr().path_mig_state != PathMigState::Migrated;
        if change.path_mig_state == Some(PathMigState::Rearm) {
            self.path.owes_rearm = false;
        } else if change.alt_path.is_some() {
            self.path.owes_rearm |= was_armed;
        }
        if change.state == Some(QpState::Reset) {
            (self.path.loader, self.path.owes_rearm) = (PathLoader::None, false);
        } else if change.alt_path.is_some() {
            self.path.loader = PathLoader::Application;
        } else if self.path.loader == PathLoader::ControlPlane {
            self.qp.tune_alternate();
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
        std::mem::swap(&mut self.shared, &mut fresh.shared);
        self.open();
        self.shared.publish_state(self.qp.state());
        fresh.shared.publish_state(QpState::Reset);
        true
    }

    /// Gives the core one input and publishes the results: state, completions and free places.
    /// Returns the result of `work`.
    #[inline]
    pub(crate) fn input<R>(
        &mut self,
        turn: &mut TurnContext<'_>,
        pending: &mut Vec<(Side, Cqe)>,
        counters: &CounterBlock,
        work: impl FnOnce(&mut Qp, &mut QueueFeeds<'_>, &mut QpEnv<'_>) -> R,
    ) -> R {
        let QpContext {
            qp, queues, completions, events, path, shared, srq, published, port, ..
        } = self;
        let Queues { sq, rq } = queues;
        let port = usize::from(*port);
        let memory = QpMemory { view: turn.memory, tables: turn.tables };
        let mut env = QpEnv {
            now: turn.now,
            memory,
            lane: &mut turn.lanes[port],
            held: turn.held,
            port,
            rq,
            srq: srq.as_deref(),
            completions,
            events,
            path,
            pending,
            counters,
        };
        let feeds = &mut QueueFeeds { sq, rq };
        let result = work(qp, feeds, &mut env);
        if qp.state() != *published {
            enter_state(qp, feeds, &mut env, shared, published);
        }
        if feeds.has_refused() {
            feeds.release(shared, env.completions);
        }
        if !env.pending.is_empty() {
            deliver(qp, feeds, &mut env, shared, published);
        }
        result
    }
}

/// Publishes a new state. Requests still in the rings are flushed in ERR (in SQE, only sends) and
/// discarded in RESET. Packets that are held for the QP are freed in both.
#[cold]
fn enter_state(
    qp: &mut Qp,
    feeds: &mut QueueFeeds<'_>,
    env: &mut QpEnv<'_>,
    shared: &QpShared,
    published: &mut QpState,
) {
    *published = qp.state();
    shared.publish_state(qp.state());
    RecvQueueFeed::flush_fence();
    if matches!(qp.state(), QpState::Err | QpState::Reset | QpState::Sqe) {
        // The frame that had reserved a time to leave has been flushed.
        env.path.departure = None;
        feeds.sq.feed(qp, env);
    }
    if matches!(qp.state(), QpState::Err | QpState::Reset) {
        //= check A27 — a connection that has ended holds nothing
        env.held.free(env.completions.slot());
        feeds.pull_receives(qp, env);
    }
    if qp.state() == QpState::Reset {
        feeds.release(shared, env.completions);
    }
}

/// Puts the pending completions into their queues. An overrun takes the QP to ERR, which makes
/// further completions.
//= check G6 — a QP with a completion that does not fit goes to ERR
// Every kind of input is a caller, and the messages of none of them are to pay a call.
#[inline(always)]
fn deliver(
    qp: &mut Qp,
    feeds: &mut QueueFeeds<'_>,
    env: &mut QpEnv<'_>,
    shared: &QpShared,
    published: &mut QpState,
) {
    env.completions.deliver(env.pending.drain(..), env.counters);
    if env.completions.overrun && qp.state() != QpState::Err {
        overrun(qp, feeds, env, shared, published);
    }
}

/// Ends a QP with a completion that did not fit.
#[cold]
fn overrun(
    qp: &mut Qp,
    feeds: &mut QueueFeeds<'_>,
    env: &mut QpEnv<'_>,
    shared: &QpShared,
    published: &mut QpState,
) {
    qp.fail(env);
    enter_state(qp, feeds, env, shared, published);
    env.completions.deliver(env.pending.drain(..), env.counters);
}
