//! perftest's tables.

use super::Units;
use crate::perf::measure::{Bandwidth, Quantiles};
use crate::perf::plan::{Measure, Plan};
use std::fmt::{self, Write};
use uroce::Gid;

/// Bandwidth in Gb/s below which perftest prints six digits (not for MiB/s).
const SMALL_GBPS: f64 = 0.1;

/// Returns the line of dashes between blocks.
pub(crate) fn line() -> String {
    "-".repeat(87)
}

/// The block above the table.
pub(crate) struct Title<'a> {
    /// Parameters of the test.
    pub(crate) plan: &'a Plan,
    /// Name of the device.
    pub(crate) device: &'a str,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// GID index of the local address.
    pub(crate) gid_index: u8,
}

impl Title<'_> {
    /// Returns perftest's name of the test.
    pub(crate) fn test(&self) -> String {
        let measure = match self.plan.measure {
            Measure::Bandwidth => "BW",
            Measure::Latency => "Latency",
        };
        format!("{} {measure} Test", self.plan.operation.perftest_name())
    }
}

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        writeln!(f, "{}", line())?;
        let direction = if plan.bidirectional { "Bidirectional " } else { "" };
        writeln!(f, "                    {}", direction_of(self.test(), direction))?;
        writeln!(f, " Dual-port       : OFF\t\tDevice         : {}", self.device)?;
        writeln!(f, " Number of qps   : {}\t\tTransport type : IB", plan.queue_pairs())?;
        if plan.ee_contexts() > 0 {
            writeln!(f, " EE contexts     : {}", plan.ee_contexts())?;
        }
        let srq = if plan.shares_receives() { "ON" } else { "OFF" };
        writeln!(f, " Connection type : {}\t\tUsing SRQ      : {srq}", plan.service.name())?;
        writeln!(f, " TX depth        : {}", plan.tx_depth)?;
        if plan.measure == Measure::Bandwidth {
            writeln!(f, " CQ Moderation   : {}", plan.moderation())?;
        }
        writeln!(f, " Mtu             : {}[B]", self.mtu)?;
        writeln!(f, " Link type       : Ethernet")?;
        writeln!(f, " GID index       : {}", self.gid_index)?;
        if plan.operation.is_answered_by_stack() {
            writeln!(f, " Outstand reads  : {}", plan.outstanding())?;
        } else {
            writeln!(f, " Max inline data : {}[B]", plan.inline)?;
        }
        writeln!(f, " rdma_cm QPs\t : OFF")?;
        writeln!(f, " Data ex. method : Ethernet")?;
        write!(f, "{}", line())
    }
}

/// Inserts the direction before "BW", as perftest does.
fn direction_of(test: String, direction: &str) -> String {
    match test.rfind(" BW ") {
        Some(place) if !direction.is_empty() => {
            format!("{} {direction}{}", &test[..place], &test[place + 1..])
        }
        _ => test,
    }
}

/// Parameters of one end, in the form of perftest's list.
pub(crate) struct Connection {
    /// `local` or `remote`.
    pub(crate) side: &'static str,
    /// Queue pair number.
    pub(crate) qpn: u32,
    /// PSN of the first packet that it sends.
    pub(crate) psn: u32,
    /// R_Key and virtual address of its memory, if the test uses them.
    pub(crate) memory: Option<(u32, u64)>,
    /// Number of its XRC shared receive queue.
    pub(crate) srqn: Option<u32>,
    /// Number of the RD EE context by which it sends, which `psn` is of.
    pub(crate) eecn: Option<u32>,
    /// GID.
    pub(crate) gid: Gid,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, qpn, psn, .. } = self;
        write!(f, " {side} address: LID 0000 QPN {qpn:#06x} PSN {psn:#x}")?;
        if let Some((rkey, va)) = self.memory {
            write!(f, " RKey {rkey:#08x} VAddr {va:#016x}")?;
        }
        if let Some(srqn) = self.srqn {
            write!(f, " SRQn {srqn:#08x}")?;
        }
        if let Some(eecn) = self.eecn {
            write!(f, " EECn {eecn:#08x}")?;
        }
        let octets: Vec<String> = self.gid.0.iter().map(|octet| format!("{octet:02}")).collect();
        write!(f, "\n GID: {}", octets.join(":"))
    }
}

/// Returns the header of a bandwidth table.
pub(crate) fn bandwidth_header(units: &Units) -> String {
    let unit = units.bandwidth_name();
    format!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
}

/// Returns a row of a bandwidth table.
pub(crate) fn bandwidth_row(row: &Bandwidth, units: &Units) -> String {
    let unit = units.bandwidth();
    let (peak, average) = (row.peak_bytes_per_second() / unit, row.bytes_per_second() / unit);
    let rate = row.messages_per_second() / 1e6;
    let digits = if units.gbits && row.gbps() < SMALL_GBPS { 6 } else { 2 };
    format!(
        " {:<7}    {:<10}       {peak:<7.digits$}            {average:<7.digits$}\t\t     \
         {rate:<7.6}",
        row.size, row.messages
    )
}

/// Returns the header of a latency table. perftest prints `usec` for cycles, too.
pub(crate) fn latency_header(units: &Units) -> String {
    let unit = units.time_name();
    format!(
        " #bytes #iterations    t_min[{unit}]    t_max[{unit}]  t_typical[{unit}]    t_avg[{unit}]    \
         t_stdev[{unit}]   99% percentile[{unit}]   99.9% percentile[{unit}] "
    )
}

/// Returns a row of a latency table.
pub(crate) fn latency_row(size: u32, row: &Quantiles, units: &Units) -> String {
    let of = |ns: f64| units.time(ns);
    format!(
        " {size:<7} {}          {:<7.2}        {:<7.2}      {:<7.2}  \t       {:<7.2}     \
         \t{:<7.2}\t\t{:<7.2} \t\t{:<7.2}",
        row.count,
        of(row.min),
        of(row.max),
        of(row.p50),
        of(row.mean),
        of(row.stdev),
        of(row.p99),
        of(row.p99_9),
    )
}

/// Returns the header of a latency table for a run by time (`-D`).
pub(crate) fn latency_duration_header(units: &Units) -> String {
    format!(" #bytes        #iterations       t_avg[{}]    tps average", units.time_name())
}

/// Returns a row of a latency table for a run by time; `seconds` is the length of its measured
/// part.
pub(crate) fn latency_duration_row(
    size: u32,
    row: &Quantiles,
    seconds: f64,
    units: &Units,
) -> String {
    let rate = row.count as f64 / seconds.max(1e-9);
    let mean = units.time(row.mean);
    format!(" {size:<7}       {:<10}        {mean:<7.2}        {rate:<7.2}", row.count)
}

/// Returns the header of the column of `--cpu_util`, which follows the others.
pub(crate) fn cpu_header() -> &'static str {
    "    CPU_Util[%]"
}

/// Returns the column of `--cpu_util`.
pub(crate) fn cpu_column(percent: f64) -> String {
    format!("\t    {percent:<3.2}")
}

/// Returns the lines of all latencies, each divided by `parts`, numbered from 1.
pub(crate) fn latencies(ns: &[u64], parts: f64, units: &Units) -> String {
    let mut text = format!("#, {}", units.time_name());
    for (index, &ns) in ns.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}, {}", index + 1, units.time(ns as f64 / parts));
    }
    text
}

/// Returns the quantiles that perftest has no column for.
pub(crate) fn quantiles(row: &Quantiles, units: &Units) -> String {
    let of = |ns: f64| units.time(ns);
    format!(
        " {}: min {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  p99.99 {:.3}  \
         p99.999 {:.3}  max {:.3}",
        units.time_name(),
        of(row.min),
        of(row.p50),
        of(row.p90),
        of(row.p99),
        of(row.p99_9),
        of(row.p99_99),
        of(row.p99_999),
        of(row.max),
    )
}

#[cfg(test)]
mod tests;
