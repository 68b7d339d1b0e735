//! perftest's JSON. As in perftest, `results` has the last size only; `uroce.sweep` has all sizes.

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
    fn values(&self, gbits: bool) -> Value {
        let unit = if gbits { 1e9 / 8.0 } else { f64::from(1 << 20) };
        match self {
            Self::Bandwidth(row) => json!({
                "MsgSize": row.size,
                "n_iterations": row.messages,
                "BW_peak": row.peak_bytes_per_second() / unit,
                "BW_average": row.bytes_per_second() / unit,
                "MsgRate": row.messages_per_second() / 1e6,
            }),
            Self::Latency(size, row) => json!({
                "MsgSize": size,
                "n_iterations": row.count,
                "t_min": row.min / 1e3,
                "t_max": row.max / 1e3,
                "t_typical": row.p50 / 1e3,
                "t_avg": row.mean / 1e3,
                "t_stdev": row.stdev / 1e3,
                "percentile_99": row.p99 / 1e3,
                "percentile_99.9": row.p99_9 / 1e3,
                "percentile_90": row.p90 / 1e3,
                "percentile_99.99": row.p99_99 / 1e3,
                "percentile_99.999": row.p99_999 / 1e3,
            }),
        }
    }
}

/// Contents of the file.
pub(crate) struct Report<'a> {
    /// The block above the table.
    pub(crate) title: Title<'a>,
    /// Bandwidths are in Gb/s, else in MiB/s.
    pub(crate) gbits: bool,
    /// Rows, one per size.
    pub(crate) rows: &'a [Row],
    /// Every byte was checked and correct; `None` if that was not requested.
    pub(crate) verified: Option<bool>,
    /// Packets retransmitted by both ends.
    pub(crate) retransmissions: u64,
    /// Messages of an unreliable service that did not arrive, as far as known.
    pub(crate) lost_messages: u64,
    /// Frames that this end dropped by `--loss-rx` and `--loss-tx`.
    pub(crate) lost: u64,
}

impl Report<'_> {
    /// Returns the JSON object.
    pub(crate) fn value(&self) -> Value {
        let sweep: Vec<Value> = self.rows.iter().map(|row| row.values(self.gbits)).collect();
        json!({
            "test_info": self.test_info(),
            "results": sweep.last().cloned().unwrap_or_default(),
            "uroce": {
                "sweep": sweep,
                "BW_unit": if self.gbits { "Gb/sec" } else { "MiB/sec" },
                "verified": self.verified,
                "retransmissions": self.retransmissions,
                "lost_messages": self.lost_messages,
                "lost": self.lost,
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
        put("Number_of_qps", plan.qps.into());
        put("Transport_type", "IB".into());
        put("Connection_type", plan.service.name().into());
        put("Using_SRQ", "OFF".into());
        put("TX_depth", plan.tx_depth.into());
        if plan.measure == Measure::Bandwidth {
            put("CQ_Moderation", plan.moderation().into());
        }
        put("Mtu", self.title.mtu.into());
        put("Link_type", "Ethernet".into());
        put("GID_index", self.title.gid_index.into());
        if plan.operation.is_answered_by_stack() {
            put("Outstand_reads", plan.outstanding.into());
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
        let row = |size| {
            Row::Bandwidth(Bandwidth { messages: 10, size, elapsed_ns: 1000, peak_rate: 0.01 })
        };
        let rows = [row(64), row(128)];
        let report = Report {
            title,
            gbits: true,
            rows: &rows,
            verified: Some(true),
            retransmissions: 3,
            lost_messages: 2,
            lost: 1,
        };
        let value = report.value();
        assert_eq!(value["test_info"]["test"], "RDMA_Write_BW_Test");
        assert_eq!(value["test_info"]["CQ_Moderation"], 1);
        assert_eq!(value["results"]["MsgSize"], 128);
        assert_eq!(value["results"]["BW_average"], 10.24);
        assert_eq!(value["results"]["MsgRate"], 10.0);
        assert_eq!(value["uroce"]["sweep"][0]["MsgSize"], 64);
        assert_eq!(value["uroce"]["verified"], true);
        assert_eq!(value["uroce"]["retransmissions"], 3);
        assert_eq!(
            (&value["uroce"]["lost_messages"], &value["uroce"]["lost"]),
            (&json!(2), &json!(1))
        );
        assert_eq!(value["test_info"]["Max_inline_data"], 0);
    }

    #[test]
    fn latencies_are_microseconds() {
        let row = Quantiles { count: 7, p50: 1500.0, p99_9: 2500.0, ..Quantiles::default() };
        let value = Row::Latency(2, row).values(false);
        assert_eq!((&value["t_typical"], &value["percentile_99.9"]), (&json!(1.5), &json!(2.5)));
        assert_eq!(value["n_iterations"], 7);
    }
}
