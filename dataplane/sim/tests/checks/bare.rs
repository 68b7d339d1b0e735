//! A QP without a world: for tests with too many packets or cases for a pair.
//!
//! Its environment grants access to every key and stores no bytes but one word; sent packets are
//! kept.

use std::collections::VecDeque;

use uroce_transport::{
    AccessFlags, AccessKind, Accessor, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, DropReason, Env,
    Flush, Found, FrameError, Framing, Inbound, Instant, Memory, MemoryFault, Outbound,
    OutboundFrame, Output, PacketSink, Pd, Piece, PostError, Qp, QpCaps, QpChange, QpInit, QpState,
    QpType, RecvWr, Region, RtrAttr, RtsAttr, SendOp, SendWr, Sge, SharedReceives, Side,
    TransmitError,
};
use uroce_wire::{Bth, Encap, ExtHeaders, OpCode, Packet, PathMtu, Pkey, Psn, Qkey, Qpn, Rkey, Va};

/// Source of every packet's payload.
const BYTES: [u8; 4096] = [0x5a; 4096];

/// First PSN of both ends.
pub(crate) const PSN: Psn = Psn::new(0xff_fff0);

/// A packet that a QP has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) bth: Bth,
    pub(crate) ext: ExtHeaders,
    pub(crate) len: usize,
    /// Address of the payload, if it is one piece of registered memory.
    pub(crate) va: Option<Va>,
}

#[derive(Default)]
pub(crate) struct SimEnv {
    pub(crate) sent: VecDeque<Sent>,
    /// Frames that a raw QP has sent, and their lengths.
    pub(crate) frames: Vec<(Framing, u32)>,
    /// The result of the next frames, if they are refused.
    pub(crate) refusal: Option<FrameError>,
    pub(crate) completed: Vec<(Side, Cqe)>,
    pub(crate) events: Vec<AsyncEvent>,
    pub(crate) written: u64,
    pub(crate) word: u64,
    pub(crate) is_full: bool,
    /// The path of a datagram takes no packet before this time.
    pub(crate) free_at: Option<Instant>,
}

impl Env for SimEnv {
    type Memory = SimEnv;

    type Other<'o> = SimEnv;

    fn memory(&mut self) -> &mut SimEnv {
        self
    }
}

impl Memory for SimEnv {
    fn check(&self, _: Accessor, _: Region, _: AccessKind) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn write(&mut self, _: Accessor, _: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, _: Rkey, _: Va, op: AtomicOp) -> Result<u64, MemoryFault> {
        let former = self.word;
        self.word = match op {
            AtomicOp::FetchAdd { add } => former.wrapping_add(add),
            AtomicOp::CompareSwap { compare, swap } if former == compare => swap,
            AtomicOp::CompareSwap { .. } => former,
        };
        Ok(former)
    }

    fn write_word(
        &mut self,
        _: Accessor,
        _: Rkey,
        _: Va,
        bytes: [u8; 8],
    ) -> Result<(), MemoryFault> {
        self.word = u64::from_ne_bytes(bytes);
        Ok(())
    }

    fn flush(&mut self, _: Accessor, _: &Flush) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn bind(&mut self, _: Accessor, _: &BindMw) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }

    fn invalidate(&mut self, _: Accessor, _: Rkey) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }
}

impl PacketSink for SimEnv {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        if self.is_full {
            return Err(TransmitError::Full);
        }
        if let Some(free_at) = self.free_at {
            return Err(TransmitError::Paced(free_at));
        }
        let va = match packet.payload.clone().next() {
            Some(Piece::Region(region)) => Some(region.va),
            _ => None,
        };
        let len = packet.payload.len() as usize;
        self.sent.push_back(Sent { bth: packet.bth, ext: packet.ext, len, va });
        Ok(len as u32)
    }

    fn transmit_frame(&mut self, frame: &OutboundFrame<'_>) -> Result<u32, FrameError> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let len = frame.payload.len();
        self.frames.push((frame.framing, len));
        Ok(len)
    }
}

impl SharedReceives for SimEnv {
    fn take_receive(&mut self, _: u32, _: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        Found::Nothing
    }

    fn receives_waiting(&self) -> u32 {
        0
    }
}

impl Output for SimEnv {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        self.completed.push((side, cqe));
    }

    fn count(&mut self, _: Counter) {}

    fn event(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }
}

/// A QP in RTS and its environment.
pub(crate) struct Bare {
    pub(crate) qp: Qp,
    pub(crate) env: SimEnv,
}

impl Bare {
    pub(crate) fn rts(mtu: PathMtu, max_dest_rd_atomic: u8) -> Bare {
        let caps = QpCaps {
            max_send_wr: 1,
            max_recv_wr: 0,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit::new(QpType::Rc, caps);
        let mut bare = Bare { qp: Qp::new(Qpn::new(5), Pd(1), &init), env: SimEnv::default() };
        let rtr = RtrAttr {
            path_mtu: mtu,
            dest_qpn: Qpn::new(6),
            rq_psn: PSN,
            max_dest_rd_atomic,
            min_rnr_timer: 1,
        };
        let rts =
            RtsAttr { sq_psn: PSN, timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let changes = [
            QpChange { access: Some(AccessFlags::all()), ..QpChange::to_init(1) },
            QpChange { path: Some(Default::default()), ..QpChange::to_rtr(QpType::Rc, &rtr) },
            QpChange::to_rts(QpType::Rc, &rts),
        ];
        for change in changes {
            bare.qp.modify(Instant::ZERO, &change, &mut bare.env).unwrap();
        }
        bare
    }

    /// Creates a datagram QP with this Q_Key, and a rate limit of its own in kbit/s.
    pub(crate) fn datagram(qp_type: QpType, qkey: Qkey, rate_limit: Option<u32>) -> Bare {
        let caps = QpCaps {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let init = QpInit::new(qp_type, caps);
        let mut bare = Bare { qp: Qp::new(Qpn::new(1), Pd(1), &init), env: SimEnv::default() };
        let port = (qp_type == QpType::Ud).then_some(1);
        let [init, rtr, rts] = QpChange::datagram_steps(1, qkey, PSN);
        let changes = [QpChange { port, ..init }, rtr, QpChange { rate_limit, ..rts }];
        for change in changes {
            bare.qp.modify(Instant::ZERO, &change, &mut bare.env).unwrap();
        }
        bare
    }

    /// Creates a raw QP in RTS.
    pub(crate) fn raw(qp_type: QpType) -> Bare {
        let caps = QpCaps {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        let init = QpInit::new(qp_type, caps);
        let mut bare = Bare { qp: Qp::new(Qpn::new(9), Pd(1), &init), env: SimEnv::default() };
        let port = QpChange { port: Some(1), ..QpChange::to(QpState::Init) };
        for change in [port, QpChange::to(QpState::Rtr), QpChange::to(QpState::Rts)] {
            bare.qp.modify(Instant::ZERO, &change, &mut bare.env).unwrap();
        }
        bare
    }

    /// Posts a signaled send WQE with this operation.
    pub(crate) fn post(&mut self, op: SendOp, sges: &[Sge]) -> Result<(), PostError> {
        let srqn = Default::default();
        let wr = SendWr { wr_id: 1, op, signaled: true, solicited: false, fence: false, srqn };
        self.qp.post_send(&wr, sges, &mut self.env)
    }

    /// Handles a packet, then sends everything that is due.
    pub(crate) fn take(&mut self, sent: &Sent) -> Result<(), DropReason> {
        let result = self.receive(sent);
        self.send();
        result
    }

    /// Handles a packet.
    pub(crate) fn receive(&mut self, sent: &Sent) -> Result<(), DropReason> {
        let Sent { bth, ext, len, .. } = *sent;
        let op = bth.opcode.info().unwrap();
        let packet = Packet { bth, op, ext, payload: &BYTES[..len] };
        let path = Encap::default();
        let inbound =
            Inbound { src: path.dst, dst: path.src, port: 1, l3: &[], frame: &[], packet };
        self.qp.handle_packet(Instant::ZERO, &inbound, &mut self.env).map(|_| ())
    }

    /// Sends everything that is due.
    pub(crate) fn send(&mut self) {
        self.qp.poll_transmit(Instant::ZERO, 64, &mut self.env);
    }
}

/// A request as the peer would send it.
pub(crate) fn request(opcode: OpCode, psn: Psn) -> Sent {
    let bth = Bth { opcode, psn, mig_req: true, pkey: Pkey::DEFAULT, ..Bth::default() };
    Sent { bth, ext: ExtHeaders::default(), len: 0, va: None }
}
