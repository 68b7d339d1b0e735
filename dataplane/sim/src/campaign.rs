//! Runs: one seed from the first post to the final checks, and campaigns of many seeds.
//!
//! A run posts work while faults happen, and stops posting after a number of packets. It continues
//! under faults for a while; if it has not finished by then, the faults are removed and it must
//! finish soon. Then the frames still in flight arrive (late copies among them), and memory is
//! checked.

pub(crate) mod chunks;
pub(crate) mod congest;
pub(crate) mod control;
pub(crate) mod draw;
pub(crate) mod inject;
pub(crate) mod pieces;
pub(crate) mod plan;
pub(crate) mod receives;
pub(crate) mod setup;
pub(crate) mod workload;

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::panic::{self, AssertUnwindSafe};

use fastrand::Rng;

use crate::campaign::plan::Plan;
use crate::campaign::workload::Traffic;
use crate::faults::{FaultCounts, Rates};
use crate::record::Record;
use crate::world::Step;

/// Time that a run without new posts may continue under faults before it is healed.
const GRACE: Duration = Duration::from_secs(3);

/// Time within which a healed run must finish: some hundred of the longest timeouts.
const BOUND: Duration = Duration::from_secs(10);

/// Longest time that work is posted, for a run that sends few packets and mostly waits.
const POSTING: Duration = Duration::from_secs(60);

/// Tokens of the run's own alarms; all other tokens belong to ends.
const HEAL: u32 = u32::MAX;
const BOUND_REACHED: u32 = u32::MAX - 1;
const CLOSE: u32 = u32::MAX - 2;

/// A disagreement between the oracle and the QPs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Seed of the run; running it again shows the violation again.
    pub seed: u64,
    /// Description of the violation, and where it happened.
    pub what: String,
    /// Number of packets sent before it.
    pub packets: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: after {} packets: {}", self.seed, self.packets, self.what)
    }
}

/// Totals of one or more runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Number of seeds run.
    pub seeds: u64,
    /// Number of frames sent.
    pub packets: u64,
    /// Number of faults, by kind.
    pub faults: FaultCounts,
    /// Number of send work requests that succeeded.
    pub messages: u64,
    /// Number of those of RD queue pairs.
    pub rd_messages: u64,
    /// Number of those of XRC queue pairs.
    pub xrc_messages: u64,
    /// Number of payload bytes that were compared with the expected ones.
    pub bytes: u64,
    /// Number of connections that ended with an explained error.
    pub dead: u64,
    /// Number of migrations, counted at each end.
    pub migrations: u64,
    /// Number of other control operations.
    pub operations: u64,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.seeds += other.seeds;
        self.packets += other.packets;
        self.faults.add(&other.faults);
        self.messages += other.messages;
        self.rd_messages += other.rd_messages;
        self.xrc_messages += other.xrc_messages;
        self.bytes += other.bytes;
        self.dead += other.dead;
        self.migrations += other.migrations;
        self.operations += other.operations;
    }
}

/// Result of one run.
#[derive(Debug)]
pub struct Outcome {
    /// Totals of the run.
    pub summary: Summary,
    /// The violation found, if any.
    pub violation: Option<Violation>,
    /// The record, if one was requested.
    pub record: Option<Record>,
}

/// Runs one seed. If `keep` is given, the newest `keep` frames are recorded.
pub fn run_seed(plan: &Plan, keep: Option<usize>) -> Outcome {
    let mut traffic = Traffic::new(plan);
    if let Some(keep) = keep {
        traffic.world.start_record(keep);
    }
    let result = panic::catch_unwind(AssertUnwindSafe(|| drive(&mut traffic, plan)))
        .unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))));
    let packets = traffic.world.packets();
    Outcome {
        summary: Summary {
            seeds: 1,
            packets,
            faults: traffic.world.faults(),
            messages: traffic.messages,
            rd_messages: traffic.rd_messages,
            xrc_messages: traffic.xrc_messages,
            bytes: traffic.bytes,
            dead: traffic.dead,
            migrations: traffic.world.migrations(),
            operations: traffic.operations,
        },
        violation: result.err().map(|what| Violation { seed: plan.seed, what, packets }),
        record: traffic.world.take_record(),
    }
}

fn panic_text(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

/// Phase of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Posting,
    /// No more sends are posted.
    Closing,
    /// All work is done; late frames arrive.
    Finished,
}

/// Runs prepared traffic to its end, and checks it.
pub(crate) fn drive(traffic: &mut Traffic, plan: &Plan) -> Result<(), String> {
    let mut phase = Phase::Posting;
    let mut completions = Vec::new();
    // Faults multiply the packets of a message, but not by orders of magnitude; and each packet
    // takes a few steps.
    let packets_max = 200 * plan.packets + 1_000_000;
    let steps_max = 2_000 * plan.packets + 20_000_000;
    let mut steps = 0;
    traffic.world.wake(traffic.world.now() + POSTING, CLOSE);
    traffic.start();
    loop {
        let step = traffic.world.step();
        if let Some(flaw) = traffic.world.take_flaw() {
            return Err(flaw);
        }
        traffic.judge_lost_peers()?;
        traffic.world.take_completions(&mut completions);
        for completed in completions.drain(..) {
            traffic.judge(&completed)?;
        }
        let is_enough = traffic.world.packets() >= plan.packets
            || traffic.is_all_dead()
            || step == Step::Wake(CLOSE);
        if phase == Phase::Posting && is_enough {
            phase = Phase::Closing;
            traffic.world.wake(traffic.world.now() + GRACE, HEAL);
        }
        if phase == Phase::Closing && step != Step::Done && traffic.is_finished() {
            phase = Phase::Finished;
            traffic.world.end_troubles();
            traffic.end_keepalives()?;
        }
        match step {
            Step::Done => {}
            Step::Wake(_) if phase == Phase::Finished => {}
            Step::Wake(CLOSE) => {}
            Step::Wake(HEAL) => {
                traffic.world.heal();
                traffic.world.wake(traffic.world.now() + BOUND, BOUND_REACHED);
            }
            Step::Wake(BOUND_REACHED) => return Err(traffic.unfinished()),
            Step::Wake(token) => traffic.wake(token, phase == Phase::Posting)?,
            Step::Idle if phase == Phase::Finished => break,
            Step::Idle => return Err(traffic.unfinished()),
        }
        steps += 1;
        if traffic.world.packets() > packets_max || steps > steps_max {
            return Err(format!("far too many packets or steps; {}", traffic.unfinished()));
        }
    }
    traffic.judge_end(plan.rates == Some(Rates::NONE))
}

/// A series of runs with different seeds.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Seed of the first run.
    pub seed: u64,
    /// Number of packets to send, in all runs together.
    pub packets: u64,
    /// Number of connections; see [`Plan::connections`].
    pub connections: Option<usize>,
    /// Fault rates; see [`Plan::rates`].
    pub rates: Option<Rates>,
    /// Control operations; see [`Plan::has_control`].
    pub has_control: bool,
    /// Number of messages that must be completed as well before the campaign ends.
    pub messages: u64,
}

impl Default for Campaign {
    /// A million packets from seed 0, everything else random, without control operations.
    fn default() -> Campaign {
        let (connections, rates) = (None, None);
        let (packets, messages) = (1_000_000, 0);
        Campaign { seed: 0, packets, connections, rates, has_control: false, messages }
    }
}

impl Campaign {
    /// Runs seeds until the packets are sent or a violation is found.
    ///
    /// `each` is called with the totals after each run. A failing seed is run again with the newest
    /// `keep` frames recorded.
    pub fn run(&self, keep: usize, mut each: impl FnMut(&Summary)) -> (Summary, Option<Outcome>) {
        let mut sum = Summary::default();
        let mut plan = self.plan(self.seed);
        loop {
            let outcome = run_seed(&plan, None);
            sum.add(&outcome.summary);
            if outcome.violation.is_some() {
                return (sum, Some(run_seed(&plan, Some(keep))));
            }
            each(&sum);
            if sum.packets >= self.packets && sum.messages >= self.messages {
                return (sum, None);
            }
            plan = self.plan(Rng::with_seed(plan.seed).u64(..));
        }
    }

    /// The plan of this campaign for one seed.
    pub fn plan(&self, seed: u64) -> Plan {
        let packets = 500 << Rng::with_seed(!seed).u32(0..8);
        let Campaign { connections, rates, has_control, .. } = *self;
        Plan { seed, packets, connections, rates, has_control }
    }
}
