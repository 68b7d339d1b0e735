//! The environment of a QP under attack: memory with bounds, a packet sink that records,
//! completions.

use crate::Input;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use uroce_transport::{
    AccessFlags, AccessKind, Accessor, AsyncEvent, AtomicOp, BindMw, Congestion, Counter, Cqe,
    DcqcnParams, Env, Flush, Found, Instant, Key, Memory, MemoryFault, Outbound, Output,
    PacketSink, Pd, Piece, Qp, QpCaps, QpChange, QpInit, QpState, QpType, RecvWr, Region, RtrAttr,
    RtsAttr, SelectiveRepeat, Sge, SharedReceives, Side, TransmitError,
};
use uroce_wire::{
    Bth, Encap, ExtHeaders, Lkey, OpCode, Operation, PathMtu, Psn, Qkey, Qpn, Rkey, Srqn, Va,
    emit_headers,
};

pub(super) const MTU: usize = 256;
pub(super) const PD: Pd = Pd(1);
pub(super) const OURS: Qpn = Qpn::new(0x11);
pub(super) const THEIRS: Qpn = Qpn::new(0x22);
pub(super) const QKEY: Qkey = Qkey(0x1234);
/// Length of each region in bytes.
pub(super) const LEN: u64 = 4096;
/// Key and address of the region in which peers may do everything.
pub(super) const OPEN: (u32, u64) = (0x0100_0000, 0x7000_0000);
/// Key and address of the region right after it, which only the application may access.
pub(super) const CLOSED: (u32, u64) = (0x0200_0000, 0x7000_0000 + LEN);
/// Key and address of the region with the buffers of the application's work requests.
pub(super) const LOCAL: (u32, u64) = (0x0300_0000, 0x9000_0000);

/// Number of the only shared receive queue in the XRC domain of a target; its receives are those of
/// [`World::srq`].
pub(super) const QUEUE: Srqn = Srqn::new(0x1001);

/// A packet that the QP has sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) bth: Bth,
    pub(super) ext: ExtHeaders,
    pub(super) len: u32,
    /// Payload that is not in registered memory.
    pub(super) bytes: Vec<u8>,
}

/// A range of memory that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) is_remote: bool,
    pub(super) va: u64,
    pub(super) len: u64,
}

/// Everything that a QP accesses.
#[derive(Debug)]
pub(super) struct World {
    /// Content of the closed region, which no peer may write.
    pub(super) closed: Vec<u8>,
    pub(super) written: Vec<Written>,
    pub(super) sent: Vec<Sent>,
    pub(super) done: Vec<(Side, Cqe)>,
    pub(super) srq: VecDeque<(u64, Sge)>,
    /// Number of packets that the sink still accepts.
    pub(super) room: u32,
    /// Packets that come early can be held.
    pub(super) can_hold: bool,
    /// Number of times that the ACK timer has expired.
    pub(super) timeouts: u32,
    /// QPs that reach each other; those that are being worked on are not in their places.
    others: Vec<Option<Box<Qp>>>,
}

impl World {
    pub(super) fn new() -> World {
        World {
            closed: vec![0x5a; LEN as usize],
            written: Vec::new(),
            sent: Vec::new(),
            done: Vec::new(),
            srq: VecDeque::new(),
            room: u32::MAX,
            can_hold: false,
            timeouts: 0,
            others: Vec::new(),
        }
    }

    /// Adds a QP that others reach.
    pub(super) fn put(&mut self, qp: Qp) {
        self.others.push(Some(Box::new(qp)));
    }

    /// Runs `work` on the QP with this number; `None` if there is none, or it is in use.
    pub(super) fn work_on<R>(
        &mut self,
        number: Qpn,
        work: impl FnOnce(&mut Qp, &mut World) -> R,
    ) -> Option<R> {
        let is_it = |qp: &Option<Box<Qp>>| qp.as_ref().is_some_and(|qp| qp.qpn() == number);
        let at = self.others.iter().position(is_it)?;
        let mut qp = self.others[at].take()?;
        let result = work(&mut qp, self);
        self.others[at] = Some(qp);
        Some(result)
    }

    fn grant(&self, by: Accessor, region: Region, access: AccessKind) -> Result<bool, MemoryFault> {
        let (key, is_remote) = match region.key {
            Key::Local(lkey) => (lkey.0, false),
            Key::Remote(rkey) => (rkey.0, true),
        };
        let regions = [OPEN, CLOSED, LOCAL];
        let found = regions.into_iter().find(|&(known, _)| known == key);
        let (_, begin) = found.ok_or(MemoryFault::UnknownKey)?;
        let is_alone = self.others.is_empty();
        assert!(by.pd == PD && (by.qpn == OURS) == is_alone, "the accessor is the QP");
        let [va, len] = [region.va.0, region.len.into()].map(u128::from);
        if va < begin.into() || va + len > u128::from(begin + LEN) {
            return Err(MemoryFault::OutOfRange);
        }
        if is_remote && key != OPEN.0 {
            Err(MemoryFault::NotGranted)
        } else {
            Ok(access != AccessKind::Read)
        }
    }

    fn write_at(&mut self, region: Region) {
        let is_remote = matches!(region.key, Key::Remote(_));
        let written = Written { is_remote, va: region.va.0, len: region.len.into() };
        if (CLOSED.1..CLOSED.1 + LEN).contains(&written.va) {
            self.closed[(written.va - CLOSED.1) as usize] = 0;
        }
        self.written.push(written);
    }
}

impl Env for World {
    type Memory = World;

    type Other<'o> = World;

    fn memory(&mut self) -> &mut World {
        self
    }

    fn can_hold(&self) -> bool {
        self.can_hold
    }

    fn with_other<R>(
        &mut self,
        number: Qpn,
        work: impl FnOnce(&mut Qp, &mut World) -> R,
    ) -> Option<R> {
        self.work_on(number, work)
    }
}

impl Memory for World {
    fn check(&self, by: Accessor, region: Region, access: AccessKind) -> Result<(), MemoryFault> {
        self.grant(by, region, access).map(|_| ())
    }

    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(bytes.len(), region.len as usize);
        if !bytes.is_empty() {
            self.grant(by, region, AccessKind::Write)?;
            self.write_at(region);
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        _op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        assert!(va.0.is_multiple_of(8), "not aligned");
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        self.grant(by, region, AccessKind::Atomic)?;
        self.write_at(region);
        Ok(va.0)
    }

    fn write_word(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        _bytes: [u8; 8],
    ) -> Result<(), MemoryFault> {
        assert!(va.0.is_multiple_of(8), "not aligned");
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        self.grant(by, region, AccessKind::Write)?;
        self.write_at(region);
        Ok(())
    }

    fn flush(&mut self, by: Accessor, flush: &Flush) -> Result<(), MemoryFault> {
        assert!(flush.placement.is_defined(), "a reserved placement type");
        let (va, len) = flush.range.unwrap_or((Va(OPEN.1), LEN as u32));
        let region = Region { key: Key::Remote(flush.rkey), va, len };
        self.grant(by, region, AccessKind::Read).map(|_| ())
    }

    fn bind(&mut self, _by: Accessor, _bind: &BindMw) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }

    fn invalidate(&mut self, _by: Accessor, _rkey: Rkey) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }
}

impl PacketSink for World {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        if self.room == 0 {
            return Err(TransmitError::Full);
        }
        let mut bytes = Vec::new();
        for piece in packet.payload.clone() {
            match piece {
                Piece::Region(region) => {
                    self.check(packet.by, region, AccessKind::Read)
                        .map_err(TransmitError::Memory)?;
                }
                Piece::Bytes(piece) => bytes.extend_from_slice(piece),
            }
        }
        self.room -= 1;
        let (bth, ext, len) = (packet.bth, packet.ext, packet.payload.len());
        self.sent.push(Sent { bth, ext, len, bytes });
        Ok(packet.payload.len())
    }
}

impl Output for World {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        self.done.push((side, cqe));
    }

    fn count(&mut self, counter: Counter) {
        self.timeouts += u32::from(counter == Counter::LocalAckTimeoutErr);
    }

    fn event(&mut self, _event: AsyncEvent) {}
}

impl SharedReceives for World {
    fn take_receive(&mut self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        let Some(&(wr_id, sge)) = self.srq.front() else { return Found::Nothing };
        if sge.len < room {
            return Found::TooSmall;
        }
        place(&RecvWr { wr_id }, &[sge]);
        self.srq.pop_front();
        Found::Receive
    }

    fn queue_named(&self, srqn: Srqn) -> Option<Pd> {
        (srqn == QUEUE).then_some(PD)
    }

    fn take_named(&mut self, srqn: Srqn, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        assert_eq!(srqn, QUEUE, "a queue that was not found");
        self.take_receive(room, place)
    }

    fn receives_waiting(&self) -> u32 {
        0
    }
}

/// The path of the connection's packets, as the QP sends them.
pub(super) fn path() -> Encap {
    Encap {
        src: Ipv4Addr::new(10, 0, 0, 1).into(),
        dst: Ipv4Addr::new(10, 0, 0, 2).into(),
        src_port: 0xc000,
        hop_limit: 64,
        ..Encap::default()
    }
}

/// A PSN close to a value at which something wraps, or any PSN.
pub(super) fn first_psn(input: &mut Input<'_>) -> Psn {
    match input.below(4) {
        0 => Psn::new(0),
        1 => Psn::new(0xff_fffc),
        2 => Psn::new(0x7f_fffc),
        _ => Psn::new(input.u32()),
    }
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) qp_type: QpType,
    pub(super) uses_srq: bool,
    pub(super) psn: Psn,
    pub(super) rd_atomic: u8,
    pub(super) retries: u8,
    /// RC: the ends have agreed on selective repeat.
    pub(super) selective_repeat: bool,
    /// RC: idle time of the keepalive, in milliseconds; 0 means none.
    pub(super) keepalive_ms: u32,
}

/// The changes from RESET to INIT, to RTR and to RTS.
fn steps(terms: &Terms) -> [QpChange; 3] {
    if terms.qp_type == QpType::Ud {
        return QpChange::datagram_steps(1, QKEY, terms.psn);
    }
    let rtr = RtrAttr {
        path_mtu: PathMtu::B256,
        dest_qpn: THEIRS,
        rq_psn: terms.psn,
        max_dest_rd_atomic: terms.rd_atomic,
        min_rnr_timer: 12,
    };
    let rts = RtsAttr {
        sq_psn: terms.psn,
        timeout: 14,
        retry_cnt: terms.retries,
        rnr_retry: terms.retries,
        max_rd_atomic: terms.rd_atomic,
    };
    [
        QpChange { access: Some(AccessFlags::all()), ..QpChange::to_init(1) },
        QpChange {
            path: Some(path().into()),
            selective_repeat: terms.selective_repeat.then_some(true),
            keepalive_ms: (terms.keepalive_ms > 0).then_some(terms.keepalive_ms),
            ..QpChange::to_rtr(terms.qp_type, &rtr)
        },
        QpChange::to_rts(terms.qp_type, &rts),
    ]
}

/// Creates a QP and takes it to a state.
pub(super) fn qp_in(state: QpState, terms: &Terms, world: &mut World) -> Qp {
    let caps = QpCaps {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 64,
    };
    let srq = terms.uses_srq.then_some(PD);
    let congestion = Congestion::Dcqcn(DcqcnParams::default());
    let init = QpInit { srq, congestion, ..QpInit::new(terms.qp_type, caps) };
    let mut qp = Qp::new(OURS, PD, &init);
    if terms.selective_repeat {
        assert!(qp.equip(SelectiveRepeat::default()).is_none());
    }
    qp.set_port_mtu(PathMtu::B256);
    let steps = steps(terms);
    let taken = match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::Rtr => 2,
        _ => 3,
    };
    for step in &steps[..taken] {
        qp.modify(Instant::ZERO, step, world).expect("a regular way up");
    }
    if matches!(state, QpState::Sqd | QpState::Err) {
        qp.modify(Instant::ZERO, &QpChange::to(state), world).expect("from RTS");
    }
    qp
}

/// A buffer of the application for receive or request `number`.
pub(super) fn buffer(number: u64, len: u32) -> Sge {
    Sge { va: Va(LOCAL.1 + number % 5 * 800), len, lkey: Lkey(LOCAL.0) }
}

/// Header fields and payload as bytes, from BTH to the end of the pad.
pub(super) fn packet_bytes(bth: &Bth, ext: &ExtHeaders, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let len = emit_headers(bth, ext, &mut bytes).unwrap_or_default();
    bytes.truncate(len);
    bytes.extend_from_slice(payload);
    bytes.extend(std::iter::repeat_n(0, usize::from(bth.pad_count)));
    bytes
}

/// Returns whether packets of an opcode carry data.
pub(super) fn carries_data(opcode: OpCode) -> bool {
    let operation = opcode.info().map(|row| row.operation);
    matches!(operation, Some(Operation::Send | Operation::Write | Operation::ReadResponse))
}
