//! Requester: turns send WQEs into request packets.
//!
//! Read first: IBA 9.7.3; 9.7.2 for go-back-N.
//!
//! ```text
//!  send queue   [ head … ][ … ][ cursor … ][ not begun … ] tail
//!  PSNs            unacked_psn     next_psn  end_psn
//!                  oldest not      next to   one past the
//!                  acknowledged    send      newest ever sent
//! ```
//!
//! Invariants
//! - `unacked_psn` ≤ `next_psn` ≤ `end_psn`; `next_psn` lies in the WQE at `cursor`.
//! - A WQE gets its PSNs when its first packet is first sent, and keeps them. A WQE that needs no
//!   packet (local invalidate, bind) gets none: it is executed when the cursor reaches it, and is
//!   before `begun` from then on.
//! - A local error is raised only when the WQE is the oldest, so completions stay in order.
//! - `rd_atomic` is the number of WQEs with a response of their own between head and cursor: READs,
//!   ATOMICs, ATOMIC WRITEs and FLUSHes.
//!
//! Not here: the effects of responses ([`super::completer`]), the time of a retry
//! ([`super::retry`]), which packets are sent again one by one ([`repeat`]), what is sent while
//! nothing is outstanding ([`keepalive`]).

mod datagram;
mod keepalive;
mod repeat;

use uroce_wire::{
    AtomicEth, ExtHeaders, Feth, Msn, OpCode, Psn, Qpn, Reth, Rkey, Selectivity, Srqn, Va, Xrceth,
};

use super::retry::Retry;
use super::round_trips::RoundTrips;
use super::rtt::RoundTrip;
use super::selective::Sent;
use crate::attr::Attributes;
use crate::context::{Context, Step};
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::env::{Env, Outbound, Output, TransmitError};
use crate::gather::Gather;
use crate::queue::QpCaps;
use crate::segment::data_packet;
use crate::send_queue::{SendQueue, carry_out};
use crate::time::Instant;
use crate::wqe::{SendOp, SendWqe};

/// Number of PSNs that may be outstanding at once; with more, old and new could not be
/// distinguished.
const PSN_WINDOW: u32 = 1 << 23;

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) sq: SendQueue,
    /// Position of the WQE that packets are sent from next.
    pub(super) cursor: u32,
    /// Position of the first WQE of which nothing has been sent.
    begun: u32,
    pub(super) unacked_psn: Psn,
    pub(super) next_psn: Psn,
    pub(super) end_psn: Psn,
    pub(super) rd_atomic: u8,
    /// Packets sent since the last one with AckReq.
    unasked: u8,
    /// Number of the next message to begin (SSN).
    next_ssn: Msn,
    /// Number of the last message that the peer has a receive for, if the peer limits credits.
    pub(super) credit_limit: Msn,
    pub(super) is_limited: bool,
    pub(super) retry: Retry,
    pub(super) trip: RoundTrip,
    /// All round trips since the QP left RESET, or since the record was cleared.
    pub(crate) trips: RoundTrips,
    /// Packets with AckReq to be sent before one is timed.
    untimed: u8,
    /// A response came that acknowledges nothing new, since the keepalive has looked last.
    pub(super) has_heard: bool,
    /// Selective repeat, if the QP has its memory.
    pub(super) sent: Option<Box<Sent>>,
}

impl Requester {
    pub(crate) fn new(caps: &QpCaps) -> Requester {
        Requester {
            sq: SendQueue::new(caps),
            cursor: 0,
            begun: 0,
            unacked_psn: Psn::default(),
            next_psn: Psn::default(),
            end_psn: Psn::default(),
            rd_atomic: 0,
            unasked: 0,
            next_ssn: Msn::default(),
            credit_limit: Msn::default(),
            is_limited: false,
            retry: Retry::default(),
            trip: RoundTrip::default(),
            trips: RoundTrips::default(),
            untimed: 0,
            has_heard: false,
            sent: None,
        }
    }

    /// Starts the requester in RTS: the first packet will have the attributes' SQ PSN.
    pub(crate) fn start(&mut self, attr: &Attributes) {
        self.unacked_psn = attr.sq_psn;
        self.next_psn = attr.sq_psn;
        self.end_psn = attr.sq_psn;
        // A responder counts completed messages from 0, so the first message has number 1.
        self.next_ssn = Msn::new(1);
        self.is_limited = false;
        self.retry = Retry::new(attr);
        self.trip = RoundTrip::default();
        if let Some(sent) = &mut self.sent {
            sent.start(attr.sq_psn, attr.selective_repeat, attr.udp_source_ports);
        }
    }

    /// Continues after a change of the path: reloads the retry counter and sends everything
    /// outstanding again.
    //= check I5 — retried from the oldest unacknowledged PSN, with a full retry counter
    pub(crate) fn resume(&mut self, attr: &Attributes) {
        self.retry.change_path(attr);
        // The new path has another round trip.
        self.trip = RoundTrip::default();
        self.retry.set_probe(attr, None);
        if let Some(sent) = &mut self.sent {
            sent.restart_window();
        }
        self.go_back(self.unacked_psn);
    }

    pub(crate) fn unacked_psn(&self) -> Psn {
        self.unacked_psn
    }

    /// Time at which the peer last acknowledged something new.
    pub(crate) fn last_progress(&self) -> Option<Instant> {
        self.retry.last_progress()
    }

    /// Applies changed attributes of a drained QP.
    pub(crate) fn retune(&mut self, attr: &Attributes) {
        self.retry.retune(attr);
    }

    /// Empties the queue and the state, without completions.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        self.trips.clear();
        self.rest();
    }

    /// Called when the send queue was exchanged for another empty one, with positions of its own.
    pub(crate) fn restart_positions(&mut self) {
        (self.cursor, self.begun) = (self.sq.head(), self.sq.head());
    }

    pub(crate) fn depth(&self) -> u32 {
        self.sq.len()
    }

    /// Returns whether no message is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        self.begun == self.sq.head()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.retry.next_timeout()
    }

    /// Sends a probe if one is due, otherwise the packet at the cursor, if there is one and nothing
    /// holds it back.
    #[inline]
    pub(crate) fn transmit(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if self.retry.is_held() && !seeded!(EarlyRnrResend) {
            return self.transmit_held(context, env);
        }
        if self.retry.owes_probe() {
            return self.transmit_probe(context, env);
        }
        self.transmit_requests(context, env)
    }

    /// Sends the next packet of the requests, if there is one and nothing holds it back.
    #[inline]
    fn transmit_requests(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if self.sent.is_some() {
            return self.transmit_selective(context, env);
        }
        self.transmit_in_window(context, env)
    }

    /// Sends the oldest unacknowledged packet once more, with AckReq. If the peer has it, the
    /// answer tells how much more it has; if not, it is the packet that the peer waits for.
    //= check A23 — the oldest packet, because a peer that waits for it answers nothing else
    #[cold]
    fn transmit_probe(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if self.unacked_psn == self.next_psn {
            self.retry.end_probe(false);
            return self.transmit(context, env);
        }
        let step = self.transmit_again(self.sq.head(), self.unacked_psn, context, env);
        if let Step::Sent(_) = step {
            self.trip.forget_timed();
            // If nothing else is outstanding, an answer to the probe alone shows no loss.
            self.retry.end_probe(self.next_psn != self.unacked_psn.next());
            env.count(Counter::TailProbes);
            if let Some(sent) = &mut self.sent {
                sent.probed(self.end_psn);
            }
        }
        step
    }

    /// Sends the packet `psn` of the message at position `at` once more, with AckReq, out of its
    /// order.
    fn transmit_again(
        &mut self,
        at: u32,
        psn: Psn,
        context: &Context<'_>,
        env: &mut impl Env,
    ) -> Step {
        let next = (self.cursor, self.next_psn, self.rd_atomic, self.unasked, self.untimed);
        (self.cursor, self.next_psn) = (at, psn);
        (self.rd_atomic, self.untimed) = (0, u8::MAX);
        self.unasked = if seeded!(ProbeUnasked) { 0 } else { u8::MAX };
        let step = self.transmit_next(0, 0, context, env);
        if let Step::Failed(_) = step {
            return step;
        }
        (self.cursor, self.next_psn, self.rd_atomic, self.unasked, self.untimed) = next;
        step
    }

    /// Sends the packet at the cursor, if the window has room for it and nothing holds it back.
    #[inline]
    fn transmit_in_window(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let (in_flight, window) = (self.in_flight(), self.trip.window());
        if in_flight >= window {
            return Step::Idle;
        }
        self.transmit_next(in_flight, window, context, env)
    }

    /// Sends the packet at the cursor, if there is one and nothing holds it back. `in_flight` and
    /// `window` are in packets.
    fn transmit_next<E: Env>(
        &mut self,
        in_flight: u32,
        window: u32,
        context: &Context<'_>,
        env: &mut E,
    ) -> Step {
        if self.sq.get(self.cursor).is_none() {
            return Step::Idle;
        }
        if let Err(step) = self.prepare(context, env) {
            return step;
        }
        let wqe = self.sq.at(self.cursor);
        let asks = wqe.op.has_response();
        if asks && !self.may_ask(wqe, context) {
            return Step::Idle;
        }
        let lacks_credit = self.lacks_credit(wqe, context.attr);
        if lacks_credit && in_flight > 0 && self.unasked == 0 {
            return Step::Idle;
        }
        // A READ or ATOMIC request uses all of its PSNs at once.
        //= check C1 — a READ uses as many PSNs as it has response packets
        let end = if asks { wqe.end() } else { self.next_psn.next() };
        let is_last = end == wqe.end();
        //= check A16 — the last packet of a message requests an acknowledgement
        let ack_req = !asks
            && (is_last
                || lacks_credit
                || self.unasked >= self.trip.ask_every() - 1
                || self.is_slow(context));
        let mut packet = self.packet(wqe, ack_req, context);
        if E::NAMES_QUEUES {
            packet.ext.xrceth = self.queue_of(wqe);
        }
        let len = match env.transmit(&packet) {
            Ok(len) => len,
            Err(TransmitError::Full | TransmitError::Paced(_)) => return Step::Blocked,
            Err(TransmitError::Memory(_) | TransmitError::UnknownAh) => {
                return self.fail_in_order(WcStatus::LocProtErr);
            }
        };
        if self.next_psn.is_before(self.end_psn) {
            env.count(Counter::RetransmittedPackets);
        }
        if ack_req || asks {
            self.untimed = match self.untimed.checked_sub(1) {
                Some(left) if !self.trip.is_lossy() => left,
                _ => self.trip.asked(self.next_psn, in_flight, window, context.now),
            };
        }
        if self.cursor == self.begun {
            self.begun = self.cursor.wrapping_add(1);
            self.next_ssn = self.next_ssn.next();
        }
        self.next_psn = end;
        if self.end_psn.is_before(end) {
            self.end_psn = end;
        }
        if is_last {
            self.cursor = self.cursor.wrapping_add(1);
            self.skip_done();
        }
        self.rd_atomic += u8::from(asks);
        self.unasked = if ack_req { 0 } else { self.unasked.saturating_add(1) };
        self.retry.arm(context.attr, context.now);
        Step::Sent(len)
    }

    /// Clears the record of round trips, and has the next packet with AckReq timed, so that an
    /// acknowledgement after this call makes a sample.
    pub(crate) fn clear_trips(&mut self) {
        self.trips.clear();
        self.untimed = 0;
    }

    /// Number of PSNs from the oldest unacknowledged to the next to send.
    pub(super) fn in_flight(&self) -> u32 {
        self.next_psn.minus(self.unacked_psn.value()).value()
    }

    /// Returns whether this READ or ATOMIC may be sent now.
    //= check C12 — never more than max_rd_atomic READs and ATOMICs outstanding
    //= check P8 — nor with the ATOMIC WRITEs and FLUSHes, which use the same resources of the peer
    fn may_ask(&self, wqe: &SendWqe, context: &Context<'_>) -> bool {
        if seeded!(PlacementUnlimited) && wqe.op.is_placement() {
            return true;
        }
        let max = context.attr.max_rd_atomic + u8::from(seeded!(TooManyReads));
        self.rd_atomic < max && self.in_flight() + wqe.psns <= PSN_WINDOW
    }

    /// Returns whether the peer may have no receive for the message, by its credits or its RNR NAK.
    /// Then it is sent packet by packet, each requesting an acknowledgement.
    //= check A19 — without credit one packet probes
    //= check B8 — so it does after an RNR NAK: the rest may still be under way from the first time
    fn lacks_credit(&self, wqe: &SendWqe, attr: &Attributes) -> bool {
        let is_limited = self.is_limited && self.credit_limit.is_before(wqe.ssn);
        (is_limited || self.retry.is_refused(attr)) && wqe.op.needs_receive()
    }

    /// Returns whether the QP's rate delays packets so much that a probe could become due, or the
    /// ACK timer expire, before the next packet with AckReq.
    fn is_slow(&self, context: &Context<'_>) -> bool {
        let Context { attr, now, .. } = *context;
        attr.is_rate_limited() && self.retry.is_pressing(attr, now)
    }

    /// Goes back to `psn`, which is outstanding, to send again from there.
    //= check C3 — READ requests too, and everything after them
    pub(super) fn rewind(&mut self, psn: Psn) {
        let mut at = self.sq.head();
        let mut rd_atomic = 0;
        while let Some(wqe) = self.sq.get(at) {
            let is_beyond = !psn.is_before(wqe.end());
            if at == self.begun || !is_beyond {
                break;
            }
            rd_atomic += u8::from(wqe.op.has_response());
            at = at.wrapping_add(1);
        }
        self.cursor = at;
        self.next_psn = psn;
        self.rd_atomic = rd_atomic;
    }

    /// Completes the oldest WQE, and after it executed local WQEs that only waited for their order.
    pub(super) fn succeed_front(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.complete_front(qpn, WcStatus::Success, out);
        while self.begun != self.sq.head() && self.sq.front().is_some_and(|wqe| wqe.op.is_local()) {
            self.complete_front(qpn, WcStatus::Success, out);
        }
    }

    /// Completes the oldest WQE with `status`.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        let at = self.sq.head();
        let Some(wqe) = self.sq.front() else { return };
        let asked = wqe.op.has_response();
        self.sq.complete_front(qpn, status, out);
        if self.cursor == at {
            self.cursor = at.wrapping_add(1);
        } else if asked {
            self.rd_atomic -= 1;
        }
        if self.begun == at {
            self.begun = at.wrapping_add(1);
        }
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.sq.flush(qpn, out);
        self.rest();
    }

    /// Resets the state to nothing in flight.
    fn rest(&mut self) {
        self.cursor = self.sq.head();
        self.begun = self.cursor;
        self.rd_atomic = 0;
        self.unasked = 0;
        self.next_psn = self.end_psn;
        self.unacked_psn = self.end_psn;
        self.retry = Retry::default();
        self.trip = RoundTrip::default();
        if let Some(sent) = &mut self.sent {
            sent.start(self.end_psn, false, 1);
        }
    }

    /// Prepares the WQE at the cursor unless it was begun. Checks it and gives it its PSNs, which
    /// it keeps once its first packet has been sent; a local operation is executed instead.
    #[inline]
    fn prepare(&mut self, context: &Context<'_>, env: &mut impl Env) -> Result<(), Step> {
        if self.cursor != self.begun {
            return Ok(());
        }
        let wqe = self.sq.at(self.cursor);
        //= check H4 — in SQD no new message starts
        if context.attr.state != crate::QpState::Rts && !seeded!(StartsInSqd) {
            return Err(Step::Idle);
        }
        //= check C15 — a fenced WQE does not start before all READs and ATOMICs are answered
        //= check P9 — nor before all ATOMIC WRITEs and FLUSHes are
        if wqe.fence && self.rd_atomic > 0 {
            return Err(Step::Idle);
        }
        if wqe.op.is_local() {
            return Err(self.carry_out(context, env));
        }
        if wqe.op.has_response() && context.attr.max_rd_atomic == 0 {
            return Err(self.fail_in_order(WcStatus::LocQpOpErr));
        }
        if let Err(status) = self.sq.check_memory(self.cursor, wqe, context.by, env.memory()) {
            return Err(self.fail_in_order(status));
        }
        let (first_psn, ssn) = (self.end_psn, self.next_ssn);
        let wqe = self.sq.at_mut(self.cursor);
        wqe.first_psn = first_psn;
        wqe.ssn = ssn;
        Ok(())
    }

    /// Executes the local operation at the cursor; it completes when it is the oldest.
    #[cold]
    fn carry_out(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let at = self.cursor;
        if carry_out(&self.sq.at(at).op, context.by, env.memory()).is_err() {
            return self.fail_in_order(WcStatus::MwBindErr);
        }
        self.sq.at_mut(at).first_psn = self.end_psn;
        self.cursor = at.wrapping_add(1);
        self.begun = self.cursor;
        if at == self.sq.head() {
            self.complete_front(context.by.qpn, WcStatus::Success, env);
        }
        Step::Done
    }

    /// Result for an error of the WQE at the cursor: raised if it is the oldest, otherwise delayed.
    fn fail_in_order(&self, status: WcStatus) -> Step {
        if self.cursor == self.sq.head() { Step::Failed(status) } else { Step::Idle }
    }

    /// The header that names the shared receive queue of a request.
    //= check X1 — every request has it
    fn queue_of(&self, wqe: &SendWqe) -> Xrceth {
        let is_again = self.next_psn.is_before(self.end_psn);
        let is_forgotten = seeded!(XrcRepeatUnnamed) && is_again;
        Xrceth { srqn: if is_forgotten { Srqn::default() } else { wqe.srqn() } }
    }

    /// The packet of `wqe` that has PSN `next_psn`.
    #[inline(always)]
    fn packet<'a>(&'a self, wqe: &SendWqe, ack_req: bool, context: &Context<'a>) -> Outbound<'a> {
        match wqe.op {
            SendOp::Read { va, rkey } => self.read_packet(wqe, context, va, rkey),
            SendOp::CompareSwap { va, rkey, compare, swap } => {
                let atomic = AtomicEth { va, rkey, swap_add: swap, compare };
                self.atomic_packet(context, OpCode::RC_COMPARE_SWAP, atomic)
            }
            SendOp::FetchAdd { va, rkey, add } => {
                let atomic = AtomicEth { va, rkey, swap_add: add, compare: 0 };
                self.atomic_packet(context, OpCode::RC_FETCH_ADD, atomic)
            }
            SendOp::AtomicWrite { .. } | SendOp::Flush { .. } => {
                self.placement_packet(wqe, context)
            }
            _ => {
                let (at, psn) = (self.cursor, self.next_psn);
                let path = match &self.sent {
                    Some(sent) => sent.path(psn, context),
                    None => context.path(),
                };
                let mut packet = data_packet(&self.sq, at, wqe, psn, path, context, OpCode::rc);
                packet.bth.ack_req = ack_req;
                packet
            }
        }
    }

    /// The request for a whole READ or, after a rewind, for the part that is still missing.
    //= check C2 — the retried READ begins at the missing response's PSN and address
    //= check C4 — after a timeout as well: only the rest is requested
    fn read_packet<'a>(
        &'a self,
        wqe: &SendWqe,
        context: &Context<'a>,
        va: Va,
        rkey: Rkey,
    ) -> Outbound<'a> {
        let mut offset = self.next_psn.distance_from(wqe.first_psn) as u32 * context.mtu();
        if seeded!(ReadResumedWrong) {
            offset -= offset.min(context.mtu());
        }
        let va = Va(va.0.wrapping_add(u64::from(offset)));
        let reth = Reth { va, rkey, dma_len: wqe.len - offset };
        let ext = ExtHeaders { reth, ..ExtHeaders::default() };
        self.request(OpCode::RC_RDMA_READ_REQUEST, ext, context)
    }

    fn atomic_packet<'a>(
        &'a self,
        context: &Context<'a>,
        opcode: OpCode,
        atomic: AtomicEth,
    ) -> Outbound<'a> {
        self.request(opcode, ExtHeaders { atomic, ..ExtHeaders::default() }, context)
    }

    /// The request packet of an ATOMIC WRITE, which has a payload, or of a FLUSH.
    //= check P1 — one packet: RETH and eight bytes, or FETH and RETH
    #[cold]
    fn placement_packet<'a>(&'a self, wqe: &SendWqe, context: &Context<'a>) -> Outbound<'a> {
        let mut ext = ExtHeaders::default();
        match wqe.op {
            SendOp::AtomicWrite { va, rkey } => {
                ext.reth = Reth { va, rkey, dma_len: wqe.len };
                let mut packet = self.request(OpCode::RC_ATOMIC_WRITE, ext, context);
                packet.payload = self.sq.payload(self.cursor, wqe, 0, wqe.len);
                packet
            }
            SendOp::Flush { va, rkey, len, placement, selectivity } => {
                ext.feth = Feth { placement, selectivity };
                // Soft-RoCE looks at the length of a whole region's, too.
                let is_range = selectivity == Selectivity::Range;
                let (va, dma_len) = if is_range { (va, len) } else { (Va(0), 0) };
                ext.reth = Reth { va, rkey, dma_len };
                self.request(OpCode::RC_FLUSH, ext, context)
            }
            _ => unreachable!("neither ATOMIC WRITE nor FLUSH"),
        }
    }

    /// A request packet that has a response of its own, without payload.
    fn request<'a>(
        &'a self,
        opcode: OpCode,
        ext: ExtHeaders,
        context: &Context<'a>,
    ) -> Outbound<'a> {
        let bth = context.bth(opcode, self.next_psn, 0);
        let (path, payload) = (context.path(), Gather::EMPTY);
        Outbound { path, bth, ext, by: context.by, payload }
    }

    /// Moves the cursor past local operations that were executed before a rewind.
    fn skip_done(&mut self) {
        while self.cursor != self.begun
            && self.sq.get(self.cursor).is_some_and(|wqe| wqe.op.is_local())
        {
            self.cursor = self.cursor.wrapping_add(1);
        }
    }
}
