//! The links: what happens to a frame between two nodes.
//!
//! The fate of a frame is decided when it is sent, first by the rules, then by chance. The frame is
//! recorded as it was sent, and damaged afterwards.

use core::time::Duration;

use fastrand::Rng;
use uroce_wire::{Gid, OpCode};
use uroce_wirecheck::Seen;

use crate::faults::rules::Action;
use crate::faults::{self, Rates};
use crate::record::{Fate, Sighting};
use crate::world::frame::mark;
use crate::world::names::At;
use crate::world::node::Departure;
use crate::world::paths::RailTally;
use crate::world::tap::Flight;
use crate::world::{Event, World};
use uroce_transport::Instant;

/// Longest lag of a frame that is overtaken, in nanoseconds.
const REORDER_MAX_NS: u64 = 5_000;

/// Probability that a frame is lost in a bad period.
const BAD_TIME_LOSS: f64 = 0.5;

/// Probability that a bad period ends before a frame.
const BAD_TIME_ENDS: f64 = 0.125;

/// Number of faults remembered for each connection.
const FAULTS_KEPT: usize = 256;

/// One direction between two nodes on one rail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// Probabilities of random faults.
    pub(crate) rates: Rates,
    /// A bad period is in progress.
    is_bad: bool,
    /// All frames are lost until the link is mended.
    pub(crate) is_cut: bool,
    /// All frames are lost until this time.
    pub(crate) cut_until: Instant,
    /// No frame arrives before this time.
    pub(crate) clogged_until: Instant,
    pub(crate) tally: RailTally,
}

impl Link {
    /// Removes all faults from now on.
    pub(crate) fn heal(&mut self) {
        *self = Link { tally: self.tally, ..Link::default() };
    }
}

/// Effects of a link on one frame.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    is_lost: bool,
    /// Bits are flipped at random.
    is_corrupted: bool,
    /// The end is cut off at random.
    is_truncated: bool,
    /// A rule cuts the frame to this length.
    keep: Option<usize>,
    /// A rule flips these bits of the byte at this offset.
    flip: Option<(usize, u8)>,
    /// A switch marks the frame.
    is_marked: bool,
    /// Extra delay.
    lag: Duration,
    /// The frame waits until the link is no longer clogged.
    is_held: bool,
    /// A copy arrives with this extra delay.
    copy_lag: Option<Duration>,
}

impl Way {
    fn by_rule(action: Option<Action>) -> Way {
        let mut way = Way::default();
        match action {
            Some(Action::Drop) => way.is_lost = true,
            Some(Action::Duplicate(lag)) => way.copy_lag = Some(lag),
            Some(Action::Delay(lag)) => way.lag = lag,
            Some(Action::Flip { at, mask }) => way.flip = Some((at, mask)),
            Some(Action::Truncate(len)) => way.keep = Some(len),
            Some(Action::Mark) => way.is_marked = true,
            None => {}
        }
        way
    }

    /// Adds random faults.
    fn by_chance(&mut self, link: &mut Link, rng: &mut Rng) {
        let rates = &link.rates;
        let mut happens = |rate: f64| rate > 0.0 && rng.f64() < rate;
        link.is_bad = match link.is_bad {
            true => !happens(BAD_TIME_ENDS),
            false => happens(rates.burst),
        };
        self.is_lost |= happens(rates.loss) || link.is_bad && happens(BAD_TIME_LOSS);
        self.is_corrupted = happens(rates.corrupt);
        self.is_truncated = happens(rates.truncate);
        let (is_doubled, is_overtaken) = (happens(rates.duplicate), happens(rates.reorder));
        let is_late = happens(rates.delay);
        if is_doubled {
            self.copy_lag =
                Some(if rng.bool() { up_to(rng, Rates::MAX_LATE) } else { Duration::ZERO });
        }
        if is_overtaken {
            self.lag += Duration::from_nanos(rng.u64(..REORDER_MAX_NS));
        }
        if is_late {
            self.lag += up_to(rng, Rates::MAX_DELAY);
        }
    }

    fn fate(&self) -> Fate {
        Fate {
            is_lost: self.is_lost,
            is_duplicated: self.copy_lag.is_some(),
            is_delayed: !self.lag.is_zero() || self.is_held,
            is_corrupted: self.is_corrupted || self.flip.is_some(),
            is_truncated: self.is_truncated || self.keep.is_some(),
            is_crafted: false,
        }
    }
}

fn up_to(rng: &mut Rng, max: Duration) -> Duration {
    Duration::from_nanos(rng.u64(..max.as_nanos() as u64))
}

impl World {
    /// Sends a frame from its node.
    pub(crate) fn launch(&mut self, departure: Departure) {
        let from = departure.from;
        let seen = self.tap_sent(from, &departure.frame);
        let is_bare = departure.bth.opcode == OpCode::RC_ACKNOWLEDGE;
        if departure.bth.opcode != OpCode::CNP {
            self.check_frame(from, departure.frame.len(), !is_bare);
        }
        match departure.to {
            None => self.launch_to(self.slot(from).peer.node, departure, seen),
            Some(gid) => {
                for node in self.reached_by(gid, from) {
                    self.launch_to(node, departure.clone(), seen);
                }
            }
        }
    }

    /// The nodes that a frame to this address reaches: one, or for a group all but the sender.
    fn reached_by(&self, gid: Gid, from: At) -> Vec<u16> {
        let is_reached = |number: &u16| match gid.to_ip().is_multicast() {
            true => *number != from.node,
            false => self.node(*number).rails.iter().any(|rail| rail.gid == gid),
        };
        (0..self.nodes().len() as u16).filter(is_reached).collect()
    }

    fn launch_to(&mut self, to: u16, departure: Departure, seen: Option<Seen>) {
        let Departure { from, rail, bth, mut frame, .. } = departure;
        let connection = self.slot(from).connection;
        self.packets += 1;
        // Every rule counts every frame that it matches; the first rule that is due acts.
        let mut action = None;
        for rule in &mut self.rules {
            action = action.or(rule.apply(usize::from(from.node), rail, &bth, &frame));
        }
        let mut way = Way::by_rule(action);
        let now = self.agenda.now();
        let link = &mut self.links[usize::from(from.node)][usize::from(to)][rail];
        if link.rates.is_any() {
            way.by_chance(link, &mut self.rng);
        }
        way.is_lost |= link.is_cut || now < link.cut_until;
        link.tally.sent += 1;
        link.tally.lost += u64::from(way.is_lost);
        link.tally.copied += u64::from(way.copy_lag.is_some() && !way.is_lost);
        let clogged_until = link.clogged_until;
        way.is_held = now + self.settings.latency < clogged_until;
        self.log(from, to, rail, way.fate(), &frame);

        let arrival = self.serialize(from, rail, frame.len()).max(clogged_until);
        if way.is_lost {
            self.outlet.pool.push(frame);
            return;
        }
        if let Some(lag) = way.copy_lag {
            let mut copy = self.outlet.pool.pop().unwrap_or_default();
            copy.clone_from(&frame);
            let flight =
                Flight { frame: copy, rail, from: Some(from), seen, connection, is_damaged: false };
            self.fly(to, flight, arrival + lag);
        }
        self.damage(&way, &mut frame);
        let is_damaged = way.fate().is_damaged();
        let flight = Flight { frame, rail, from: Some(from), seen, connection, is_damaged };
        self.fly(to, flight, arrival + way.lag);
    }

    fn damage(&mut self, way: &Way, frame: &mut Vec<u8>) {
        if way.is_marked {
            mark(frame);
        }
        if way.is_corrupted {
            faults::corrupt(frame, &mut self.rng);
        }
        if let Some((at, mask)) = way.flip {
            frame[at] ^= mask;
        }
        if way.is_truncated {
            faults::truncate(frame, &mut self.rng);
        }
        if let Some(keep) = way.keep {
            frame.truncate(keep);
        }
    }

    /// Arrival time of a frame of `len` bytes, which the port sends after all earlier frames.
    fn serialize(&mut self, from: At, rail: usize, len: usize) -> Instant {
        let port = self.node(from.node).rails[rail].port;
        let free_at = &mut self.port_free_at[usize::from(from.node)][usize::from(port) - 1];
        let bits = len as u64 * 8;
        *free_at =
            (*free_at).max(self.agenda.now()) + Duration::from_nanos(bits / self.settings.gbps);
        *free_at + self.settings.latency
    }

    fn log(&mut self, from: At, to: u16, rail: usize, fate: Fate, frame: &[u8]) {
        let now = self.agenda.now();
        let connection = self.slot(from).connection;
        if let Some(record) = &mut self.record {
            record.see(Sighting {
                at: now,
                from: usize::from(from.node),
                to: usize::from(to),
                rail,
                fate,
                frame: frame.to_vec(),
            });
        }
        if fate == Fate::default() {
            return;
        }
        self.faults.lost += u64::from(fate.is_lost);
        self.faults.duplicated += u64::from(fate.is_duplicated);
        self.faults.delayed += u64::from(fate.is_delayed);
        self.faults.corrupted += u64::from(fate.is_corrupted);
        self.faults.truncated += u64::from(fate.is_truncated);
        self.blame(connection);
    }

    /// Records that a fault has hit a connection.
    pub(crate) fn blame(&mut self, connection: usize) {
        let now = self.agenda.now();
        if let Some(log) = self.fault_log.get_mut(connection) {
            if log.len() == FAULTS_KEPT {
                log.pop_front();
            }
            log.push_back(now);
        }
    }

    /// Schedules the arrival of a frame at a node.
    pub(crate) fn fly(&mut self, to: u16, flight: Flight, arrival: Instant) {
        let place = match self.free_places.pop() {
            Some(place) => {
                self.flying[place as usize] = flight;
                place
            }
            None => {
                self.flying.push(flight);
                self.flying.len() as u32 - 1
            }
        };
        let event = match self.is_narrow(to) {
            true => Event::Queue { to, frame: place },
            false => Event::Arrive { to, frame: place },
        };
        self.agenda.enter(arrival, event);
    }
}
