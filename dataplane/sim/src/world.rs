//! The world: nodes joined by links, a clock, and events to come.
//!
//! Invariants
//! - Frames leave a node one after the other at the port's rate; only faults change their order.
//!
//! Not here: topology (`rails`), calls to QPs (`calls`), the loop (`turn`), frames in flight
//! (`link`) and on arrival (`arrival`), expectations (`oracle`), work (`workload`).

pub(crate) mod agenda;
pub(crate) mod arrival;
pub(crate) mod bottleneck;
pub(crate) mod bucket;
pub(crate) mod calls;
pub(crate) mod capture;
pub(crate) mod checker;
pub(crate) mod env;
pub(crate) mod fault_plan;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod paths;
pub(crate) mod tap;
pub(crate) mod turn;
pub(crate) mod windows;

use core::time::Duration;
use std::collections::VecDeque;

use fastrand::Rng;

use crate::faults::FaultCounts;
use crate::faults::rules::Rule;
use crate::record::Record;
use crate::world::agenda::Agenda;
use crate::world::bottleneck::Queue;
use crate::world::link::Link;
use crate::world::names::At;
use crate::world::node::{Completed, Happened, Node, Outlet, Slot};
use crate::world::paths::RAILS;
use crate::world::tap::{Flight, Tap};
use uroce_transport::{Instant, Qp};

/// Parameters of a world.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Seed of everything random.
    pub seed: u64,
    /// Time from the last bit sent to the arrival of a frame.
    pub latency: Duration,
    /// Rate of each node's ports in Gb/s.
    pub gbps: u64,
    /// Number of packets that a QP may send in one turn.
    pub budget: u32,
    /// Probability that a packet sink is full.
    pub full_rate: f64,
    /// Probability that a QP is polled some time after an input instead of at once.
    pub lazy_rate: f64,
    /// Number of frames that a node holds for QPs with selective repeat.
    pub most_held: usize,
    /// Mean time between troubles, disturbances of links and nodes that last for a while; none if
    /// not given.
    pub trouble_pace: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 0,
            latency: Duration::from_micros(1),
            gbps: 100,
            budget: 64,
            full_rate: 0.0,
            lazy_rate: 0.0,
            most_held: 1 << 14,
            trouble_pace: None,
        }
    }
}

/// Result of one step of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// An event was handled.
    Done,
    /// An alarm of the caller is due, set with [`World::wake`].
    Wake(u32),
    /// No event is left; nothing will happen without an input.
    Idle,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A frame comes to the queue of a bottleneck.
    Queue {
        to: u16,
        frame: u32,
    },
    Arrive {
        to: u16,
        frame: u32,
    },
    Timer(At),
    Kick(At),
    Wake(u32),
    Trouble,
}

/// Time that a QP waits after its sink was full or its budget was used up.
pub(crate) const TURN: Duration = Duration::from_nanos(200);

/// Longest delay of a delayed poll, in nanoseconds.
pub(crate) const LAZY_MAX_NS: u64 = 3_000;

/// Nodes, links, and events to come.
#[derive(Debug)]
pub struct World {
    pub(crate) settings: Settings,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) nodes: Vec<Node>,
    /// Time at which each port of each node has sent all it was given.
    pub(crate) port_free_at: Vec<[Instant; RAILS]>,
    /// The links, by sender, receiver and rail.
    pub(crate) links: Vec<Vec<[Link; RAILS]>>,
    /// The bottlenecks, by receiver.
    pub(crate) queues: Vec<Option<Queue>>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) outlet: Outlet,
    pub(crate) flying: Vec<Flight>,
    pub(crate) free_places: Vec<u32>,
    pub(crate) rng: Rng,
    pub(crate) record: Option<Record>,
    pub(crate) tap: Option<Tap>,
    pub(crate) packets: u64,
    pub(crate) faults: FaultCounts,
    /// Times at which faults hit each connection.
    pub(crate) fault_log: Vec<VecDeque<Instant>>,
}

impl World {
    /// Creates an empty world at time zero.
    pub fn new(settings: Settings) -> World {
        let mut rng = Rng::with_seed(settings.seed);
        let outlet = Outlet {
            departures: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            pool: Vec::new(),
            rng: rng.fork(),
            full_rate: settings.full_rate,
            refused: 0,
            woken: Vec::new(),
        };
        World {
            settings,
            agenda: Agenda::new(),
            nodes: Vec::new(),
            port_free_at: Vec::new(),
            links: Vec::new(),
            queues: Vec::new(),
            rules: Vec::new(),
            outlet,
            flying: Vec::new(),
            free_places: Vec::new(),
            rng,
            record: None,
            tap: None,
            packets: 0,
            faults: FaultCounts::default(),
            fault_log: Vec::new(),
        }
    }

    /// Current virtual time.
    pub fn now(&self) -> Instant {
        self.agenda.now()
    }

    /// Node number `node`.
    pub fn node(&self, node: u16) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// Node number `node`, to be changed.
    pub fn node_mut(&mut self, node: u16) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The QP `at`.
    pub fn qp(&self, at: At) -> &Qp {
        self.nodes[usize::from(at.node)].slots[usize::from(at.qp)].qp()
    }

    /// Number of frames sent so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Counts of faults so far.
    pub fn faults(&self) -> FaultCounts {
        FaultCounts { refused: self.outlet.refused, ..self.faults }
    }

    /// Removes all random faults from now on.
    pub fn heal(&mut self) {
        self.links.iter_mut().flatten().flatten().for_each(Link::heal);
        self.end_troubles();
        self.outlet.full_rate = 0.0;
        self.settings.lazy_rate = 0.0;
    }

    /// Sets the probability that a sink is full.
    pub fn set_full_rate(&mut self, rate: f64) {
        self.outlet.full_rate = rate;
    }

    /// Adds a rule. If several rules apply to a frame, the first one acts.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// Starts a record of the newest `keep` frames.
    pub fn start_record(&mut self, keep: usize) {
        self.record = Some(Record::new(keep));
    }

    /// The record, if one was started.
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// The record, if one was started, to be changed.
    pub fn record_mut(&mut self) -> Option<&mut Record> {
        self.record.as_mut()
    }

    /// Takes the record, if one was started, out of the world.
    pub fn take_record(&mut self) -> Option<Record> {
        self.record.take()
    }

    /// Adds a line to the record. `line` is called only if there is a record.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(record) = &mut self.record {
            record.note(self.agenda.now(), line());
        }
    }

    /// Times of the latest faults of the connection of `at`, at most 256.
    pub(crate) fn faults_of(&self, at: At) -> &VecDeque<Instant> {
        &self.fault_log[self.slot(at).connection]
    }

    /// Times of the latest charges of the QP's transport retry counter, at most eight.
    pub(crate) fn charges_of(&self, at: At) -> &VecDeque<Instant> {
        &self.slot(at).charges
    }

    /// Moves the completions since the last call to `out`.
    pub fn take_completions(&mut self, out: &mut Vec<Completed>) {
        out.append(&mut self.outlet.completions);
    }

    /// Moves the events since the last call to `out`.
    pub fn take_events(&mut self, out: &mut Vec<Happened>) {
        out.append(&mut self.outlet.events);
    }

    /// Sets an alarm: [`Step::Wake`] with `token` is returned at `when`.
    pub fn wake(&mut self, when: Instant, token: u32) {
        self.agenda.enter(when, Event::Wake(token));
    }

    /// Number of frames in flight.
    pub(crate) fn frames_out(&self) -> usize {
        self.flying.iter().filter(|flight| !flight.frame.is_empty()).count()
    }

    /// Returns whether a frame of this connection is in flight.
    pub(crate) fn is_in_flight(&self, connection: usize) -> bool {
        let is_there = |flight: &Flight| !flight.frame.is_empty();
        self.flying.iter().any(|flight| is_there(flight) && flight.connection == connection)
    }

    /// Clears the charges of a QP's retry counter.
    pub(crate) fn forget_charges(&mut self, at: At) {
        self.slot_mut(at).charges.clear();
    }

    /// Time at which the next event is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.agenda.next_due()
    }

    /// Advances the time to `when` without handling events; events that were due happen late.
    pub fn jump_to(&mut self, when: Instant) {
        self.agenda.jump_to(when);
    }

    pub(crate) fn slot(&self, at: At) -> &Slot {
        &self.nodes[usize::from(at.node)].slots[usize::from(at.qp)]
    }

    pub(crate) fn slot_mut(&mut self, at: At) -> &mut Slot {
        &mut self.nodes[usize::from(at.node)].slots[usize::from(at.qp)]
    }
}
