//! A pair under random consumers and random faults, from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use uroce_wire::Qpn;
use uroce_wire::cm::{CmTimeout, ServiceId};

use super::check::{Ledger, Told};
use super::pair::{Faults, Pair};
use crate::{CmEvent, CmLimits, ConnId, Instant};

/// Longest TimeWait of these worlds.
pub(super) const TIME_WAIT_MAX: Duration = Duration::from_millis(200);
/// No world winds down for longer, in its own time.
const END: Duration = Duration::from_secs(3600);

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Worlds.
    pub worlds: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Connections established, told by both sides.
    pub established: u64,
    /// Connections over, told by both sides.
    pub closed: u64,
    /// Ids over, told by both sides.
    pub released: u64,
    /// Messages repeated.
    pub retransmitted: u64,
    /// Half-open connections given up to make room.
    pub evicted: u64,
    /// Times a node died.
    pub killed: u64,
}

impl Report {
    /// Both together.
    pub(super) fn add(&mut self, other: &Report) {
        self.worlds += other.worlds;
        self.messages += other.messages;
        self.established += other.established;
        self.closed += other.closed;
        self.released += other.released;
        self.retransmitted += other.retransmitted;
        self.evicted += other.evicted;
        self.killed += other.killed;
    }
}

/// Two nodes, their consumers, and what must hold.
#[derive(Debug)]
pub struct World {
    pub(super) seed: u64,
    pub(super) pair: Pair,
    pub(super) rng: Rng,
    pub(super) limits: CmLimits,
    pub(super) ledgers: [Ledger; 2],
    /// When a consumer looks at a connection of its own again.
    pub(super) decisions: BTreeSet<(Instant, usize, ConnId)>,
    /// Bits are flipped past all checksums, and strangers send: what a message says may be wrong.
    pub(super) is_hostile: bool,
    pub(super) is_ending: bool,
    pub(super) tags: u64,
    /// Queue pairs with which a connection was accepted.
    pub(super) accepted: BTreeMap<u64, BTreeSet<Qpn>>,
    /// Connections whose active side is ready, and with which queue pair of the peer.
    pub(super) ready: BTreeMap<u64, Qpn>,
    established: BTreeSet<u64>,
    /// Both sides remember connections with numbers above this one.
    remembered: u64,
    told: Told,
    killed: u64,
}

/// The service that node 1 and node 0 offer.
pub(super) fn service(node: usize) -> ServiceId {
    ServiceId::tcp(7000 + node as u16)
}

impl World {
    /// A world from a seed.
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

    /// Lets the consumers do what they like until `messages` have arrived, then end everything;
    /// gives what happened.
    ///
    /// # Panics
    /// Where something that must hold does not; the text names the seed.
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

    pub(super) fn listen(&mut self, node: usize) {
        let backlog = self.rng.usize(1..24);
        self.pair.nodes[node].listen(service(node), backlog).expect("a new node");
    }

    /// A node dies, and comes back without memory.
    pub(super) fn kill(&mut self, node: usize) {
        self.pair.kill(node, self.rng.u64(..), self.limits);
        self.ledgers[node] = Ledger::default();
        self.decisions.retain(|&(_, of, _)| of != node);
        self.listen(node);
        self.remembered = self.tags;
        self.killed += 1;
    }

    /// The next thing that happens.
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

    pub(super) fn listen_to_events(&mut self) {
        for node in [0, 1] {
            while let Some((id, event)) = self.pair.nodes[node].poll_event() {
                self.ledgers[node].event(self.pair.now, id, &event, &mut self.told);
                self.check_agreement(node, id, &event);
                self.react(node, id, &event);
            }
        }
    }

    /// What one side says is what the other one meant.
    fn check_agreement(&mut self, node: usize, id: ConnId, event: &CmEvent) {
        if self.is_hostile {
            return;
        }
        let model = self.ledgers[node].models.get(&id);
        match (event, model.filter(|model| model.tag > self.remembered)) {
            (CmEvent::Accepted(rep), Some(model)) => {
                let tag = super::check::tag_of(&rep.private_data.0);
                assert_eq!(tag, model.tag, "an answer to another REQ");
                let queue_pairs = self.accepted.get(&tag);
                let is_known = queue_pairs.is_some_and(|known| known.contains(&rep.local_qpn));
                assert!(is_known, "{} never accepted {tag}", rep.local_qpn);
            }
            (CmEvent::Established(data), Some(model)) => {
                // Data may be taken for that of an older connection of the same queue pairs.
                let Some(data) = data else { return };
                assert_eq!(super::check::tag_of(&data.0), model.tag, "another's RTU");
                assert_eq!(self.ready.get(&model.tag).copied(), model.qpn, "with another one");
                assert!(self.established.insert(model.tag), "established twice");
            }
            _ => {}
        }
    }

    fn check_bounds(&self) {
        for (cm, ledger) in self.pair.nodes.iter().zip(&self.ledgers) {
            assert!(cm.len() <= self.limits.connections, "{} connections", cm.len());
            assert!(cm.half_open() <= self.limits.half_open, "{} half-open", cm.half_open());
            assert!(ledger.models.len() <= cm.len(), "an id without a connection");
        }
    }

    /// Everybody gives up what they have; then nothing may be left.
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
            closed: self.told.closed,
            released: self.told.released,
            retransmitted: counters.iter().map(|counters| counters.retransmitted).sum(),
            evicted: counters.iter().map(|counters| counters.evicted).sum(),
            killed: self.killed,
        }
    }
}

/// Says which world it was, if it ends in a panic.
struct Named(u64, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("uroce-cm-sim --seed {} --messages {} repeats it", self.0, self.1);
        }
    }
}
