//! The requester half of an EEC: which RD QP has its turn, and how a message ends.
//!
//! ```text
//!              turn of an RD QP            acknowledged
//!   Nothing ───────────────────> Message ───────────────> Nothing
//!      ^                            │ given up: refused, failed here, put off after an RNR NAK,
//!      │       acknowledged         v           or its RD QP has left
//!      └─────────────────── Resync or PutOff
//! ```
//!
//! An RNR NAK may be older than the newest packets: the message may have been executed although it
//! is put off. The peer's count of messages in the acknowledgement of the RESYNC tells, and until
//! then the message is not begun again.
//!
//! Invariants
//! - The requester's queue holds one request, but none in Nothing.
//! - The RD QP of a message that is put off is in no line until the RESYNC is acknowledged.
//! - A message of which nothing was sent is given up without a RESYNC: the peer does not know it.
//!
//! Not here: the responder half ([`super::answers`]).

use core::ops::{Deref, DerefMut};

use uroce_wire::{Deth, Header, Msn, NakCode, Packet, Psn, Qpn};

use super::answers::{Asked, Serves};
use super::line::{Line, Turn, next_of};
use super::served::Served;
use crate::attr::{Attributes, MAX_RD_ATOMIC};
use crate::context::{Context, Step};
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{Accessor, Env};
use crate::queue::{MAX_INLINE_DATA, QpCaps};
use crate::rc::{Keepalive, Rc, Requester, Responder};
use crate::time::Instant;
use crate::wqe::{RdAddress, Rdd};

/// Scatter/gather elements of one request: as many as an RD QP may have.
const MAX_SGE: u32 = 32;

/// Value of `rnr_retry` that means no limit.
const RNR_RETRY_FOREVER: u8 = 7;

/// A message that an RD QP sends by the EEC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front {
    /// The RD QP.
    pub(crate) by: Accessor,
    /// Destination, with the Q_Key that is sent.
    pub(crate) to: RdAddress,
}

/// What the requester works on.
#[derive(Clone, Copy, Debug)]
enum Sends {
    Nothing,
    Message(Front),
    /// A RESYNC about this message, which is sent again afterwards if the peer has not executed it.
    PutOff(Front),
    /// A RESYNC about this message, which was given up.
    Resync(Front),
}

impl Sends {
    fn front(&self) -> Option<&Front> {
        match self {
            Sends::Nothing => None,
            Sends::Message(front) | Sends::PutOff(front) | Sends::Resync(front) => Some(front),
        }
    }

    /// The message that an RD QP waits for.
    fn awaited(&self) -> Option<Front> {
        match self {
            Sends::Message(front) | Sends::PutOff(front) => Some(*front),
            Sends::Nothing | Sends::Resync(_) => None,
        }
    }

    fn is_resync(&self) -> bool {
        matches!(self, Sends::PutOff(_) | Sends::Resync(_))
    }
}

/// An end-to-end context.
#[derive(Debug)]
pub(crate) struct Eec {
    rc: Rc,
    rdd: Rdd,
    line: Line,
    sends: Sends,
    /// Number of messages that the peer has executed, by the acknowledgement that ended the last
    /// message or RESYNC.
    executed: Msn,
    /// RNR retries that were left for the message when it was begun again after it was put off.
    rnr_left: Option<u8>,
    /// Time at which the first RD QP in line may send, if all wait after an RNR NAK.
    resume_at: Option<Instant>,
    /// Message of the peer that is in progress.
    pub(super) serves: Option<Serves>,
    /// RD QP that the receive in the responder's queue is of.
    pub(super) lender: Qpn,
    /// RD QP of the peer that ACKs and NAKs go to.
    pub(super) source: Qpn,
    /// PSN and code of the refusal after which only a RESYNC is taken.
    pub(super) refusal: Option<(Psn, NakCode)>,
    /// Requests that are kept with their answers, by their places.
    pub(super) asked: [Asked; MAX_RD_ATOMIC as usize],
}

impl Deref for Eec {
    type Target = Rc;

    fn deref(&self) -> &Rc {
        &self.rc
    }
}

impl DerefMut for Eec {
    fn deref_mut(&mut self) -> &mut Rc {
        &mut self.rc
    }
}

impl Eec {
    pub(crate) fn new(rdd: Rdd) -> Eec {
        let caps = QpCaps {
            max_send_wr: 1,
            max_recv_wr: 0,
            max_send_sge: MAX_SGE,
            max_recv_sge: MAX_SGE,
            max_inline_data: MAX_INLINE_DATA,
        };
        let rc = Rc {
            requester: Requester::new(&caps),
            responder: Responder::new(&caps, true),
            keepalive: Keepalive::default(),
        };
        Eec {
            rc,
            rdd,
            line: Line::default(),
            sends: Sends::Nothing,
            executed: Msn::default(),
            rnr_left: None,
            resume_at: None,
            serves: None,
            lender: Qpn::default(),
            source: Qpn::default(),
            refusal: None,
            asked: [Asked::default(); MAX_RD_ATOMIC as usize],
        }
    }

    pub(crate) fn rdd(&self) -> Rdd {
        self.rdd
    }

    /// Returns whether no message is in progress, and the peer knows of all that were given up.
    pub(crate) fn is_quiet(&self) -> bool {
        self.rc.requester.is_quiet() && !self.sends.is_resync()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.rc.requester.next_timeout().into_iter().chain(self.resume_at).min()
    }

    /// Returns whether a message is in progress, about to be begun, or put off.
    pub(crate) fn has_message(&self) -> bool {
        self.sends.awaited().is_some()
    }

    /// Notes that the time of an RD QP that waits after an RNR NAK has come: the EEC is polled.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.resume_at = self.resume_at.filter(|at| *at > now);
    }

    /// Appends an RD QP to the line.
    pub(crate) fn push(&mut self, qpn: Qpn, env: &mut impl Env) {
        self.line.push(qpn, env);
    }

    /// Sends one request packet, if there is one.
    #[inline(never)]
    pub(crate) fn transmit_request(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        self.resume_at = None;
        self.put_off(context, env);
        if let Sends::Nothing = self.sends {
            self.begin_next(context, env);
        }
        let Some(&front) = self.sends.front() else { return Step::Idle };
        let is_resync = self.sends.is_resync();
        //= check R26 — in SQD the peer is still told that a message was given up
        let mut attr = *context.attr;
        if is_resync {
            attr.state = crate::QpState::Rts;
        }
        let deth = Deth { qkey: front.to.qkey, src_qpn: front.by.qpn };
        let own = Context { by: front.by, attr: &attr, ..*context };
        let was_quiet = self.rc.requester.is_quiet();
        let served = &mut Served::requests(env, context.by.qpn, front.to.dest_qpn, deth, is_resync);
        let step = self.rc.requester.transmit(&own, served);
        if was_quiet && !self.rc.requester.is_quiet() {
            match is_resync {
                true => env.count(Counter::RdResyncsSent),
                false => note(front.by.qpn, env, |place| place.is_begun = true),
            }
        }
        step
    }

    /// Begins the message of the RD QP with the next turn, if there is one.
    //= check R3 — one message at a time per EEC, the RD QPs in turn
    fn begin_next(&mut self, context: &Context<'_>, env: &mut impl Env) {
        if context.attr.state != crate::QpState::Rts {
            return;
        }
        loop {
            let (qpn, before) = match self.line.turn(context.now, env) {
                Turn::Empty => return,
                Turn::NotBefore(at) => return self.resume_at = Some(at),
                Turn::Of(qpn, before) => (qpn, before),
            };
            let next = next_of(qpn, env);
            self.line.take(before, qpn, next, env);
            let (requester, attr) = (&mut self.rc.requester, context.attr);
            let front = env.with_other(qpn, |qp, _| qp.give_message(requester, attr));
            if let Some((front, rnr_left)) = front.flatten() {
                (self.sends, self.rnr_left) = (Sends::Message(front), rnr_left);
                return;
            }
        }
    }

    /// Gives way to another RD QP while the peer's RD QP has no receive.
    //= check R15 — the message is sent again from its start after the time of the RNR NAK
    //= check R16 — its RNR retries are counted on
    fn put_off(&mut self, context: &Context<'_>, env: &mut impl Env) {
        let Sends::Message(front) = self.sends else { return };
        let Some((resume_at, rnr_left)) = self.rc.requester.rnr_wait() else { return };
        // If a READ or ATOMIC was executed after all, its response is still to come.
        let asks = self.rc.requester.sq.front().is_some_and(|wqe| wqe.op.has_response());
        if asks || context.attr.state != crate::QpState::Rts {
            return;
        }
        match self.line.turn(context.now, env) {
            Turn::Of(..) => {}
            Turn::NotBefore(at) => return self.resume_at = Some(at),
            Turn::Empty => return,
        }
        let Some(rnr_left) = self.rnr_left_after(rnr_left, context.attr) else {
            env.count(Counter::RnrRetriesExceeded);
            self.fail_message(WcStatus::RnrRetryExcErr, context.attr, env);
            return;
        };
        note(front.by.qpn, env, |place| {
            (place.resume_at, place.rnr_left) = (resume_at, Some(rnr_left));
        });
        self.give_up(front, context.attr);
        match self.sends {
            Sends::Resync(front) => self.sends = Sends::PutOff(front),
            _ => self.put_back(context.by.qpn, front.by.qpn, env),
        }
    }

    /// RNR retries that are left for the message in progress after an RNR NAK, when the requester
    /// has `left`; `None` if none was left. The requester has reloaded its counter if it has sent
    /// the beginning of the message again, which is no progress.
    fn rnr_left_after(&self, left: u8, attr: &Attributes) -> Option<u8> {
        match self.rnr_left {
            Some(before) if attr.rnr_retry != RNR_RETRY_FOREVER => {
                before.checked_sub(1).map(|own| own.min(left))
            }
            _ => Some(left),
        }
    }

    /// Gives up the message in progress; the peer is told if it knows the message.
    //= check R10 — RESYNC, with the PSN after the newest that was sent
    fn give_up(&mut self, front: Front, attr: &Attributes) {
        let is_known = !self.rc.requester.is_quiet();
        self.rc.requester.abandon(attr);
        self.sends = Sends::Nothing;
        if is_known && !seeded!(RdNoResync) {
            self.rc.requester.begin_resync(attr.path_mtu);
            self.sends = Sends::Resync(front);
        }
    }

    /// Handles a response of the peer's responder. The inner result is the completer's.
    pub(crate) fn handle_response(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Result<(), WcStatus>, DropReason> {
        let own = context.by.qpn;
        let by = self.sends.front().map_or(context.by, |front| front.by);
        //= check R20 — a response to another RD QP than the one that sends is dropped
        if by.qpn != own && packet.bth.dest_qpn != by.qpn {
            return Err(DropReason::OtherRdQp);
        }
        let served = &mut Served::answers(env, own, Qpn::default());
        let result = self.rc.requester.handle_response(&Context { by, ..*context }, packet, served);
        //= check R39 — there are no end-to-end credits
        self.rc.requester.ignore_credits();
        if served.done.is_some() {
            let aeth = packet.op.has(Header::Aeth).then_some(&packet.ext.aeth);
            self.finish(own, aeth.map_or(self.executed, |aeth| aeth.msn), env);
        }
        Ok(result)
    }

    /// Ends the message, or RESYNC, that was acknowledged. The peer has executed `executed`
    /// messages.
    //= check R38 — a message that was put off, but executed, has succeeded
    fn finish(&mut self, own: Qpn, executed: Msn, env: &mut impl Env) {
        let sends = core::mem::replace(&mut self.sends, Sends::Nothing);
        let before = core::mem::replace(&mut self.executed, executed);
        let is_executed = executed == before.next() && !seeded!(RdPutOffTwice);
        match sends {
            Sends::Nothing | Sends::Resync(_) => {}
            Sends::PutOff(front) if !is_executed => self.put_back(own, front.by.qpn, env),
            Sends::Message(front) | Sends::PutOff(front) => {
                let qpn = front.by.qpn;
                env.with_other(qpn, |qp, env| qp.succeed_message(env));
                self.line_up(own, qpn, env);
            }
        }
    }

    /// Hands a message that was put off, and not executed, back to its RD QP, to be begun again.
    //= check R26 — an RD QP in SQD has drained then
    fn put_back(&mut self, own: Qpn, qpn: Qpn, env: &mut impl Env) {
        env.with_other(qpn, |qp, env| qp.take_back_message(env));
        self.line_up(own, qpn, env);
    }

    /// Puts an RD QP in the line of the EEC that its next request names, this one or another, if
    /// it may send.
    //= check R5 — the messages of an RD QP go one after the other, also by several EECs
    fn line_up(&mut self, own: Qpn, qpn: Qpn, env: &mut impl Env) {
        if env.with_other(qpn, |qp, env| qp.line_up_at(own, env)) == Some(true) {
            self.line.push(qpn, env);
        }
    }

    /// Gives up the message in progress, which fails with `status`. Returns false if it is a RESYNC
    /// that fails.
    //= check R9 — the RD QP goes to SQE, and the EEC goes on
    pub(crate) fn fail_message(
        &mut self,
        status: WcStatus,
        attr: &Attributes,
        env: &mut impl Env,
    ) -> bool {
        let Sends::Message(front) = self.sends else { return false };
        self.give_up(front, attr);
        env.with_other(front.by.qpn, |qp, env| qp.fail_message(status, env));
        true
    }

    /// Takes an RD QP out of the line; its message in progress is given up. `next` is behind it.
    //= check R11 — an RD QP that leaves in the middle of its message does not stop the EEC
    pub(crate) fn withdraw(&mut self, qpn: Qpn, next: Qpn, attr: &Attributes, env: &mut impl Env) {
        match self.sends {
            Sends::Message(front) if front.by.qpn == qpn => self.give_up(front, attr),
            Sends::PutOff(front) if front.by.qpn == qpn => self.sends = Sends::Resync(front),
            _ => self.line.remove(qpn, next, env),
        }
    }

    /// Ends everything: the message in progress fails with `status`, as the oldest requests of the
    /// RD QPs in line fail, and the receive that was being filled.
    //= check R18 — the message in progress, at both ends, then what names the EEC
    pub(crate) fn end(&mut self, own: Qpn, status: WcStatus, env: &mut impl Env) {
        let sends = core::mem::replace(&mut self.sends, Sends::Nothing);
        if let Some(front) = sends.awaited() {
            env.with_other(front.by.qpn, |qp, env| qp.fail_message(status, env));
        }
        while let Some(qpn) = self.line.pop(env) {
            env.with_other(qpn, |qp, env| qp.fail_message(WcStatus::InvEecStateErr, env));
        }
        self.resume_at = None;
        self.end_receive(own, WcStatus::LocEecOpErr, env);
        self.rc.requester.reset();
        self.rc.responder.reset();
        (self.serves, self.refusal) = (None, None);
        self.executed = Msn::default();
    }
}

/// Changes the place of an RD QP.
fn note(qpn: Qpn, env: &mut impl Env, change: impl FnOnce(&mut super::member::Requester)) {
    env.with_other(qpn, |qp, _| {
        if let Some(rd) = qp.member_mut() {
            change(&mut rd.requester);
        }
    });
}
