//! Figures of a report: what its results say, each with a value for every round.

use super::results::Entry;
use super::work::Work;
use serde_json::Value;

/// Whether a higher value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// Rates.
    Higher,
    /// Times.
    Lower,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The plot that it is in.
    pub(super) part: String,
    /// The curve that it is on.
    pub(super) series: String,
    /// The place on the horizontal axis.
    pub(super) place: String,
    pub(super) unit: &'static str,
    pub(super) better: Better,
    /// A value for each round in which it was measured.
    pub(super) values: Vec<f64>,
    /// It is not compared: it follows from other figures, is a limit, or is a few rare events.
    pub(super) is_beside: bool,
}

impl Figure {
    /// Creates a figure without values, from its part, series and place.
    pub(super) fn new(
        [part, series, place]: [&str; 3],
        unit: &'static str,
        better: Better,
    ) -> Self {
        Self {
            part: part.to_owned(),
            series: series.to_owned(),
            place: place.to_owned(),
            unit,
            better,
            values: Vec::new(),
            is_beside: false,
        }
    }

    /// Returns the figure's name.
    pub(super) fn id(&self) -> String {
        format!("{}: {}, {}", self.part, self.series, self.place)
    }

    /// Tells whether this is the same figure of another report.
    pub(super) fn is_of(&self, other: &Figure) -> bool {
        (&self.part, &self.series, &self.place) == (&other.part, &other.series, &other.place)
    }
}

/// Parts of a report.
pub(super) const ZERO_LOSS: &str = "zero-loss rate";
pub(super) const THROUGHPUT: &str = "zero-loss throughput";
pub(super) const LITTLE_LOSS: &str = "rate with 0.5 % loss";
pub(super) const OVER_LOAD: &str = "latency over load";
pub(super) const CYCLES: &str = "cycles by stage";
pub(super) const LATENCY: &str = "latency";
pub(super) const QPS: &str = "queue pairs";
pub(super) const REGIONS: &str = "memory regions";
pub(super) const CORES: &str = "cores";
pub(super) const PROCESSES: &str = "processes";
pub(super) const LOSS: &str = "goodput with loss";
pub(super) const FAILOVER: &str = "failover";
pub(super) const STACKS: &str = "stacks";

/// Returns all figures of a report's results, in the order in which they were measured first.
pub(super) fn figures(entries: &[Entry]) -> Vec<Figure> {
    let mut all = Figures::default();
    for entry in entries {
        if let Ok(value) = &entry.outcome {
            all.take(&entry.work, value);
        }
    }
    all.0
}

#[derive(Default)]
struct Figures(Vec<Figure>);

impl Figures {
    fn add(&mut self, names: [&str; 3], unit: &'static str, better: Better, value: Option<f64>) {
        self.put(Figure::new(names, unit, better), value);
    }

    fn derive(&mut self, names: [&str; 3], unit: &'static str, value: Option<f64>) {
        let figure = Figure { is_beside: true, ..Figure::new(names, unit, Better::Higher) };
        self.put(figure, value);
    }

    fn put(&mut self, figure: Figure, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        match self.0.iter_mut().find(|other| other.is_of(&figure)) {
            Some(known) => known.values.push(value),
            None => self.0.push(Figure { values: vec![value], ..figure }),
        }
    }

    fn take(&mut self, work: &Work, value: &Value) {
        use Better::{Higher, Lower};
        match work {
            Work::Rates { .. } => {
                for point in list(&value["points"]) {
                    self.rates(point);
                }
            }
            Work::Latency { size, .. } => {
                let (results, size) = (&value["results"], size.to_string());
                for (name, key) in PERFTEST_QUANTILES {
                    self.add([LATENCY, name, &size], "µs", Lower, results[key].as_f64());
                }
            }
            Work::Qps(count) => {
                let names = [QPS, "WRITE of 64 B", &count.to_string()];
                self.add(names, "M/s", Higher, scaled(value));
            }
            Work::Regions(count) => {
                let names = [REGIONS, "WRITE of 64 B", &count.to_string()];
                self.add(names, "M/s", Higher, scaled(value));
            }
            Work::Cores(pairs) => {
                let names = [CORES, "WRITE of 64 KiB", &pairs.to_string()];
                self.add(names, "Gb/s", Higher, value["gbps"].as_f64());
            }
            Work::Processes(pairs) => {
                let names = [PROCESSES, "WRITE of 64 KiB", &pairs.to_string()];
                self.add(names, "Gb/s", Higher, value["gbps"].as_f64());
            }
            Work::Loss => {
                for point in list(&value["points"]) {
                    let mode = point["mode"].as_str().unwrap_or_default();
                    let series = if mode == "own" { "peer of uroce" } else { "any peer" };
                    let place = point["p"].as_f64().map_or_else(String::new, probability);
                    self.add([LOSS, series, &place], "Gb/s", Higher, point["gbps"].as_f64());
                }
            }
            Work::Failover(qps) => {
                let gap = value["failover_us"].as_f64().map(|us| us / 1e3);
                self.add([FAILOVER, "gap", &format!("{qps} QP")], "ms", Lower, gap);
            }
            Work::Uroce => {
                let gbps = value["results"]["BW_average"].as_f64();
                self.add([STACKS, "throughput", work.stack()], "Gb/s", Higher, gbps);
            }
            Work::Other(_) => {
                // Not uroce's, and not to be judged in a comparison.
                let gbps = value["gbps"].as_f64();
                self.derive([STACKS, "throughput", work.stack()], "Gb/s", gbps);
            }
        }
    }

    /// Takes a point of `ndr`.
    fn rates(&mut self, point: &Value) {
        use Better::{Higher, Lower};
        let text = |key: &str| point[key].as_str().unwrap_or_default().to_owned();
        let (service, size) = (text("service"), text("size"));
        let (Some(frame), Some(frames)) =
            (point["frame_bytes"].as_f64(), point["frames_per_message"].as_f64())
        else {
            return;
        };
        let gbit = 8.0 * frame * frames / 1e9;
        for goal in list(&point["goals"]) {
            let rate = goal["messages_per_s"]["median"].as_f64();
            let is_zero = goal["loss_percent"].as_f64() == Some(0.0);
            let part = if is_zero { ZERO_LOSS } else { LITTLE_LOSS };
            self.add([part, &service, &size], "M/s", Higher, rate.map(|rate| rate / 1e6));
            if !is_zero {
                continue;
            }
            let names = [THROUGHPUT, service.as_str(), size.as_str()];
            self.derive(names, "Gb/s", rate.map(|rate| rate * gbit));
            for link in list(&goal["of_link"]) {
                let gbps = link["gbps"].as_u64().unwrap_or(0);
                let part = share_of(gbps);
                self.derive([&part, &service, &size], "%", link["percent"].as_f64());
            }
        }
        let bare = point["bare_port"]["messages_per_s"].as_f64();
        self.derive([THROUGHPUT, BARE, &size], "Gb/s", bare.map(|rate| rate * gbit));
        for (name, end) in [("sender", "client"), ("receiver", "server")] {
            let part = format!("{CYCLES}, {name}, {service}");
            let stages = point["cycles_per_message"][end].as_object();
            for (stage, cycles) in stages.into_iter().flatten() {
                // Less than a cycle counts as one, so that no round lacks a stage.
                let cycles = cycles.as_f64().map(|cycles| cycles.max(1.0));
                self.add([&part, stage, &size], "cycles", Lower, cycles);
            }
        }
        for load in list(&point["latency_over_load"]) {
            let part = format!("{OVER_LOAD}, {service} {size}");
            let percent = load["load_percent"].as_f64().unwrap_or(0.0);
            for (name, key) in LOAD_QUANTILES {
                let names = [part.as_str(), name, &format!("{percent} %")];
                let is_beside = RARE.contains(&name);
                let figure = Figure { is_beside, ..Figure::new(names, "µs", Lower) };
                self.put(figure, load[key].as_f64());
            }
        }
    }
}

/// Name of the bare port's curve.
pub(super) const BARE: &str = "bare port";

/// Quantiles of a latency test and their keys in perftest's JSON.
const PERFTEST_QUANTILES: [(&str, &str); 4] = [
    ("50 %", "t_typical"),
    ("90 %", "percentile_90"),
    ("99 %", "percentile_99"),
    ("99.9 %", "percentile_99.9"),
];
/// Quantiles at a load and their keys.
const LOAD_QUANTILES: [(&str, &str); 6] = [
    ("50 %", "p50_us"),
    ("90 %", "p90_us"),
    ("99 %", "p99_us"),
    ("99.9 %", "p99_9_us"),
    ("99.99 %", "p99_99_us"),
    ("longest", "max_us"),
];

/// Quantiles that a few messages decide.
const RARE: [&str; 2] = ["99.99 %", "longest"];

/// Returns the part of shares of a wire.
pub(super) fn share_of(gbps: u64) -> String {
    format!("share of a {gbps} Gb/s wire")
}

/// Returns a probability as text, such as 0 and 1e-5.
fn probability(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:e}") }
}

/// Returns the rate of `scale`, in 10^6 messages per second.
fn scaled(value: &Value) -> Option<f64> {
    value["points"][0]["messages_per_s"].as_f64().map(|rate| rate / 1e6)
}

/// Returns the values of a list, of none if it is not one.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_figure_has_a_value_for_each_round_and_shares_are_not_compared() {
        let work = Work::Rates { service: "RC".to_owned(), size: "1518".to_owned() };
        let entry = |round, rate: f64| {
            let value = json!({ "points": [{
                "service": "RC", "size": "1518", "frame_bytes": 1518.0, "frames_per_message": 1.0,
                "goals": [
                    { "loss_percent": 0.0, "messages_per_s": { "median": rate },
                      "of_link": [{ "gbps": 100, "percent": 12.5 }] },
                    { "loss_percent": 0.5, "messages_per_s": { "median": rate } },
                ],
                "bare_port": { "messages_per_s": 2e6 },
                "cycles_per_message": { "client": { "transmit": 90.0, "timers": 0.0 } },
                "latency_over_load": [{ "load_percent": 50.0, "p50_us": 3.5, "max_us": 9.0 }],
            }] });
            Entry { work: work.clone(), round, outcome: Ok(value) }
        };
        let failed = Entry { work: work.clone(), round: 2, outcome: Err("gone".to_owned()) };
        let all = figures(&[entry(0, 1e6), entry(1, 2e6), failed]);
        let of = |id: &str| all.iter().find(|figure| figure.id() == id).expect(id);
        assert_eq!(of("zero-loss rate: RC, 1518").values, [1.0, 2.0]);
        assert_eq!(of("rate with 0.5 % loss: RC, 1518").values, [1.0, 2.0]);
        let throughput = of("zero-loss throughput: RC, 1518");
        assert!((throughput.values[0] - 12.144).abs() < 1e-9 && throughput.is_beside);
        assert_eq!(of("share of a 100 Gb/s wire: RC, 1518").values, [12.5, 12.5]);
        assert_eq!(of("cycles by stage, sender, RC: transmit, 1518").values, [90.0, 90.0]);
        assert_eq!(of("cycles by stage, sender, RC: timers, 1518").values, [1.0, 1.0]);
        let latency = of("latency over load, RC 1518: 50 %, 50 %");
        assert_eq!((latency.better, latency.values.len()), (Better::Lower, 2));
        let longest = of("latency over load, RC 1518: longest, 50 %");
        assert!(longest.values == [9.0, 9.0] && longest.is_beside && !latency.is_beside);
    }
}
