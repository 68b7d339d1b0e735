//! The world: nodes joined by links, a clock, and what is to happen.
//!
//! What holds
//! - Frames leave a node one after the other at the link's rate; only faults change their order.
//!
//! Not here: its shape (`rails`), calls to QPs (`calls`), the loop (`turn`), what happens to frames on their way (`link`) and where they arrive
//! (`arrival`), expectations (`oracle`), work (`workload`).

use core::time::Duration;
use std::collections::VecDeque;

use fastrand::Rng;

use super::clock::Agenda;
use super::faults::FaultCounts;
use super::link::Link;
use super::node::{At, Completed, Happened, Node, Outlet, Slot};
use super::rails::RAILS;
use super::record::Record;
use super::rules::Rule;
use super::tap::{Flight, Tap};
use crate::{Instant, Qp};

/// How a world behaves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Determines everything that is left to chance.
    pub seed: u64,
    /// Time a frame takes after its last bit was sent.
    pub latency: Duration,
    /// Rate of each node's port, Gb/s.
    pub gbps: u64,
    /// Packets a QP may send in one turn.
    pub budget: u32,
    /// Chance that a packet sink is full.
    pub full_rate: f64,
    /// Chance that a QP is asked for packets some time after an input, not at once.
    pub lazy_rate: f64,
    /// Mean time between troubles of links and nodes that last for a while; none if not given.
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
            trouble_pace: None,
        }
    }
}

/// What one step of the world was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something happened.
    Done,
    /// An alarm that the caller has set with [`World::wake`].
    Wake(u32),
    /// Nothing will ever happen again without the caller.
    Idle,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Arrive { to: u16, frame: u32 },
    Timer(At),
    Kick(At),
    Wake(u32),
    Trouble,
}

/// How long a QP waits that was told the sink is full, or that used up its budget.
pub(super) const TURN: Duration = Duration::from_nanos(200);

/// The longest that a lazy node lets a QP wait.
pub(super) const LAZY_MAX_NS: u64 = 3_000;

/// Nodes, links, and what is to happen.
#[derive(Debug)]
pub struct World {
    pub(super) settings: Settings,
    pub(super) agenda: Agenda<Event>,
    pub(super) nodes: Vec<Node>,
    /// When each node's ports have sent what they were given.
    pub(super) port_free_at: Vec<[Instant; RAILS]>,
    /// Each direction, by sender, receiver and rail.
    pub(super) links: Vec<Vec<[Link; RAILS]>>,
    pub(super) rules: Vec<Rule>,
    pub(super) outlet: Outlet,
    pub(super) flying: Vec<Flight>,
    pub(super) free_places: Vec<u32>,
    pub(super) rng: Rng,
    pub(super) record: Option<Record>,
    pub(super) tap: Option<Tap>,
    pub(super) packets: u64,
    pub(super) faults: FaultCounts,
    /// When faults hit each connection.
    pub(super) fault_log: Vec<VecDeque<Instant>>,
}

impl World {
    /// An empty world at time zero.
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
        };
        World {
            settings,
            agenda: Agenda::new(),
            nodes: Vec::new(),
            port_free_at: Vec::new(),
            links: Vec::new(),
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

    /// The time.
    pub fn now(&self) -> Instant {
        self.agenda.now()
    }

    /// A node.
    pub fn node(&self, node: u16) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// A node, to be changed.
    pub fn node_mut(&mut self, node: u16) -> &mut Node {
        &mut self.nodes[usize::from(node)]
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A QP.
    pub fn qp(&self, at: At) -> &Qp {
        &self.nodes[usize::from(at.node)].slots[usize::from(at.qp)].qp
    }

    /// Frames sent so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Faults so far.
    pub fn faults(&self) -> FaultCounts {
        FaultCounts { refused: self.outlet.refused, ..self.faults }
    }

    /// From now on nothing goes wrong by chance.
    pub fn heal(&mut self) {
        self.links.iter_mut().flatten().flatten().for_each(Link::heal);
        self.end_troubles();
        self.outlet.full_rate = 0.0;
        self.settings.lazy_rate = 0.0;
    }

    /// From now on a sink is full with this chance.
    pub fn set_full_rate(&mut self, rate: f64) {
        self.outlet.full_rate = rate;
    }

    /// Adds a rule; of those whose turn it is at a frame, the first one acts.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// Starts to keep the newest `keep` frames.
    pub fn start_record(&mut self, keep: usize) {
        self.record = Some(Record::new(keep));
    }

    /// The record, if one was started.
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// The record, if one was started, to be cleared.
    pub fn record_mut(&mut self) -> Option<&mut Record> {
        self.record.as_mut()
    }

    /// Takes the record out of the world.
    pub fn take_record(&mut self) -> Option<Record> {
        self.record.take()
    }

    /// Writes a line into the record; `line` is made only if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(record) = &mut self.record {
            record.note(self.agenda.now(), line());
        }
    }

    /// When faults hit the connection of `at`, the newest 256.
    pub(super) fn faults_of(&self, at: At) -> &VecDeque<Instant> {
        &self.fault_log[self.slot(at).connection]
    }

    /// When the QP's transport retry counter was charged, the newest eight.
    pub(super) fn charges_of(&self, at: At) -> &VecDeque<Instant> {
        &self.slot(at).charges
    }

    /// Moves the completions that came since the last call to `out`.
    pub fn take_completions(&mut self, out: &mut Vec<Completed>) {
        out.append(&mut self.outlet.completions);
    }

    /// Moves the events that came since the last call to `out`.
    pub fn take_events(&mut self, out: &mut Vec<Happened>) {
        out.append(&mut self.outlet.events);
    }

    /// [`Step::Wake`] with `token` comes at `when`.
    pub fn wake(&mut self, when: Instant, token: u32) {
        self.agenda.enter(when, Event::Wake(token));
    }

    /// Frames on their way.
    pub(super) fn frames_out(&self) -> usize {
        self.flying.iter().filter(|flight| !flight.frame.is_empty()).count()
    }

    /// Is a frame of this connection on its way?
    pub(super) fn is_in_flight(&self, connection: usize) -> bool {
        let is_there = |flight: &Flight| !flight.frame.is_empty();
        self.flying.iter().any(|flight| is_there(flight) && flight.connection == connection)
    }

    /// Forgets what was charged to a QP's retry counter in a former life.
    pub(super) fn forget_charges(&mut self, at: At) {
        self.slot_mut(at).charges.clear();
    }

    /// When the next event is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.agenda.next_due()
    }

    /// Lets time pass to `when` with nobody looking: what was due meanwhile happens then.
    pub fn jump_to(&mut self, when: Instant) {
        self.agenda.jump_to(when);
    }

    pub(super) fn slot(&self, at: At) -> &Slot {
        &self.nodes[usize::from(at.node)].slots[usize::from(at.qp)]
    }

    pub(super) fn slot_mut(&mut self, at: At) -> &mut Slot {
        &mut self.nodes[usize::from(at.node)].slots[usize::from(at.qp)]
    }
}
