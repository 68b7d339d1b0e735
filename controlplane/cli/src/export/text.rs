//! The metrics as text, by Prometheus's rules for names: base units, `_total` for counts that only
//! grow.
//!
//! Invariants
//! - Whatever a process tells, the text is well formed: each metric has one type, and no two of its
//!   values have the same labels.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::Duration;

use uroce_command::answer::{Distribution, LcoreRuntime, PortInfo, PortStats, Scraped};
use uroce_command::render::harmless;

use super::collect::Told;

/// Bounds of the buckets of round trips: powers of two in nanoseconds, 256 ns to 4.3 s.
const FIRST_BOUND: u32 = 8;
const LAST_BOUND: u32 = 32;
/// Largest number of values of one process.
const VALUES: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: String,
    /// Values as text, by their labels. That of a histogram is all its lines.
    values: BTreeMap<String, String>,
}

/// Metrics by name.
#[derive(Debug)]
pub(super) struct Metrics {
    families: BTreeMap<String, Family>,
    /// Labels of the process or device that is being added.
    scope: String,
    /// Values that the process may still add.
    left: usize,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Metrics {
    pub(super) fn new() -> Metrics {
        Metrics { families: BTreeMap::new(), scope: String::new(), left: VALUES }
    }

    /// Returns all metrics as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
            for (labels, value) in &family.values {
                let _ = match labels.as_str() {
                    _ if family.kind == Kind::Histogram => write!(text, "{value}"),
                    "" => writeln!(text, "{name} {value}"),
                    labels => writeln!(text, "{name}{{{labels}}} {value}"),
                };
            }
        }
        text
    }

    /// Adds what the exporter tells of itself.
    pub(super) fn exporter(&mut self, took: Duration, left_out: usize) {
        self.begin(&[]);
        let help = "Time that it took to ask all processes.";
        self.gauge("roce_exporter_scrape_duration_seconds", help, &[], took.as_secs_f64());
        let help = "Processes that were not asked since there are too many.";
        self.gauge("roce_exporter_processes_left_out", help, &[], left_out);
    }

    /// Adds a process that does not answer.
    pub(super) fn silent(&mut self, pid: &str) {
        self.begin(&[("pid", pid)]);
        self.up(false);
    }

    /// Adds a process with its devices.
    pub(super) fn process(&mut self, pid: &str, told: &Told) {
        self.begin(&[("pid", pid)]);
        self.up(true);
        let of = &told.process;
        let (uid, program) = (of.uid.to_string(), of.program.as_str());
        let labels =
            [("program", program), ("version", of.version.as_str()), ("uid", uid.as_str())];
        self.gauge("roce_process_info", "A process that uses uroce.", &labels, 1);
        for device in &told.devices {
            self.scope = labels_of(&[("pid", pid), ("device", &device.device)]);
            self.device(device);
        }
    }

    fn begin(&mut self, labels: Labels<'_>) {
        self.scope = labels_of(labels);
        self.left = VALUES;
    }

    fn up(&mut self, is_up: bool) {
        let help = "Whether the process answers.";
        self.gauge("roce_process_up", help, &[], u8::from(is_up));
    }

    fn device(&mut self, of: &Scraped) {
        let dropped: Vec<&str> = of.errors.iter().map(|drop| drop.reason.as_str()).collect();
        for counter in of.counters.iter().filter(|of| !dropped.contains(&of.name.as_str())) {
            let Some(name) = metric_name(&counter.name) else { continue };
            match counter.is_level() {
                true => self.gauge(&name, &counter.meaning, &[], counter.value),
                false => self.counter(&name, &counter.meaning, &[], counter.value),
            }
        }
        for drop in &of.errors {
            for (lcore, count) in drop.lcores.iter().enumerate() {
                let labels = [("reason", drop.reason.as_str()), ("lcore", &lcore.to_string())];
                self.counter("roce_dropped_packets", "A frame dropped, by reason.", &labels, count);
            }
        }
        of.ports.iter().for_each(|port| self.port(port));
        of.port_stats.iter().for_each(|stats| self.port_stats(stats));
        for core in &of.cores {
            let lcore = core.lcore.to_string();
            let labels = [("lcore", lcore.as_str())];
            self.counter("roce_lcore_turns", "Turns of an lcore.", &labels, core.turns);
            self.gauge("roce_lcore_qps", "Queue pairs of an lcore.", &labels, core.qps);
        }
        of.runtime.iter().for_each(|lcore| self.runtime(lcore));
        for count in &of.objects {
            let labels = [("object", count.object.as_str())];
            self.gauge("roce_objects", "Objects other than queue pairs.", &labels, count.count);
        }
        for group in &of.qps {
            let labels = [("service", group.service.as_str()), ("state", group.state.as_str())];
            self.gauge("roce_qps", "Queue pairs by service and state.", &labels, group.count);
        }
        of.round_trips.iter().for_each(|of| self.round_trips(of));
        for qp in &of.top {
            let qpn = format!("{:#08x}", qp.qpn);
            let labels = [("qpn", qpn.as_str())];
            let mut count = |name, help, value| self.counter(name, help, &labels, value);
            count("roce_qp_transmitted_packets", "Packets sent by a queue pair.", qp.tx_packets);
            count("roce_qp_received_packets", "Packets received by a queue pair.", qp.rx_packets);
            count(
                "roce_qp_transmitted_bytes",
                "Bytes of frames sent by a queue pair.",
                qp.tx_bytes,
            );
            count(
                "roce_qp_received_bytes",
                "Bytes of frames received by a queue pair.",
                qp.rx_bytes,
            );
        }
    }

    /// Adds the distribution of a device's round trips.
    fn round_trips(&mut self, of: &Distribution) {
        let name = "roce_request_round_trip_seconds";
        let help = "Time from sending an RC request to its acknowledgement; of requests that ask \
                    for one, one in 16 is measured.";
        let scope = self.scope.clone();
        // Each line is a value.
        let Some(left) = self.left.checked_sub((LAST_BOUND - FIRST_BOUND + 3) as usize) else {
            return;
        };
        self.left = left;
        let mut lines = String::new();
        // `Display` of a float is exact and has no exponent.
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        for bits in FIRST_BOUND..=LAST_BOUND {
            let bound = 1u64 << bits;
            let within = of.buckets.iter().filter(|bucket| bucket.le_ns <= bound);
            let count = within.fold(0u64, |sum, bucket| sum.saturating_add(bucket.count));
            let le = seconds(bound);
            let _ = writeln!(lines, "{name}_bucket{{{scope},le=\"{le}\"}} {count}");
        }
        let (sum, count) = (seconds(of.sum_ns), of.samples());
        let _ = writeln!(lines, "{name}_bucket{{{scope},le=\"+Inf\"}} {count}");
        let _ = writeln!(lines, "{name}_sum{{{scope}}} {sum}\n{name}_count{{{scope}}} {count}");
        self.add(name, Kind::Histogram, help, &[], lines);
    }

    fn port(&mut self, port: &PortInfo) {
        let (number, at) = (port.port.to_string(), port.number.to_string());
        let labels = [("port", number.as_str())];
        self.gauge("roce_port_up", "Whether a port's link is up.", &labels, u8::from(port.up));
        self.gauge("roce_port_mtu_bytes", "Largest Ethernet payload.", &labels, port.mtu);
        if let Some(mbps) = port.speed_mbps {
            let rate = u64::from(mbps) * 125_000;
            self.gauge("roce_port_rate_bytes_per_second", "Rate of a link.", &labels, rate);
        }
        let labels = [
            ("port", number.as_str()),
            ("number", at.as_str()),
            ("driver", port.driver.as_str()),
            ("name", port.name.as_str()),
            ("mac", port.mac.as_str()),
        ];
        self.gauge("roce_port_info", "A port.", &labels, 1);
    }

    fn port_stats(&mut self, of: &PortStats) {
        let number = of.port.to_string();
        let labels = [("port", number.as_str())];
        let mut count = |name, help, value| self.counter(name, help, &labels, value);
        count("roce_port_packets_received", "Frames received.", of.rx_packets);
        count("roce_port_packets_transmitted", "Frames sent.", of.tx_packets);
        count("roce_port_data_received_bytes", "Bytes received.", of.rx_bytes);
        count("roce_port_data_transmitted_bytes", "Bytes sent.", of.tx_bytes);
        count(
            "roce_port_receive_missed",
            "Frames without a descriptor or ring slot.",
            of.rx_missed,
        );
        count("roce_port_receive_errors", "Frames received in error.", of.rx_errors);
        count("roce_port_receive_nombuf", "Frames without a buffer.", of.rx_nombuf);
        count("roce_port_transmit_errors", "Frames that could not be sent.", of.tx_errors);
    }

    fn runtime(&mut self, of: &LcoreRuntime) {
        let lcore = of.lcore.to_string();
        let cycle = of.time_us as f64 / 1e6 / of.cycles.max(1) as f64;
        let stages = of.stages.iter().map(|stage| (stage.stage.as_str(), stage.cycles));
        for (activity, cycles) in stages.chain([("idle", of.idle_cycles), ("rest", of.rest_cycles)])
        {
            let help = "Measured time of an lcore, by stage of its turns; idle turns found nothing to \
                        do; rest is between turns.";
            let labels = [("lcore", lcore.as_str()), ("activity", activity)];
            self.counter("roce_lcore_seconds", help, &labels, cycles as f64 * cycle);
        }
    }

    fn counter(&mut self, name: &str, help: &str, labels: Labels<'_>, value: impl Display) {
        self.add(&format!("{name}_total"), Kind::Counter, help, labels, value);
    }

    fn gauge(&mut self, name: &str, help: &str, labels: Labels<'_>, value: impl Display) {
        self.add(name, Kind::Gauge, help, labels, value);
    }

    fn add(&mut self, name: &str, kind: Kind, help: &str, labels: Labels<'_>, value: impl Display) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let family = self.families.entry(name.to_owned()).or_insert_with(|| {
            let help = harmless(help).replace('\\', "\\\\").replace('\n', " ");
            Family { kind, help, values: BTreeMap::new() }
        });
        if family.kind != kind {
            return;
        }
        let own = labels_of(labels);
        let comma = if own.is_empty() || self.scope.is_empty() { "" } else { "," };
        let labels = format!("{}{comma}{own}", self.scope);
        family.values.entry(labels).or_insert_with(|| value.to_string());
    }
}

fn labels_of(labels: Labels<'_>) -> String {
    let label = |(name, value): &(&str, &str)| {
        let value = harmless(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    labels.iter().map(label).collect::<Vec<_>>().join(",")
}

/// Returns the name of a counter's metric, without `_total`. `None` if the counter's name is not
/// one that uroce has.
fn metric_name(counter: &str) -> Option<String> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = !counter.is_empty() && counter.len() <= 64 && counter.chars().all(is_word);
    // Prometheus reads `us` as a unit.
    let counter = counter.replace("for_us", "for_this_host");
    is_name.then(|| format!("roce_{}", counter.strip_prefix("roce_").unwrap_or(&counter)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_command::answer::{Bucket, Counter, DropCount, Process};

    fn told(counters: &[(&str, &str)]) -> Told {
        let counter = |(name, meaning): &(&str, &str)| Counter {
            device: "d".into(),
            object: String::new(),
            name: (*name).into(),
            value: 7,
            meaning: (*meaning).into(),
        };
        let process = Process {
            pid: 1,
            program: "a\"b\\c\nd".into(),
            uid: 0,
            version: "1".into(),
            devices: vec![],
        };
        let drop = DropCount {
            device: "d".into(),
            reason: "rx_bad".into(),
            lcores: vec![0, 2],
            meaning: "m".into(),
        };
        let device = Scraped {
            device: "d".into(),
            counters: counters.iter().map(counter).collect(),
            errors: vec![drop],
            ..Scraped::default()
        };
        Told { process, devices: vec![device] }
    }

    #[test]
    fn processes_share_a_metric_and_counts_end_in_total() {
        let mut metrics = Metrics::new();
        metrics.process("1", &told(&[("rdma_sends", "A message."), ("rx_bad", "m")]));
        metrics.process("2", &told(&[("rdma_sends", "A message."), ("depth_max", "The most.")]));
        metrics.silent("3");
        let text = metrics.text();
        let sends = "# HELP roce_rdma_sends_total A message.\n# TYPE roce_rdma_sends_total counter\n\
                     roce_rdma_sends_total{pid=\"1\",device=\"d\"} 7\n\
                     roce_rdma_sends_total{pid=\"2\",device=\"d\"} 7\n";
        assert!(text.contains(sends), "{text}");
        assert!(text.contains("# TYPE roce_depth_max gauge\n"), "{text}");
        assert!(text.contains("roce_process_up{pid=\"3\"} 0\n"), "{text}");
        assert!(
            text.contains("{pid=\"1\",device=\"d\",reason=\"rx_bad\",lcore=\"1\"} 2\n"),
            "{text}"
        );
        assert!(!text.contains("roce_rx_bad"), "a drop is counted once");
        assert!(text.contains(r#"program="a\"b\\c\nd""#), "{text}");
    }

    #[test]
    fn round_trips_are_a_histogram_of_cumulative_buckets() {
        let mut told = told(&[]);
        let buckets = [(256, 1), (1536, 2), (2048, 3), (1 << 32, 4)];
        told.devices[0].round_trips = Some(Distribution {
            device: "d".into(),
            sum_ns: 1_500_000_000,
            buckets: buckets.map(|(le_ns, count)| Bucket { le_ns, count }).to_vec(),
        });
        let mut metrics = Metrics::new();
        metrics.process("1", &told);
        let text = metrics.text();
        let name = "roce_request_round_trip_seconds";
        assert!(text.contains(&format!("# TYPE {name} histogram\n")), "{text}");
        let of = "pid=\"1\",device=\"d\"";
        for line in [
            format!("{name}_bucket{{{of},le=\"0.000000256\"}} 1\n"),
            format!("{name}_bucket{{{of},le=\"0.000001024\"}} 1\n"),
            format!("{name}_bucket{{{of},le=\"0.000002048\"}} 6\n"),
            format!("{name}_bucket{{{of},le=\"4.294967296\"}} 10\n"),
            format!("{name}_bucket{{{of},le=\"+Inf\"}} 10\n{name}_sum{{{of}}} 1.5\n"),
            format!("{name}_count{{{of}}} 10\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn a_hostile_process_spoils_only_its_own_metrics() {
        let mut metrics = Metrics::new();
        let names = [("qps_max", "x\n# TYPE"), ("qps_max", "y"), ("x{", ""), ("", ""), ("Ü", "")];
        metrics.process("1", &told(&names));
        let many: Vec<String> = (0..2 * VALUES).map(|at| format!("c{at}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "m")).collect();
        metrics.process("2", &told(&many));
        metrics.process("3", &told(&[("rdma_sends", "A message.")]));
        let text = metrics.text();
        assert_eq!(text.matches("\nroce_qps_max{").count(), 1);
        assert!(text.contains("# HELP roce_qps_max x # TYPE\n"), "{text}");
        assert!(text.contains("roce_rdma_sends_total{pid=\"3\",device=\"d\"} 7\n"));
        assert!(text.lines().count() < 4 * VALUES);
    }
}
