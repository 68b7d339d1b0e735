//! Two engines with ports that a ring pair connects, and calls for tests.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use uroce_engine::eal::{Eal, EalConfig};
use uroce_engine::mbuf::{Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::{
    CompletionQueue, Control, ControlError, Driver, Engine, EngineConfig, EventGuard, IdlePolicy,
    LossConfig, MrKeys, MrSpec, PortAddresses, PortBinding, QpHandle, QpSpec, RdDomain,
    RecvQueueEnd, SendData, SendQueueEnd, SharedReceiveQueue,
};
use uroce_transport::{
    AccessFlags, Congestion, Cqe, Pd, QpCaps, QpChange, QpType, RdAddress, RdAttr, RecvWr, RtrAttr,
    RtsAttr, SendOp, SendWr, Sge,
};
use uroce_wire::{Encap, Gid, Mac, PathMtu, Psn, Qkey, Qpn, Va};

/// How a [`Lab`] is built.
#[derive(Clone, Debug)]
pub struct LabConfig {
    pub lcores: usize,
    /// Queue pairs of each port; `None` for one per lcore.
    pub queue_pairs: Option<u16>,
    pub mbufs: u32,
    pub ring: u32,
    pub idle: IdlePolicy,
    pub driver: Driver,
    pub max_qps: u32,
    pub loss: LossConfig,
}

impl Default for LabConfig {
    fn default() -> LabConfig {
        LabConfig {
            lcores: 1,
            queue_pairs: None,
            mbufs: 4095,
            ring: 1024,
            idle: IdlePolicy::Yield,
            driver: Driver::Lcore,
            max_qps: 64,
            loss: LossConfig::default(),
        }
    }
}

/// One engine and its addresses.
pub struct Node {
    pub engine: Engine,
    pub control: Control,
    pub addresses: PortAddresses,
}

/// Two engines back to back.
pub struct Lab {
    pub a: Node,
    pub b: Node,
    pub pool: Mempool,
}

/// Returns the process's EAL.
pub fn eal() -> &'static Eal {
    Eal::init(&EalConfig::default()).expect("EAL starts")
}

impl Lab {
    pub fn new(config: &LabConfig) -> Lab {
        let eal = eal();
        let geometry = PoolConfig { count: config.mbufs, cache: 64, ..PoolConfig::default() };
        let geometry = PoolConfig { room: 4400, ..geometry };
        let pool = Mempool::create(eal, &geometry).expect("mempool");
        let queues = config.queue_pairs.unwrap_or(config.lcores as u16);
        // A process may have several labs.
        static LABS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("lab{}", LABS.fetch_add(1, Ordering::Relaxed));
        let (a, b) = ring_pair(eal, &name, queues, config.ring, 4200, &pool).expect("rings");
        let node = |port, host: u8| {
            let mac = Mac([2, 0, 0, 0, 0, host]);
            let gid = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host));
            let addresses = PortAddresses { mac, vlan: None, gids: vec![gid] };
            let (pool, loss) = (pool.clone(), config.loss);
            let binding =
                PortBinding { port, pool, addresses: addresses.clone(), loss, bottleneck: None };
            let engine_config = EngineConfig {
                lcores: vec![None; config.lcores],
                max_qps: config.max_qps,
                max_mrs: 256,
                max_ahs: 64,
                idle: config.idle,
                driver: config.driver,
                ..EngineConfig::default()
            };
            let (engine, control) = Engine::start(engine_config, vec![binding]).expect("starts");
            Node { engine, control, addresses }
        };
        Lab { a: node(a, 1), b: node(b, 2), pool }
    }

    /// Makes two connected QPs in RTS.
    pub fn connect(&mut self, spec: &QpWish) -> (TestQp, TestQp) {
        let mut a = self.a.create_qp(spec);
        let mut b = self.b.create_qp(spec);
        let (qpn_a, qpn_b) = (a.qpn, b.qpn);
        self.a.bring_up(&mut a, &self.b.addresses, qpn_b, spec);
        self.b.bring_up(&mut b, &self.a.addresses, qpn_a, spec);
        (a, b)
    }

    /// Shuts both engines down, and checks that every mbuf is back.
    pub fn finish(self) {
        let Lab { a, b, pool } = self;
        let engines = [a.engine.clone(), b.engine.clone()];
        a.control.shutdown();
        b.control.shutdown();
        assert!(engines.iter().all(|engine| !engine.is_running()));
        assert_eq!(pool.available(), pool.count(), "mbufs leaked");
    }
}

/// The properties of a QP to be made.
#[derive(Clone, Copy, Debug)]
pub struct QpWish {
    pub qp_type: QpType,
    pub caps: QpCaps,
    pub cq_depth: u32,
    pub mtu: PathMtu,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub lcores: [Option<usize>; 2],
    pub notices: bool,
    pub traffic_class: u8,
    pub congestion: Option<Congestion>,
    pub selective_repeat: bool,
}

/// Queues of 64 requests with 4 elements each.
pub const CAPS: QpCaps = QpCaps {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 0,
};

impl Default for QpWish {
    fn default() -> QpWish {
        QpWish {
            qp_type: QpType::Rc,
            caps: CAPS,
            cq_depth: 256,
            mtu: PathMtu::B4096,
            // Half a second: tests may share their cores with other programs.
            timeout: 17,
            retry_cnt: 7,
            rnr_retry: 7,
            lcores: [None; 2],
            notices: false,
            traffic_class: 0,
            congestion: None,
            selective_repeat: false,
        }
    }
}

impl QpWish {
    /// A QP of one CQ, on any lcore.
    pub fn spec(&self, pd: Pd, cq: &Arc<CompletionQueue>) -> QpSpec {
        QpSpec {
            qp_type: self.qp_type,
            pd,
            caps: self.caps,
            send_cq: Arc::clone(cq),
            recv_cq: Arc::clone(cq),
            srq: None,
            xrcd: None,
            rdd: None,
            lcore: None,
            notices: self.notices,
            congestion: self.congestion,
        }
    }
}

/// A QP with a CQ for both sides and its own protection domain.
pub struct TestQp {
    pub qpn: Qpn,
    pub lcore: usize,
    pub pd: Pd,
    pub sq: SendQueueEnd,
    pub rq: RecvQueueEnd,
    pub cq: Arc<CompletionQueue>,
    pub events: EventGuard,
}

impl Node {
    pub fn create_qp(&mut self, wish: &QpWish) -> TestQp {
        let pd = self.engine.alloc_pd();
        self.create_qp_with(pd, wish, None)
    }

    /// Makes a QP in that domain; with `srq` it receives from that queue.
    pub fn create_qp_with(
        &mut self,
        pd: Pd,
        wish: &QpWish,
        srq: Option<&Arc<SharedReceiveQueue>>,
    ) -> TestQp {
        self.create_qp_of(pd, wish, srq).expect("QP")
    }

    /// Makes a QP; returns the error if it is refused.
    pub fn try_create_qp(&mut self, wish: &QpWish) -> Result<TestQp, ControlError> {
        self.create_qp_of(self.engine.alloc_pd(), wish, None)
    }

    fn create_qp_of(
        &mut self,
        pd: Pd,
        wish: &QpWish,
        srq: Option<&Arc<SharedReceiveQueue>>,
    ) -> Result<TestQp, ControlError> {
        let cq = self.engine.create_cq(wish.cq_depth, None).expect("CQ");
        let lcore = wish.lcores[usize::from(self.addresses.mac.0[5] - 1)];
        self.create(&QpSpec { srq: srq.cloned(), lcore, ..wish.spec(pd, &cq) })
    }

    /// Makes an RD QP or EEC in RESET, of that RD domain.
    pub fn create_in(&mut self, domain: &Arc<RdDomain>, qp_type: QpType) -> TestQp {
        let wish = QpWish { qp_type, ..QpWish::default() };
        let (pd, cq) = (self.engine.alloc_pd(), self.engine.create_cq(wish.cq_depth, None));
        let spec = QpSpec { rdd: Some(Arc::clone(domain)), ..wish.spec(pd, &cq.expect("CQ")) };
        self.create(&spec).expect("an RD QP or EEC")
    }

    fn create(&mut self, spec: &QpSpec) -> Result<TestQp, ControlError> {
        let QpHandle { qpn, lcore, sq, rq, events } = self.control.create_qp(spec)?;
        let (pd, cq) = (spec.pd, Arc::clone(&spec.send_cq));
        Ok(TestQp { qpn, lcore, pd, sq, rq, cq, events })
    }

    /// Takes a QP from RESET to RTS.
    pub fn bring_up(&mut self, qp: &mut TestQp, peer: &PortAddresses, dest: Qpn, wish: &QpWish) {
        for change in changes(&self.addresses, peer, dest, wish) {
            self.control.modify_qp(qp.qpn, &change).expect("Modify QP");
        }
    }

    /// Takes a UD QP from RESET to RTS.
    pub fn start_datagrams(&mut self, qp: &TestQp, qkey: Qkey) {
        for change in QpChange::datagram_steps(1, qkey, Psn::new(1)) {
            self.control.modify_qp(qp.qpn, &change).expect("Modify QP");
        }
    }

    /// Takes an RD QP from RESET to RTS.
    pub fn start_rd(&mut self, qp: &TestQp, qkey: Qkey) {
        let attr = RdAttr { access: REMOTE, max_dest_rd_atomic: 16, min_rnr_timer: 1 };
        for change in QpChange::reliable_datagram_steps(qkey, &attr) {
            self.control.modify_qp(qp.qpn, &change).expect("Modify QP");
        }
    }

    /// Takes an EEC from RESET to RTS, connected to an EEC of the peer.
    pub fn connect_eec(&mut self, eec: &TestQp, peer: &PortAddresses, dest: Qpn, wish: &QpWish) {
        let wish = QpWish { qp_type: QpType::Eec, ..*wish };
        for change in changes(&self.addresses, peer, dest, &wish) {
            // Access is granted by the RD QPs.
            let change = QpChange { access: None, ..change };
            self.control.modify_qp(eec.qpn, &change).expect("Modify EEC");
        }
    }

    pub fn register(&self, pd: Pd, len: usize, access: AccessFlags) -> Buffer {
        Buffer::new(&self.engine, pd, len, access)
    }
}

/// What the QPs grant their peers.
pub const REMOTE: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// Returns the three changes that take a QP from RESET to RTS.
pub fn changes(
    own: &PortAddresses,
    peer: &PortAddresses,
    dest: Qpn,
    wish: &QpWish,
) -> [QpChange; 3] {
    let path = Encap {
        src_mac: own.mac,
        dst_mac: peer.mac,
        src: own.gids[0],
        dst: peer.gids[0],
        traffic_class: wish.traffic_class,
        hop_limit: 64,
        src_port: 0xc000,
        ..Encap::default()
    };
    let rtr = RtrAttr {
        path_mtu: wish.mtu,
        dest_qpn: dest,
        rq_psn: Psn::new(0xff_fff0),
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
    };
    let rts = RtsAttr {
        sq_psn: Psn::new(0xff_fff0),
        timeout: wish.timeout,
        retry_cnt: wish.retry_cnt,
        rnr_retry: wish.rnr_retry,
        max_rd_atomic: 16,
    };
    [
        QpChange { access: Some(REMOTE), ..QpChange::to_init(1) },
        QpChange {
            path: Some(path.into()),
            selective_repeat: wish.selective_repeat.then_some(true),
            ..QpChange::to_rtr(wish.qp_type, &rtr)
        },
        QpChange::to_rts(wish.qp_type, &rts),
    ]
}

impl TestQp {
    /// Posts a signaled work request.
    pub fn send(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.sq.post_send(&signaled(wr_id, op), sges).expect("post_send");
    }

    /// Posts a signaled work request of an RD QP.
    pub fn send_to(&mut self, to: &RdAddress, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let mut batch = self.sq.batch().expect("a state to post in");
        let data = SendData::Sges(sges);
        batch.push_datagram(&signaled(wr_id, op), to, data).expect("room");
    }

    /// Posts a signaled work request once there is room.
    pub fn send_when_room(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        eventually("room in the send queue", || self.sq.room() > 0);
        self.send(wr_id, op, sges);
    }

    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.rq.post_recv(&RecvWr { wr_id }, sges).expect("post_recv");
    }

    /// Waits for the next completion, at most for 20 seconds.
    pub fn completion(&self) -> Cqe {
        let mut found = None;
        eventually("a completion", || {
            found = self.cq.poll().expect("no overrun");
            found.is_some()
        });
        found.expect("waited for")
    }
}

pub fn signaled(wr_id: u64, op: SendOp) -> SendWr {
    SendWr { wr_id, op, signaled: true, solicited: false, fence: false, srqn: Default::default() }
}

/// Waits until `check` returns true, at most for 20 seconds.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::yield_now();
    }
}

/// Registered memory that the test accesses only by copies, while nothing is under way.
pub struct Buffer {
    engine: Engine,
    memory: *mut u64,
    len: usize,
    pub keys: MrKeys,
    registered: bool,
}

impl Buffer {
    pub fn new(engine: &Engine, pd: Pd, len: usize, access: AccessFlags) -> Buffer {
        let words: Box<[u64]> = vec![0u64; len.div_ceil(8)].into_boxed_slice();
        let memory = Box::into_raw(words).cast::<u64>();
        let addr = memory.cast::<u8>();
        let spec = MrSpec { addr, len, va: Va(addr as u64), pd, access };
        // SAFETY: the memory is freed in `drop`, after deregistration, and is otherwise accessed
        // only through the raw pointer.
        let keys = unsafe { engine.register_mr(&spec) }.expect("registers");
        Buffer { engine: engine.clone(), memory, len, keys, registered: true }
    }

    pub fn va(&self) -> Va {
        Va(self.memory as u64)
    }

    pub fn at(&self, offset: u64) -> Va {
        Va(self.va().0 + offset)
    }

    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { va: self.at(offset), len, lkey: self.keys.lkey }
    }

    /// Writes bytes to the start of the memory.
    pub fn put(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: the buffer owns as many bytes, and the test calls this only while nothing is
        // under way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.cast(), bytes.len()) };
    }

    pub fn fill(&self, seed: u64) {
        let bytes = pattern(seed, self.len);
        // SAFETY: the buffer owns `len` bytes, and the test calls this only while nothing is under
        // way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.cast(), self.len) };
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        // SAFETY: the buffer owns `len` bytes, and the test calls this only while nothing is under
        // way.
        unsafe {
            std::ptr::copy_nonoverlapping(self.memory.cast::<u8>(), out.as_mut_ptr(), self.len);
        }
        out
    }

    pub fn word(&self, at: usize) -> u64 {
        assert!(at * 8 + 8 <= self.len);
        // SAFETY: the word is inside the buffer and aligned.
        unsafe { self.memory.wrapping_add(at).read_volatile() }
    }

    pub fn set_word(&self, at: usize, value: u64) {
        assert!(at * 8 + 8 <= self.len);
        // SAFETY: the word is inside the buffer and aligned.
        unsafe { self.memory.wrapping_add(at).write_volatile(value) }
    }

    pub fn deregister(&mut self) {
        if std::mem::replace(&mut self.registered, false) {
            self.engine.deregister_mr(self.keys.lkey).expect("deregisters");
        }
    }
}

// SAFETY: this value is the only owner of the memory.
unsafe impl Send for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.deregister();
        let words = std::ptr::slice_from_raw_parts_mut(self.memory, self.len.div_ceil(8));
        // SAFETY: the pointer came from a box of this length; nothing accesses it after
        // deregistration.
        drop(unsafe { Box::from_raw(words) });
    }
}

/// Returns bytes that look random and depend on the seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
