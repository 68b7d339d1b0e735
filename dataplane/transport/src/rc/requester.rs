//! Requester: send WQEs become request packets.
//!
//! Read first: IBA 9.7.3, go-back-N of 9.7.2.
//!
//! ```text
//!  send queue   [ head … ][ … ][ cursor … ][ not begun … ] tail
//!  PSNs            unacked_psn     next_psn  end_psn
//!                  oldest not      next to   one past the
//!                  acknowledged    send      newest ever sent
//! ```
//!
//! What holds
//! - `unacked_psn` ≤ `next_psn` ≤ `end_psn`; `next_psn` lies in the WQE at `cursor`.
//! - A WQE gets its PSNs when its first packet is first sent, and keeps them.
//! - A local error is raised only when the WQE is the oldest, so completions stay in order.
//! - `rd_atomic` is the number of READ and ATOMIC WQEs between head and cursor.
//!
//! Not here: what responses do ([`super::completer`]), when to try again ([`super::retry`]).

use uroce_wire::{
    AtomicEth, Bth, ExtHeaders, Header, ImmDt, OpCode, Operation, PathMtu, Position, Psn, Qpn,
    Reth, Rkey, Va,
};

use super::retry::Retry;
use super::{Context, Step, packets};
use crate::attr::QpAttr;
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::env::{Access, Env, Outbound, Output, Path, Side, TransmitError};
use crate::gather::Gather;
use crate::queue::{QpCaps, WorkQueue, check_sges};
use crate::time::Instant;
use crate::wqe::{PostError, SendOp, SendWqe, SendWr, Sge};

/// Request packets that may be unacknowledged at once. Keeps a slow receiver's queues from
/// overflowing, and the rewind after a loss short.
const MAX_IN_FLIGHT: u32 = 256;

/// PSNs that may be outstanding at once: more, and old and new could not be told apart.
const PSN_WINDOW: u32 = 1 << 23;

/// An acknowledgement is asked for at the end of a message, and after this many packets.
const ACK_REQ_EVERY: u32 = 32;

#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) sq: WorkQueue<SendWqe>,
    /// Position of the WQE that is sent from next.
    pub(super) cursor: u32,
    /// Position of the first WQE that has no PSNs yet.
    begun: u32,
    pub(super) unacked_psn: Psn,
    pub(super) next_psn: Psn,
    pub(super) end_psn: Psn,
    pub(super) rd_atomic: u32,
    /// Packets sent since the last one with AckReq.
    unasked: u32,
    pub(super) retry: Retry,
}

impl Requester {
    pub(crate) fn new(caps: &QpCaps) -> Requester {
        Requester {
            sq: WorkQueue::new(caps.max_send_wr, caps.max_send_sge, caps.max_inline_data),
            cursor: 0,
            begun: 0,
            unacked_psn: Psn::default(),
            next_psn: Psn::default(),
            end_psn: Psn::default(),
            rd_atomic: 0,
            unasked: 0,
            retry: Retry::default(),
        }
    }

    /// Entering RTS: the first packet will have the attributes' SQ PSN.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        self.unacked_psn = attr.sq_psn;
        self.next_psn = attr.sq_psn;
        self.end_psn = attr.sq_psn;
        self.retry = Retry::new(attr);
    }

    /// The attributes of a drained QP have changed.
    pub(crate) fn retune(&mut self, attr: &QpAttr) {
        self.retry = Retry::new(attr);
    }

    /// Forgets everything, without completions.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        self.rest();
    }

    pub(crate) fn depth(&self) -> u32 {
        self.sq.wqes.len()
    }

    /// Is no message in progress?
    pub(crate) fn is_quiet(&self) -> bool {
        self.begun == self.sq.wqes.head()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.retry.next_timeout()
    }

    pub(crate) fn post(
        &mut self,
        wr: &SendWr,
        sges: &[Sge],
        path_mtu: PathMtu,
    ) -> Result<(), PostError> {
        let len = self.sq.check(sges)?;
        check_op(&wr.op)?;
        if wr.op.is_atomic() && len != 8 {
            return Err(PostError::AtomicLength);
        }
        let num_sge = sges.len() as u32;
        let wqe =
            SendWqe { len, num_sge, psns: packets(len, path_mtu.bytes()), ..SendWqe::new(wr) };
        self.sq.push(sges, |sge_at| SendWqe { sge_at, ..wqe });
        Ok(())
    }

    pub(crate) fn post_inline(
        &mut self,
        wr: &SendWr,
        data: &[u8],
        path_mtu: PathMtu,
    ) -> Result<(), PostError> {
        self.sq.check_inline(data)?;
        check_op(&wr.op)?;
        if !wr.op.takes_inline() {
            return Err(PostError::WrongOperation);
        }
        let len = data.len() as u32;
        let psns = packets(len, path_mtu.bytes());
        self.sq.push_inline(data, SendWqe { len, psns, is_inline: true, ..SendWqe::new(wr) });
        Ok(())
    }

    /// Sends the packet at the cursor, if there is one and nothing holds it back.
    pub(crate) fn transmit(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if self.retry.waits_for_receiver() || self.in_flight() >= MAX_IN_FLIGHT {
            return Step::Idle;
        }
        let Some(&wqe) = self.sq.wqes.get(self.cursor) else { return Step::Idle };
        let wqe = match self.begin(wqe, context, env) {
            Ok(wqe) => wqe,
            Err(step) => return step,
        };
        if wqe.wr.op.is_read_or_atomic() && !self.may_ask(&wqe, context) {
            return Step::Idle;
        }
        let (packet, end) = self.packet(&wqe, context);
        let ack_req = packet.bth.ack_req;
        match env.transmit(&packet) {
            Ok(()) => {}
            Err(TransmitError::Full) => return Step::Blocked,
            Err(TransmitError::Memory(_) | TransmitError::UnknownAh) => {
                return self.fail_in_order(WcStatus::LocProtErr);
            }
        }
        self.advance(&wqe, end, ack_req, context, env);
        Step::Sent
    }

    /// PSNs sent and not acknowledged, counting from where sending goes on.
    fn in_flight(&self) -> u32 {
        self.next_psn.minus(self.unacked_psn.value()).value()
    }

    /// May this READ or ATOMIC be sent now?
    //= check C12 — never more than max_rd_atomic READs and ATOMICs outstanding
    fn may_ask(&self, wqe: &SendWqe, context: &Context<'_>) -> bool {
        self.rd_atomic < u32::from(context.attr.max_rd_atomic)
            && self.in_flight() + wqe.psns <= PSN_WINDOW
    }

    /// Goes back to `psn`, which is outstanding, to send again from there.
    pub(super) fn rewind(&mut self, psn: Psn) {
        let mut at = self.sq.wqes.head();
        let mut rd_atomic = 0;
        while let Some(wqe) = self.sq.wqes.get(at) {
            let is_beyond = !psn.is_before(wqe.first_psn.plus(wqe.psns));
            if at == self.begun || !is_beyond {
                break;
            }
            rd_atomic += u32::from(wqe.wr.op.is_read_or_atomic());
            at = at.wrapping_add(1);
        }
        self.cursor = at;
        self.next_psn = psn;
        self.rd_atomic = rd_atomic;
    }

    /// Completes the oldest WQE. Success is reported if it was asked for, an error always.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        let at = self.sq.wqes.head();
        let Some(wqe) = self.sq.pop(|wqe| wqe.num_sge) else { return };
        if self.cursor == at {
            self.cursor = at.wrapping_add(1);
        } else if wqe.wr.op.is_read_or_atomic() {
            self.rd_atomic -= 1;
        }
        if self.begun == at {
            self.begun = at.wrapping_add(1);
        }
        match status {
            WcStatus::Success => out.count(Counter::SendMessages),
            WcStatus::WrFlushErr => out.count(Counter::ReqCqeFlushError),
            _ => out.count(Counter::ReqCqeError),
        }
        //= check G1 — an error completes the WQE even if no completion was asked for
        let is_error = status != WcStatus::Success;
        if wqe.wr.signaled || is_error {
            let opcode = wc_opcode(&wqe.wr.op);
            let byte_len = if wqe.wr.op.is_read_or_atomic() && !is_error { wqe.len } else { 0 };
            let cqe = Cqe { byte_len, ..Cqe::new(wqe.wr.wr_id, status, opcode, qpn) };
            out.complete(Side::Send, cqe);
        }
    }

    /// Completes everything flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        while !self.sq.wqes.is_empty() {
            self.complete_front(qpn, WcStatus::WrFlushErr, out);
        }
        self.rest();
    }

    /// Nothing is in flight any more.
    fn rest(&mut self) {
        self.cursor = self.sq.wqes.head();
        self.begun = self.cursor;
        self.rd_atomic = 0;
        self.unasked = 0;
        self.next_psn = self.end_psn;
        self.unacked_psn = self.end_psn;
        self.retry = Retry::default();
    }

    /// Gives the WQE at the cursor its PSNs if it has none; it is checked before.
    fn begin(
        &mut self,
        wqe: SendWqe,
        context: &Context<'_>,
        env: &mut impl Env,
    ) -> Result<SendWqe, Step> {
        if self.cursor != self.begun {
            return Ok(wqe);
        }
        //= check H4 — in SQD no new message starts
        if context.attr.state != crate::QpState::Rts {
            return Err(Step::Idle);
        }
        let is_read_or_atomic = wqe.wr.op.is_read_or_atomic();
        if is_read_or_atomic && context.attr.max_rd_atomic == 0 {
            return Err(self.fail_in_order(WcStatus::LocQpOpErr));
        }
        //= check F12 — memory that is not granted is found before any packet is sent
        let access = if is_read_or_atomic { Access::Write } else { Access::Read };
        let sges = &self.sq.sges;
        if check_sges(sges, wqe.sge_at, wqe.num_sge, context.by, access, env).is_err() {
            return Err(self.fail_in_order(WcStatus::LocProtErr));
        }
        self.begun = self.cursor.wrapping_add(1);
        let wqe_at_cursor = &mut self.sq.wqes[self.cursor];
        wqe_at_cursor.first_psn = self.end_psn;
        Ok(*wqe_at_cursor)
    }

    /// The error of the WQE at the cursor: raised if it is the oldest, else it waits its turn.
    fn fail_in_order(&self, status: WcStatus) -> Step {
        if self.cursor == self.sq.wqes.head() { Step::Failed(status) } else { Step::Idle }
    }

    /// The packet at `next_psn` of `wqe`, and the PSN that follows it.
    fn packet(&self, wqe: &SendWqe, context: &Context<'_>) -> (Outbound<'_>, Psn) {
        match wqe.wr.op {
            SendOp::Send { imm } => self.data_packet(wqe, context, Operation::Send, None, imm),
            SendOp::Write { va, rkey, imm } => {
                self.data_packet(wqe, context, Operation::Write, Some((va, rkey)), imm)
            }
            SendOp::Read { va, rkey } => self.read_packet(wqe, context, va, rkey),
            SendOp::CompareSwap { va, rkey, compare, swap } => {
                let atomic = AtomicEth { va, rkey, swap_add: swap, compare };
                self.atomic_packet(wqe, context, OpCode::RC_COMPARE_SWAP, atomic)
            }
            SendOp::FetchAdd { va, rkey, add } => {
                let atomic = AtomicEth { va, rkey, swap_add: add, compare: 0 };
                self.atomic_packet(wqe, context, OpCode::RC_FETCH_ADD, atomic)
            }
            SendOp::SendWithInvalidate { .. }
            | SendOp::SendTo { .. }
            | SendOp::LocalInvalidate { .. }
            | SendOp::BindMw(_) => unreachable!("refused by check_op"),
        }
    }

    /// One packet of a SEND or WRITE.
    fn data_packet(
        &self,
        wqe: &SendWqe,
        context: &Context<'_>,
        operation: Operation,
        remote: Option<(Va, Rkey)>,
        imm: Option<ImmDt>,
    ) -> (Outbound<'_>, Psn) {
        let mtu = context.mtu();
        let offset = self.next_psn.distance_from(wqe.first_psn) as u32 * mtu;
        let left = wqe.len - offset;
        let len = left.min(mtu);
        let position = match (offset == 0, left <= mtu) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let is_last = position.is_last();
        let extra = imm.filter(|_| is_last).map(|_| Header::ImmDt);
        let opcode = OpCode::rc(operation, position, extra).expect("RC has all SENDs and WRITEs");
        let (va, rkey) = remote.unwrap_or_default();
        let ext = ExtHeaders {
            reth: Reth { va, rkey, dma_len: wqe.len },
            imm: imm.unwrap_or_default(),
            ..ExtHeaders::default()
        };
        let has_event = operation == Operation::Send || imm.is_some();
        let bth = Bth {
            solicited: is_last && wqe.wr.solicited && has_event,
            pad_count: (len.wrapping_neg() & 3) as u8,
            //= check A16 — the last packet of a message asks for its acknowledgement
            ack_req: is_last || self.unasked + 1 >= ACK_REQ_EVERY,
            ..self.bth(opcode, context)
        };
        let payload = if wqe.is_inline {
            //= check F13 — the bytes are those of the post, each time they are sent
            Gather::bytes(&self.sq.inline(self.cursor)[offset as usize..][..len as usize])
        } else {
            Gather::sges(&self.sq.sges, wqe.sge_at, offset, len)
        };
        (
            Outbound { path: Path::Connected, bth, ext, by: context.by, payload },
            self.next_psn.next(),
        )
    }

    /// The request for all of a READ, or after a rewind for what is still missing of it.
    //= check C2 — the retried READ begins at the missing response's PSN and address
    fn read_packet(
        &self,
        wqe: &SendWqe,
        context: &Context<'_>,
        va: Va,
        rkey: Rkey,
    ) -> (Outbound<'_>, Psn) {
        let offset = self.next_psn.distance_from(wqe.first_psn) as u32 * context.mtu();
        let va = Va(va.0.wrapping_add(u64::from(offset)));
        let reth = Reth { va, rkey, dma_len: wqe.len - offset };
        let bth = self.bth(OpCode::RC_RDMA_READ_REQUEST, context);
        let ext = ExtHeaders { reth, ..ExtHeaders::default() };
        //= check C1 — a READ takes as many PSNs as it has response packets
        let end = wqe.first_psn.plus(wqe.psns);
        (Outbound { path: Path::Connected, bth, ext, by: context.by, payload: Gather::EMPTY }, end)
    }

    fn atomic_packet(
        &self,
        wqe: &SendWqe,
        context: &Context<'_>,
        opcode: OpCode,
        atomic: AtomicEth,
    ) -> (Outbound<'_>, Psn) {
        let bth = self.bth(opcode, context);
        let ext = ExtHeaders { atomic, ..ExtHeaders::default() };
        let end = wqe.first_psn.plus(wqe.psns);
        (Outbound { path: Path::Connected, bth, ext, by: context.by, payload: Gather::EMPTY }, end)
    }

    fn bth(&self, opcode: OpCode, context: &Context<'_>) -> Bth {
        Bth {
            opcode,
            //= check I1 — without an armed alternate path MigReq is 1
            mig_req: true,
            pkey: context.attr.pkey,
            dest_qpn: context.attr.dest_qpn,
            psn: self.next_psn,
            ..Bth::default()
        }
    }

    /// The packet at the cursor went out.
    fn advance(
        &mut self,
        wqe: &SendWqe,
        end: Psn,
        ack_req: bool,
        context: &Context<'_>,
        out: &mut impl Output,
    ) {
        if self.next_psn.is_before(self.end_psn) {
            out.count(Counter::RetransmittedPackets);
        }
        self.next_psn = end;
        if self.end_psn.is_before(end) {
            self.end_psn = end;
        }
        if end == wqe.first_psn.plus(wqe.psns) {
            self.cursor = self.cursor.wrapping_add(1);
        }
        self.rd_atomic += u32::from(wqe.wr.op.is_read_or_atomic());
        self.unasked = if ack_req { 0 } else { self.unasked + 1 };
        self.retry.arm(context.attr, context.now);
    }
}

/// Operations that the service has.
fn check_op(op: &SendOp) -> Result<(), PostError> {
    match op {
        SendOp::SendWithInvalidate { .. }
        | SendOp::SendTo { .. }
        | SendOp::LocalInvalidate { .. }
        | SendOp::BindMw(_) => Err(PostError::WrongOperation),
        _ => Ok(()),
    }
}

fn wc_opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send { .. } | SendOp::SendWithInvalidate { .. } | SendOp::SendTo { .. } => {
            WcOpcode::Send
        }
        SendOp::Write { .. } => WcOpcode::RdmaWrite,
        SendOp::Read { .. } => WcOpcode::RdmaRead,
        SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::LocalInvalidate { .. } => WcOpcode::LocalInv,
        SendOp::BindMw(_) => WcOpcode::BindMw,
    }
}
