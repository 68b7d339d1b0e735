//! Runs: one seed from the first post to the last judgement, and campaigns of many seeds.
//!
//! A run posts work while faults happen, stops posting after its share of packets, goes on under
//! faults for a while, is healed if it has not finished by then, and must finish soon. Then the
//! frames still in flight arrive (late copies among them), and memory is judged.

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::panic::{self, AssertUnwindSafe};

use fastrand::Rng;

use super::faults::{FaultCounts, Rates};
use super::plan::Plan;
use super::record::Record;
use super::workload::Traffic;
use super::world::Step;

/// How long a run that posts nothing more may go on under faults before it is healed.
const GRACE: Duration = Duration::from_secs(3);

/// How long a healed run may take to finish: some hundred of the longest timeouts.
const BOUND: Duration = Duration::from_secs(10);

/// The longest time that work is posted, if packets are few for all the waiting.
const POSTING: Duration = Duration::from_secs(60);

/// Alarms that are not the ends'.
const HEAL: u32 = u32::MAX;
const BOUND_REACHED: u32 = u32::MAX - 1;
const CLOSE: u32 = u32::MAX - 2;

/// The oracle was not satisfied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Running this seed again shows it again.
    pub seed: u64,
    /// What is wrong, and where.
    pub what: String,
    /// Packets sent until then.
    pub packets: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: after {} packets: {}", self.seed, self.packets, self.what)
    }
}

/// What runs came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Frames sent.
    pub packets: u64,
    /// Faults, by kind.
    pub faults: FaultCounts,
    /// Send work requests that ended well.
    pub messages: u64,
    /// Payload bytes compared with what they should be.
    pub bytes: u64,
    /// Connections that ended with an explained error.
    pub dead: u64,
    /// Migrations of single ends.
    pub migrations: u64,
    /// Other control operations.
    pub operations: u64,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.seeds += other.seeds;
        self.packets += other.packets;
        self.faults.add(&other.faults);
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.dead += other.dead;
        self.migrations += other.migrations;
        self.operations += other.operations;
    }
}

/// The end of one run.
#[derive(Debug)]
pub struct Outcome {
    /// How much was done.
    pub summary: Summary,
    /// What went wrong, if anything did.
    pub violation: Option<Violation>,
    /// The record, if one was asked for.
    pub record: Option<Record>,
}

/// Runs one seed; `keep` frames are recorded if given.
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

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Posting,
    /// No more sends are posted.
    Closing,
    /// All work is done; late frames arrive.
    Finished,
}

/// Runs what is set up to its end, and judges it.
pub(super) fn drive(traffic: &mut Traffic, plan: &Plan) -> Result<(), String> {
    let mut phase = Phase::Posting;
    let mut completions = Vec::new();
    // Faults make each message cost a few packets more, not many times more; and each packet a
    // few steps.
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
            return Err(format!("far too much ado for the work; {}", traffic.unfinished()));
        }
    }
    traffic.judge_end(plan.rates == Some(Rates::NONE))
}

/// Many seeds, one after the other.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first run has this seed.
    pub seed: u64,
    /// Packets to send in all runs together.
    pub packets: u64,
    /// See [`Plan::connections`].
    pub connections: Option<usize>,
    /// See [`Plan::rates`].
    pub rates: Option<Rates>,
    /// See [`Plan::has_control`].
    pub has_control: bool,
    /// Messages to complete as well before the campaign ends.
    pub messages: u64,
}

impl Default for Campaign {
    /// A million packets from seed 0, everything else by chance, without control operations.
    fn default() -> Campaign {
        let (connections, rates) = (None, None);
        let (packets, messages) = (1_000_000, 0);
        Campaign { seed: 0, packets, connections, rates, has_control: false, messages }
    }
}

impl Campaign {
    /// Runs seeds until the packets are sent or the oracle is not satisfied.
    ///
    /// `each` sees the sum so far after each run. A failing seed is run again with the newest
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

    /// The plan of one seed of this campaign.
    pub fn plan(&self, seed: u64) -> Plan {
        let packets = 500 << Rng::with_seed(!seed).u32(0..8);
        let Campaign { connections, rates, has_control, .. } = *self;
        Plan { seed, packets, connections, rates, has_control }
    }
}
