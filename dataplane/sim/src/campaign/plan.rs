//! The plan of a run, and the parameters that its seed determines.

use core::time::Duration;

use fastrand::Rng;
use uroce_wire::{PathMtu, Psn};

use crate::faults::Rates;
use crate::world::Settings;
use uroce_transport::{MAX_RD_ATOMIC, QpCaps};

/// Parameters of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// Seed; determines everything that is random.
    pub seed: u64,
    /// No new work is posted after about this many packets.
    pub packets: u64,
    /// Number of connections; random, mostly few, if not given.
    pub connections: Option<usize>,
    /// Fault rates of all directions; random for each direction if not given.
    pub rates: Option<Rates>,
    /// Each connection has two paths, which are cut and mended, and control operations of all
    /// kinds, such as migrations, happen during traffic.
    pub has_control: bool,
}

/// Random parameters of one run.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) settings: Settings,
    pub(crate) nodes: u16,
    pub(crate) is_ipv6: bool,
    /// Port of each node's second address, if it has one.
    pub(crate) second_port: Option<u8>,
    pub(crate) connections: Vec<Connection>,
}

/// Random parameters of one connection; `ends` by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) mtu: PathMtu,
    pub(crate) vlan: Option<u16>,
    /// Time before the first strike (see [`strike`](crate::campaign::inject)); none if not given.
    pub(crate) peace: Option<Duration>,
    /// Mean time between two control operations; none if not given.
    pub(crate) control_pace: Option<Duration>,
    /// An extended reliable connection: side 0 is the initiator, side 1 the target.
    pub(crate) is_xrc: bool,
    /// Whether the ends are EECs, or RD QPs that use some.
    pub(crate) role: Role,
    /// Q_Key of RD QPs.
    pub(crate) qkey: u32,
    /// Both ends use selective repeat.
    pub(crate) selective_repeat: bool,
    /// Number of UDP source ports of each end.
    pub(crate) udp_source_ports: u8,
    /// Idle time of each end's keepalive, in milliseconds; 0 means none.
    pub(crate) keepalive_ms: [u32; 2],
    pub(crate) ends: [End; 2],
}

/// Part of a connection in the reliable datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// None: the ends are connected QPs.
    Connected,
    /// The ends are EECs.
    Context,
    /// The ends are RD QPs. They use the EECs of the connection with this index.
    Carried(usize),
}

impl Connection {
    /// Returns whether the ends are RD QPs.
    pub(crate) fn is_carried(&self) -> bool {
        matches!(self.role, Role::Carried(_))
    }

    /// Turns the connection into one of RD QPs that use the EECs of the connection `context`.
    fn become_carried(&mut self, context: usize) {
        self.role = Role::Carried(context);
        (self.selective_repeat, self.udp_source_ports) = (false, 1);
        self.keepalive_ms = [0; 2];
        self.ends.iter_mut().for_each(|end| end.mix[4..].fill(0));
    }

    /// A connection of EECs with the terms of this one.
    fn context(&self) -> Connection {
        let mut context = *self;
        context.role = Role::Context;
        (context.selective_repeat, context.udp_source_ports) = (false, 1);
        (context.keepalive_ms, context.peace) = ([0; 2], None);
        for end in &mut context.ends {
            (end.target_len, end.max_recv_len, end.max_len) = (64, 64, 64);
            end.caps.max_recv_wr = 1;
        }
        context
    }

    /// Turns the connection into an extended one, without what these do not have. It is not struck:
    /// receives of a shared queue outlive their connection.
    fn become_xrc(&mut self) {
        self.is_xrc = true;
        (self.selective_repeat, self.udp_source_ports) = (false, 1);
        self.keepalive_ms = [0; 2];
        self.peace = None;
        self.ends[0].mix[4..].fill(0);
        // One receive in each of the target's queues.
        let caps = &mut self.ends[1].caps;
        caps.max_recv_wr = caps.max_recv_wr.max(2);
    }
}

/// Random parameters of one end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) node: u16,
    pub(crate) caps: QpCaps,
    pub(crate) sq_psn: Psn,
    pub(crate) max_rd_atomic: u8,
    pub(crate) timeout: u8,
    /// The ACK timeout is shorter than the round trip may be: packets are repeated needlessly.
    pub(crate) is_hasty: bool,
    pub(crate) min_rnr_timer: u8,
    /// Length of the region that the peer writes and reads, in bytes.
    pub(crate) target_len: u32,
    /// Longest SEND to this end, in bytes.
    pub(crate) max_recv_len: u32,
    /// Longest WRITE and READ of this end, in bytes.
    pub(crate) max_len: u32,
    /// Receives are posted late.
    pub(crate) is_slow: bool,
    /// Probability that a work request is signalled.
    pub(crate) signaled_rate: f64,
    /// Mean time between two posts.
    pub(crate) pace: Duration,
    /// Weights of SEND, WRITE, READ, ATOMIC, ATOMIC WRITE and FLUSH.
    pub(crate) mix: [u32; 6],
}

/// Limit of transport retries of every simulated QP.
pub(crate) const RETRY_CNT: u8 = 7;

impl Plan {
    pub(crate) fn shape(&self, rng: &mut Rng) -> Shape {
        let is_perfect = self.rates == Some(Rates::NONE);
        let mut sometimes = |rate: f64| if rng.bool() { rate * rng.f64() } else { 0.0 };
        let settings = Settings {
            seed: self.seed,
            full_rate: if is_perfect { 0.0 } else { sometimes(0.1) },
            lazy_rate: sometimes(0.5),
            trouble_pace: (!is_perfect && rng.bool())
                .then(|| Duration::from_millis(4 << rng.u32(..8))),
            latency: Duration::from_nanos(rng.u64(100..10_000)),
            gbps: rng.u64(100..=400),
            budget: rng.u32(1..=64),
            ..Settings::default()
        };
        let nodes = rng.u16(2..=4);
        let count = self.connections.unwrap_or_else(|| 1 << rng.u32(0..=4));
        let mut connections: Vec<Connection> =
            (0..count).map(|_| connection(rng, nodes, is_perfect)).collect();
        let is_ipv6 = rng.bool();
        let second_port = self.has_control.then(|| rng.u8(1..=2));
        if self.has_control {
            for connection in &mut connections {
                connection.control_pace = Some(Duration::from_micros(20 << rng.u32(..10)));
            }
        }
        let mut shape = Shape { settings, nodes, is_ipv6, second_port, connections };
        self.choose_recovery(&mut shape);
        self.choose_placement(&mut shape);
        if !is_perfect {
            self.choose_keepalive(&mut shape);
        }
        self.choose_xrc(&mut shape);
        self.choose_rd(&mut shape);
        shape
    }

    /// Chooses the extended reliable connections: in a quarter of all runs about half of the
    /// connections. The random numbers are its own.
    fn choose_xrc(&self, shape: &mut Shape) {
        const SALT: u64 = 0x9c2d_a145;
        let mut rng = Rng::with_seed(self.seed ^ SALT);
        if rng.u8(..4) > 0 {
            return;
        }
        for connection in &mut shape.connections {
            if rng.bool() {
                connection.become_xrc();
            }
        }
    }

    /// Chooses the connections of RD QPs: in a quarter of all runs about half of those that are not
    /// extended. They share one or two connections of EECs between two nodes, which are added. The
    /// random numbers are its own.
    fn choose_rd(&self, shape: &mut Shape) {
        const SALT: u64 = 0x4d47_2ad1;
        let mut rng = Rng::with_seed(self.seed ^ SALT);
        if rng.u8(..4) > 0 {
            return;
        }
        let mut contexts: Vec<([u16; 2], usize)> = Vec::new();
        for index in 0..shape.connections.len() {
            if shape.connections[index].is_xrc || rng.u8(..3) == 0 {
                continue;
            }
            let nodes = shape.connections[index].ends.map(|end| end.node);
            let sorted = [nodes[0].min(nodes[1]), nodes[0].max(nodes[1])];
            let open: Vec<usize> =
                contexts.iter().filter(|(pair, _)| *pair == sorted).map(|(_, at)| *at).collect();
            let at = if open.is_empty() || open.len() == 1 && rng.u8(..3) == 0 {
                let at = shape.connections.len();
                contexts.push((sorted, at));
                shape.connections.push(shape.connections[index].context());
                at
            } else {
                open[rng.usize(..open.len())]
            };
            let mtu = shape.connections[at].mtu;
            let connection = &mut shape.connections[index];
            connection.mtu = mtu;
            connection.become_carried(at);
        }
    }

    /// Chooses the ends with a keepalive: in half of all runs about half of them. The random
    /// numbers are its own.
    fn choose_keepalive(&self, shape: &mut Shape) {
        const SALT: u64 = 0x0a11_7e57;
        let mut rng = Rng::with_seed(self.seed ^ SALT);
        if rng.bool() {
            return;
        }
        for connection in &mut shape.connections {
            connection.keepalive_ms = [0; 2].map(|_| if rng.bool() { rng.u32(1..=4) } else { 0 });
            if rng.u8(..4) == 0 {
                // Idle times between the posts.
                connection.ends.iter_mut().for_each(|end| end.pace = Duration::from_millis(4));
            }
        }
    }

    /// Chooses the ends that post ATOMIC WRITEs and FLUSHes: in a quarter of all runs about half of
    /// them. The random numbers are its own.
    fn choose_placement(&self, shape: &mut Shape) {
        const SALT: u64 = 0xf1a5_4ed0;
        let mut rng = Rng::with_seed(self.seed ^ SALT);
        if rng.u8(..if self.has_control { 8 } else { 4 }) > 0 {
            return;
        }
        for end in shape.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            if rng.bool() {
                end.mix[4..].fill_with(|| rng.u32(..=8));
            }
        }
    }

    /// Chooses the connections with selective repeat: in half of all runs about half of them. The
    /// random numbers are its own, so that all else of a run is as without it.
    fn choose_recovery(&self, shape: &mut Shape) {
        const SALT: u64 = 0x5e1e_c71e;
        let mut rng = Rng::with_seed(self.seed ^ SALT);
        if rng.bool() {
            return;
        }
        for connection in &mut shape.connections {
            connection.selective_repeat = rng.bool();
            if connection.selective_repeat && rng.bool() {
                connection.udp_source_ports = 1 << rng.u8(..5);
            }
        }
        if rng.u8(..3) == 0 {
            shape.settings.most_held = rng.usize(..64);
        }
    }
}

fn connection(rng: &mut Rng, nodes: u16, is_perfect: bool) -> Connection {
    let mtu = PathMtu::from_code(rng.u8(1..=5)).expect("codes 1 to 5 are all");
    let here = rng.u16(..nodes);
    let there = (here + rng.u16(1..nodes)) % nodes;
    let mut ends = [here, there].map(|node| end(rng, node, mtu, is_perfect));
    for side in [0, 1] {
        ends[side].target_len = ends[1 - side].max_len + rng.u32(64..4096);
    }
    let vlan = rng.bool().then(|| rng.u16(1..4095));
    let is_struck = !is_perfect && rng.u8(..3) == 0;
    let peace = is_struck.then(|| Duration::from_micros(rng.u64(10..3_000)));
    Connection {
        mtu,
        vlan,
        peace,
        control_pace: None,
        is_xrc: false,
        role: Role::Connected,
        qkey: 0x1357,
        selective_repeat: false,
        udp_source_ports: 1,
        keepalive_ms: [0; 2],
        ends,
    }
}

fn end(rng: &mut Rng, node: u16, mtu: PathMtu, is_perfect: bool) -> End {
    let is_hasty = !is_perfect && rng.u8(..8) == 0;
    // Most lengths are a few packets; a quarter of the ends also have long messages.
    let mut max_len =
        |long: u32| if rng.u8(..4) == 0 { long } else { mtu.bytes() * rng.u32(2..=8) };
    let (max_len, max_recv_len) = (max_len(200_000), max_len(120_000));
    let mut mix = [0; 4].map(|_: u32| if rng.u8(..3) == 0 { 0 } else { rng.u32(1..=8) });
    if mix == [0; 4] {
        mix = [1; 4];
    }
    let [send, write, read, atomic] = mix;
    let caps = QpCaps {
        max_send_wr: 1 << rng.u32(0..=6),
        max_recv_wr: if max_recv_len > 32_768 { rng.u32(1..=4) } else { rng.u32(1..=64) },
        max_send_sge: rng.u32(1..=4),
        max_recv_sge: rng.u32(1..=4),
        max_inline_data: 0,
    };
    End {
        node,
        caps,
        sq_psn: if rng.bool() { Psn::new(0).minus(rng.u32(..300)) } else { Psn::new(rng.u32(..)) },
        max_rd_atomic: rng.u8(1..=MAX_RD_ATOMIC),
        timeout: if is_hasty { rng.u8(3..=8) } else { rng.u8(11..=14) },
        is_hasty,
        min_rnr_timer: rng.u8(1..=14),
        target_len: 0, // Set later: depends on the peer's lengths.
        max_recv_len,
        max_len,
        is_slow: rng.u8(..3) == 0,
        signaled_rate: if rng.bool() { 1.0 } else { rng.f64() },
        pace: Duration::from_nanos(rng.u64(200..20_000)),
        mix: [send, write, read, atomic, 0, 0],
    }
}
