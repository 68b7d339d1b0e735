//! What a node verifies and measures, and what it tells its parent.

use super::capacity::Capacity;
use crate::limits::Limits;
use crate::plan::{Amount, Measure, Operation, Plan};
use crate::stats::{Bandwidth, Quantiles, median};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of a large message.
pub(super) const LARGE: u32 = 65536;
/// Bytes of a small one.
pub(super) const SMALL: u32 = 8;
/// Path MTU of all tests.
pub(super) const MTU: u32 = 4096;
/// Large messages outstanding, and of how many one completes: 2 MB under way stay in a cache.
const LARGE_DEPTH: u32 = 32;
const LARGE_MODERATION: u32 = 8;
/// The same of small ones, posted so many at once: enough under way to keep both sides busy.
const SMALL_DEPTH: u32 = 512;
const SMALL_MODERATION: u32 = 64;
const SMALL_LIST: u32 = 32;
/// The test that is set beside the roofline.
pub(super) const WRITE: &str = "write_bw";
/// The rate on many queue pairs beside that on one: names, queue pairs, messages posted at once.
pub(super) const RATE_ONE: &str = "send_bw 8 B, 1 QP";
pub(super) const RATE_MANY: &str = "send_bw 8 B, 1000 QPs";
const MANY: u32 = 1000;
/// How often in a run each is measured, in turn: what other guests of the machine do within half a second
/// weighs more on the share than on any figure by itself.
const PAIRS: usize = 3;
const MANY_LIST: u32 = 16;
/// Messages under way, on one queue pair and, by perftest's default, on each of many.
const ONE_DEPTH: u32 = 256;
const MANY_DEPTH: u32 = 128;

/// What a node says, one a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Note {
    /// Something begins.
    Begin(String),
    /// A measurement is done.
    Measured,
    /// So many payload bytes were looked at, and were right.
    Verified { bytes: u64 },
    /// The medians: the end.
    Done(Box<Figures>),
    /// So many queue pairs, of that size.
    Opened(Capacity),
    /// Why it ended.
    Failed(String),
}

/// The median run of each test, and the limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Bandwidth tests by name.
    pub(super) bandwidth: Vec<(String, Bandwidth)>,
    /// Latency tests by name, with their size.
    pub(super) latency: Vec<(String, u32, Quantiles)>,
    /// Medians.
    pub(super) limits: Limits,
    /// WRITE's share of the roofline, and the share of one queue pair's message rate that many reach:
    /// medians of what the rounds, or pairs of tests, come to, since cores or neighbours may change
    /// from one to the next.
    pub(super) roofline_share: f64,
    pub(super) many_qps_share: f64,
    /// Packets sent again in all measurements.
    pub(super) retransmissions: u64,
}

impl Figures {
    /// A bandwidth test's payload, Gb/s.
    pub(super) fn gbps(&self, name: &str) -> f64 {
        self.bandwidth_of(name).gbps()
    }

    /// A bandwidth test's messages, millions a second.
    pub(super) fn mps(&self, name: &str) -> f64 {
        self.bandwidth_of(name).messages_per_second() / 1e6
    }

    /// A latency test's median, ns.
    pub(super) fn typical_ns(&self, name: &str) -> f64 {
        let found = self.latency.iter().find(|(test, ..)| test == name);
        found.map_or(0.0, |(.., quantiles)| quantiles.p50)
    }

    fn bandwidth_of(&self, name: &str) -> Bandwidth {
        let found = self.bandwidth.iter().find(|(test, _)| test == name);
        found.map_or(Bandwidth::default(), |(_, sample)| *sample)
    }
}

/// A test and its name in the report.
pub(super) struct Test {
    pub(super) name: &'static str,
    pub(super) plan: Plan,
}

/// The main job: sizes of one byte, of a packet and a byte, of many packets.
pub(super) fn verifications() -> Vec<Test> {
    let with = |name, operation, sizes: &[u32], count| {
        let mut plan = Plan::new(operation, Measure::Bandwidth);
        plan.sizes = sizes.to_vec();
        plan.amount = Amount::Iterations(count);
        plan.mtu = Some(MTU);
        plan.verify = true;
        Test { name, plan }
    };
    const SIZES: [u32; 4] = [1, MTU + 1, LARGE, 1 << 20];
    vec![
        with("WRITE", Operation::Write, &SIZES, 128),
        with("READ", Operation::Read, &SIZES, 128),
        with("SEND", Operation::Send, &SIZES, 128),
        with("FETCH_ADD", Operation::FetchAdd, &[8], 1000),
        with("CMP_SWAP", Operation::CompareSwap, &[8], 1000),
    ]
}

/// The measurements of a run; of `many` queue pairs too. Tests of one name are the same.
pub(super) fn measurements(time: Duration, many: bool) -> Vec<Test> {
    let mut tests = usual(time);
    if many {
        let pair = || [rate(RATE_ONE, 1, ONE_DEPTH, time), rate(RATE_MANY, MANY, MANY_DEPTH, time)];
        tests.extend((0..PAIRS).flat_map(|_| pair()));
    }
    tests
}

/// The rate of small messages, posted as many at once on one queue pair as on many.
fn rate(name: &'static str, qps: u32, depth: u32, time: Duration) -> Test {
    let mut plan = Plan::new(Operation::Send, Measure::Bandwidth);
    plan.sizes = vec![SMALL];
    plan.amount = Amount::Duration(time);
    plan.mtu = Some(MTU);
    plan.qps = qps;
    plan.tx_depth = depth;
    plan.cq_mod = Some(MANY_LIST);
    plan.post_list = MANY_LIST;
    plan.rx_depth = 2 * depth;
    Test { name, plan }
}

/// What every vdev is measured by.
fn usual(time: Duration) -> Vec<Test> {
    let with = |name, operation, measure, size| {
        let mut plan = Plan::new(operation, measure);
        plan.sizes = vec![size];
        plan.amount = Amount::Duration(time);
        plan.mtu = Some(MTU);
        if measure == Measure::Bandwidth {
            plan.tx_depth = LARGE_DEPTH;
            plan.cq_mod = Some(LARGE_MODERATION);
        }
        Test { name, plan }
    };
    let mut rate = with("send_bw 8 B", Operation::Send, Measure::Bandwidth, SMALL);
    rate.plan.tx_depth = SMALL_DEPTH;
    rate.plan.cq_mod = Some(SMALL_MODERATION);
    rate.plan.post_list = SMALL_LIST;
    rate.plan.rx_depth = 2 * SMALL_DEPTH;
    vec![
        with(WRITE, Operation::Write, Measure::Bandwidth, LARGE),
        with("read_bw", Operation::Read, Measure::Bandwidth, LARGE),
        with("send_bw", Operation::Send, Measure::Bandwidth, LARGE),
        rate,
        with("send_lat", Operation::Send, Measure::Latency, SMALL),
        with("write_lat", Operation::Write, Measure::Latency, SMALL),
        with("read_lat", Operation::Read, Measure::Latency, SMALL),
        with("atomic_lat", Operation::FetchAdd, Measure::Latency, SMALL),
    ]
}

/// Notes of progress that one vdev's part gives.
pub(super) fn steps(runs: u32, many: bool) -> u64 {
    let round = measurements(Duration::ZERO, many).len() as u64 + 1;
    verifications().len() as u64 + u64::from(runs) * round
}

/// The run whose figure is the median; of an even number of runs the lower of the middle two.
pub(super) fn median_run<T: Copy>(runs: &[T], figure: impl Fn(&T) -> f64) -> Option<T> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|left, right| figure(left).total_cmp(&figure(right)));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// The median of what `parts` are of `wholes` in each round.
pub(super) fn median_share(
    parts: impl Iterator<Item = f64>,
    wholes: impl Iterator<Item = f64>,
) -> f64 {
    let share = |(part, whole): (f64, f64)| if whole > 0.0 { part / whole } else { 0.0 };
    median(&parts.zip(wholes).map(share).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_median_of_the_rounds_own() {
        let share = |parts: &[f64], wholes: &[f64]| {
            median_share(parts.iter().copied(), wholes.iter().copied())
        };
        // The machine was half as fast from the middle of the second round on.
        assert_eq!(share(&[4.5, 4.5, 1.8], &[5.0, 2.5, 2.0]), 0.9);
        assert_eq!(share(&[1.0], &[0.0]), 0.0);
        assert_eq!(share(&[], &[]), 0.0);
    }

    #[test]
    fn every_test_is_valid_and_tests_of_one_name_are_the_same() {
        let tests = verifications().into_iter().chain(measurements(Duration::from_millis(1), true));
        let mut plans = std::collections::BTreeMap::new();
        for test in tests {
            let plan = test.plan.checked().expect("a valid plan");
            let known = plans.entry(test.name).or_insert_with(|| plan.clone());
            assert_eq!(*known, plan, "{}", test.name);
        }
    }

    #[test]
    fn every_operation_is_verified() {
        let verified: Vec<_> = verifications().iter().map(|test| test.plan.operation).collect();
        for operation in [
            Operation::Write,
            Operation::Read,
            Operation::Send,
            Operation::FetchAdd,
            Operation::CompareSwap,
        ] {
            assert!(verified.contains(&operation));
        }
        assert!(verifications().iter().all(|test| test.plan.verify));
    }

    #[test]
    fn the_median_run_is_one_of_the_runs() {
        assert_eq!(median_run(&[3.0, 1.0, 2.0], |run| *run), Some(2.0));
        assert_eq!(median_run(&[4.0, 1.0], |run| *run), Some(1.0));
        assert_eq!(median_run(&[] as &[f64], |run| *run), None);
    }
}
