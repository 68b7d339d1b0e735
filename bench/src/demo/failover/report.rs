//! Report of a failover as text and JSON, and its verdict.

use super::traffic::{GRAIN, Tally};
use crate::cli::FailoverArgs;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::plot::{Axis, Curve, Plot};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Largest number of points of the plot.
const POINTS: u32 = 400;
/// Messages that a point of the plot stands for, on average before the cut: enough that the message
/// more or less at its edge, or a batch of them, does not show.
const MESSAGES: f64 = 400.0;
/// Points that the time from the cut to the last migration has at least.
const POINTS_OF_GAP: u32 = 4;
/// Longest failover of a link that reports that it is down.
const REPORTED_LIMIT: Duration = Duration::from_millis(1);

/// Measurements of one cut.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) args: &'a FailoverArgs,
    pub(super) tally: Tally,
    /// Start of the cut, since the epoch.
    pub(super) cut: Duration,
    /// Times of PATH_MIG at the sending and at the receiving node, since the epoch.
    pub(super) migrations: [Vec<Duration>; 2],
    /// Time from the last acknowledgement over the old path to the first over the new one, from the
    /// statistics of each queue pair.
    pub(super) silences: Vec<Duration>,
}

impl Report<'_> {
    /// Returns the ACK timeout, 4.096 µs · 2^code.
    pub(super) fn ack_timeout(&self) -> Duration {
        Duration::from_nanos(4096 << self.args.qp_timeout)
    }

    /// Returns the times from the cut to the first acknowledgement over the other link, in
    /// ascending order, of all queue pairs that had one.
    fn failovers(&self) -> Vec<Duration> {
        let times = self.tally.recovered.iter().flatten();
        let mut times: Vec<Duration> = times.map(|at| at.saturating_sub(self.cut)).collect();
        times.sort_unstable();
        times
    }

    /// Returns the time within which 99 % of the queue pairs have recovered; with few queue pairs,
    /// all.
    fn failover(&self) -> Duration {
        let times = self.failovers();
        let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
        times.get(at).copied().unwrap_or(Duration::MAX)
    }

    /// Returns the longest time allowed for a failover.
    fn limit(&self) -> Duration {
        if self.args.link_down {
            REPORTED_LIMIT
        } else {
            self.ack_timeout() * (u32::from(self.args.retry_count) + 2)
        }
    }

    /// Returns an error unless all messages arrived once and intact, and every queue pair migrated
    /// at both ends in time.
    pub(super) fn verdict(&self) -> Result<(), BenchError> {
        let Tally { messages, lost, doubled, corrupt, .. } = self.tally;
        let (qps, back) = (self.args.qps as usize, self.failovers().len());
        let migrated = self.migrations.each_ref().map(Vec::len);
        let wrong = if lost + doubled + corrupt > 0 {
            format!("of {messages} messages {lost} were lost, {doubled} doubled, {corrupt} spoilt")
        } else if back < qps {
            format!("only {back} of {qps} queue pairs came back after the cut")
        } else if migrated != [qps; 2] {
            format!("of {qps} queue pairs {migrated:?} have migrated at the two nodes")
        } else if self.failover() > self.limit() {
            let (took, limit) = (self.failover(), self.limit());
            format!("the other link was in use after {took:.1?}, not within {limit:.1?}")
        } else {
            return Ok(());
        };
        Err(BenchError::Corrupt(wrong))
    }

    pub(super) fn value(&self) -> Value {
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let times = self.failovers();
        let silence = self.silences.iter().max().copied();
        json!({
            "messages": self.tally.messages,
            "lost": self.tally.lost,
            "doubled": self.tally.doubled,
            "failover_us": us(self.failover()),
            "ack_timeout_us": us(self.ack_timeout()),
            "retry_cnt": self.args.retry_count,
            "path_mig_events": self.migrations.iter().map(Vec::len).sum::<usize>(),
            "corrupt": self.tally.corrupt,
            "qps": self.args.qps,
            "link_down": self.args.link_down,
            "limit_us": us(self.limit()),
            "failover_median_us": times.get(times.len() / 2).copied().map(us),
            "failover_max_us": times.last().copied().map(us),
            "longest_silence_us": silence.map(us),
            "plot": self.args.plot,
            "machine": Machine::this(),
        })
    }

    /// Prints the events in their order.
    pub(super) fn print(&self) {
        let (args, tally) = (self.args, &self.tally);
        let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
        let line = |time: Duration, text: String| println!(" {:>9.3} ms  {text}", ms(time));
        let (qps, size) = (args.qps, args.size);
        println!(
            " Two nodes, two links; {qps} RC queue pair(s), SENDs of {size} bytes, each verified"
        );
        let before = self.gbps(Duration::ZERO, self.cut);
        line(Duration::ZERO, format!("traffic by link 1: {before:.2} Gb/s"));
        let how = if args.link_down { "and reported down" } else { "silently" };
        line(self.cut, format!("link 1 is cut, both ways, {how}"));
        for (times, node) in self.migrations.iter().zip(["sending", "receiving"]) {
            if let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) {
                let text = format!("PATH_MIG at the {node} node, {} of them", times.len());
                line(*first, if first == last { text } else { format!("{text}, the first") });
            }
        }
        let (limit, why) =
            (self.limit(), if args.link_down { "" } else { ", retries + 2 timeouts" });
        if let Some(last) = self.failovers().last() {
            line(self.cut + *last, "every queue pair has an acknowledgement by link 2".to_owned());
        }
        println!(
            " Failover: {:.3} ms from the cut to the first acknowledgement by link 2{}; at most \
             {:.3}{why}",
            ms(self.failover()),
            if qps > 1 { ", of 99 % of the queue pairs" } else { "" },
            ms(limit)
        );
        let Tally { messages, lost, doubled, corrupt, .. } = tally;
        println!(" Messages: {messages}; {lost} lost, {doubled} doubled, {corrupt} spoilt");
        println!(" Throughput over time: {}", args.plot.display());
    }

    /// Writes the plot of the time around the cut, wide enough to show the gap.
    pub(super) fn draw(&self, file: &Path) -> Result<(), BenchError> {
        let gap = self.failovers().last().copied().unwrap_or_default();
        let around = (gap * 4).max(Duration::from_millis(5));
        let from = self.cut.saturating_sub(around);
        let end = GRAIN * self.tally.received.len() as u32;
        let to = (self.cut + gap + around).min(end);
        let step = self.bin(to.saturating_sub(from), gap);
        let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
        let mut curve = Vec::new();
        let mut at = from;
        while at + step <= to {
            curve.push((ms(at + step / 2), self.gbps(at, at + step)));
            at += step;
        }
        let mut marks = vec![(ms(self.cut), "link 1 cut")];
        let moments = self.migrations.iter().zip(["PATH_MIG, sender", "PATH_MIG, receiver"]);
        marks.extend(moments.filter_map(|(times, name)| Some((ms(*times.iter().min()?), name))));
        let title = format!(
            "Failover after {:.2} ms: {} RC queue pair(s), SENDs of {} bytes, two links",
            ms(self.failover()),
            self.args.qps,
            self.args.size
        );
        let curves = [Curve { name: "received", points: &curve, ..Curve::default() }];
        let up = "payload received, Gb/s";
        let across = Axis::Time;
        Plot { title: &title, across, up, is_log: false, curves: &curves, marks: &marks }
            .write(file)
    }

    /// Returns the time that a point of a plot of `whole` stands for.
    fn bin(&self, whole: Duration, gap: Duration) -> Duration {
        let bits = f64::from(self.args.size) * 8.0;
        let messages_per_ns = self.gbps(Duration::ZERO, self.cut) / bits;
        let enough = Duration::from_nanos((MESSAGES / messages_per_ns.max(1e-9)) as u64);
        let wide = enough.min(gap / POINTS_OF_GAP).max(whole / POINTS);
        GRAIN * (wide.as_nanos() / GRAIN.as_nanos() + 1) as u32
    }

    /// Returns the payload rate received between two times, in Gb/s.
    fn gbps(&self, from: Duration, to: Duration) -> f64 {
        let grain = |time: Duration| (time.as_nanos() / GRAIN.as_nanos()) as usize;
        let (from, to) = (grain(from), grain(to).min(self.tally.received.len()));
        let received = self.tally.received.get(from..to).unwrap_or_default();
        let bits = received.iter().map(|count| u64::from(*count)).sum::<u64>() as f64
            * f64::from(self.args.size)
            * 8.0;
        bits / (GRAIN * received.len().max(1) as u32).as_nanos() as f64
    }
}
