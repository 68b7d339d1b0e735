//! The queue pair: attributes, state, and the operations that change them.
//!
//! Read first: IBA 10 (queue pairs and their states) and 11 (Modify QP).
//!
//! Invariants
//! - A QP in ERR has flushed all work requests and sends nothing; one in SQE has an empty send
//!   queue.
//!
//! Not here: the work of the roles ([`crate::rc`], [`crate::uc`], [`crate::ud`],
//! [`crate::raw`]), the transition
//! table ([`state`]).

mod datagram;
pub(crate) mod migration;
mod notify;
mod pace;
mod packets;
mod resize;
mod round_trips;
mod service;
pub(crate) mod state;

use uroce_wire::{PathMtu, Qpn};

use crate::attr::{AttrMask, Attributes, QpAttr, QpChange, QpType};
use crate::congestion::{Congestion, Notification, Reaction};
use crate::context::Context;
use crate::cqe::WcStatus;
use crate::env::{Accessor, AsyncEvent, Env, Pd};
use crate::queue::QpCaps;
use crate::rc::SelectiveRepeat;
use crate::time::{Instant, Stamp};
use crate::wqe::{PostError, Rdd, RecvWr, SendWr, Sge};
use migration::Migration;
use pace::Pace;
pub use packets::{Handled, Inbound, Progress};
pub use resize::WorkQueues;
use service::Service;
use state::{ModifyError, QpState};

/// Parameters of a QP's creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Capacities of its queues.
    pub caps: QpCaps,
    /// Protection domain of the shared receive queue that receives come from
    /// ([`crate::SharedReceives::take_receive`]), if there is one. It may differ from the QP's.
    pub srq: Option<Pd>,
    /// RD domain of an RD QP or EEC; not used otherwise.
    pub rdd: Rdd,
    /// Algorithm by which the QP slows down; datagram QPs and EECs have none.
    pub congestion: Congestion,
    /// CNPs that the QP sends.
    pub notification: Notification,
}

impl QpInit {
    /// Parameters of a QP with its own receives, without congestion control.
    pub fn new(qp_type: QpType, caps: QpCaps) -> QpInit {
        QpInit {
            qp_type,
            caps,
            srq: None,
            rdd: Rdd::default(),
            congestion: Congestion::None,
            notification: Notification::default(),
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    by: Accessor,
    /// Protection domain of the receives.
    recv_pd: Pd,
    attr: Attributes,
    service: Service,
    pace: Pace,
    /// Terms of the CNPs that the QP sends.
    notification: Notification,
    /// Time of the last CNP, if one was sent.
    last_cnp: Stamp,
    has_sent_cnp: bool,
    /// The reaction point, if an algorithm was chosen.
    reaction: Option<Box<Reaction>>,
    migration: Migration,
    /// A packet has arrived from the peer since RTR.
    has_comm: bool,
    /// An event must report when the send queue has drained.
    owes_drained: bool,
}

impl Qp {
    /// Creates a QP in RESET. Allocates all memory that the QP will ever need; an RD QP needs more
    /// when over 64 EECs fill receives of it at the same time.
    pub fn new(qpn: Qpn, pd: Pd, init: &QpInit) -> Qp {
        let QpInit { qp_type, caps, srq, notification, .. } = init;
        let reaction = notify::reaction_of(init);
        Qp {
            by: Accessor { pd, qpn },
            recv_pd: srq.unwrap_or(pd),
            attr: Attributes::new(reaction.as_ref().is_some_and(|reaction| reaction.uses_ecn())),
            service: Service::new(*qp_type, caps, srq.is_some(), init.rdd),
            pace: Pace::new(reaction.is_some()),
            notification: *notification,
            last_cnp: Stamp::default(),
            has_sent_cnp: false,
            reaction,
            migration: Migration::default(),
            has_comm: false,
            owes_drained: false,
        }
    }

    /// Transport service of the QP.
    pub fn qp_type(&self) -> QpType {
        self.service.qp_type()
    }

    /// Number of the QP.
    pub fn qpn(&self) -> Qpn {
        self.by.qpn
    }

    /// Protection domain of the QP.
    pub fn pd(&self) -> Pd {
        self.by.pd
    }

    /// State of the QP.
    pub fn state(&self) -> QpState {
        self.attr.state
    }

    /// The port that the QP sends on, counted from 1.
    pub fn port(&self) -> u8 {
        self.attr.port
    }

    /// All attributes, as last set.
    pub fn attr(&self) -> QpAttr {
        let keepalive_ms = self.service.keepalive().map_or(0, |keepalive| keepalive.idle_ms);
        QpAttr { keepalive_ms, ..self.attr.query() }
    }

    /// Returns whether all messages that were begun are completed. In SQD: whether the send queue
    /// has drained.
    pub fn is_drained(&self) -> bool {
        self.service.is_quiet()
    }

    /// Number of send work requests in the queue that are not completed.
    #[inline]
    pub fn send_wrs(&self) -> u32 {
        self.service.send_depth()
    }

    /// The memory that posting the next `count` send work requests will write, as far as it is
    /// contiguous. For a caller that prefetches it.
    #[inline]
    pub fn next_send_slots(&self, count: usize) -> (&[impl Sized], &[Sge]) {
        self.service.sq().next_slots(count)
    }

    /// The memory that posting the next `count` receive work requests will write, as far as it is
    /// contiguous. For a caller that prefetches it.
    #[inline]
    pub fn next_recv_slots(&self, count: usize) -> (&[impl Sized], &[Sge]) {
        self.service.rq().next_slots(count)
    }

    /// Number of receive work requests in the queue, without those of an RD QP that EECs fill.
    #[inline]
    pub fn queued_recvs(&self) -> u32 {
        self.service.rq().len()
    }

    /// Number of receive work requests in the queue. With an SRQ: those taken from it and not
    /// completed.
    #[inline]
    pub fn recv_wrs(&self) -> u32 {
        self.service.recv_depth()
    }

    /// Modify QP: changes the state, attributes, or both. A migration that the change requests
    /// begins at `now`.
    ///
    /// # Errors
    /// A [`ModifyError`] names the rule that the change breaks; nothing was changed.
    //= check H10 — one step on the owner lcore: changes of several threads have one order
    pub fn modify(
        &mut self,
        now: Instant,
        change: &QpChange,
        env: &mut impl Env,
    ) -> Result<(), ModifyError> {
        let from = self.attr.state;
        let to = state::check(self.qp_type(), from, self.attr.given(), change)?;
        self.check_migration(change, to)?;
        if change.selective_repeat == Some(true) && !self.service.is_equipped() {
            return Err(ModifyError::NotAllowed(AttrMask::SELECTIVE_REPEAT));
        }
        let sprays = change.udp_source_ports.is_some_and(|ports| ports > 1);
        if sprays && change.selective_repeat != Some(true) {
            return Err(ModifyError::NotAllowed(AttrMask::UDP_SOURCE_PORTS));
        }
        //= check H6 — a QP in SQD takes new attributes only once it has drained
        if from == QpState::Sqd && to == QpState::Sqd && !self.is_drained() {
            return Err(ModifyError::Draining);
        }
        if to == QpState::Err {
            self.enter_error(env);
            return Ok(());
        }
        self.attr.apply(change);
        self.attr.state = to;
        self.change_migration(now, change, env);
        //= check S1 — each frame from now on takes its time at the path's rate
        self.retune_pace();
        match (from, to) {
            (_, QpState::Reset) => {
                self.detach(env);
                self.reset();
            }
            (QpState::Init, QpState::Rtr) => self.service.start_responder(&self.attr),
            (QpState::Rtr, QpState::Rts) => self.service.start_requester(&self.attr, now),
            (QpState::Rts, QpState::Sqd) => {
                let is_asked = change.en_sqd_async_notify == Some(true);
                self.owes_drained = is_asked || seeded!(SqDrainedUnasked);
                self.step_back(env);
                self.tell_drained(env);
            }
            (QpState::Sqd, QpState::Rts) => {
                self.owes_drained = false;
                self.line_up(env);
            }
            (QpState::Sqd, QpState::Sqd) => self.service.retune(&self.attr),
            _ => {}
        }
        self.change_keepalive(now, change);
        Ok(())
    }

    /// Applies the idle time that a change gives.
    fn change_keepalive(&mut self, now: Instant, change: &QpChange) {
        let Some(idle_ms) = change.keepalive_ms else { return };
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        if let Service::Rc(rc) = &mut self.service {
            rc.set_keepalive(idle_ms, &context);
        }
    }

    /// Moves the QP to ERR for a reason outside of it, such as an overrun CQ.
    pub fn fail(&mut self, env: &mut impl Env) {
        if self.attr.state != QpState::Err {
            env.event(AsyncEvent::QpFatal);
            self.enter_error(env);
        }
    }

    /// Appends a send work request with its scatter/gather list.
    ///
    /// In ERR and SQE the request completes flushed at once.
    ///
    /// # Errors
    /// A [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_send(
        &mut self,
        wr: &SendWr,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.service.post_send(wr, sges, &self.attr)?;
        self.flush_posted(env);
        Ok(())
    }

    /// Appends a send work request with the payload `data`, which is copied.
    ///
    /// In ERR and SQE the request completes flushed at once.
    ///
    /// # Errors
    /// A [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_inline(
        &mut self,
        wr: &SendWr,
        data: &[u8],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.service.post_inline(wr, data, &self.attr)?;
        self.flush_posted(env);
        Ok(())
    }

    /// Appends a receive work request with its scatter list.
    ///
    /// In ERR the request completes flushed at once.
    ///
    /// # Errors
    /// A [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_recv(
        &mut self,
        wr: &RecvWr,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_recv() {
            return Err(PostError::InvalidState);
        }
        self.service.rq_mut().post(wr, sges)?;
        if self.attr.state == QpState::Err {
            self.service.flush_receives(self.by.qpn, env);
        }
        Ok(())
    }

    /// Gives an RC QP the memory that selective repeat needs, before a change sets
    /// [`QpAttr::selective_repeat`]. Returns `memory` if the QP has it already, or is not RC.
    pub fn equip(&mut self, memory: SelectiveRepeat) -> Option<SelectiveRepeat> {
        match &mut self.service {
            Service::Rc(rc) => rc.equip(memory),
            _ => Some(memory),
        }
    }

    /// UD: sets the largest payload of a datagram. The path MTU of a connected QP is an attribute;
    /// that of a UD QP is its port's, which the environment gives. No effect on RC and UC.
    pub fn set_port_mtu(&mut self, mtu: PathMtu) {
        if self.qp_type().is_datagram() {
            self.attr.path_mtu = mtu;
        }
    }

    /// Flushes send work requests that were posted in SQE or ERR.
    //= check G3 — what is posted in ERR completes flushed, none is lost
    #[inline]
    fn flush_posted(&mut self, env: &mut impl Env) {
        if self.attr.state.flushes_sends() {
            self.service.flush_sends(self.by.qpn, env);
        }
    }

    /// Handles the failure of the oldest send WQE: completes it with `status` and flushes the rest.
    #[cold]
    fn fail_send(&mut self, status: WcStatus, env: &mut impl Env) {
        if let Service::Eec(_) = self.service {
            return self.fail_eec(status, env);
        }
        if seeded!(FlushBeforeError) {
            self.service.flush_sends(self.by.qpn, env);
        }
        self.service.fail_send(self.by.qpn, status, env);
        if self.qp_type().is_reliable() {
            return self.enter_error(env);
        }
        //= check H8 — with UC and UD only the send queue fails
        //= check R17 — with RD too
        //= check W9 — with the raw services too
        self.attr.state = QpState::Sqe;
        self.owes_drained = false;
        self.service.flush_sends(self.by.qpn, env);
    }

    //= check G1 — everything left completes flushed, in post order, one completion each
    //= check G4 — at any step: nothing stays half done, and nothing is sent from here on
    //= check G7 — the QP takes no more from its SRQ, and reports that once
    #[cold]
    fn enter_error(&mut self, env: &mut impl Env) {
        let was_error = self.attr.state == QpState::Err;
        self.attr.state = QpState::Err;
        self.owes_drained = false;
        self.detach(env);
        self.service.flush_sends(self.by.qpn, env);
        self.service.flush_receives(self.by.qpn, env);
        if let Some(keepalive) = self.service.keepalive_mut() {
            keepalive.stop();
        }
        //= check X9 — a target too
        if self.service.takes_shared() && !was_error {
            env.event(AsyncEvent::LastWqeReached);
        }
    }

    /// Reports that the send queue has drained, if that was requested and is so.
    //= check H4 — once, after the last acknowledgement
    #[inline]
    fn tell_drained(&mut self, env: &mut impl Env) {
        if self.owes_drained && (self.service.is_quiet() || seeded!(SqDrainedEarly)) {
            self.owes_drained = seeded!(SqDrainedTwice);
            env.event(AsyncEvent::SqDrained);
        }
    }

    //= check G5 — a QP in Reset keeps nothing of its former connection
    fn reset(&mut self) {
        self.attr = Attributes::new(self.attr.uses_ecn);
        self.service.reset();
        self.pace = Pace::new(self.reaction.is_some());
        self.has_sent_cnp = false;
        self.restart_reaction();
        self.migration = Migration::default();
        self.has_comm = false;
        self.owes_drained = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_qp_is_small() {
        // Not included: the READ and ATOMIC resources (added here), and the rings, which have the
        // size asked for. Both paths are included, one of them as ready headers.
        let resources = usize::from(crate::MAX_RD_ATOMIC) * 20;
        let size = size_of::<Qp>() + resources;
        assert!(size <= 928, "{size} bytes");
    }
}
