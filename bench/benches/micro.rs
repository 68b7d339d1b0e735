//! Micro-benchmarks: the cost of a small packet in each part of the stack, without a port.
//!
//! `cargo bench -p uroce-bench` runs all of them in some seconds; a name on the command line
//! selects one. Steps of a role are measured over batches, so that the cost of reading the clock is
//! negligible.

#![allow(missing_docs, reason = "criterion's macro makes a function without documentation")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::collections::VecDeque;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use uroce_shared::copy::sum::{copy_summed, summed};
use uroce_shared::table::key::{Numbers, Slots};
use uroce_shared::table::qp_table::{Place, QpFinder, QpTable};
use uroce_transport::{
    AccessFlags, AccessKind, Accessor, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, Env, Flush,
    Found, Inbound, Instant, Memory, MemoryFault, Outbound, Output, PacketSink, Pd, Qp, QpCaps,
    QpChange, QpInit, QpType, RecvWr, Region, RtrAttr, RtsAttr, SendOp, SendWr, Sge,
    SharedReceives, Side, TransmitError,
};
use uroce_wire::{
    Encap, ExtHeaders, Frame, Gid, Icrc, Lkey, OpCode, Packet, PathMtu, Pkey, Psn, Qpn, Reth, Rkey,
    Va, emit_headers, icrc, seal,
};

/// Work requests per batch.
const BATCH: usize = 16;
/// Bytes of a small message.
const SMALL: usize = 8;

/// Memory and packet sink that grants every access and keeps packets as bytes.
#[derive(Default)]
struct World {
    packets: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    completions: u64,
}

impl Env for World {
    type Memory = World;

    type Other<'o> = World;

    #[inline]
    fn memory(&mut self) -> &mut World {
        self
    }
}

impl Memory for World {
    fn check(&self, _: Accessor, _: Region, _: AccessKind) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn write(&mut self, _: Accessor, _: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        black_box(bytes);
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, _: Rkey, _: Va, _: AtomicOp) -> Result<u64, MemoryFault> {
        Ok(0)
    }

    fn write_word(&mut self, _: Accessor, _: Rkey, _: Va, _: [u8; 8]) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn flush(&mut self, _: Accessor, _: &Flush) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn bind(&mut self, _: Accessor, _: &BindMw) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn invalidate(&mut self, _: Accessor, _: Rkey) -> Result<(), MemoryFault> {
        Ok(())
    }
}

impl PacketSink for World {
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(128, 0);
        let len = emit_headers(&packet.bth, &packet.ext, &mut bytes).unwrap_or(0);
        let payload = if packet.bth.opcode == OpCode::RC_RDMA_WRITE_ONLY { SMALL } else { 0 };
        bytes.truncate(len + payload);
        self.packets.push_back(bytes);
        Ok((len + payload) as u32)
    }
}

impl Output for World {
    fn complete(&mut self, _: Side, cqe: Cqe) {
        self.completions += black_box(cqe).wr_id;
    }

    fn count(&mut self, counter: Counter) {
        black_box(counter);
    }

    fn event(&mut self, event: AsyncEvent) {
        black_box(event);
    }
}

impl SharedReceives for World {
    fn take_receive(&mut self, _: u32, _: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        Found::Nothing
    }

    fn receives_waiting(&self) -> u32 {
        0
    }
}

fn gid(host: u8) -> Gid {
    Gid::from(Ipv4Addr::new(192, 0, 2, host))
}

/// One end of a connection.
struct End {
    qp: Qp,
    world: World,
    host: u8,
}

impl End {
    /// Creates a QP in RTS, connected with the other host's QP of the same number.
    fn connected(host: u8) -> End {
        let caps = QpCaps {
            max_send_wr: 64,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit::new(QpType::Rc, caps);
        let (mut qp, mut world) = (Qp::new(Qpn::new(7), Pd(1), &init), World::default());
        let path = Encap { src: gid(host), dst: gid(3 - host), hop_limit: 64, ..Encap::default() };
        let rtr = RtrAttr {
            path_mtu: PathMtu::B4096,
            dest_qpn: Qpn::new(7),
            rq_psn: Psn::new(0),
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
        };
        let sq_psn = Psn::new(0);
        let rts = RtsAttr { sq_psn, timeout: 0, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let steps = [
            QpChange { access: Some(AccessFlags::all()), ..QpChange::to_init(1) },
            QpChange { path: Some(path.into()), ..QpChange::to_rtr(QpType::Rc, &rtr) },
            QpChange::to_rts(QpType::Rc, &rts),
        ];
        for step in steps {
            qp.modify(Instant::ZERO, &step, &mut world).expect("a transition of the table");
        }
        End { qp, world, host }
    }

    /// Posts a batch of small WRITEs, the last signaled, and sends them.
    fn request(&mut self) {
        let op = SendOp::Write { va: Va(4096), rkey: Rkey(1), imm: None };
        let sge = Sge { va: Va(4096), len: SMALL as u32, lkey: Lkey(1) };
        for index in 0..BATCH {
            let signaled = index + 1 == BATCH;
            let wr = SendWr {
                wr_id: 1,
                op,
                signaled,
                solicited: false,
                fence: false,
                srqn: Default::default(),
            };
            self.qp.post_send(&wr, &[sge], &mut self.world).expect("room");
        }
        self.qp.poll_transmit(Instant::ZERO, 64, &mut self.world);
    }

    /// Handles the packets that the other end has sent, and answers them.
    fn take(&mut self, other: &mut End) {
        while let Some(bytes) = other.world.packets.pop_front() {
            let packet = Packet::parse(&bytes).expect("well formed");
            let inbound = Inbound {
                src: gid(other.host),
                dst: gid(self.host),
                port: 1,
                l3: &[],
                frame: &[],
                packet,
            };
            self.qp.handle_packet(Instant::ZERO, &inbound, &mut self.world).expect("accepted");
            other.world.spare.push(bytes);
        }
        self.qp.poll_transmit(Instant::ZERO, 64, &mut self.world);
    }
}

/// Returns the time of one part of the rounds: 0 request, 1 respond, 2 complete. It is the time for
/// `iterations` messages.
fn rounds(iterations: u64, part: usize) -> Duration {
    let (mut requester, mut responder) = (End::connected(1), End::connected(2));
    let mut time = [Duration::ZERO; 3];
    let count = iterations.div_ceil(BATCH as u64);
    for _ in 0..count {
        let begin = std::time::Instant::now();
        requester.request();
        let requested = std::time::Instant::now();
        responder.take(&mut requester);
        let responded = std::time::Instant::now();
        requester.take(&mut responder);
        time[0] += requested - begin;
        time[1] += responded - requested;
        time[2] += responded.elapsed();
    }
    assert_eq!(requester.world.completions, count, "every batch has completed");
    time[part].mul_f64(iterations as f64 / (count * BATCH as u64) as f64)
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("WRITE of 8 B");
    for (part, name) in ["requester step", "responder step", "completer step"].iter().enumerate() {
        group.bench_function(*name, |bencher| bencher.iter_custom(|count| rounds(count, part)));
    }
}

/// Builds a WRITE with `payload` bytes and its invariant CRC. Returns it with the offset of its IP
/// header.
fn frame(payload: usize) -> (Vec<u8>, usize) {
    let bth = uroce_wire::Bth {
        opcode: OpCode::RC_RDMA_WRITE_ONLY,
        dest_qpn: Qpn::new(7),
        pkey: Pkey::DEFAULT,
        ..uroce_wire::Bth::default()
    };
    let reth = Reth { va: Va(4096), rkey: Rkey(1), dma_len: payload as u32 };
    let mut headers = [0; 128];
    let ext = ExtHeaders { reth, ..ExtHeaders::default() };
    let len = emit_headers(&bth, &ext, &mut headers).expect("a WRITE");
    let path = Encap { src: gid(1), dst: gid(2), hop_limit: 64, ..Encap::default() };
    let template = path.template();
    let mut out = vec![0x5a; 128 + len + payload];
    let at = template.emit(&mut out, len + payload + 4);
    out[at..at + len].copy_from_slice(&headers[..len]);
    out.truncate(at + len + payload + 4);
    let l3 = usize::from(template.l3_offset);
    seal(&mut out[l3..]).expect("IPv4");
    (out, l3)
}

fn frames(criterion: &mut Criterion) {
    let (bytes, _) = frame(SMALL);
    criterion.bench_function("parse a frame and its packet", |bencher| {
        bencher.iter(|| match Frame::parse(black_box(&bytes)) {
            Ok(Frame::Roce(datagram)) => datagram.packet().map(|packet| packet.bth).ok(),
            _ => None,
        });
    });
    let mut group = criterion.benchmark_group("ICRC");
    for payload in [SMALL, 1024, 4096] {
        let (bytes, l3) = frame(payload);
        let covered = &bytes[l3..bytes.len() - 4];
        group.throughput(Throughput::Bytes(payload as u64));
        group.bench_function(format!("{payload} B"), |bencher| {
            bencher.iter(|| icrc(black_box(covered)));
        });
    }
}

fn payloads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("payload");
    for len in [256, 1024, 4096] {
        let (payload, mut out) = (vec![0x5a; len], vec![0; len]);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len} B copied, then summed"), |bencher| {
            bencher.iter(|| {
                out.copy_from_slice(black_box(&payload));
                Icrc(0).and(black_box(&out))
            });
        });
        group.bench_function(format!("{len} B copied and summed"), |bencher| {
            bencher.iter(|| copy_summed(black_box(&payload), black_box(&mut out), Icrc(0)));
        });
        group.bench_function(format!("{len} B summed"), |bencher| {
            bencher.iter(|| summed(black_box(&payload), Icrc(0), &[]));
        });
    }
}

fn look_up(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("QP look-up");
    for qps in [1, 1000, 65_536] {
        let table = QpLookUp::new(qps);
        group.bench_function(format!("{qps} QPs"), |bencher| {
            let mut next = 0u32;
            bencher.iter(|| {
                next = next.wrapping_add(0x9e37) % qps;
                table.find(black_box(next))
            });
        });
    }
}
/// A full QP table, and one lcore's finder for it.
struct QpLookUp {
    finder: QpFinder,
    numbers: Vec<Qpn>,
}

impl QpLookUp {
    /// Makes a table with `qps` QPs of lcore 0.
    ///
    /// # Panics
    /// If `qps` is 0 or the system gives no randomness.
    fn new(qps: u32) -> QpLookUp {
        let numbers = Numbers::random(qps).expect("the system's randomness");
        let table = Arc::new(QpTable::new(qps, numbers.clone()));
        let mut slots = Slots::new(qps);
        let publish = |_| {
            let (index, number) =
                slots.take(|at, life| numbers.qpn(at, life), &[0]).expect("a free slot");
            table.publish(Qpn::new(number), Place { index, owner: 0 });
            Qpn::new(number)
        };
        let numbers = (0..qps).map(publish).collect();
        QpLookUp { finder: QpFinder::new(Arc::clone(&table)), numbers }
    }

    /// Looks up the QP that was added as number `nth`. Returns whether it is there.
    #[inline]
    fn find(&self, nth: u32) -> bool {
        self.numbers.get(nth as usize).is_some_and(|&qpn| self.finder.find(qpn).is_some())
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .sample_size(20);
    targets = frames, payloads, look_up, steps
}
criterion_main!(benches);
