//! Report of goodput on lossy links: table, JSON, comma-separated values and plot.

use super::Mode;
use crate::cli::LossArgs;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::perf::measure::median;
use crate::plot::{Axis, Curve, Plot};
use serde_json::{Value, json};
use std::fmt::Write;

/// Results of all runs of one mode and probability.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) mode: Mode,
    /// Probability of loss each way.
    pub(super) loss: f64,
    /// Goodput of each run in Gb/s.
    pub(super) gbps: Vec<f64>,
    /// Packets retransmitted by both ends in all runs.
    pub(super) retransmissions: u64,
}

impl Point {
    /// Makes a point without runs.
    pub(super) fn new(mode: Mode, loss: f64) -> Self {
        Self { mode, loss, gbps: Vec::new(), retransmissions: 0 }
    }

    fn median(&self) -> f64 {
        median(&self.gbps)
    }

    fn least(&self) -> f64 {
        self.gbps.iter().copied().fold(f64::MAX, f64::min)
    }

    fn most(&self) -> f64 {
        self.gbps.iter().copied().fold(0.0, f64::max)
    }
}

/// All results.
pub(super) struct Report<'a> {
    pub(super) args: &'a LossArgs,
    /// One for each mode and probability; those of a mode in ascending order of probability.
    pub(super) points: Vec<Point>,
}

impl Report<'_> {
    /// Prints the results in the form that the options choose.
    pub(super) fn print(&self) {
        if self.args.json {
            println!("{}", self.value());
        } else if self.args.csv {
            print!("{}", self.csv());
        } else {
            print!("{}", self.table());
        }
    }

    /// Returns a point's goodput in percent of that of the same mode without loss.
    fn share(&self, point: &Point) -> f64 {
        let whole = self.points.iter().find(|whole| whole.mode == point.mode);
        whole.map_or(f64::NAN, |whole| 100.0 * point.median() / whole.median())
    }

    fn timeout_us(&self) -> f64 {
        4.096 * 2f64.powi(self.args.ack_timeout.into())
    }

    fn table(&self) -> String {
        let LossArgs { size, mtu, runs, time_ms, .. } = self.args;
        let mbufs = self.args.device.mbufs;
        let mbufs = mbufs.map_or(String::new(), |count| format!(", {count} mbufs each"));
        let timeout = self.timeout_us() / 1e3;
        let mut text = format!(
            " RC WRITE of {size} bytes, path MTU {mtu}, ACK timeout {timeout:.3} ms{mbufs}; each end \
             loses what it\n receives with probability p; medians of {runs} run(s) of {time_ms} \
             ms, interleaved\n mode  p        goodput[Gb/s]  share[%]  least      most       \
             retransmitted\n"
        );
        for point in &self.points {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                " {:<5} {:<8} {:<14.2} {:<9.2} {:<10.2} {:<10.2} {}",
                point.mode.name(),
                probability(point.loss),
                point.median(),
                self.share(point),
                point.least(),
                point.most(),
                point.retransmissions,
            );
        }
        text + &format!(" Goodput against p: {}\n", self.args.plot.display())
    }

    fn csv(&self) -> String {
        let mut text = "mode,p,gbps,share_percent,least_gbps,most_gbps,retransmitted\n".to_owned();
        for point in &self.points {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{},{},{:.4},{:.3},{:.4},{:.4},{}",
                point.mode.name(),
                point.loss,
                point.median(),
                self.share(point),
                point.least(),
                point.most(),
                point.retransmissions,
            );
        }
        text
    }

    fn value(&self) -> Value {
        let point = |point: &Point| {
            json!({
                "mode": point.mode.name(),
                "p": point.loss,
                "gbps": point.median(),
                "share_percent": self.share(point),
                "least_gbps": point.least(),
                "most_gbps": point.most(),
                "runs_gbps": point.gbps,
                "retransmitted": point.retransmissions,
            })
        };
        json!({
            "size": self.args.size,
            "path_mtu": self.args.mtu,
            "mbufs": self.args.device.mbufs,
            "ack_timeout_us": self.timeout_us(),
            "runs": self.args.runs,
            "time_ms": self.args.time_ms,
            "points": self.points.iter().map(point).collect::<Vec<Value>>(),
            "plot": self.args.plot,
            "machine": Machine::this(),
        })
    }

    /// Writes the plot, with a curve for each mode.
    pub(super) fn draw(&self) -> Result<(), BenchError> {
        let names: Vec<String> = self.args.loss.iter().map(|loss| probability(*loss)).collect();
        let of_mode = |mode: Mode| {
            let points = self.points.iter().filter(|point| point.mode == mode);
            points.zip(0..).map(|(point, at)| (f64::from(at), point.median())).collect()
        };
        let lines: Vec<(Mode, Vec<(f64, f64)>)> =
            Mode::of(self.args.mode).iter().map(|&mode| (mode, of_mode(mode))).collect();
        let curves: Vec<Curve<'_>> = lines
            .iter()
            .map(|(mode, points)| Curve { name: mode.name(), points, ..Curve::default() })
            .collect();
        let title = format!(
            "Goodput of RC WRITE of {} bytes, ACK timeout {:.3} ms",
            self.args.size,
            self.timeout_us() / 1e3
        );
        let title_across = "probability of loss each way";
        let across = Axis::Values { title: title_across, names: &names };
        let up = "goodput, Gb/s";
        Plot { title: &title, across, up, is_log: false, curves: &curves, marks: &[] }
            .write(&self.args.plot)
    }
}

/// Returns a probability as text, such as 0 and 1e-5.
fn probability(loss: f64) -> String {
    if loss == 0.0 { "0".to_owned() } else { format!("{loss:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args() -> LossArgs {
        let words = ["uroce-perf", "loss", "--loss", "0,1e-3", "--runs", "3"];
        match Cli::try_parse_from(words).expect("options of loss").command {
            Command::Loss(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn report(args: &LossArgs) -> Report<'_> {
        let point = |mode, loss, gbps: [f64; 3]| Point {
            gbps: gbps.to_vec(),
            retransmissions: 7,
            ..Point::new(mode, loss)
        };
        let points = vec![
            point(Mode::Any, 0.0, [90.0, 100.0, 110.0]),
            point(Mode::Any, 1e-3, [60.0, 40.0, 50.0]),
            point(Mode::Own, 0.0, [80.0, 80.0, 80.0]),
            point(Mode::Own, 1e-3, [60.0, 60.0, 60.0]),
        ];
        Report { args, points }
    }

    #[test]
    fn the_share_is_that_of_the_same_peers_median_without_loss() {
        let args = args();
        let report = report(&args);
        let table = report.table();
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[3], ["any", "0", "100.00", "100.00", "90.00", "110.00", "7"]);
        assert_eq!(lines[4], ["any", "1e-3", "50.00", "50.00", "40.00", "60.00", "7"]);
        assert_eq!(lines[6], ["own", "1e-3", "60.00", "75.00", "60.00", "60.00", "7"]);
        assert!(table.contains("ACK timeout 67.109 ms"), "{table}");
    }

    #[test]
    fn json_and_comma_separated_values_say_the_same() {
        let args = args();
        let report = report(&args);
        let csv = report.csv();
        assert_eq!(csv.lines().nth(2), Some("any,0.001,50.0000,50.000,40.0000,60.0000,7"));
        let value = report.value();
        let point = &value["points"][1];
        assert_eq!((&point["p"], &point["share_percent"]), (&json!(0.001), &json!(50.0)));
        assert_eq!(point["runs_gbps"], json!([60.0, 40.0, 50.0]));
        assert_eq!(csv.lines().count(), 5);
    }

    #[test]
    fn probabilities_are_short() {
        assert_eq!([0.0, 1e-5, 5e-2, 1.5e-3].map(probability), ["0", "1e-5", "5e-2", "1.5e-3"]);
    }
}
