//! perftest's tables.

use crate::plan::{Measure, Plan};
use crate::stats::{Bandwidth, Quantiles};
use std::fmt;
use uroce::Gid;

/// Below this bandwidth perftest prints six digits, of Gb/s only.
const SMALL_GBPS: f64 = 0.1;

/// The dashes between blocks.
pub(crate) fn line() -> String {
    "-".repeat(87)
}

/// The block at the top.
pub(crate) struct Title<'a> {
    /// The test.
    pub(crate) plan: &'a Plan,
    /// The device's name.
    pub(crate) device: &'a str,
    /// Path MTU, bytes.
    pub(crate) mtu: u32,
    /// Index of our address.
    pub(crate) gid_index: u8,
}

impl Title<'_> {
    /// perftest's name of the test.
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

/// perftest puts the direction between the operation and the rest.
fn direction_of(test: String, direction: &str) -> String {
    match test.rfind(" BW ") {
        Some(place) if !direction.is_empty() => {
            format!("{} {direction}{}", &test[..place], &test[place + 1..])
        }
        _ => test,
    }
}

/// One end of a connection as perftest lists it.
pub(crate) struct Connection {
    /// `local` or `remote`.
    pub(crate) side: &'static str,
    /// Number of the queue pair.
    pub(crate) qpn: u32,
    /// First PSN sent.
    pub(crate) psn: u32,
    /// Key and address of the memory offered, where the test offers any.
    pub(crate) memory: Option<(u32, u64)>,
    /// The address.
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

/// The header of a bandwidth table.
pub(crate) fn bandwidth_header(gbits: bool) -> String {
    let unit = if gbits { "Gb/sec" } else { "MiB/sec" };
    format!(" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
}

/// A row of a bandwidth table.
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

/// The header of a latency table.
pub(crate) fn latency_header() -> &'static str {
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
     t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
}

/// A row of a latency table.
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

/// The header of a latency table of a run by time (`-D`).
pub(crate) fn latency_duration_header() -> &'static str {
    " #bytes        #iterations       t_avg[usec]    tps average"
}

/// A row of it; `seconds` is the run's length.
pub(crate) fn latency_duration_row(size: u32, row: &Quantiles, seconds: f64) -> String {
    let rate = row.count as f64 / seconds.max(1e-9);
    format!(" {size:<7}       {:<10}        {:<7.2}        {rate:<7.2}", row.count, row.mean / 1e3)
}

/// The quantiles that perftest has no column for.
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
