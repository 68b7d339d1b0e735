//! Tests and measurements of a node, and its notes to the parent.

use super::capacity::Capacity;
use crate::limits::Limits;
use crate::perf::measure::{Bandwidth, Quantiles, median};
use crate::perf::plan::{Amount, Measure, Operation, Plan};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of a large message.
pub(super) const LARGE: u32 = 65536;
/// Bytes of a small message.
pub(super) const SMALL: u32 = 8;
/// Path MTU of all tests.
pub(super) const MTU: u32 = 4096;
/// Large messages outstanding, and messages per completion: the 2 MB in flight fit into a cache.
const LARGE_DEPTH: u32 = 32;
const LARGE_MODERATION: u32 = 8;
/// Small messages outstanding, per completion and per list: enough in flight to keep both sides
/// busy.
const SMALL_DEPTH: u32 = 512;
const SMALL_MODERATION: u32 = 64;
const SMALL_LIST: u32 = 32;
/// Name of the test that is compared with the roofline.
pub(super) const WRITE: &str = "write_bw";
/// Names of the rate tests on one and on many queue pairs, and the number of queue pairs.
pub(super) const RATE_ONE: &str = "send_bw 8 B, 1 QP";
pub(super) const RATE_MANY: &str = "send_bw 8 B, 1000 QPs";
const MANY: u32 = 1000;
/// Repetitions of both rate tests in a run, in turn. Load of other guests on the machine that
/// changes within half a second affects the ratio more than either rate.
const PAIRS: usize = 3;
const MANY_LIST: u32 = 16;
/// Messages outstanding on one queue pair, and on each of many (perftest's default).
const ONE_DEPTH: u32 = 256;
const MANY_DEPTH: u32 = 128;

/// A note of a node to its parent, one per line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Note {
    /// A test begins; the text names it.
    Begin(String),
    /// A measurement is done.
    Measured,
    /// This number of payload bytes was checked and correct.
    Verified { bytes: u64 },
    /// The results; the last note of a node that measures.
    Done(Box<Figures>),
    /// The number of queue pairs and their sizes; the last note of the node that opens them.
    Opened(Capacity),
    /// The reason for which the node failed.
    Failed(String),
}

/// Median run of each test, and the limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Bandwidth tests, by name.
    pub(super) bandwidth: Vec<(String, Bandwidth)>,
    /// Latency tests, by name, with the size in bytes.
    pub(super) latency: Vec<(String, u32, Quantiles)>,
    /// Medians of the limits.
    pub(super) limits: Limits,
    /// WRITE's share of the roofline, and the message rate of many queue pairs as a share of that
    /// of one. Both are medians of the ratios within a round or pair of tests, because the cores
    /// and other load may change between rounds.
    pub(super) roofline_share: f64,
    pub(super) many_qps_share: f64,
    /// Packets retransmitted in all measurements.
    pub(super) retransmissions: u64,
}

impl Figures {
    /// Returns the payload rate of a bandwidth test in Gb/s.
    pub(super) fn gbps(&self, name: &str) -> f64 {
        self.bandwidth_of(name).gbps()
    }

    /// Returns the message rate of a bandwidth test in millions per second.
    pub(super) fn mps(&self, name: &str) -> f64 {
        self.bandwidth_of(name).messages_per_second() / 1e6
    }

    /// Returns the median of a latency test in ns.
    pub(super) fn typical_ns(&self, name: &str) -> f64 {
        let found = self.latency.iter().find(|(test, ..)| test == name);
        found.map_or(0.0, |(.., quantiles)| quantiles.p50)
    }

    fn bandwidth_of(&self, name: &str) -> Bandwidth {
        let found = self.bandwidth.iter().find(|(test, _)| test == name);
        found.map_or(Bandwidth::default(), |(_, sample)| *sample)
    }
}

/// A test with its name in the report.
pub(super) struct Test {
    pub(super) name: &'static str,
    pub(super) plan: Plan,
}

/// Returns the tests of the main job, with sizes of one byte, a packet plus one byte, and many
/// packets.
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

/// Returns the measurements of a run, with `many` also those on many queue pairs. Tests with the
/// same name are equal.
pub(super) fn measurements(time: Duration, many: bool) -> Vec<Test> {
    let mut tests = usual(time);
    if many {
        let pair = || [rate(RATE_ONE, 1, ONE_DEPTH, time), rate(RATE_MANY, MANY, MANY_DEPTH, time)];
        tests.extend((0..PAIRS).flat_map(|_| pair()));
    }
    tests
}

/// Returns a test of the rate of small messages. Lists are equally long on one queue pair and on
/// many.
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

/// Returns the measurements of every vdev.
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

/// Returns the number of progress steps of one vdev.
pub(super) fn steps(runs: u32, many: bool) -> u64 {
    let round = measurements(Duration::ZERO, many).len() as u64 + 1;
    verifications().len() as u64 + u64::from(runs) * round
}

/// Returns the run with the median of `figure`; of an even number of runs, the lower of the middle
/// two.
pub(super) fn median_run<T: Copy>(runs: &[T], figure: impl Fn(&T) -> f64) -> Option<T> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|left, right| figure(left).total_cmp(&figure(right)));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// Returns the median of the ratios `parts` / `wholes` of the rounds.
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
        // The machine became half as fast in the middle of the second round.
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
