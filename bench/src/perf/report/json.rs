//! perftest's JSON. As in perftest, `results` has the last size only; `uroce.sweep` has all sizes.

use super::Units;
use super::text::Title;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::perf::measure::{Bandwidth, Quantiles};
use crate::perf::plan::Measure;
use serde_json::{Map, Value, json};
use std::path::Path;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Row {
    /// A row of a bandwidth test.
    Bandwidth(Bandwidth),
    /// A row of a latency test, with the size in bytes.
    Latency(u32, Quantiles),
}

impl Row {
    /// Returns perftest's names of the values, and the values.
    pub(super) fn values(&self, units: &Units) -> Vec<(&'static str, Value)> {
        let time = |ns: f64| Value::from(units.time(ns));
        match self {
            Self::Bandwidth(row) => vec![
                ("MsgSize", row.size.into()),
                ("n_iterations", row.messages.into()),
                ("BW_peak", (row.peak_bytes_per_second() / units.bandwidth()).into()),
                ("BW_average", units.average(row).into()),
                ("MsgRate", (row.messages_per_second() / 1e6).into()),
            ],
            Self::Latency(size, row) => vec![
                ("MsgSize", (*size).into()),
                ("n_iterations", row.count.into()),
                ("t_min", time(row.min)),
                ("t_max", time(row.max)),
                ("t_typical", time(row.p50)),
                ("t_avg", time(row.mean)),
                ("t_stdev", time(row.stdev)),
                ("percentile_99", time(row.p99)),
                ("percentile_99.9", time(row.p99_9)),
                ("percentile_90", time(row.p90)),
                ("percentile_99.99", time(row.p99_99)),
                ("percentile_99.999", time(row.p99_999)),
            ],
        }
    }
}

/// A row with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The figures.
    pub(crate) row: Row,
    /// Share of the CPUs' time in per cent.
    pub(crate) cpu_util: Option<f64>,
    /// What this end and the other have sent, in a test of both directions.
    pub(crate) directions: Option<[Bandwidth; 2]>,
    /// Growth of the counters.
    pub(crate) counters: Vec<(String, u64)>,
}

impl Record {
    fn value(&self, units: &Units) -> Value {
        let named = |(name, value): (&str, Value)| (name.to_owned(), value);
        let mut all: Map<String, Value> = self.row.values(units).into_iter().map(named).collect();
        if let Some(percent) = self.cpu_util {
            all.insert("CPU_util".to_owned(), percent.into());
        }
        if let Some(directions) = self.directions {
            let average = |row: &Bandwidth| units.average(row);
            let [local, remote] = directions.each_ref().map(average);
            all.insert("BW_average_local".to_owned(), local.into());
            all.insert("BW_average_remote".to_owned(), remote.into());
        }
        if !self.counters.is_empty() {
            let counters =
                self.counters.iter().map(|(name, grown)| (name.clone(), (*grown).into()));
            all.insert("counters".to_owned(), counters.collect::<Map<_, _>>().into());
        }
        all.into()
    }
}

/// What an end has counted beside its figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Posts of receive requests, each of one or of a list.
    pub(crate) receive_posts: u64,
    /// Completion events on which the thread slept.
    pub(crate) events: u64,
}

/// Contents of the file.
pub(crate) struct Report<'a> {
    /// The block above the table.
    pub(crate) title: Title<'a>,
    /// Units of the values.
    pub(crate) units: Units,
    /// Rows, one per size.
    pub(crate) records: &'a [Record],
    /// Every byte was checked and correct; `None` if that was not requested.
    pub(crate) verified: Option<bool>,
    /// Packets retransmitted by both ends.
    pub(crate) retransmissions: u64,
    /// Messages of an unreliable service that did not arrive, as far as known.
    pub(crate) lost_messages: u64,
    /// Frames that this end dropped by `--loss-rx` and `--loss-tx`.
    pub(crate) lost: u64,
    /// What this end has counted.
    pub(crate) counts: Counts,
    /// Packets that this end has received, by receive queue.
    pub(crate) received_by_queue: &'a [u64],
}

impl Report<'_> {
    /// Returns the JSON object.
    pub(crate) fn value(&self) -> Value {
        let record = |record: &Record| record.value(&self.units);
        let sweep: Vec<Value> = self.records.iter().map(record).collect();
        json!({
            "test_info": self.test_info(),
            "results": sweep.last().cloned().unwrap_or_default(),
            "uroce": {
                "sweep": sweep,
                "BW_unit": self.units.bandwidth_name(),
                "time_unit": self.units.time_name(),
                "verified": self.verified,
                "retransmissions": self.retransmissions,
                "lost_messages": self.lost_messages,
                "lost": self.lost,
                "receive_posts": self.counts.receive_posts,
                "events": self.counts.events,
                "received_by_queue": self.received_by_queue,
                "ee_contexts": Some(self.title.plan.ee_contexts()).filter(|count| *count > 0),
                "machine": Machine::this(),
            },
        })
    }

    fn test_info(&self) -> Map<String, Value> {
        let plan = self.title.plan;
        let mut info = Map::new();
        let mut put = |key: &str, value: Value| {
            info.insert(key.to_owned(), value);
        };
        put("test", self.title.test().replace(' ', "_").into());
        put("Dual_port", "OFF".into());
        put("Device", self.title.device.into());
        put("Number_of_qps", plan.queue_pairs().into());
        put("Transport_type", "IB".into());
        put("Connection_type", plan.service.name().into());
        put("Using_SRQ", if plan.shares_receives() { "ON" } else { "OFF" }.into());
        put("TX_depth", plan.tx_depth.into());
        if plan.measure == Measure::Bandwidth {
            put("CQ_Moderation", plan.moderation().into());
        }
        put("Mtu", self.title.mtu.into());
        put("Link_type", "Ethernet".into());
        put("GID_index", self.title.gid_index.into());
        if plan.operation.is_answered_by_stack() {
            put("Outstand_reads", plan.outstanding().into());
        } else {
            put("Max_inline_data", plan.inline.into());
        }
        put("rdma_cm_QPs", "OFF".into());
        put("Data_ex_method", "Ethernet".into());
        info
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), BenchError> {
        let what = |error| BenchError::io(format!("writing {}", path.display()), error);
        let text = serde_json::to_string_pretty(&self.value()).map_err(|e| what(e.into()))?;
        std::fs::write(path, text + "\n").map_err(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::{Operation, Plan};

    #[test]
    fn the_keys_are_perftests_and_the_sweep_is_whole() {
        let plan = Plan::new(Operation::Write, Measure::Bandwidth);
        let title = Title { plan: &plan, device: "net_ring", mtu: 4096, gid_index: 0 };
        let record = |size| {
            let row = Bandwidth { messages: 10, size, elapsed_ns: 1000, peak_rate: 0.01 };
            let counters = vec![("hw_counters/rdma_sends".to_owned(), 3)];
            let row = Row::Bandwidth(row);
            Record { row, cpu_util: Some(12.5), directions: None, counters }
        };
        let records = [record(64), record(128)];
        let report = Report {
            title,
            units: Units { gbits: true, cycles_per_ns: None },
            records: &records,
            verified: Some(true),
            retransmissions: 3,
            lost_messages: 2,
            lost: 1,
            counts: Counts { receive_posts: 9, events: 5 },
            received_by_queue: &[7, 8],
        };
        let value = report.value();
        assert_eq!(value["test_info"]["test"], "RDMA_Write_BW_Test");
        assert_eq!(value["test_info"]["CQ_Moderation"], 1);
        assert_eq!(value["results"]["MsgSize"], 128);
        assert_eq!(value["results"]["BW_average"], 10.24);
        assert_eq!(value["results"]["MsgRate"], 10.0);
        assert_eq!(value["results"]["CPU_util"], 12.5);
        assert_eq!(value["results"]["counters"]["hw_counters/rdma_sends"], 3);
        assert_eq!(value["uroce"]["sweep"][0]["MsgSize"], 64);
        assert_eq!(value["uroce"]["verified"], true);
        assert_eq!(value["uroce"]["retransmissions"], 3);
        assert_eq!(
            (&value["uroce"]["lost_messages"], &value["uroce"]["lost"]),
            (&json!(2), &json!(1))
        );
        assert_eq!(
            (&value["uroce"]["receive_posts"], &value["uroce"]["events"]),
            (&json!(9), &json!(5))
        );
        assert_eq!(value["uroce"]["received_by_queue"], json!([7, 8]));
        assert_eq!(value["test_info"]["Max_inline_data"], 0);
    }

    #[test]
    fn latencies_are_microseconds() {
        let row = Quantiles { count: 7, p50: 1500.0, p99_9: 2500.0, ..Quantiles::default() };
        let row = Row::Latency(2, row);
        let record = Record { row, cpu_util: None, directions: None, counters: Vec::new() };
        let value = record.value(&Units::default());
        assert_eq!((&value["t_typical"], &value["percentile_99.9"]), (&json!(1.5), &json!(2.5)));
        assert_eq!(value["n_iterations"], 7);
    }
}
