//! Set-up of a run: nodes, memory, QPs and links, as the plan's seed determines them.

use core::time::Duration;
use std::collections::VecDeque;

use fastrand::Rng;
use uroce_wire::{Encap, Gid, Mac, Qkey, Qpn, Srqn, Vlan, udp_source_port};

use crate::campaign::chunks::{CANARY, Chunks};
use crate::campaign::congest::Congested;
use crate::campaign::inject::Excuses;
use crate::campaign::plan::{Connection, End, Plan, RETRY_CNT, Role, Shape};
use crate::campaign::workload::{Endpoint, SOURCE_LEN, SharedWord, Traffic, WORDS};
use crate::faults::Rates;
use crate::world::World;
use crate::world::memory::Mr;
use crate::world::names::Rail;
use crate::world::node::XRCD;
use uroce_transport::{AccessFlags, Pd, QpChange, QpInit, QpType, RdAttr, Rdd, RtrAttr, RtsAttr};

/// Protection domain of all memory and QPs.
const PD: Pd = Pd(3);

/// Protection domain of XRC targets, in which there is no memory.
const NO_PD: Pd = Pd(4);

/// RD domain of all EECs and RD QPs.
const RDD: Rdd = Rdd(5);

/// Longest time that a busy node may be late.
const TAP_SLACK: Duration = Duration::from_millis(1);

/// Longest time that a disturbed node may be late: disturbances may follow each other for long.
const TAP_SLACK_IN_TROUBLE: Duration = Duration::from_secs(60);

impl Traffic {
    pub(crate) fn new(plan: &Plan) -> Traffic {
        let mut rng = Rng::with_seed(plan.seed);
        let shape = plan.shape(&mut rng);
        let mut world = World::new(shape.settings);
        world.start_tap();
        let is_disturbed = shape.settings.trouble_pace.is_some() || plan.has_control;
        world.set_tap_slack(if is_disturbed { TAP_SLACK_IN_TROUBLE } else { TAP_SLACK });
        for node in 0..shape.nodes {
            let mac = Mac([2, 0, 0, 0, 0, node as u8]);
            world.add_node(gid(node, 0, shape.is_ipv6), mac);
            if let Some(port) = shape.second_port {
                let mac = Mac([2, 0, 0, 0, port - 1, node as u8]);
                world.add_rail(node, Rail { gid: gid(node, 1, shape.is_ipv6), mac, port });
            }
        }
        let mut traffic = Traffic {
            world,
            ends: Vec::new(),
            by_slot: vec![Vec::new(); usize::from(shape.nodes)],
            connections: shape.connections.clone(),
            shared: Vec::new(),
            rng,
            messages: 0,
            rd_messages: 0,
            xrc_messages: 0,
            bytes: 0,
            dead: 0,
            operations: 0,
            sges: Vec::new(),
            happened: Vec::new(),
        };
        let mut congested = Congested::of(plan);
        congested.narrow(&mut traffic.world, shape.nodes, shape.settings.gbps);
        traffic.make_memory(&shape, &mut congested);
        for connection in 0..shape.connections.len() {
            let [a, b] = [0, 1].map(|side| traffic.ends[2 * connection + side].at);
            traffic.world.join(a, b);
            traffic.connect(connection);
        }
        traffic.set_rates(plan, shape.nodes);
        traffic.world.expect_trouble();
        traffic
    }

    /// Registers the sources and shared words of each node, then the regions of each end.
    fn make_memory(&mut self, shape: &Shape, congested: &mut Congested) {
        let mut sources = Vec::new();
        for node in 0..shape.nodes {
            let bytes = random_bytes(&mut self.rng, SOURCE_LEN);
            sources.push(self.register(node, AccessFlags::empty(), bytes));
            let initial = self.rng.u64(..);
            let mr =
                self.register(node, AccessFlags::REMOTE_ATOMIC, initial.to_ne_bytes().to_vec());
            let done = Vec::new();
            self.shared.push(SharedWord { node, mr, initial, done, is_uncertain: false });
        }
        for connection in &shape.connections {
            let first = self.ends.len();
            for (side, end) in connection.ends.iter().enumerate() {
                let source = sources[usize::from(end.node)];
                let mut init =
                    QpInit { rdd: RDD, ..QpInit::new(type_of(connection, side), end.caps) };
                congested.choose(connection, &mut init);
                self.add_end(end, &init, connection.mtu.bytes(), first + 1 - side, source);
                if let Role::Carried(context) = connection.role {
                    let is_its =
                        |side: &usize| shape.connections[context].ends[*side].node == end.node;
                    let side = [0, 1].into_iter().find(is_its).expect("the nodes of the context");
                    let me = self.ends.len() - 1;
                    self.ends[me].carrier = 2 * context + side;
                }
            }
        }
    }

    fn add_end(&mut self, end: &End, init: &QpInit, mtu: u32, peer: usize, source: Mr) {
        let node = end.node;
        // No QP has number 0, also after a QP in the slot was destroyed and its number counted up.
        let tag = self.rng.u32(..1 << 16).clamp(1, 0xff00);
        let is_target = init.qp_type == QpType::XrcRecv;
        let at = self.world.add_qp(node, tag, if is_target { NO_PD } else { PD }, init);
        let first = Srqn::new(2 * self.ends.len() as u32 + 1);
        let queues = if is_target { vec![first, Srqn::new(first.value() + 1)] } else { Vec::new() };
        for srqn in &queues {
            self.world.node_mut(node).add_named_queue(*srqn, XRCD, PD);
        }
        let shadow = random_bytes(&mut self.rng, end.target_len);
        let flushes = AccessFlags::FLUSH_GLOBAL | AccessFlags::FLUSH_PERSISTENT;
        let remote = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | flushes;
        let target = self.register(node, remote, shadow.clone());
        let shadow_words = [0; WORDS].map(|_: u64| self.rng.u64(..));
        let words = shadow_words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let words = self.register(node, AccessFlags::REMOTE_ATOMIC, words);
        let landing = Chunks::room_for(end.max_len) + self.rng.u32(..8) * mtu;
        let landing = self.register(node, AccessFlags::LOCAL_WRITE, vec![CANARY; landing as usize]);
        let inbox = Chunks::room_for(end.max_recv_len) * (end.caps.max_recv_wr + 1);
        let inbox = self.register(node, AccessFlags::LOCAL_WRITE, vec![CANARY; inbox as usize]);
        let second_inbox = is_target.then(|| {
            let bytes = vec![CANARY; inbox.len() as usize];
            Chunks::new(self.register(node, AccessFlags::LOCAL_WRITE, bytes))
        });
        self.by_slot[usize::from(node)].push(self.ends.len());
        self.ends.push(Endpoint {
            at,
            end: *end,
            peer,
            source,
            target,
            shadow,
            words,
            shadow_words,
            landing: Chunks::new(landing),
            inbox: Chunks::new(inbox),
            second_inbox,
            queues,
            carrier: self.ends.len(),
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            expected: VecDeque::new(),
            next_wr_id: self.rng.u64(..1 << 40),
            has_failed: false,
            is_dead: false,
            excuses: Excuses::default(),
            patience: 0,
            receiver_is_awake: true,
        });
    }

    /// Registers memory at a random multiple of 8, sometimes at the top of the address space.
    fn register(&mut self, node: u16, access: AccessFlags, bytes: Vec<u8>) -> Mr {
        let rng = &mut self.rng;
        let top = (u64::MAX - bytes.len() as u64) & !7;
        let base = if rng.u8(..4) == 0 { top } else { rng.u64(..top) & !7 };
        let tag = rng.u32(..);
        self.world.node_mut(node).memory.register(PD, access, base, tag, bytes)
    }

    /// Takes both QPs of a connection from RESET to RTS.
    pub(crate) fn connect(&mut self, index: usize) {
        let connection = self.connections[index];
        if connection.is_carried() {
            return self.connect_carried(index);
        }
        let ats = [self.ends[2 * index].at, self.ends[2 * index + 1].at];
        for side in [0, 1] {
            let dest_qpn = self.world.qp(ats[1 - side]).qpn();
            let nodes = [ats[side].node, ats[1 - side].node];
            let from = self.world.qp(ats[side]).qpn();
            let path = self.path(&connection, nodes, 0, from, dest_qpn);
            for change in changes(&connection, side, path, dest_qpn) {
                self.world.modify(ats[side], &change).expect("a legal change");
            }
        }
    }

    /// Takes both RD QPs of a connection from RESET to RTS.
    fn connect_carried(&mut self, index: usize) {
        let connection = self.connections[index];
        for side in [0, 1] {
            let end = &connection.ends[side];
            let attr = RdAttr {
                access: AccessFlags::all(),
                max_dest_rd_atomic: 1,
                min_rnr_timer: end.min_rnr_timer,
            };
            let at = self.ends[2 * index + side].at;
            for change in QpChange::reliable_datagram_steps(Qkey(connection.qkey), &attr) {
                self.world.modify(at, &change).expect("a legal change");
            }
        }
    }

    /// The path from one node to another on a rail.
    pub(crate) fn path(
        &self,
        connection: &Connection,
        nodes: [u16; 2],
        rail: usize,
        from: Qpn,
        to: Qpn,
    ) -> Encap {
        let [here, there] = nodes.map(|node| self.world.node(node).rail(rail));
        let flow_label = if here.gid.to_ipv4().is_some() { 0 } else { 0xb_eef1 };
        Encap {
            src_mac: here.mac,
            dst_mac: there.mac,
            vlan: connection.vlan.map(|vid| Vlan { vid, ..Vlan::default() }),
            src: here.gid,
            dst: there.gid,
            traffic_class: 0x68,
            flow_label,
            hop_limit: 64,
            src_port: udp_source_port(flow_label, from, to) ^ rail as u16,
        }
    }

    fn set_rates(&mut self, plan: &Plan, nodes: u16) {
        for from in 0..nodes {
            for to in 0..nodes {
                let swarm = Rates::swarm(&mut self.rng);
                self.world.set_rates(from, to, plan.rates.unwrap_or(swarm));
            }
        }
    }
}

/// Type of the QP of one side.
fn type_of(connection: &Connection, side: usize) -> QpType {
    match connection.role {
        Role::Context => return QpType::Eec,
        Role::Carried(_) => return QpType::Rd,
        Role::Connected => {}
    }
    match (connection.is_xrc, side) {
        (false, _) => QpType::Rc,
        (true, 0) => QpType::XrcSend,
        (true, _) => QpType::XrcRecv,
    }
}

fn random_bytes(rng: &mut Rng, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    rng.fill(&mut bytes);
    bytes
}

fn gid(node: u16, rail: u8, is_ipv6: bool) -> Gid {
    if is_ipv6 {
        core::net::Ipv6Addr::new(0xfd00, u16::from(rail), 0, 0, 0, 0, 0, node + 1).into()
    } else {
        core::net::Ipv4Addr::new(10, rail, 0, node as u8 + 1).into()
    }
}

/// The changes of one side from RESET to INIT, to RTR and to RTS.
fn changes(connection: &Connection, side: usize, path: Encap, dest_qpn: Qpn) -> [QpChange; 3] {
    let (me, peer) = (&connection.ends[side], &connection.ends[1 - side]);
    let rtr = RtrAttr {
        path_mtu: connection.mtu,
        dest_qpn,
        rq_psn: peer.sq_psn,
        max_dest_rd_atomic: peer.max_rd_atomic,
        min_rnr_timer: me.min_rnr_timer,
    };
    let rts = RtsAttr {
        sq_psn: me.sq_psn,
        timeout: me.timeout,
        retry_cnt: RETRY_CNT,
        rnr_retry: 7,
        max_rd_atomic: me.max_rd_atomic,
    };
    let access = AccessFlags::all() | AccessFlags::FLUSH_PERSISTENT;
    [
        QpChange {
            access: (connection.role == Role::Connected).then_some(access),
            ..QpChange::to_init(1)
        },
        QpChange {
            path: Some(path.into()),
            selective_repeat: connection.selective_repeat.then_some(true),
            udp_source_ports: connection.selective_repeat.then_some(connection.udp_source_ports),
            keepalive_ms: (type_of(connection, side) == QpType::Rc)
                .then_some(connection.keepalive_ms[side]),
            ..QpChange::to_rtr(type_of(connection, side), &rtr)
        },
        QpChange::to_rts(type_of(connection, side), &rts),
    ]
}
