//! An RD QP: its queues, and its place in the line of an EEC.
//!
//! Invariants
//! - `is_begun` is whether a packet of the oldest request was sent. Such a request is finished also
//!   in SQD, unlike one that only waits in line.
//! - A receive that an EEC fills has left the queue and is lent. It completes when its message ends
//!   or the QP goes to ERR, whichever is first, so lent receives complete in any order among
//!   themselves.

use uroce_wire::{PathMtu, Qkey, Qpn};

use crate::attr::{AccessFlags, Attributes, QpType};
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::env::{Env, Found, Output, Pd, Side};
use crate::queue::QpCaps;
use crate::recv_queue::RecvQueue;
use crate::send_queue::SendQueue;
use crate::time::Instant;
use crate::wqe::{PostError, RdAddress, Rdd, RecvWr, SendWr, Sge};

/// Number of receives that EECs fill at the same time for which memory is allocated at first.
const LENT_AT_FIRST: usize = 64;

/// Bit of controlled Q_Keys: if a work request's Q_Key has it, the QP's own Q_Key is sent instead.
const CONTROLLED: u32 = 1 << 31;

/// The roles of an RD QP.
#[derive(Debug)]
pub(crate) struct Rd {
    pub(crate) rdd: Rdd,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}

impl Rd {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool, rdd: Rdd) -> Rd {
        let (requester, responder) = (Requester::new(caps), Responder::new(caps, uses_srq));
        Rd { rdd, requester, responder }
    }
}

/// The send queue, and the place in an EEC's line.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) sq: SendQueue,
    /// Destination of each WQE, by its slot.
    pub(crate) addresses: Box<[RdAddress]>,
    /// EEC that has the QP in its line, or sends its oldest request; 0 if none.
    pub(crate) eec: Qpn,
    /// RD QP behind this one in the line; 0 if none.
    pub(crate) next: Qpn,
    pub(crate) is_begun: bool,
    /// Time before which the request is not sent again, after an RNR NAK.
    pub(crate) resume_at: Instant,
    /// RNR retries that are left for the request, if it was put off.
    pub(crate) rnr_left: Option<u8>,
}

impl Requester {
    fn new(caps: &QpCaps) -> Requester {
        let sq = SendQueue::new(caps);
        let addresses = RdAddress::of_slots(sq.slots());
        Requester {
            sq,
            addresses,
            eec: Qpn::default(),
            next: Qpn::default(),
            is_begun: false,
            resume_at: Instant::ZERO,
            rnr_left: None,
        }
    }

    pub(crate) fn post(
        &mut self,
        wr: &SendWr,
        to: &RdAddress,
        sges: &[Sge],
        mtu: PathMtu,
    ) -> Result<(), PostError> {
        let slot = self.sq.next_slot();
        self.sq.post(wr, sges, QpType::Rd, mtu)?;
        self.addresses[slot] = *to;
        Ok(())
    }

    pub(crate) fn post_inline(
        &mut self,
        wr: &SendWr,
        to: &RdAddress,
        data: &[u8],
        mtu: PathMtu,
    ) -> Result<(), PostError> {
        let slot = self.sq.next_slot();
        self.sq.post_inline(wr, data, QpType::Rd, mtu)?;
        self.addresses[slot] = *to;
        Ok(())
    }

    /// Destination of the oldest request, if there is one.
    pub(crate) fn front_address(&self) -> Option<RdAddress> {
        self.sq.front()?;
        Some(self.addresses[self.sq.slot_of_front()])
    }

    /// Nothing is set in RTS: the PSNs are the EEC's.
    pub(crate) fn start(&mut self, _attr: &Attributes) {}

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        self.rest();
    }

    pub(crate) fn depth(&self) -> u32 {
        self.sq.len()
    }

    /// Returns whether no message is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_begun
    }

    /// Completes the oldest WQE with `status`.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        self.rest();
        self.sq.complete_front(qpn, status, out);
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.rest();
        self.sq.flush(qpn, out);
    }

    /// Forgets the progress of the oldest request.
    fn rest(&mut self) {
        (self.eec, self.next) = (Qpn::default(), Qpn::default());
        (self.is_begun, self.resume_at, self.rnr_left) = (false, Instant::ZERO, None);
    }
}

/// The Q_Key that a request to `to` carries; `own` is the RD QP's.
//= check R4 — a controlled Q_Key is replaced by the QP's own
pub(crate) fn qkey_of(to: &RdAddress, own: Qkey) -> Qkey {
    if to.qkey.0 & CONTROLLED != 0 { own } else { to.qkey }
}

/// What the responder of an EEC needs of the RD QP that a request names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) pd: Pd,
    pub(crate) recv_pd: Pd,
    pub(crate) access: AccessFlags,
    pub(crate) min_rnr_timer: u8,
    /// Number of times that the QP has lost its receives.
    pub(crate) life: u32,
}

/// A receive that an EEC fills.
#[derive(Clone, Copy, Debug)]
struct Lent {
    wr_id: u64,
    eec: Qpn,
}

/// The receive queue, and the receives that EECs fill.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
    /// At most one per EEC. Peers that begin messages and do not end them do not stop the others:
    /// it grows when more EECs than ever before fill receives at the same time.
    lent: Vec<Lent>,
    /// Number of times that all receives were flushed or forgotten.
    pub(crate) life: u32,
}

impl Responder {
    fn new(caps: &QpCaps, uses_srq: bool) -> Responder {
        let lent = Vec::with_capacity(LENT_AT_FIRST);
        Responder { rq: RecvQueue::new(caps, uses_srq), lent, life: 0 }
    }

    /// Nothing is set in RTR: the PSNs are the EEC's.
    pub(crate) fn start(&mut self, _attr: &Attributes) {}

    /// Number of receives in the queue, and of those that EECs fill.
    pub(crate) fn depth(&self) -> u32 {
        self.rq.len() + self.lent.len() as u32
    }

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.lent.clear();
        self.rq.clear();
        self.life = self.life.wrapping_add(1);
    }

    /// Completes all receive WQEs flushed, in order; those that EECs fill are the oldest.
    //= check R25 — a receive that was being filled too, and once
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        while let Some(lent) = self.lent.first().copied() {
            let cqe = Cqe::new(lent.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv, qpn);
            self.complete_lent(lent.eec, cqe, out);
        }
        self.rq.flush(qpn, out);
        self.life = self.life.wrapping_add(1);
    }

    /// Passes the oldest receive to `place`, to be filled by an EEC.
    //= check R29 — with an SRQ, one is taken from it
    //= check R36 — several EECs fill receives at the same time
    pub(crate) fn lend(
        &mut self,
        eec: Qpn,
        env: &mut impl Env,
        place: impl FnOnce(&RecvWr, &[Sge]),
    ) -> Found {
        if !self.rq.ensure(env) {
            return Found::Nothing;
        }
        let Some(wr_id) = self.rq.lend(place) else { return Found::Nothing };
        self.lent.push(Lent { wr_id, eec });
        Found::Receive
    }

    /// Completes the receive that an EEC has filled. No effect if it was flushed meanwhile.
    pub(crate) fn complete_lent(&mut self, eec: Qpn, cqe: Cqe, out: &mut impl Output) {
        let Some(at) = self.lent.iter().position(|lent| lent.eec == eec) else { return };
        out.count(match cqe.status {
            WcStatus::Success => Counter::RecvMessages,
            WcStatus::WrFlushErr => Counter::RespCqeFlushError,
            _ => Counter::RespCqeError,
        });
        let wr_id = self.lent.remove(at).wr_id;
        let position = self.rq.left().wrapping_sub(self.lent.len() as u32);
        out.complete(Side::Recv, Cqe { wr_id, position, ..cqe });
    }
}
