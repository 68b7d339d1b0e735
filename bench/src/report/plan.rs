//! Plans: which points a report measures, how often, and the plans that are built in.
//!
//! A plan is a TOML file. A part that it leaves out is not measured. Its points are measured in
//! rounds, each point once in a round, so that a machine that becomes slower does not spoil one
//! point alone.

use super::work::of_plan;
use crate::cli::{QPS_MAX, REGIONS_MAX};
use crate::error::BenchError;
use crate::ndr::shape::Size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A plan of about a minute, for tests; the default of about ten; and the one that leaves nothing
/// out.
const BUILT_IN: [(&str, &str); 3] = [
    ("minute", include_str!("../../plans/minute.toml")),
    ("default", include_str!("../../plans/default.toml")),
    ("full", include_str!("../../plans/full.toml")),
];

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Rounds.
    pub(super) rounds: u32,
    /// Where the two ends are. `qps`, `regions`, `cores`, `loss` and `failover` need `"rings"`;
    /// `processes` are always in the local fabric.
    #[serde(default)]
    pub(super) ends: Ends,
    /// Options of this program for both ends of each measurement that has `ends`, such as
    /// `["--config", "FILE"]` for devices of one's own.
    #[serde(default)]
    pub(super) options: Vec<String>,
    /// Milliseconds of a measurement that has a length of its own.
    #[serde(default = "usual_time")]
    pub(super) time_ms: u64,
    /// Speeds of wires to compare with, in Gb/s.
    #[serde(default = "usual_link")]
    pub(super) link: Vec<u32>,
    /// Zero-loss rates against the size, and latency over load.
    pub(super) rates: Option<Rates>,
    /// Latency of single messages against the size.
    pub(super) latency: Option<Sizes>,
    /// Rate of small messages against the number of queue pairs.
    pub(super) qps: Option<Counts>,
    /// Rate of small messages against the number of memory regions that they go to.
    pub(super) regions: Option<Counts>,
    /// Rate against the number of pairs of cores.
    pub(super) cores: Option<Counts>,
    /// Rate against the number of pairs of processes in the local fabric.
    pub(super) processes: Option<Counts>,
    /// Goodput against the probability of loss.
    pub(super) loss: Option<Losses>,
    /// Failover to another link.
    pub(super) failover: Option<Counts>,
    /// What others do on this machine.
    #[serde(default)]
    pub(super) beside: Vec<Other>,
}

/// Where the two ends are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ends {
    /// In one process, joined by DPDK's rings.
    #[default]
    Rings,
    /// In two processes of this machine, in the local fabric.
    Local,
}

/// Zero-loss rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rates {
    /// Transport services: RC, UC, UD.
    pub(super) services: Vec<String>,
    /// Lengths of frames, and "imix".
    #[serde(default)]
    pub(super) frames: Vec<Length>,
    /// Payload bytes of messages.
    #[serde(default)]
    pub(super) sizes: Vec<u32>,
    /// Milliseconds of a trial.
    #[serde(default = "usual_trial")]
    pub(super) trial_ms: u64,
    /// Loads at which the latency is measured, in percent.
    #[serde(default)]
    pub(super) load: Vec<f64>,
    /// Milliseconds at each load.
    #[serde(default = "usual_time")]
    pub(super) load_ms: u64,
}

/// A length of frames, as a number or a word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Length {
    /// A number of bytes.
    Bytes(u32),
    /// A word: "imix".
    Word(String),
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}

/// Sizes of messages in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sizes {
    pub(super) sizes: Vec<u32>,
    /// Messages of a measurement.
    #[serde(default = "usual_messages")]
    pub(super) messages: u32,
}

/// Numbers of queue pairs, of regions, or of pairs of cores or processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) counts: Vec<u32>,
}

/// Probabilities of loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Losses {
    pub(super) probabilities: Vec<f64>,
}

/// Another stack on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Other {
    /// The kernel's TCP, by iperf3.
    Tcp,
    /// UCX over TCP, by ucx_perftest.
    UcxTcp,
    /// The kernel's Soft-RoCE, by perftest.
    SoftRoce,
    /// Debian's kernel's Soft-RoCE in user-mode Linux, by `deploy/peer-rxe`.
    SoftRoceUml,
}

fn usual_time() -> u64 {
    200
}

fn usual_trial() -> u64 {
    50
}

fn usual_link() -> Vec<u32> {
    vec![100]
}

fn usual_messages() -> u32 {
    1000
}

impl Plan {
    /// Reads a plan: the name of one that is built in, or a file.
    pub(super) fn read(plan: &str) -> Result<Self, BenchError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == plan) {
            return Self::parse(plan, text);
        }
        let text = std::fs::read_to_string(Path::new(plan))
            .map_err(|error| BenchError::io(format_args!("reading the plan {plan}"), error))?;
        Self::parse(plan, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, BenchError> {
        let plan: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(text));
            let (line, message) = (before.matches('\n').count() + 1, error.message());
            let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
            BenchError::usage(format!("plan {name}, line {line}: {message}"))
        })?;
        match plan.fault() {
            Some(fault) => Err(BenchError::usage(format!("plan {name}: {fault}"))),
            None => Ok(plan),
        }
    }

    /// Returns what is wrong, if anything is.
    fn fault(&self) -> Option<String> {
        fn outside<T: Copy + PartialOrd + fmt::Display>(
            key: &str,
            values: &[T],
            low: T,
            high: T,
        ) -> Option<String> {
            if values.is_empty() {
                return Some(format!("{key}: an empty list: leave the part out, or name values"));
            }
            let wrong = values.iter().find(|value| !(low..=high).contains(value))?;
            Some(format!("{key}: {wrong} is not within {low} to {high}"))
        }
        let counts = |key: &str, counts: &Option<Counts>, high| {
            outside(&format!("{key}.counts"), &counts.as_ref()?.counts, 1, high)
        };
        let latency = self.latency.as_ref();
        let loss = self.loss.as_ref();
        let link = self.link.iter().find(|link| ![10, 25, 40, 100, 200, 400].contains(*link));
        let empty = outside("link", &self.link, 0, u32::MAX);
        empty
            .or_else(|| {
                link.map(|link| format!("link: {link} is none of 10, 25, 40, 100, 200, 400"))
            })
            .or_else(|| outside("rounds", &[self.rounds], 1, 1000))
            .or_else(|| outside("time_ms", &[self.time_ms], 1, 60_000))
            .or_else(|| self.rates.as_ref().and_then(Rates::fault))
            .or_else(|| outside("latency.sizes", &latency?.sizes, 1, 1 << 23))
            .or_else(|| outside("latency.messages", &[latency?.messages], 5, 10_000_000))
            .or_else(|| counts("qps", &self.qps, QPS_MAX))
            .or_else(|| counts("regions", &self.regions, REGIONS_MAX))
            .or_else(|| counts("cores", &self.cores, 64))
            .or_else(|| counts("processes", &self.processes, 32))
            .or_else(|| counts("failover", &self.failover, 4096))
            .or_else(|| outside("loss.probabilities", &loss?.probabilities, 0.0, 0.5))
            .or_else(|| self.contradiction())
    }

    /// Returns what does not go together.
    fn contradiction(&self) -> Option<String> {
        if of_plan(self).is_empty() {
            return Some("it measures nothing: give it a part, such as [latency]".to_owned());
        }
        let own = [
            ("qps", self.qps.is_some()),
            ("regions", self.regions.is_some()),
            ("cores", self.cores.is_some()),
            ("loss", self.loss.is_some()),
            ("failover", self.failover.is_some()),
        ];
        let (part, _) = own.into_iter().find(|(_, is_there)| *is_there)?;
        if self.ends != Ends::Rings {
            return Some(format!("{part} is measured over rings: leave it out, or `ends`"));
        }
        let text = format!("{part} has devices of its own: leave it out, or `options`");
        (!self.options.is_empty()).then_some(text)
    }
}

impl Rates {
    fn fault(&self) -> Option<String> {
        if let Some(service) =
            self.services.iter().find(|service| !["RC", "UC", "UD"].contains(&service.as_str()))
        {
            return Some(format!("rates.services: \"{service}\" is none of RC, UC, UD"));
        }
        if self.services.is_empty() || self.frames.is_empty() && self.sizes.is_empty() {
            let text = "rates: nothing to measure: name services, and frames or sizes";
            return Some(text.to_owned());
        }
        for length in &self.frames {
            if let Err(expected) = length.to_string().parse::<Size>() {
                return Some(format!("rates.frames: {length} is not {expected}"));
            }
        }
        if let Some(size) = self.sizes.iter().find(|size| !(1..=1 << 24).contains(*size)) {
            return Some(format!("rates.sizes: {size} is not within 1 to 16777216"));
        }
        if let Some(load) = self.load.iter().find(|load| !(0.1..=200.0).contains(*load)) {
            return Some(format!("rates.load: {load} is not within 0.1 to 200 percent"));
        }
        let times = [("rates.trial_ms", self.trial_ms), ("rates.load_ms", self.load_ms)];
        let wrong = times.iter().find(|(_, time)| !(1..=60_000).contains(time));
        wrong.map(|(key, time)| format!("{key}: {time} is not within 1 to 60000"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let error = Plan::parse("p", text).expect_err(text).to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }

    #[test]
    fn the_built_in_plans_are_valid_and_the_full_one_leaves_nothing_out() {
        for (name, _) in BUILT_IN {
            Plan::read(name).expect(name);
        }
        let full = Plan::read("full").expect("full");
        assert!(full.rounds >= 10 && full.beside.len() == 4);
        let parts = [&full.qps, &full.regions, &full.cores, &full.processes, &full.failover];
        assert!(parts.into_iter().all(Option::is_some));
        assert_eq!(
            full.rates.map(|rates| (rates.services.len(), rates.frames.len())),
            Some((3, 10))
        );
        assert!(full.latency.is_some() && full.loss.is_some());
    }

    #[test]
    fn an_unknown_key_and_what_cannot_be_are_one_clear_line() {
        for (text, part) in [
            ("rounds = 1\nround = 2\n", "plan p, line 2: unknown field `round`"),
            ("rounds = 1\n[qps]\ncount = [1]\n", "unknown field `count`"),
            ("rounds = 0\n", "plan p: rounds: 0 is not within 1 to 1000"),
            ("rounds = 1\nlink = [30]\n", "link: 30 is none of"),
            ("rounds = 1\n[latency]\nsizes = [0]\n", "latency.sizes: 0 is not within 1 to"),
            (
                "rounds = 1\n[rates]\nservices = [\"RC\"]\nframes = [63]\n",
                "rates.frames: 63 is not",
            ),
            ("rounds = 1\n[rates]\nservices = [\"XRC\"]\n", "\"XRC\" is none of RC, UC, UD"),
            ("rounds = 1\n[rates]\nservices = [\"RC\"]\nsizes = [99999999]\n", "rates.sizes"),
            ("rounds = 1\n[qps]\ncounts = [70000]\n", "qps.counts: 70000"),
            ("rounds = 1\n[processes]\ncounts = [33]\n", "processes.counts: 33"),
            ("rounds = 1\n[qps]\ncounts = []\n", "qps.counts: an empty list"),
            ("rounds = 1\nlink = []\n[qps]\ncounts = [1]\n", "link: an empty list"),
            ("rounds = 1\n[rates]\nservices = []\nframes = [64]\n", "rates: nothing to measure"),
            ("rounds = 1\n[rates]\nservices = [\"RC\"]\n", "rates: nothing to measure"),
            ("rounds = 1\n", "it measures nothing"),
            ("rounds = 1\nends = \"local\"\n[cores]\ncounts = [1]\n", "cores is measured over"),
            (
                "rounds = 1\noptions = [\"-x\"]\n[failover]\ncounts = [1]\n",
                "failover has devices of its own",
            ),
            ("rounds = 1\nbeside = [\"rxe\"]\n", "unknown variant `rxe`"),
            ("rounds = ", "plan p, line 1"),
        ] {
            let error = error(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        let none = Plan::read("/nowhere/plan.toml").expect_err("no file").to_string();
        assert!(none.starts_with("reading the plan /nowhere/plan.toml"), "{none}");
    }
}
