//! Two nodes with two ports each, a virtual clock, and a link with faults.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use fastrand::Rng;
use uroce_wire::cm::{
    Attribute, CaGuid, CmTimeout, Message, PrivateData, ServiceId, TransportService,
};
use uroce_wire::mad::Mad;
use uroce_wire::{Gid, PathMtu, Pkey, Psn, Qpn};

use uroce_cm::{Cm, CmConfig, CmEvent, CmLimits, ConnId, ConnectParams, Instant, MadAddr, Path};

/// Treatment of a message by the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The message arrives.
    Deliver,
    /// The message is lost.
    Lose,
    /// The message arrives twice.
    Double,
    /// The message arrives later than usual by this time.
    Delay(Duration),
}

/// A message in flight.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// The node that sent it, 0 or 1.
    pub from: usize,
    /// Source and destination.
    pub addr: MadAddr,
    /// Transaction ID.
    pub transaction: u64,
    /// The message.
    pub message: Message,
    /// Number of the message among those of its kind from this node, from 1.
    pub count: u32,
    /// Time at which it was sent.
    pub at: Instant,
}

/// Fault rates of the link, each per 1000 messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Messages lost.
    pub loss: u32,
    /// Messages delivered twice.
    pub duplication: u32,
    /// Messages delayed by up to [`Faults::late_by`].
    pub delay: u32,
    /// Messages with some bits changed that pass all checksums.
    pub corruption: u32,
    /// Longest delay.
    pub late_by: Duration,
}

/// Chooses the treatment of each message.
pub type Script = Box<dyn FnMut(&Passing) -> Fate>;

/// Two communication managers and the link between them.
pub struct Pair {
    /// Current time of the virtual clock.
    pub now: Instant,
    /// The two managers.
    pub nodes: [Cm; 2],
    /// Random faults. While there is a script, only [`Faults::corruption`] applies.
    pub faults: Faults,
    /// Chooses the treatment of each message instead of the random faults.
    pub script: Option<Script>,
    /// Every message that was sent, if they are recorded.
    pub sent: Option<Vec<Passing>>,
    /// Number of messages that have arrived.
    pub delivered: u64,
    /// Time in flight of a message.
    pub latency: Duration,
    rng: Rng,
    counts: BTreeMap<(usize, Attribute), u32>,
    flying: BTreeMap<(Instant, u64), (MadAddr, Mad)>,
    flights: u64,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Returns the address of a node's port: node 0 or 1, port 1 or 2.
pub fn gid(node: usize, port: u8) -> Gid {
    Ipv4Addr::new(10, 0, port, node as u8 + 1).into()
}

/// Returns the path from `node` to the other node, on port `port` of both.
pub fn path(node: usize, port: u8) -> Path {
    Path {
        port,
        local: gid(node, port),
        remote: gid(1 - node, port),
        flow_label: 0x123,
        traffic_class: 0,
        hop_limit: 64,
        sl: 0,
        packet_rate: 0,
        local_ack_timeout: CmTimeout::from_code(14),
    }
}

/// Returns common parameters of a connection from `node` to the other node.
pub fn conn_params(node: usize, service_id: ServiceId, qpn: u32) -> ConnectParams {
    ConnectParams {
        service_id,
        local_qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn),
        rd: None,
        rdc_exists: false,
        transport_service: TransportService::Rc,
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 7,
        pkey: Pkey::DEFAULT,
        path_mtu: PathMtu::B1024,
        srq: false,
        flow_control: false,
        primary: path(node, 1),
        alternate: None,
        peer_to_peer: false,
        remote_cm_response_timeout: CmTimeout::from_code(16),
        local_cm_response_timeout: CmTimeout::from_code(16),
        max_cm_retries: 3,
        selective_repeat: false,
        private_data: PrivateData::default(),
    }
}

impl Pair {
    /// Creates two nodes and a link without faults.
    pub fn new(seed: u64, limits: CmLimits) -> Pair {
        Pair {
            now: Instant::from_nanos(1_000_000_000),
            nodes: [0, 1].map(|node| Pair::node(node, seed, limits)),
            faults: Faults::default(),
            script: None,
            sent: None,
            delivered: 0,
            latency: Duration::from_micros(50),
            rng: Rng::with_seed(seed ^ 0x1a7e),
            counts: BTreeMap::new(),
            flying: BTreeMap::new(),
            flights: 0,
        }
    }

    fn node(node: usize, seed: u64, limits: CmLimits) -> Cm {
        let mut key = [node as u8; 16];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Cm::new(CmConfig {
            ca_guid: CaGuid(0x0200_0000_0000_0001 + node as u64),
            limits,
            seed: key,
        })
    }

    /// Replaces a node by a new one without state.
    pub fn kill(&mut self, node: usize, seed: u64, limits: CmLimits) {
        self.nodes[node] = Pair::node(node, seed, limits);
    }

    /// Takes all waiting events of a node.
    pub fn events(&mut self, node: usize) -> Vec<(ConnId, CmEvent)> {
        std::iter::from_fn(|| self.nodes[node].poll_event()).collect()
    }

    /// Sends a message that its source address has not sent.
    pub fn forge(&mut self, addr: MadAddr, mad: &Mad) {
        self.fly(addr, *mad, Duration::ZERO);
    }

    /// Sends all messages that wait at the nodes.
    pub fn flush(&mut self) {
        for from in [0, 1] {
            while let Some((addr, mad)) = self.nodes[from].poll_transmit() {
                self.launch(from, addr, mad);
            }
        }
    }

    fn launch(&mut self, from: usize, addr: MadAddr, mad: Mad) {
        let (header, message) = Message::parse(&mad).expect("what we send can be read");
        let transaction = header.transaction_id;
        let count = self.counts.entry((from, message.attribute())).or_default();
        *count += 1;
        let passing = Passing { from, addr, transaction, message, count: *count, at: self.now };
        if let Some(sent) = &mut self.sent {
            sent.push(passing);
        }
        let fate = match &mut self.script {
            Some(script) => script(&passing),
            None => self.random_fate(),
        };
        match fate {
            Fate::Deliver => self.fly(addr, mad, Duration::ZERO),
            Fate::Lose => {}
            Fate::Double => {
                self.fly(addr, mad, Duration::ZERO);
                self.fly(addr, mad, self.latency * 3);
            }
            Fate::Delay(by) => self.fly(addr, mad, by),
        }
    }

    fn random_fate(&mut self) -> Fate {
        let Faults { loss, duplication, delay, late_by, .. } = self.faults;
        let late = late_by.mul_f64(self.rng.f64());
        match self.rng.u32(..1000) {
            dice if dice < loss => Fate::Lose,
            dice if dice < loss + duplication => Fate::Double,
            dice if dice < loss + duplication + delay => Fate::Delay(late),
            _ => Fate::Deliver,
        }
    }

    fn fly(&mut self, addr: MadAddr, mut mad: Mad, late: Duration) {
        if self.rng.u32(..1000) < self.faults.corruption {
            for _ in 0..self.rng.usize(1..4) {
                mad[self.rng.usize(..mad.len())] ^= 1 << self.rng.u8(..8);
            }
        }
        self.flights += 1;
        self.flying.insert((self.now + self.latency + late, self.flights), (addr, mad));
    }

    /// Returns the time of the next arrival or deadline.
    pub fn next(&self) -> Option<Instant> {
        let flight = self.flying.keys().next().map(|&(at, _)| at);
        let timers = self.nodes.iter().filter_map(Cm::next_timeout).min();
        flight.into_iter().chain(timers).min().map(|at| at.max(self.now))
    }

    /// Moves the clock to `at`, delivers the messages due and handles the timeouts due.
    pub fn advance(&mut self, at: Instant) {
        self.now = at.max(self.now);
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (addr, mad) = entry.remove();
            self.deliver(addr, &mad);
        }
        for node in &mut self.nodes {
            node.handle_timeout(self.now);
            assert!(node.next_timeout().is_none_or(|at| at > self.now), "a deadline that stays");
        }
        self.flush();
    }

    fn deliver(&mut self, addr: MadAddr, mad: &Mad) {
        for (node, port) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            if addr.dst == gid(node, port) {
                self.delivered += 1;
                // The counters show the verdict.
                let _ = self.nodes[node].handle_mad(self.now, &MadAddr { port, ..addr }, mad);
            }
        }
    }

    /// Advances the clock by `time`, event by event.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.flush();
        while let Some(at) = self.next().filter(|&at| at <= end) {
            self.advance(at);
        }
        self.advance(end);
    }

    /// Returns how many messages of a kind `node` has sent.
    pub fn sent_by(&self, node: usize, attribute: Attribute) -> u32 {
        self.counts.get(&(node, attribute)).copied().unwrap_or_default()
    }
}
