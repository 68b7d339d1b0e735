//! The queue pair: attributes, state, and what changes them.
//!
//! What holds: a QP in ERR has flushed everything and sends nothing; one in SQE has an empty send
//! queue.
//!
//! Not here: what the roles do ([`crate::rc`], [`crate::uc`], [`crate::ud`]), the transition table
//! ([`state`]).

pub(crate) mod migration;
mod pace;
mod packets;
mod resize;
mod service;
pub(crate) mod state;

use uroce_wire::{PathMtu, Qpn};

use crate::attr::{Attributes, QpAttr, QpChange, QpType};
use crate::cqe::WcStatus;
use crate::env::{Accessor, AsyncEvent, Env, Pd};
use crate::queue::QpCaps;
use crate::time::Instant;
use crate::wqe::{PostError, RecvWr, SendWr, Sge};
use migration::Migration;
use pace::Pace;
pub use packets::{Inbound, Progress};
pub use resize::WorkQueues;
use service::Service;
use state::{ModifyError, QpState};

/// What a QP is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// How large its queues are.
    pub caps: QpCaps,
    /// The protection domain of the shared receive queue that receives come from
    /// ([`crate::SharedReceives::take_receive`]), if there is one. It may be another than the QP's.
    pub srq: Option<Pd>,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    by: Accessor,
    /// The protection domain of the receives.
    recv_pd: Pd,
    attr: Attributes,
    service: Service,
    pace: Pace,
    migration: Migration,
    /// The peer has been heard of since RTR.
    has_comm: bool,
    /// An event is to tell that the send queue is drained.
    owes_drained: bool,
}

impl Qp {
    /// A QP in RESET. All the memory it will ever need is taken here.
    pub fn new(qpn: Qpn, pd: Pd, init: &QpInit) -> Qp {
        let QpInit { qp_type, caps, srq } = init;
        Qp {
            by: Accessor { pd, qpn },
            recv_pd: srq.unwrap_or(pd),
            attr: Attributes::default(),
            service: Service::new(*qp_type, caps, srq.is_some()),
            pace: Pace::default(),
            migration: Migration::default(),
            has_comm: false,
            owes_drained: false,
        }
    }

    /// The QP's transport service.
    pub fn qp_type(&self) -> QpType {
        self.service.qp_type()
    }

    /// The QP's number.
    pub fn qpn(&self) -> Qpn {
        self.by.qpn
    }

    /// The QP's protection domain.
    pub fn pd(&self) -> Pd {
        self.by.pd
    }

    /// Where the QP stands.
    pub fn state(&self) -> QpState {
        self.attr.state
    }

    /// All attributes, as set last.
    pub fn attr(&self) -> QpAttr {
        self.attr.query()
    }

    /// Has every message that was begun been completed? In SQD: is the send queue drained?
    pub fn is_drained(&self) -> bool {
        self.service.is_quiet()
    }

    /// Send work requests in the queue, completed ones not counted.
    #[inline]
    pub fn send_wrs(&self) -> u32 {
        self.service.send_depth()
    }

    /// What posting the next `count` send work requests will write, as far as it lies in one piece:
    /// for who wants it to be in a cache by then.
    #[inline]
    pub fn next_send_slots(&self, count: usize) -> (&[impl Sized], &[Sge]) {
        self.service.sq().next_slots(count)
    }

    /// The same of receive work requests.
    #[inline]
    pub fn next_recv_slots(&self, count: usize) -> (&[impl Sized], &[Sge]) {
        self.service.rq().next_slots(count)
    }

    /// Receive work requests in the queue. With an SRQ: those taken from it and not completed.
    #[inline]
    pub fn recv_wrs(&self) -> u32 {
        self.service.rq().len()
    }

    /// Modify QP: goes to another state, changes attributes, or both. A migration that the change
    /// asks for begins `now`.
    ///
    /// # Errors
    /// A [`ModifyError`] says which rule of the transition table is broken; nothing changed.
    //= check H10 — one step of the QP's owner: whoever asks, changes stand in one order
    pub fn modify(
        &mut self,
        now: Instant,
        change: &QpChange,
        env: &mut impl Env,
    ) -> Result<(), ModifyError> {
        let from = self.attr.state;
        let to = state::check(self.qp_type(), from, self.attr.given(), change)?;
        self.check_migration(change, to)?;
        //= check H6 — an SQD QP takes new attributes only once it is drained
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
        self.pace.retune(&self.attr);
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (QpState::Init, QpState::Rtr) => self.service.start_responder(&self.attr),
            (QpState::Rtr, QpState::Rts) => self.service.start_requester(&self.attr),
            (QpState::Rts, QpState::Sqd) => {
                let is_asked = change.en_sqd_async_notify == Some(true);
                self.owes_drained = is_asked || seeded!(SqDrainedUnasked);
                self.tell_drained(env);
            }
            (QpState::Sqd, QpState::Rts) => self.owes_drained = false,
            (QpState::Sqd, QpState::Sqd) => self.service.retune(&self.attr),
            _ => {}
        }
        Ok(())
    }

    /// Takes the QP to ERR for a reason outside of it, such as an overrun CQ.
    pub fn fail(&mut self, env: &mut impl Env) {
        if self.attr.state != QpState::Err {
            env.event(AsyncEvent::QpFatal);
            self.enter_error(env);
        }
    }

    /// Appends a send work request with its scatter/gather list.
    ///
    /// In ERR and SQE it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
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

    /// Appends a send work request whose payload is `data`, copied here.
    ///
    /// In ERR and SQE it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
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
    /// In ERR it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
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

    /// UD: the largest datagram, from now on. The path MTU of a connected QP is an attribute, that
    /// of a UD QP its port's, which the surroundings know. Of no effect on RC and UC.
    pub fn set_port_mtu(&mut self, mtu: PathMtu) {
        if self.qp_type().is_datagram() {
            self.attr.path_mtu = mtu;
        }
    }

    /// In SQE and ERR what is posted does not stay.
    //= check G3 — what is posted in ERR completes flushed, none is lost
    #[inline]
    fn flush_posted(&mut self, env: &mut impl Env) {
        if self.attr.state.flushes_sends() {
            self.service.flush_sends(self.by.qpn, env);
        }
    }

    /// The oldest send WQE failed: completes it with `status`, flushes the rest.
    #[cold]
    fn fail_send(&mut self, status: WcStatus, env: &mut impl Env) {
        if seeded!(FlushBeforeError) {
            self.service.flush_sends(self.by.qpn, env);
        }
        self.service.fail_send(self.by.qpn, status, env);
        if self.qp_type() == QpType::Rc {
            return self.enter_error(env);
        }
        //= check H8 — where nothing is owed to a peer the send queue alone fails
        self.attr.state = QpState::Sqe;
        self.owes_drained = false;
        self.service.flush_sends(self.by.qpn, env);
    }

    //= check G1 — everything left completes flushed, in post order, one completion each
    //= check G4 — at whatever step: nothing stays half done, nothing is sent from here on
    //= check G7 — the QP takes no more from its SRQ, and says so once
    #[cold]
    fn enter_error(&mut self, env: &mut impl Env) {
        let was_error = self.attr.state == QpState::Err;
        self.attr.state = QpState::Err;
        self.owes_drained = false;
        self.service.flush_sends(self.by.qpn, env);
        self.service.flush_receives(self.by.qpn, env);
        if self.service.rq().uses_srq() && !was_error {
            env.event(AsyncEvent::LastWqeReached);
        }
    }

    /// Tells that the send queue is drained, if that is to be told and it is.
    //= check H4 — once, after the last acknowledgement
    #[inline]
    fn tell_drained(&mut self, env: &mut impl Env) {
        if self.owes_drained && (self.service.is_quiet() || seeded!(SqDrainedEarly)) {
            self.owes_drained = seeded!(SqDrainedTwice);
            env.event(AsyncEvent::SqDrained);
        }
    }

    //= check G5 — a QP taken to Reset keeps nothing of its former life
    fn reset(&mut self) {
        self.attr = Attributes::default();
        self.service.reset();
        self.pace = Pace::default();
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
        // Beside it there are the READ and ATOMIC resources, and the rings as large as asked for.
        // Both paths are in it: one as ready headers, which the surroundings need not keep.
        let resources = usize::from(crate::MAX_RD_ATOMIC) * 20;
        let size = size_of::<Qp>() + resources;
        assert!(size <= 824, "{size} bytes");
    }
}
