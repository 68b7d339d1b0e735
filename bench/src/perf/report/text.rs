//! perftest's tables.

use crate::perf::measure::{Bandwidth, Quantiles};
use crate::perf::plan::{Measure, Plan};
use std::fmt;
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
        writeln!(f, " Number of qps   : {}\t\tTransport type : IB", plan.qps)?;
        writeln!(f, " Connection type : {}\t\tUsing SRQ      : OFF", plan.service.name())?;
        writeln!(f, " TX depth        : {}", plan.tx_depth)?;
        if plan.measure == Measure::Bandwidth {
            writeln!(f, " CQ Moderation   : {}", plan.moderation())?;
        }
        writeln!(f, " Mtu             : {}[B]", self.mtu)?;
        writeln!(f, " Link type       : Ethernet")?;
        writeln!(f, " GID index       : {}", self.gid_index)?;
        if plan.operation.is_answered_by_stack() {
            writeln!(f, " Outstand reads  : {}", plan.outstanding)?;
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
        let octets: Vec<String> = self.gid.0.iter().map(|octet| format!("{octet:02}")).collect();
        write!(f, "\n GID: {}", octets.join(":"))
    }
}

/// Returns the header of a bandwidth table.
pub(crate) fn bandwidth_header(gbits: bool) -> String {
    let unit = if gbits { "Gb/sec" } else { "MiB/sec" };
    format!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
}

/// Returns a row of a bandwidth table.
pub(crate) fn bandwidth_row(row: &Bandwidth, gbits: bool) -> String {
    let unit = if gbits { 1e9 / 8.0 } else { f64::from(1 << 20) };
    let (peak, average) = (row.peak_bytes_per_second() / unit, row.bytes_per_second() / unit);
    let rate = row.messages_per_second() / 1e6;
    let digits = if gbits && row.gbps() < SMALL_GBPS { 6 } else { 2 };
    format!(
        " {:<7}    {:<10}       {peak:<7.digits$}            {average:<7.digits$}\t\t     \
         {rate:<7.6}",
        row.size, row.messages
    )
}

/// Returns the header of a latency table.
pub(crate) fn latency_header() -> &'static str {
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
     t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
}

/// Returns a row of a latency table.
pub(crate) fn latency_row(size: u32, row: &Quantiles) -> String {
    let us = |ns: f64| ns / 1e3;
    format!(
        " {size:<7} {}          {:<7.2}        {:<7.2}      {:<7.2}  \t       {:<7.2}     \
         \t{:<7.2}\t\t{:<7.2} \t\t{:<7.2}",
        row.count,
        us(row.min),
        us(row.max),
        us(row.p50),
        us(row.mean),
        us(row.stdev),
        us(row.p99),
        us(row.p99_9),
    )
}

/// Returns the header of a latency table for a run by time (`-D`).
pub(crate) fn latency_duration_header() -> &'static str {
    " #bytes        #iterations       t_avg[usec]    tps average"
}

/// Returns a row of a latency table for a run by time; `seconds` is the length of the run.
pub(crate) fn latency_duration_row(size: u32, row: &Quantiles, seconds: f64) -> String {
    let rate = row.count as f64 / seconds.max(1e-9);
    format!(" {size:<7}       {:<10}        {:<7.2}        {rate:<7.2}", row.count, row.mean / 1e3)
}

/// Returns the quantiles that perftest has no column for.
pub(crate) fn quantiles(row: &Quantiles) -> String {
    let us = |ns: f64| ns / 1e3;
    format!(
        " usec: min {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  p99.99 {:.3}  \
         p99.999 {:.3}  max {:.3}",
        us(row.min),
        us(row.p50),
        us(row.p90),
        us(row.p99),
        us(row.p99_9),
        us(row.p99_99),
        us(row.p99_999),
        us(row.max),
    )
}

#[cfg(test)]
mod tests;
