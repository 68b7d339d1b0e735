//! Two devices of one process on a ring link, and QPs that connect by IP address and port.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_controlplane::config::{Config, DeviceConfig, PortConfig, SelectiveRepeat};
use uroce_controlplane::rdma_cm::{
    Agreed, BindOptions, CmChannel, CmId, ConnEvent, ConnParam, ConnQp, ConnectRequest,
    ConnectSpec, PortSpace,
};
use uroce_controlplane::{Device, RequestError};
use uroce_engine::{CompletionQueue, QpHandle, QpSpec, RdDomain};
use uroce_transport::{
    Cqe, Pd, QpAttr, QpCaps, QpChange, QpState, QpType, RecvWr, RtrAttr, RtsAttr, SendOp, SendWr,
    WcStatus,
};
use uroce_wire::{ImmDt, Qpn};

/// Timeout, far longer than any step here takes.
pub const SOON: Duration = Duration::from_secs(20);
pub const PORT: u16 = 7471;

/// A device and a channel for its connections' events.
pub struct Node {
    pub device: Device,
    pub channel: Arc<CmChannel>,
    pub pd: Pd,
    pub address: &'static str,
}

/// A QP to be connected.
pub struct End {
    pub qp: QpHandle,
    pub cq: Arc<CompletionQueue>,
}

pub fn addresses() -> [&'static str; 2] {
    ["192.0.2.1", "192.0.2.2"]
}

/// Creates two nodes with one link.
pub fn nodes() -> (Node, Node) {
    nodes_at(addresses(), 24)
}

pub fn nodes_at(addresses: [&'static str; 2], prefix: u8) -> (Node, Node) {
    nodes_in(addresses, prefix, None)
}

/// Creates two nodes with one link in a VLAN. Each end drops frames without its tag.
pub fn nodes_in(addresses: [&'static str; 2], prefix: u8, vlan: Option<u16>) -> (Node, Node) {
    let port = |address: &str| {
        let port = PortConfig::ring("link").ip(&format!("{address}/{prefix}")).expect("an address");
        PortConfig { vlan, ..port }
    };
    let [left, right] = addresses.map(port);
    open([DeviceConfig::new("left").port(left), DeviceConfig::new("right").port(right)], addresses)
}

/// Creates two nodes with one link and this configuration of selective repeat.
pub fn nodes_of(selective_repeat: [SelectiveRepeat; 2]) -> (Node, Node) {
    let [left, right] = addresses()
        .map(|address| PortConfig::ring("link").ip(&format!("{address}/24")).expect("an address"));
    let [of_left, of_right] = selective_repeat;
    let left = DeviceConfig::new("left").port(left).selective_repeat(of_left);
    let right = DeviceConfig::new("right").port(right).selective_repeat(of_right);
    open([left, right], addresses())
}

fn open([left, right]: [DeviceConfig; 2], addresses: [&'static str; 2]) -> (Node, Node) {
    let config = Config::new().device(left).device(right);
    let node = |name, address| Node::open(&config, name, address);
    (node("left", addresses[0]), node("right", addresses[1]))
}

impl Node {
    pub fn open(config: &Config, name: &str, address: &'static str) -> Node {
        let device = Device::open(config, name).expect("a ring link needs no privilege");
        let pd = device.engine().alloc_pd();
        Node { device, channel: CmChannel::new().expect("a descriptor"), pd, address }
    }

    pub fn socket(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address.parse().expect("an address"), port)
    }

    pub fn end(&self) -> End {
        self.end_of(QpType::Rc)
    }

    pub fn end_of(&self, qp_type: QpType) -> End {
        self.end_in(None, qp_type)
    }

    /// Creates a QP; an EEC or an RD QP is of the domain that is given.
    pub fn end_in(&self, rdd: Option<&Arc<RdDomain>>, qp_type: QpType) -> End {
        let cq = self.device.engine().create_cq(64, None).expect("a depth in range");
        let caps = QpCaps {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let spec = QpSpec {
            qp_type,
            pd: self.pd,
            caps,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            srq: None,
            xrcd: None,
            rdd: rdd.cloned(),
            lcore: None,
            notices: false,
            congestion: None,
        };
        End { qp: self.device.create_qp(spec).expect("QPs are left"), cq }
    }

    pub fn listen(&self) -> CmId {
        let address = self.socket(PORT);
        let (id, at) = self.listen_at(PortSpace::Tcp, address, 16).unwrap();
        assert_eq!(at, address);
        id
    }

    pub fn listen_at(
        &self,
        space: PortSpace,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        self.device.cm_listen(&self.channel, space, address, BindOptions::default(), backlog)
    }

    pub fn connect(&self, end: &End, to: &Node) -> CmId {
        self.connect_with(ConnectSpec::new(end.qp.qpn, to.socket(PORT)))
    }

    pub fn connect_with(&self, spec: ConnectSpec) -> CmId {
        self.device.cm_connect(&self.channel, spec).expect("there is a path")
    }

    /// Waits for the next event.
    pub fn event(&self) -> (CmId, ConnEvent) {
        self.channel.next(SOON).expect("an event in time")
    }

    /// Waits for the next event, which must be one of `id`.
    pub fn kind(&self, id: CmId) -> ConnEvent {
        let (of, event) = self.event();
        assert_eq!(of, id, "{event:?}");
        event
    }

    /// Waits for the next event, which must be a request.
    pub fn request(&self) -> (CmId, ConnectRequest) {
        let (id, event) = self.event();
        match event {
            ConnEvent::ConnectRequest(request) => (id, *request),
            other => panic!("no request but {other:?}"),
        }
    }

    pub fn accept(&self, id: CmId, end: &End) {
        let qp = ConnQp::Driven(end.qp.qpn);
        self.device.cm_accept(id, qp, ConnParam::default()).expect("a request that waits");
    }

    /// Takes a QP or an EEC in INIT to RTS, as an application does that modifies the QP of its
    /// connection.
    pub fn take_to_rts(&self, qpn: Qpn, agreed: &Agreed, selective_repeat: Option<bool>) {
        let qp_type = self.device.query_qp(qpn).expect("the QP lives").qp_type;
        let rtr = RtrAttr {
            path_mtu: agreed.path_mtu,
            dest_qpn: agreed.peer_qpn,
            rq_psn: agreed.rq_psn,
            max_dest_rd_atomic: agreed.max_dest_rd_atomic,
            min_rnr_timer: 12,
        };
        let rts = RtsAttr {
            sq_psn: agreed.sq_psn,
            timeout: agreed.timeout,
            retry_cnt: agreed.retry_cnt,
            rnr_retry: agreed.rnr_retry,
            max_rd_atomic: agreed.max_rd_atomic,
        };
        let rtr = QpChange { selective_repeat, ..QpChange::to_rtr(qp_type, &rtr) };
        self.device.modify_qp(qpn, &rtr, Some(&agreed.vector), None).expect("from INIT");
        self.device.modify_qp(qpn, &QpChange::to_rts(qp_type, &rts), None, None).expect("RTR");
    }

    pub fn attr(&self, qpn: Qpn) -> QpAttr {
        self.device.query_qp(qpn).expect("the QP lives").attr
    }

    pub fn state(&self, end: &End) -> QpState {
        self.attr(end.qp.qpn).state
    }

    pub fn count(&self, name: &str) -> u64 {
        let counts = self.device.counts().expect("the control plane runs");
        let count = counts.iter().find(|count| count.name == name);
        count.unwrap_or_else(|| panic!("no count {name}")).value
    }
}

impl End {
    /// Waits for the next completion.
    pub fn completion(&self) -> Cqe {
        let end = Instant::now() + SOON;
        loop {
            if let Some(cqe) = self.cq.poll().expect("no overrun") {
                return cqe;
            }
            assert!(Instant::now() < end, "a completion in time");
            std::thread::yield_now();
        }
    }

    pub fn post_recv_in(&mut self, node: &Node) {
        self.init_in(node);
        self.post_recv();
    }

    pub fn init_in(&self, node: &Node) {
        let access = Some(uroce_transport::AccessFlags::empty());
        let init = QpChange { access, ..QpChange::to_init(1) };
        node.device.modify_qp(self.qp.qpn, &init, None, None).expect("from RESET");
    }

    pub fn post_recv(&mut self) {
        self.qp.rq.post_recv(&RecvWr { wr_id: 1 }, &[]).expect("room");
    }

    pub fn post_send(&mut self, imm: u32) {
        let op = SendOp::Send { imm: Some(ImmDt(imm)) };
        let wr = SendWr {
            wr_id: 2,
            op,
            signaled: true,
            solicited: false,
            fence: false,
            srqn: Default::default(),
        };
        self.qp.sq.post_send(&wr, &[]).expect("room");
    }
}

/// Connects both ends. Returns their ids, left first.
pub fn join(left: (&Node, &End), right: (&Node, &End)) -> (CmId, CmId) {
    let listener = right.0.listen();
    let active = left.0.connect(left.1, right.0);
    let (passive, request) = right.0.request();
    assert_eq!(request.listener, listener);
    right.0.accept(passive, right.1);
    let up = |kind| assert!(matches!(kind, ConnEvent::Established { .. }), "{kind:?}");
    up(left.0.kind(active));
    up(right.0.kind(passive));
    (active, passive)
}

/// Sends a message each way.
pub fn exchange(left: &mut End, right: &mut End) {
    let one_way = |from: &mut End, to: &mut End, imm| {
        to.post_recv();
        from.post_send(imm);
        let (sent, received) = (from.completion(), to.completion());
        assert_eq!((sent.status, received.status), (WcStatus::Success, WcStatus::Success));
        assert_eq!(received.imm, Some(ImmDt(imm)));
    };
    one_way(left, right, 7);
    one_way(right, left, 9);
}

/// Waits until the condition holds.
pub fn eventually(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "it is never so");
        std::thread::sleep(Duration::from_millis(1));
    }
}
