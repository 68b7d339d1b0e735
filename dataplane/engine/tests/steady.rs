//! After start an lcore neither allocates nor enters the kernel. One process per test.

mod lab;

use lab::{Lab, LabConfig, QpWish, TestQp, eventually};
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uroce_engine::{
    BottleneckConfig, FaultConfig, Forward, IdlePolicy, LossConfig, MwType, PortAddresses,
    PortFaults, RdDomain, SharedReceiveQueue, TapFrame, TapReader, TapSpec, multicast_mac,
};
use uroce_transport::{
    AccessFlags, Ah, AltPath, Counter, PathMigState, QpChange, QpType, RdAddress, RecvWr, SendOp,
    Sge, StaticRate, WcStatus,
};
use uroce_wire::{Encap, Gid, Mac, PathMtu, Pkey, Qkey, Qpn, Rkey};

/// The system's allocator, which counts calls per thread while `COUNTS` is set.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
/// Calls by thread id modulo the length; a test's process has few threads, with successive ids.
static CALLS: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

fn slot(thread: u32) -> &'static AtomicU64 {
    &CALLS[thread as usize % CALLS.len()]
}

fn count() {
    if COUNTS.load(Ordering::Relaxed) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        slot(thread).fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all calls are passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the contract of `dealloc`, and the memory came from the system
        // allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, and the memory came from the system
        // allocator.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the thread ids of the lcores of this process.
fn lcore_threads() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    tasks
        .filter_map(|task| {
            let task = task.expect("an entry");
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            let id = task.file_name().to_str()?.parse().ok()?;
            name.starts_with("uroce-lcore").then_some(id)
        })
        .collect()
}

/// Runs every operation many times, with and without a receive waiting.
fn traffic(a: &mut TestQp, b: &mut TestQp, local: &lab::Buffer, remote: &lab::Buffer, rounds: u64) {
    traffic_by(TestQp::send, a, b, [local, remote], rounds);
}

/// Runs [`traffic`] with requests that `send` posts.
fn traffic_by(
    send: impl Fn(&mut TestQp, u64, SendOp, &[Sge]),
    a: &mut TestQp,
    b: &mut TestQp,
    [local, remote]: [&lab::Buffer; 2],
    rounds: u64,
) {
    let (va, rkey) = (remote.va(), remote.keys.rkey);
    let operations = [
        SendOp::Write { va, rkey, imm: None },
        SendOp::Read { va, rkey },
        SendOp::Send { imm: None },
        SendOp::FetchAdd { va, rkey, add: 1 },
        SendOp::CompareSwap { va, rkey, compare: 1, swap: 2 },
    ];
    for round in 0..rounds {
        let operation = operations[round as usize % operations.len()];
        let len = if operation.is_atomic() { 8 } else { 30_000 };
        let late = round % 20 == 2;
        if matches!(operation, SendOp::Send { .. }) && !late {
            b.recv(round, &[remote.sge(0, 1 << 15)]);
        }
        send(a, round, operation, &[local.sge(0, len)]);
        if late {
            // First an RNR NAK.
            (0..50).for_each(|_| std::thread::yield_now());
            b.recv(round, &[remote.sge(0, 1 << 15)]);
        }
        let status = a.completion().status;
        assert_eq!(status, WcStatus::Success, "round {round}: {operation:?}");
        if matches!(operation, SendOp::Send { .. }) {
            assert_eq!(b.completion().wr_id, round);
        }
    }
}

/// Makes two QPs of the first engine, connected through its own address.
struct Within {
    ends: [TestQp; 2],
    buffers: [lab::Buffer; 2],
}

impl Within {
    fn new(lab: &mut Lab, lcores: [usize; 2]) -> Within {
        let on = |lcore| QpWish { lcores: [Some(lcore); 2], ..QpWish::default() };
        let mut ends = lcores.map(|lcore| lab.a.create_qp(&on(lcore)));
        let own = PortAddresses { mac: Mac::LOOPBACK, ..lab.a.addresses.clone() };
        let qpns = [ends[1].qpn, ends[0].qpn];
        for (end, peer) in ends.iter_mut().zip(qpns) {
            lab.a.bring_up(end, &own, peer, &QpWish::default());
        }
        let buffer = |end: &TestQp| lab.a.register(end.pd, 1 << 15, AccessFlags::all());
        let buffers = ends.each_ref().map(buffer);
        Within { ends, buffers }
    }

    fn run(&mut self, rounds: u64) {
        let Within { ends: [one, other], buffers: [local, remote] } = self;
        traffic(one, other, local, remote, rounds);
    }
}

/// RD QPs of two engines, two at each, by a pair of EECs. At each engine all are on one lcore.
struct ReliableDatagrams {
    domains: [Arc<RdDomain>; 2],
    eecs: [TestQp; 2],
    qps: [[TestQp; 2]; 2],
    buffers: [[lab::Buffer; 2]; 2],
}

impl ReliableDatagrams {
    fn new(lab: &mut Lab, lcores: [usize; 2]) -> ReliableDatagrams {
        let on = |node: &lab::Node, lcore| {
            let mut all = std::iter::repeat_with(|| node.engine.open_rd_domain());
            Arc::new(all.find(|domain| domain.home() == lcore).expect("one of many"))
        };
        let domains = [on(&lab.a, lcores[0]), on(&lab.b, lcores[1])];
        let mut nodes = [&mut lab.a, &mut lab.b];
        let mut make = |at: usize, qp_type| nodes[at].create_in(&domains[at], qp_type);
        let eecs = [0, 1].map(|at| make(at, QpType::Eec));
        let qps = [0, 1].map(|at| [QpType::Rd; 2].map(|qp_type| make(at, qp_type)));
        let addresses = [lab.a.addresses.clone(), lab.b.addresses.clone()];
        let wish = QpWish { mtu: PathMtu::B1024, timeout: 14, ..QpWish::default() };
        lab.a.connect_eec(&eecs[0], &addresses[1], eecs[1].qpn, &wish);
        lab.b.connect_eec(&eecs[1], &addresses[0], eecs[0].qpn, &wish);
        let mut nodes = [&mut lab.a, &mut lab.b];
        let buffers = [0, 1].map(|at| {
            [0, 1].map(|qp: usize| {
                nodes[at].start_rd(&qps[at][qp], QKEY);
                nodes[at].register(qps[at][qp].pd, 1 << 15, AccessFlags::all())
            })
        });
        ReliableDatagrams { domains, eecs, qps, buffers }
    }

    fn to(&self, qp: usize) -> RdAddress {
        RdAddress { eecn: self.eecs[0].qpn, dest_qpn: self.qps[1][qp].qpn, qkey: QKEY }
    }

    /// Runs every operation by each RD QP, then two messages of which the first is put off.
    fn run(&mut self, rounds: u64) {
        let to = [self.to(0), self.to(1)];
        let ReliableDatagrams { qps: [near, far], buffers: [from, into], .. } = self;
        for qp in 0..2 {
            let send = |qp: &mut TestQp, id, op, sges: &[Sge]| qp.send_to(&to[0], id, op, sges);
            let ends = [&from[qp], &into[0]];
            traffic_by(send, &mut near[qp], &mut far[0], ends, rounds);
        }
        for round in 0..rounds / 10 {
            let message = |buffer: &lab::Buffer| [buffer.sge(0, 3000)];
            near[0].send_to(&to[0], round, SendOp::Send { imm: None }, &message(&from[0]));
            far[1].recv(round, &message(&into[1]));
            near[1].send_to(&to[1], round, SendOp::Send { imm: None }, &message(&from[1]));
            assert_eq!(near[1].completion().status, WcStatus::Success);
            far[0].recv(round, &message(&into[0]));
            assert_eq!(near[0].completion().status, WcStatus::Success);
            far.iter().for_each(|qp| assert_eq!(qp.completion().wr_id, round));
        }
    }

    /// Creates an RD QP, and destroys it while its message has no receive.
    fn create_and_destroy(&self, lab: &mut Lab) {
        let mut qp = lab.a.create_in(&self.domains[0], QpType::Rd);
        lab.a.start_rd(&qp, QKEY);
        qp.send_to(&self.to(0), 1, SendOp::Send { imm: None }, &[]);
        lab.a.control.query_qp(qp.qpn).expect("there");
        lab.a.control.destroy_qp(qp.qpn).expect("destroys");
        let eec = lab.a.create_in(&self.domains[0], QpType::Eec);
        lab.a.control.destroy_qp(eec.qpn).expect("destroys");
    }
}

/// Sends datagrams to one QP and to a group, takes receives from a shared queue, binds and
/// invalidates windows, sends inline data.
struct Datagrams {
    sender: TestQp,
    receivers: [TestQp; 2],
    /// A QP of the sender's engine that is in the group, too.
    beside: TestQp,
    room: lab::Buffer,
    srq: Arc<SharedReceiveQueue>,
    to_one: Ah,
    to_all: Ah,
    region: lab::Buffer,
}

const QKEY: Qkey = Qkey(7);

impl Datagrams {
    fn new(lab: &mut Lab, lcores: [usize; 2]) -> Datagrams {
        let mut wish = QpWish { qp_type: QpType::Ud, ..QpWish::default() };
        wish.caps.max_inline_data = 64;
        let sender = lab.a.create_qp(&wish);
        let pd = lab.b.engine.alloc_pd();
        let srq = lab.b.engine.create_srq(pd, 64, 1).expect("SRQ");
        let on = |lcore| QpWish { lcores: [Some(lcore); 2], ..wish };
        let receivers = lcores.map(|lcore| lab.b.create_qp_with(pd, &on(lcore), Some(&srq)));
        lab.a.start_datagrams(&sender, QKEY);
        let group = Gid::from(std::net::Ipv4Addr::new(239, 1, 1, 1));
        for receiver in &receivers {
            lab.b.start_datagrams(receiver, QKEY);
            lab.b.control.attach_multicast(receiver.qpn, group).expect("attaches");
        }
        let beside = lab.a.create_qp(&wish);
        lab.a.start_datagrams(&beside, QKEY);
        lab.a.control.attach_multicast(beside.qpn, group).expect("attaches");
        let room = lab.a.register(beside.pd, 1 << 12, AccessFlags::all());
        let way = |mac, dst| {
            let (src_mac, src) = (lab.a.addresses.mac, lab.a.addresses.gids[0]);
            let encap =
                Encap { src_mac, dst_mac: mac, src, dst, hop_limit: 64, ..Encap::default() };
            lab.a
                .engine
                .create_ah(sender.pd, 1, &encap, StaticRate::MAX)
                .expect("an address handle")
        };
        let to_one = way(lab.b.addresses.mac, lab.b.addresses.gids[0]);
        let to_all = way(multicast_mac(group).expect("a group"), group);
        let region = lab.b.register(pd, 1 << 13, AccessFlags::all());
        Datagrams { sender, receivers, beside, room, srq, to_one, to_all, region }
    }

    fn run(&mut self, rounds: u64) {
        let qkey = QKEY;
        for round in 0..rounds {
            for id in 0..3 {
                let room = [self.region.sge(0, 4096)];
                self.srq.post_recv(&RecvWr { wr_id: id }, &room).expect("room");
            }
            self.beside.recv(round, &[self.room.sge(0, 4096)]);
            let dest_qpn = self.receivers[round as usize % 2].qpn;
            let one = SendOp::SendTo { ah: self.to_one, dest_qpn, qkey, imm: None };
            let dest_qpn = Qpn::MULTICAST;
            let all = SendOp::SendTo { ah: self.to_all, dest_qpn, qkey, imm: None };
            for op in [one, all] {
                self.sender.sq.post_inline(&lab::signaled(round, op), &[1; 64]).expect("room");
                assert_eq!(self.sender.completion().status, WcStatus::Success);
            }
            let mut left = 3;
            eventually("three copies", || {
                let polled = self.receivers.iter().map(|qp| qp.cq.poll().expect("no overrun"));
                left -= polled.flatten().count();
                left == 0
            });
            assert_eq!(self.beside.completion().status, WcStatus::Success);
        }
    }
}

/// Binds a window and invalidates it again.
fn windows(lab: &Lab, qp: &mut TestQp, region: &lab::Buffer, rounds: u64) {
    let mut rkey = lab.b.engine.alloc_mw(qp.pd, MwType::Type2).expect("a window");
    for round in 0..rounds {
        let new_rkey = Rkey(rkey.0 & !0xff | rkey.0.wrapping_add(1) & 0xff);
        let (lkey, va, access) = (region.keys.lkey, region.va(), AccessFlags::REMOTE_READ);
        let bind = SendOp::BindMw { rkey, new_rkey, lkey, va, len: 64, access };
        for op in [bind, SendOp::LocalInvalidate { rkey: new_rkey }] {
            qp.send(round, op, &[]);
            assert_eq!(qp.completion().status, WcStatus::Success);
        }
        rkey = new_rkey;
    }
}

/// Loads, arms and migrates to alternate paths, each with another UDP source port.
fn migrations(lab: &mut Lab, qps: [&mut TestQp; 2], buffers: [&lab::Buffer; 2], rounds: u16) {
    let [a, b] = qps;
    let write = |qp: &mut TestQp, at: usize| {
        let [from, to] = [buffers[at], buffers[1 - at]];
        let op = SendOp::Write { va: to.va(), rkey: to.keys.rkey, imm: None };
        qp.send(1, op, &[from.sge(0, 5000)]);
        assert_eq!(qp.completion().status, WcStatus::Success);
    };
    let wish = |state| QpChange { path_mig_state: Some(state), ..QpChange::default() };
    for round in 1..=rounds {
        for (node, qpn) in [(&mut lab.a, a.qpn), (&mut lab.b, b.qpn)] {
            let mut path = node.control.query_qp(qpn).expect("there").attr.path;
            path.encap.src_port = 0xc000 + round;
            let alt = AltPath { path, port: 1, pkey: Pkey::DEFAULT, timeout: 14 };
            let rearm = QpChange { alt_path: Some(alt), ..wish(PathMigState::Rearm) };
            node.control.modify_qp(qpn, &rearm).expect("MIGRATED before");
        }
        eventually("ARMED", || {
            write(a, 0);
            write(b, 1);
            lab.a.control.modify_qp(a.qpn, &wish(PathMigState::Migrated)).is_ok()
        });
        write(a, 0);
        write(b, 1);
    }
    let count = lab.a.control.query_qp(a.qpn).expect("there").migration.count;
    assert_eq!(count, u32::from(rounds));
}

/// Creates a QP, gives it other queues, takes it to RTS, and destroys it.
fn create_and_destroy(lab: &mut Lab, wish: &QpWish) {
    let mut qp = lab.a.create_qp(wish);
    lab.a.control.query_qp(qp.qpn).expect("there");
    lab.a.control.resize_qp(qp.qpn, wish.caps).expect("nothing outstanding");
    let peer = qp.qpn;
    lab.a.bring_up(&mut qp, &lab.b.addresses, peer, wish);
    lab.a.control.destroy_qp(qp.qpn).expect("destroys");
}

/// Returns all kinds of faults beside this loss.
fn faults(loss: LossConfig) -> PortFaults {
    let fault = FaultConfig {
        loss: loss.rx,
        duplicate: 0.01,
        reorder: 0.01,
        corrupt: 0.01,
        delay_us: 5,
        seed: loss.seed,
        qp: None,
    };
    PortFaults { rx: fault, tx: fault }
}

/// Makes copies of the frames of a node's port.
fn tap(node: &mut lab::Node) -> Vec<TapReader> {
    let spec = TapSpec { snaplen: u16::MAX, qp: None, ring: 0, drops: false };
    node.control.set_tap(1, &spec).expect("a port")
}

/// Lets a port send back a frame for a moment.
fn forward_one(lab: &mut Lab) {
    lab.a.control.set_forward(1, Some(Forward::Echo)).expect("a port");
    let [from, to] = [lab.b.addresses.mac.0, lab.a.addresses.mac.0];
    let frame = [&to[..], &from, &[0x88, 0xb5], &[0; 50]].concat();
    lab.b.control.send_frame(1, &frame).expect("sends");
    eventually("the frame", || lab.b.control.recv_frame().is_some());
    lab.a.control.set_forward(1, None).expect("a port");
}

#[test]
fn an_lcore_allocates_nothing_once_its_qps_are_made() {
    // Loss adds timeouts, retransmissions and replays.
    let loss = LossConfig { rx: 0.003, tx: 0.003, seed: 3 };
    let mut lab = Lab::new(&LabConfig { lcores: 2, loss, ..LabConfig::default() });
    let lcores = [Some(0), Some(1)];
    let (mut a, mut b) =
        lab.connect(&QpWish { mtu: PathMtu::B1024, timeout: 14, lcores, ..QpWish::default() });
    let local = lab.a.register(a.pd, 1 << 15, AccessFlags::all());
    let remote = lab.b.register(b.pd, 1 << 15, AccessFlags::all());
    // Early packets are held, by another lcore than the one that receives them and by the same.
    let selective = QpWish { mtu: PathMtu::B256, selective_repeat: true, ..QpWish::default() };
    let mut holders = [[0, 1], [0, 0]].map(|lcores| {
        let lcores = lcores.map(Some);
        let (one, other) = lab.connect(&QpWish { lcores, timeout: 14, ..selective });
        let region =
            |node: &lab::Node, qp: &TestQp| node.register(qp.pd, 1 << 15, AccessFlags::all());
        let regions = [region(&lab.a, &one), region(&lab.b, &other)];
        (one, other, regions)
    });
    let mut within = Within::new(&mut lab, [0, 1]);
    let mut reliable = [[0, 1], [1, 1]].map(|lcores| ReliableDatagrams::new(&mut lab, lcores));
    let quiet = LabConfig { lcores: 2, ..LabConfig::default() };
    let mut datagram_lab = Lab::new(&quiet);
    let mut datagrams = Datagrams::new(&mut datagram_lab, [0, 1]);
    let lcores = lcore_threads();
    assert_eq!(lcores.len(), 8);

    COUNTS.store(true, Ordering::SeqCst);
    traffic(&mut a, &mut b, &local, &remote, 1000);
    for (one, other, [local, remote]) in &mut holders {
        traffic(one, other, local, remote, 300);
    }
    within.run(100);
    reliable.iter_mut().for_each(|reliable| reliable.run(60));
    datagrams.run(300);
    windows(&lab, &mut b, &remote, 300);
    migrations(&mut lab, [&mut a, &mut b], [&local, &remote], 20);
    // Commands are included: the control plane allocates and frees what an lcore gets.
    for round in 1..=10 {
        create_and_destroy(&mut lab, &QpWish { notices: true, ..selective });
        reliable.iter().for_each(|reliable| reliable.create_and_destroy(&mut lab));
        lab.a.control.migrate_port(1, |_| true).expect("a port");
        lab.a.control.set_faults(1, &faults(loss)).expect("a port");
        let slow = BottleneckConfig { kmin: 0, ..BottleneckConfig::new(1000, 1 << 20) };
        let slow = (round % 2 == 1).then_some(slow);
        lab.a.control.set_bottleneck(1, slow).expect("a port");
        forward_one(&mut lab);
        let mut taps = tap(&mut lab.a);
        traffic(&mut a, &mut b, &local, &remote, 5);
        reliable.iter_mut().for_each(|reliable| reliable.run(5));
        let mut copy = TapFrame::default();
        assert!(taps.iter_mut().any(|tap| tap.read(&mut copy)), "frames are copied");
    }
    lab.a.control.clear_tap(1).expect("a port");
    lab.a.control.set_addresses(1, lab.a.addresses.clone()).expect("sets");
    COUNTS.store(false, Ordering::SeqCst);

    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    assert!(slot(own).load(Ordering::SeqCst) > 0, "the counting works");
    let counters = lab.b.engine.counters();
    assert!(counters.transport(Counter::HeldPackets) > 100, "packets are held");
    assert!(counters.transport(Counter::RdResyncs) > 10, "messages are put off and given up");
    for thread in lcores {
        assert_eq!(slot(thread).load(Ordering::SeqCst), 0, "thread {thread} allocated or freed");
    }
    drop((local, remote, holders, within, reliable, datagrams));
    lab.finish();
    datagram_lab.finish();
}

/// Set in the process that is traced.
const TRACED: &str = "UROCE_TEST_TRACED";
const BEGIN: &str = "/uroce-steady-begin";
const END: &str = "/uroce-steady-end";

#[test]
fn a_polling_lcore_never_enters_the_kernel() {
    trace("a_polling_lcore_never_enters_the_kernel", connections);
}

#[test]
fn nor_does_it_for_datagrams_shared_receives_and_windows() {
    trace("nor_does_it_for_datagrams_shared_receives_and_windows", datagrams);
}

/// Runs a test of this name once more, traced, in which `traced` marks a window.
fn trace(name: &str, traced: fn()) {
    if std::env::var_os(TRACED).is_some() {
        return traced();
    }
    let exe = std::env::current_exe().expect("a path");
    let trace = std::env::temp_dir().join(format!("uroce-steady-{}.trace", std::process::id()));
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .arg(exe)
        .args(["--exact", name, "--nocapture"])
        .env(TRACED, "1")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIP: {name}: strace does not start: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("ptrace") && said.contains("Operation not permitted") {
        eprintln!("SKIP: {name}: no ptrace here: {said}");
        return;
    }
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let _ = std::fs::remove_file(&trace);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));

    let lcores: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("PR_SET_NAME") && line.contains("uroce-lcore"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(lcores.len(), 2, "both lcores are in the trace");
    let window = text.lines().skip_while(|line| !line.contains(BEGIN));
    let window: Vec<&str> = window.take_while(|line| !line.contains(END)).collect();
    assert!(window.len() > 1, "the window is in the trace");
    let thread =
        |line: &&&str| line.split_whitespace().next().is_some_and(|id| lcores.contains(&id));
    let entered: Vec<_> = window.iter().filter(thread).collect();
    assert!(entered.is_empty(), "{} calls, first: {:?}", entered.len(), entered.first());
}

/// Runs traffic of connections between two marks in the trace.
fn connections() {
    let mut lab = Lab::new(&LabConfig { idle: IdlePolicy::Poll, ..LabConfig::default() });
    let (mut a, mut b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, 1 << 15, AccessFlags::all());
    let remote = lab.b.register(b.pd, 1 << 15, AccessFlags::all());
    let mut within = Within::new(&mut lab, [0, 0]);
    let mut reliable = ReliableDatagrams::new(&mut lab, [0, 0]);
    traffic(&mut a, &mut b, &local, &remote, 50);
    within.run(50);
    reliable.run(10);
    eventually("quiet", || a.sq.room() == 64);
    let _ = std::fs::metadata(BEGIN);
    traffic(&mut a, &mut b, &local, &remote, 300);
    within.run(300);
    reliable.run(30);
    let _ = std::fs::metadata(END);
    drop((local, remote, within, reliable));
    lab.finish();
}

/// Runs traffic of datagrams and windows between two marks in the trace.
fn datagrams() {
    let mut lab = Lab::new(&LabConfig { idle: IdlePolicy::Poll, ..LabConfig::default() });
    let (a, mut b) = lab.connect(&QpWish::default());
    let region = lab.b.register(b.pd, 1 << 15, AccessFlags::all());
    let mut datagrams = Datagrams::new(&mut lab, [0, 0]);
    datagrams.run(5);
    windows(&lab, &mut b, &region, 5);
    let _ = std::fs::metadata(BEGIN);
    datagrams.run(100);
    windows(&lab, &mut b, &region, 100);
    let _ = std::fs::metadata(END);
    drop((a, region, datagrams));
    lab.finish();
}
