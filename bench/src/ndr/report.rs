//! Results of `ndr`: a table that grows point by point, and JSON.

use super::search::{End, Found, Load};
use super::shape::{Shape, Size};
use super::statistics::BoxStats;
use super::{CLOSED, START};
use crate::cli::NdrArgs;
use crate::error::BenchError;
use crate::load::{GAP, GRACE, Log, Sample};
use crate::machine::Machine;
use crate::perf::measure::{Quantiles, median};
use crate::perf::plan::Service;
use serde_json::{Map, Value, json};
use uroce::Stage;

/// A rate measured beside, or the reason for which there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Beside {
    /// Messages per second.
    Rate(f64),
    /// Why it was not measured.
    Not(String),
}

impl Beside {
    fn value(&self) -> Value {
        match self {
            Self::Rate(rate) => json!({ "messages_per_s": rate }),
            Self::Not(reason) => json!({ "messages_per_s": null, "reason": reason }),
        }
    }
}

/// Results of one goal: those of each search.
#[derive(Clone, Debug)]
struct Goal {
    /// Share of loss, in percent.
    percent: f64,
    /// Messages per second, of searches that have a result.
    rates: Vec<f64>,
    /// Searches that ended otherwise than between two close bounds.
    ends: Vec<End>,
}

/// Latency at a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtLoad {
    /// Percent of the rate with the least loss.
    pub(super) percent: f64,
    /// Messages per second.
    pub(super) rate: f64,
    /// Share of loss.
    pub(super) loss: f64,
    /// Latencies in ns, from the time at which a message was due to its completion; `None` if the
    /// connection broke.
    pub(super) quantiles: Option<Quantiles>,
}

/// Results of a service and a size.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) service: Service,
    pub(super) size: Size,
    /// What was offered, or the reason for which nothing could be.
    shape: Result<Shape, String>,
    /// Messages per second of a closed loop.
    pub(super) closed: Vec<f64>,
    goals: Vec<Goal>,
    trials: usize,
    /// Trials that were made again, since an end was kept from running.
    pub(super) disturbed: u32,
    /// Trials that count although they were disturbed, as all that took their place were too.
    pub(super) only_disturbed: u32,
    pub(super) bare: Beside,
    pub(super) testpmd: Option<Beside>,
    pub(super) loads: Vec<AtLoad>,
    /// Cycles of each stage for a message in a closed loop, of client and server.
    stages: [Value; 2],
}

impl Point {
    /// Creates a point without results.
    pub(super) fn new(service: Service, size: Size, shape: Shape, losses: &[f64]) -> Self {
        let goal = |&percent| Goal { percent, rates: Vec::new(), ends: Vec::new() };
        Self {
            service,
            size,
            shape: Ok(shape),
            closed: Vec::new(),
            goals: losses.iter().map(goal).collect(),
            trials: 0,
            disturbed: 0,
            only_disturbed: 0,
            bare: Beside::Not("not measured".to_owned()),
            testpmd: None,
            loads: Vec::new(),
            stages: Default::default(),
        }
    }

    /// Takes the cycles of the stages from a sample in which they were measured.
    pub(super) fn set_stages(&mut self, sample: &Sample) {
        let each = |cycles: [u64; Stage::ALL.len()], messages: u64| {
            let stages = Stage::ALL.iter().zip(cycles);
            let named = stages.map(|(stage, cycles)| {
                (stage.name().to_owned(), json!(cycles as f64 / messages as f64))
            });
            Value::Object(named.collect::<Map<String, Value>>())
        };
        // The client works for all that it sends, also for what is lost afterwards.
        let [client, server] = sample.stages;
        if sample.due > 0 && sample.received > 0 {
            self.stages = [each(client, sample.due), each(server, sample.received)];
        }
    }

    /// Creates a point that cannot be.
    pub(super) fn impossible(service: Service, size: Size, reason: String) -> Self {
        let nothing = Shape { messages: Vec::new(), frames: Vec::new() };
        Self { shape: Err(reason), ..Self::new(service, size, nothing, &[]) }
    }

    /// Adds the results of a search.
    pub(super) fn add(&mut self, found: &[Found], loads: &[Load]) {
        self.trials += loads.iter().map(|load| load.losses.len()).sum::<usize>();
        for (goal, found) in self.goals.iter_mut().zip(found) {
            if found.end != End::Restless {
                goal.rates.push(found.rate);
            }
            if found.end != End::Narrow {
                goal.ends.push(found.end);
            }
        }
    }

    /// Returns the mean number of frames of a message.
    pub(super) fn frames(&self) -> f64 {
        self.shape.as_ref().map_or(1.0, Shape::frames_per_message)
    }

    /// Tells whether a search has ended.
    pub(super) fn has_result(&self) -> bool {
        self.goals.iter().any(|goal| goal.searches() > 0)
    }

    /// Returns the payload bytes of the messages.
    pub(super) fn messages(&self) -> &[u32] {
        self.shape.as_ref().map_or(&[], |shape| &shape.messages)
    }

    /// Returns the lengths of all frames.
    pub(super) fn lengths(&self) -> &[u32] {
        self.shape.as_ref().map_or(&[], |shape| &shape.frames)
    }

    /// Returns the messages per second at given rates of frames.
    pub(super) fn at_frame_rates(&self, rate: impl Fn(u32) -> f64) -> f64 {
        self.shape.as_ref().map_or(0.0, |shape| shape.at_frame_rates(rate))
    }

    /// Returns the median rate of the goal with the least loss.
    pub(super) fn least_loss_rate(&self) -> Option<f64> {
        let least = self.goals.iter().min_by(|a, b| a.percent.total_cmp(&b.percent))?;
        (!least.rates.is_empty()).then(|| median(&least.rates))
    }

    fn value(&self, links: &[u32]) -> Value {
        let shape = match &self.shape {
            Ok(shape) => shape,
            Err(reason) => {
                return json!({
                    "service": self.service.name(),
                    "size": self.size.to_string(),
                    "impossible": reason,
                });
            }
        };
        let goal = |goal: &Goal| {
            let stats = BoxStats::of(&goal.rates);
            let share = |link: &u32| {
                let share = 100.0 * stats.median / shape.wire(f64::from(*link));
                json!({ "gbps": link, "percent": share })
            };
            let has = !goal.rates.is_empty();
            json!({
                "loss_percent": goal.percent,
                "messages_per_s": has.then_some(stats),
                "searches_messages_per_s": goal.rates,
                "gbps": has.then(|| stats.times(bits(shape) / 1e9)),
                "payload_gbps": has.then(|| stats.times(8.0 * shape.payload() / 1e9)),
                "of_link": links.iter().filter(|_| has).map(share).collect::<Vec<Value>>(),
                "unusual_ends": goal.ends.iter().map(|end| reason(*end)).collect::<Vec<_>>(),
            })
        };
        json!({
            "service": self.service.name(),
            "size": self.size.to_string(),
            "frame_bytes": shape.frame(),
            "frames_per_message": shape.frames_per_message(),
            "payload_bytes": shape.payload(),
            "goals": self.goals.iter().map(goal).collect::<Vec<Value>>(),
            "closed_loop_messages_per_s": self.closed,
            "trials": self.trials,
            "disturbed_trials": self.disturbed,
            "trials_only_disturbed": self.only_disturbed,
            "bare_port": self.bare.value(),
            "testpmd": self.testpmd.as_ref().map(Beside::value),
            "cycles_per_message": { "client": self.stages[0], "server": self.stages[1] },
            "latency_over_load": self.loads.iter().map(AtLoad::value).collect::<Vec<Value>>(),
        })
    }

    /// Returns the lines of the table.
    fn lines(&self, links: &[u32]) -> String {
        let (service, size) = (self.service.name(), self.size.to_string());
        let shape = match &self.shape {
            Ok(shape) => shape,
            Err(reason) => return format!(" {service:<3} {size:<10} {reason}\n"),
        };
        let mut text = String::new();
        for (at, goal) in self.goals.iter().enumerate() {
            let stats = BoxStats::of(&goal.rates);
            let of = |rate: f64| if rate > 0.0 { 100.0 * stats.median / rate } else { 0.0 };
            let bare = match &self.bare {
                Beside::Rate(rate) => format!("{:.1}", of(*rate)),
                Beside::Not(_) => "-".to_owned(),
            };
            let testpmd = match &self.testpmd {
                Some(Beside::Rate(rate)) => format!("{:.1}", of(*rate)),
                Some(Beside::Not(_)) | None => "-".to_owned(),
            };
            let wire: Vec<String> = links
                .iter()
                .map(|link| format!("{:<8.2}", of(shape.wire(f64::from(*link)))))
                .collect();
            let BoxStats { min, q1, median, q3, max } = stats.times(1e-6);
            let (service, size) = if at == 0 { (service, size.as_str()) } else { ("", "") };
            text += &format!(
                " {service:<3} {size:<10} {:<8.0} {:<8} {min:<9.4} {q1:<9.4} {median:<9.4} \
                 {q3:<9.4} {max:<9.4} {:<8.3} {bare:<8} {testpmd:<9} {}",
                shape.frame(),
                goal.percent,
                stats.median * bits(shape) / 1e9,
                wire.join(" "),
            );
            text.truncate(text.trim_end().len());
            text.push('\n');
            for end in [End::Highest, End::Nothing, End::Restless] {
                let count = goal.ends.iter().filter(|one| **one == end).count();
                if count > 0 {
                    let all = goal.searches();
                    text += &format!("     {count} of {all} searches: {}\n", reason(end));
                }
            }
        }
        if self.disturbed > 0 {
            text += &format!(
                "     {} of {} trials made again: an end was kept from running\n",
                self.disturbed,
                self.trials + self.disturbed as usize
            );
        }
        if self.only_disturbed > 0 {
            text += &format!(
                "     {} trials count with the least loss of several that were all disturbed: \
                 measure on a quieter machine\n",
                self.only_disturbed
            );
        }
        for load in &self.loads {
            text += &load.line();
        }
        text
    }
}

impl Goal {
    /// Returns the number of searches.
    fn searches(&self) -> usize {
        self.rates.len() + self.ends.iter().filter(|end| **end == End::Restless).count()
    }
}

impl AtLoad {
    fn value(&self) -> Value {
        let Self { percent, rate, loss, quantiles } = self;
        let Some(quantiles) = quantiles else {
            return json!({
                "load_percent": percent,
                "messages_per_s": rate,
                "loss_percent": 100.0 * loss,
                "broken": true,
            });
        };
        let Quantiles { count, min, p50, p90, p99, p99_9, p99_99, max, .. } = quantiles;
        json!({
            "load_percent": percent,
            "messages_per_s": rate,
            "loss_percent": 100.0 * loss,
            "latencies": count,
            "min_us": min / 1e3,
            "p50_us": p50 / 1e3,
            "p90_us": p90 / 1e3,
            "p99_us": p99 / 1e3,
            "p99_9_us": p99_9 / 1e3,
            "p99_99_us": p99_99 / 1e3,
            "max_us": max / 1e3,
        })
    }

    fn line(&self) -> String {
        let Self { percent, loss, quantiles, .. } = self;
        let Some(Quantiles { p50, p90, p99, p99_9, p99_99, max, .. }) = quantiles else {
            return format!("     latency at {percent:>3} %  the connection broke at this load\n");
        };
        let us = [p50, p90, p99, p99_9, p99_99, max].map(|ns| format!("{:<9.1}", ns / 1e3));
        let line = format!("     latency at {percent:>3} %  [usec]  {}", us.join(" "));
        let lost = match loss {
            0.0 => String::new(),
            loss => format!("  lost or late: {:.3} %", 100.0 * loss),
        };
        format!("{}{lost}\n", line.trim_end())
    }
}

/// Returns the mean bits of a message's frames.
fn bits(shape: &Shape) -> f64 {
    8.0 * shape.frame() * shape.frames_per_message()
}

/// Says why a search has ended.
fn reason(end: End) -> &'static str {
    match end {
        End::Narrow => "the bounds are close to each other",
        End::Highest => "the highest load meets the goal: there is no limit within reach",
        End::Nothing => "not even the smallest load meets the goal",
        End::Restless => "the trials contradicted each other; give longer ones (--time-ms)",
    }
}

/// All results, and the histograms of latencies.
pub(super) struct Report<'a> {
    args: &'a NdrArgs,
    device: &'a str,
    points: Vec<Point>,
    pub(super) log: Log,
}

impl<'a> Report<'a> {
    /// Creates the report, and prints the head of the table.
    pub(super) fn new(args: &'a NdrArgs, device: &'a str) -> Self {
        let report = Self { args, device, points: Vec::new(), log: Log::default() };
        if !args.json {
            print!("{}", report.head());
        }
        report
    }

    fn head(&self) -> String {
        let NdrArgs { searches, time_ms, trials, width, mtu, .. } = self.args;
        let wires: Vec<String> =
            self.args.link.iter().map(|link| format!("{:<8}", format!("{link}G[%]"))).collect();
        let latency = if self.args.loads().is_empty() {
            String::new()
        } else {
            format!(
                " latency: from the time at which a message was due to its acknowledgement, open \
                 loop of {} ms;\n 50 %, 90 %, 99 %, 99.9 %, 99.99 % and the longest\n",
                self.args.load_time_ms
            )
        };
        let head = format!(
            " {}: SENDs, path MTU {mtu}; MLRsearch, {searches} search(es) of each point; trials of \
             {time_ms} ms, at most\n {trials} at a load, width {width} %, seed {}\n rates in 10^6 \
             messages a second; Gb/s and lengths with Ethernet's check sequence; shares of the\n \
             median: of the bare port, of testpmd, of the wire\n{latency} svc size       frame[B] \
             loss[%]  min       q1        median    q3        max       Gb/s     bare[%]  \
             testpmd[%] {}",
            self.device,
            self.args.ends.device.seed.unwrap_or(0),
            wires.join(" "),
        );
        format!("{}\n", head.trim_end())
    }

    /// Adds a point, and prints its lines.
    pub(super) fn add(&mut self, point: Point) {
        if !self.args.json {
            print!("{}", point.lines(&self.args.link));
        }
        self.points.push(point);
    }

    /// Prints what stands below the table, or the JSON, and writes the log of latencies. The error
    /// that has ended the measurement early, if there is one, stands in the JSON.
    pub(super) fn finish(self, error: Option<&BenchError>) -> Result<(), BenchError> {
        if self.args.json {
            println!("{}", self.value(error));
        } else {
            let mut reasons: Vec<String> = Vec::new();
            for point in self.points.iter().filter(|point| point.shape.is_ok()) {
                let beside = [("bare", Some(&point.bare)), ("testpmd", point.testpmd.as_ref())];
                for (name, beside) in beside {
                    if let Some(Beside::Not(reason)) = beside {
                        reasons.push(format!(" {name}: {reason}"));
                    }
                }
            }
            reasons.sort();
            reasons.dedup();
            reasons.iter().for_each(|reason| println!("{reason}"));
        }
        match &self.args.hdr_log {
            Some(file) => self.log.write(file),
            None => Ok(()),
        }
    }

    fn value(&self, error: Option<&BenchError>) -> Value {
        let args = self.args;
        json!({
            "test": "ndr",
            "incomplete": error.map(ToString::to_string),
            "device": self.device,
            "operation": "SEND",
            "path_mtu": args.mtu,
            "method": {
                "name": "MLRsearch",
                "searches": args.searches,
                "trial_ms": args.time_ms,
                "trials_at_a_load_at_most": args.trials,
                "width_percent": args.width,
                "grace_percent": 100.0 * GRACE,
                "disturbed_by_a_gap_of_us": GAP.as_micros() as u64,
                "closed_loop_trials": CLOSED,
                "start_of_closed_loop": START,
                "seed": args.ends.device.seed.unwrap_or(0),
                "load_ms": args.load_time_ms,
            },
            "points": self.points.iter().map(|point| point.value(&args.link)).collect::<Vec<_>>(),
            "hdr_log": args.hdr_log,
            "machine": Machine::this(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(words: &str) -> NdrArgs {
        let words = ["uroce-perf", "ndr"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).expect("options of ndr").command {
            Command::Ndr(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn point() -> Point {
        let shape = Shape::new(Size::Frame(1518), Service::Rc, 4096).expect("it fits");
        let mut point = Point::new(Service::Rc, Size::Frame(1518), shape, &[0.0, 0.5]);
        for rate in [1e6, 3e6, 2e6] {
            let found = |rate, end| Found { rate, end };
            let loads = [Load { rate, losses: vec![0.0, 0.0] }];
            point.add(&[found(rate, End::Narrow), found(2.0 * rate, End::Highest)], &loads);
        }
        point.bare = Beside::Rate(8e6);
        point
    }

    #[test]
    fn each_goal_has_its_box_and_its_shares_of_port_and_wire() {
        let lines = point().lines(&[100, 400]);
        let words: Vec<Vec<&str>> =
            lines.lines().map(|line| line.split_whitespace().collect()).collect();
        let first = "RC 1518 1518 0 1.0000 1.5000 2.0000 2.5000 3.0000 24.288 25.0 - 24.61 6.15";
        assert_eq!(words[0].join(" "), first);
        let second = "1518 0.5 2.0000 3.0000 4.0000 5.0000 6.0000 48.576 50.0 - 49.22 12.30";
        assert_eq!(words[1].join(" "), second);
        assert!(lines.contains("3 of 3 searches: the highest load meets the goal"), "{lines}");
        assert_eq!(point().least_loss_rate(), Some(2e6));
    }

    #[test]
    fn a_search_without_a_result_is_no_rate() {
        let mut point = point();
        let restless = [Found { rate: 0.0, end: End::Restless }; 2];
        point.add(&restless, &[]);
        assert_eq!(point.least_loss_rate(), Some(2e6), "the median of the others");
        let lines = point.lines(&[]);
        assert!(lines.contains("1 of 4 searches: the trials contradicted each other"), "{lines}");
        let shape = Shape::new(Size::Frame(64), Service::Rc, 4096).expect("it fits");
        let mut point = Point::new(Service::Rc, Size::Frame(64), shape, &[0.0, 0.5]);
        point.add(&restless, &[]);
        assert!(point.least_loss_rate().is_none() && point.has_result());
        let goal = &point.value(&[100])["goals"][0];
        assert_eq!((&goal["messages_per_s"], &goal["of_link"]), (&Value::Null, &json!([])));
    }

    #[test]
    fn a_load_shows_what_was_lost_and_a_connection_that_broke() {
        let quantiles = Some(Quantiles { p50: 2500.0, max: 9000.0, ..Quantiles::default() });
        let load = AtLoad { percent: 90.0, rate: 1e6, loss: 0.0, quantiles };
        assert_eq!(
            load.line(),
            "     latency at  90 %  [usec]  2.5       0.0       0.0       \
            0.0       0.0       9.0\n"
        );
        let late = AtLoad { loss: 0.0125, ..load }.line();
        assert!(late.ends_with("9.0  lost or late: 1.250 %\n"), "{late}");
        let broken = AtLoad { quantiles: None, loss: 1.0, ..load };
        assert!(broken.line().contains("the connection broke"), "{}", broken.line());
        assert_eq!(broken.value()["broken"], json!(true));
        assert_eq!(broken.value()["p50_us"], Value::Null);
    }

    #[test]
    fn a_sender_works_for_all_that_it_sends() {
        let mut cycles = [[0; Stage::ALL.len()]; 2];
        (cycles[0][0], cycles[1][0]) = (1000, 1000);
        let mut point = point();
        let mut sample = Sample::default();
        (sample.due, sample.received, sample.stages) = (100, 50, cycles);
        point.set_stages(&sample);
        let name = Stage::ALL[0].name();
        assert_eq!([&point.stages[0][name], &point.stages[1][name]], [&json!(10.0), &json!(20.0)]);
    }

    #[test]
    fn what_cannot_be_has_a_line_with_the_reason() {
        let args = args("--link 10");
        let mut report =
            Report { args: &args, device: "x", points: Vec::new(), log: Log::default() };
        let reason = "a datagram is longer";
        report.add(Point::impossible(Service::Ud, Size::Frame(9000), reason.to_owned()));
        assert_eq!(report.points[0].lines(&[10]), " UD  9000       a datagram is longer\n");
        let gone = BenchError::Peer("it is gone".to_owned());
        let value = report.value(Some(&gone));
        assert_eq!(value["points"][0]["impossible"], json!(reason));
        assert_eq!(value["incomplete"], json!(gone.to_string()));
    }

    #[test]
    fn the_json_states_the_method_and_each_search() {
        let args = args("--link 100 --seed 7");
        let report =
            Report { args: &args, device: "ring", points: vec![point()], log: Log::default() };
        let value = report.value(None);
        assert_eq!(value["incomplete"], Value::Null);
        assert_eq!(value["method"]["seed"], json!(7));
        assert_eq!(value["method"]["trial_ms"], json!(50));
        let goal = &value["points"][0]["goals"][0];
        assert_eq!(goal["searches_messages_per_s"], json!([1e6, 3e6, 2e6]));
        assert_eq!(goal["messages_per_s"]["median"], json!(2e6));
        assert_eq!(value["points"][0]["trials"], json!(6));
        assert!(report.head().contains("MLRsearch, 10 search(es)"));
    }
}
