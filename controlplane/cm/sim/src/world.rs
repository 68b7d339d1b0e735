//! A pair with random consumers and random faults, reproducible from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use uroce_wire::Qpn;
use uroce_wire::cm::{CmTimeout, Req, ServiceId};

use crate::check::{Ledger, TIME_WAIT_MAX, Told, What, offers, private, wants_answer};
use crate::pair::{Faults, Pair};
use uroce_cm::{CmEvent, CmLimits, ConnId, Instant};

/// Longest time on the virtual clock for a world to wind down.
const END: Duration = Duration::from_secs(3600);

/// Totals of one or more worlds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Worlds that have run.
    pub worlds: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Connections established, counted at both sides.
    pub established: u64,
    /// Reliable datagram channels among the established connections.
    pub channels: u64,
    /// Exchanges of RD queue pairs for a channel that exists, among the established connections.
    pub uses: u64,
    /// Connections closed, counted at both sides.
    pub closed: u64,
    /// Ids released, counted at both sides.
    pub released: u64,
    /// Messages repeated.
    pub retransmitted: u64,
    /// Half-open connections given up to make room.
    pub evicted: u64,
    /// Nodes replaced by a new one without state.
    pub killed: u64,
}

impl Report {
    /// Adds the totals of `other`.
    pub(crate) fn add(&mut self, other: &Report) {
        self.worlds += other.worlds;
        self.messages += other.messages;
        self.established += other.established;
        self.channels += other.channels;
        self.uses += other.uses;
        self.closed += other.closed;
        self.released += other.released;
        self.retransmitted += other.retransmitted;
        self.evicted += other.evicted;
        self.killed += other.killed;
    }
}

/// Two nodes, their consumers, and the state that the checks need.
#[derive(Debug)]
pub struct World {
    pub(crate) seed: u64,
    pub(crate) pair: Pair,
    pub(crate) rng: Rng,
    pub(crate) limits: CmLimits,
    pub(crate) ledgers: [Ledger; 2],
    /// Times of the consumers' decisions about their connections.
    pub(crate) decisions: BTreeSet<(Instant, usize, ConnId)>,
    /// Bits are flipped past all checksums, and messages are forged: their contents may be wrong.
    pub(crate) is_hostile: bool,
    pub(crate) is_ending: bool,
    pub(crate) tags: u64,
    /// Queue pairs with which a connection was accepted, by the connection's number.
    pub(crate) accepted: BTreeMap<u64, BTreeSet<Qpn>>,
    /// Queue pair of the passive side, by number of the connection; set once the active side is
    /// ready.
    pub(crate) ready: BTreeMap<u64, Qpn>,
    established: BTreeSet<u64>,
    /// Highest number of a connection that a replaced node may have lost.
    remembered: u64,
    told: Told,
    killed: u64,
}

/// Returns the service that the consumer of `node` offers.
pub(crate) fn service(node: usize) -> ServiceId {
    ServiceId::tcp(7000 + node as u16)
}

impl World {
    /// Creates a world from a seed.
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::with_seed(seed);
        let limits = CmLimits {
            connections: rng.usize(20..200),
            half_open: if rng.bool() { rng.usize(2..6) } else { rng.usize(6..40) },
            queue: rng.usize(16..400),
            response_timeout: CmTimeout::from_code(17),
            service_timeout: CmTimeout::from_code(19),
            time_wait: TIME_WAIT_MAX,
            sidr_memory: Duration::from_millis(50),
        };
        let mut pair = Pair::new(rng.u64(..), limits);
        let is_hostile = rng.u8(..4) == 0;
        pair.faults = Faults {
            loss: rng.u32(..200),
            duplication: rng.u32(..150),
            delay: rng.u32(..200),
            corruption: if is_hostile { rng.u32(1..100) } else { 0 },
            late_by: Duration::from_millis(rng.u64(1..1000)),
        };
        World {
            seed,
            pair,
            rng,
            limits,
            ledgers: Default::default(),
            decisions: BTreeSet::new(),
            is_hostile,
            is_ending: false,
            tags: 0,
            accepted: BTreeMap::new(),
            ready: BTreeMap::new(),
            established: BTreeSet::new(),
            remembered: 0,
            told: Told::default(),
            killed: 0,
        }
    }

    /// Lets the consumers act until `messages` have arrived, then ends all connections. Returns the
    /// totals.
    ///
    /// # Panics
    /// If a check fails. The text names the seed.
    pub fn run(mut self, messages: u64) -> Report {
        let seed = self.seed;
        let guard = Named(seed, messages);
        (0..2).for_each(|node| self.listen(node));
        let mut next_spawn = self.pair.now;
        while self.pair.delivered < messages {
            if self.pair.now >= next_spawn {
                self.spawn();
                next_spawn = self.pair.now + Duration::from_micros(self.rng.u64(10..20_000));
            }
            self.step(Some(next_spawn));
        }
        self.wind_down();
        std::mem::forget(guard);
        self.report()
    }

    pub(crate) fn listen(&mut self, node: usize) {
        let backlog = self.rng.usize(1..24);
        self.pair.nodes[node].listen(service(node), backlog).expect("a new node");
    }

    /// Replaces a node by a new one without state.
    pub(crate) fn kill(&mut self, node: usize) {
        self.pair.kill(node, self.rng.u64(..), self.limits);
        self.ledgers[node] = Ledger::default();
        self.decisions.retain(|&(_, of, _)| of != node);
        self.listen(node);
        self.remembered = self.tags;
        self.killed += 1;
    }

    /// Advances to the next arrival, deadline or decision.
    fn step(&mut self, until: Option<Instant>) {
        self.pair.flush();
        let decision = self.decisions.first().map(|&(at, ..)| at);
        let next = [self.pair.next(), decision, until].into_iter().flatten().min();
        let Some(next) = next else { return };
        self.pair.advance(next);
        self.listen_to_events();
        while let Some(&(at, node, id)) = self.decisions.first() {
            if at > self.pair.now {
                break;
            }
            self.decisions.pop_first();
            self.decide(node, id);
            self.listen_to_events();
        }
        self.check_bounds();
    }

    pub(crate) fn listen_to_events(&mut self) {
        for node in [0, 1] {
            while let Some((id, event)) = self.pair.nodes[node].poll_event() {
                self.ledgers[node].event(self.pair.now, id, &event, &mut self.told);
                self.check_agreement(node, id, &event);
                self.react(node, id, &event);
            }
        }
    }

    /// Checks that the two sides of a connection agree.
    fn check_agreement(&mut self, node: usize, id: ConnId, event: &CmEvent) {
        if self.is_hostile {
            return;
        }
        let model = self.ledgers[node].models.get(&id);
        match (event, model.filter(|model| model.tag > self.remembered)) {
            (CmEvent::Request(request), Some(model)) => {
                assert_eq!(request.req.private_data, private(model.tag), "not what was sent");
                assert_eq!(request.selective_repeat, offers(model.tag), "{}", model.tag);
                self.check_use(node, model.what, &request.req);
            }
            (CmEvent::Accepted(rep), Some(model)) => {
                let tag = crate::check::tag_of(&rep.private_data.0);
                assert_eq!(tag, model.tag, "an answer to another REQ");
                assert_eq!(rep.private_data, private(tag), "not what was sent");
                self.check_selective_repeat(node, id, tag);
                let queue_pairs = self.accepted.get(&tag);
                let number = match model.what {
                    What::Channel => Qpn::new(rep.local_eecn),
                    What::QueuePairs | What::Use(_) => rep.local_qpn,
                };
                let is_known = queue_pairs.is_some_and(|known| known.contains(&number));
                assert!(is_known, "{number} never accepted {tag}");
            }
            (CmEvent::Established(data), Some(model)) => {
                // Data may be mistaken for data of an older connection of the same queue pairs.
                let Some(data) = data else { return };
                assert_eq!(crate::check::tag_of(&data.0), model.tag, "another's RTU");
                assert_eq!(self.ready.get(&model.tag).copied(), model.qpn, "with another one");
                assert!(self.established.insert(model.tag), "established twice");
                self.check_selective_repeat(node, id, model.tag);
            }
            _ => {}
        }
    }

    /// Checks that a REQ for a channel that exists comes from the channel's other end.
    fn check_use(&self, node: usize, what: What, req: &Req) {
        let What::Use(eecn) = what else { return };
        let (id, _) = self.ledgers[node].channel(eecn).expect("a channel that exists");
        let peer = self.pair.nodes[node].remote_rd(id).map(|end| end.eecn.value());
        assert_eq!(peer, Some(req.local_eecn), "from another EE context");
    }

    /// Checks that a side uses selective repeat if both want it and the private data leaves room.
    fn check_selective_repeat(&self, node: usize, id: ConnId, tag: u64) {
        let cm = &self.pair.nodes[node];
        if cm.state(id).is_some() {
            let is_agreed = offers(tag) && wants_answer(tag);
            assert_eq!(cm.selective_repeat(id), is_agreed, "{tag} at node {node}");
        }
    }

    fn check_bounds(&self) {
        for (cm, ledger) in self.pair.nodes.iter().zip(&self.ledgers) {
            assert!(cm.len() <= self.limits.connections, "{} connections", cm.len());
            assert!(cm.half_open() <= self.limits.half_open, "{} half-open", cm.half_open());
            assert!(ledger.models.len() <= cm.len(), "an id without a connection");
            ledger.check_channels(cm);
        }
    }

    /// Gives up all connections, then checks that nothing is left.
    fn wind_down(&mut self) {
        self.is_ending = true;
        for (node, ledger) in self.ledgers.iter().enumerate() {
            let now = self.pair.now;
            self.decisions.extend(ledger.models.keys().map(|&id| (now, node, id)));
        }
        let end = self.pair.now + END;
        while self.pair.now < end && !self.is_over() {
            self.step(None);
        }
        for (node, cm) in self.pair.nodes.iter().enumerate() {
            assert!(cm.is_empty(), "node {node} still has {} connections", cm.len());
            assert_eq!(cm.half_open(), 0);
            assert_eq!(cm.next_timeout(), None, "a deadline of nothing");
            assert!(self.ledgers[node].models.is_empty(), "an id without its end");
        }
    }

    fn is_over(&self) -> bool {
        self.pair.nodes.iter().all(|cm| cm.is_empty()) && self.pair.next().is_none()
    }

    fn report(&self) -> Report {
        let counters = self.pair.nodes.each_ref().map(|cm| *cm.counters());
        Report {
            worlds: 1,
            messages: self.pair.delivered,
            established: self.told.established,
            channels: self.told.channels,
            uses: self.told.uses,
            closed: self.told.closed,
            released: self.told.released,
            retransmitted: counters.iter().map(|counters| counters.retransmitted).sum(),
            evicted: counters.iter().map(|counters| counters.evicted).sum(),
            killed: self.killed,
        }
    }
}

/// Prints the world's seed if it ends in a panic.
struct Named(u64, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("uroce-cm-sim --seed {} --messages {} repeats it", self.0, self.1);
        }
    }
}
