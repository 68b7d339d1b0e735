//! Output of the quickstart: perftest's rows, each with its share of the limit, and JSON.

use super::capacity::Capacity;
use super::figures::{Figures, LARGE, MTU, WRITE, verifications};
use crate::cli::QuickstartArgs;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::perf::report::{
    Units, bandwidth_header, bandwidth_row, latency_header, latency_row, line,
};
use serde_json::{Value, json};
use std::fmt;

/// Returns the introduction: machine, versions and tests.
pub(super) fn greeting(machine: &Machine, args: &QuickstartArgs) -> String {
    let Machine { cpu, cpus, kernel, dpdk, commit, version, .. } = machine;
    format!(
        "uroce {version} ({commit}), {dpdk}\n{cpu}, {cpus} CPUs, Linux {kernel}\n\n\
         Two processes joined by memif, then both ends in one process joined by rings; no NIC, no\n\
         hugepages. RC WRITE, READ, SEND, FETCH_ADD and CMP_SWAP, every byte verified; then {}\n\
         runs of each measurement, of which the median counts. One queue pair, path MTU {MTU},\n\
         ICRC on, one CPU on each side.\n",
        args.runs
    )
}

/// Results of all nodes.
pub(super) struct Report {
    pub(super) verified_bytes: u64,
    pub(super) memif: Figures,
    pub(super) ring: Figures,
    pub(super) capacity: Capacity,
    pub(super) machine: Machine,
    pub(super) runs: u32,
}

/// Returns the number of payload bytes to be verified by both vdevs together.
fn bytes_to_verify() -> u64 {
    let of = |plan: &crate::perf::plan::Plan| {
        let sizes: u64 = plan.sizes.iter().map(|&size| u64::from(size)).sum();
        plan.amount.iterations().unwrap_or(0) * u64::from(plan.qps) * sizes
    };
    2 * verifications().iter().map(|test| of(&test.plan)).sum::<u64>()
}

impl Report {
    fn verified(&self) -> bool {
        self.verified_bytes == bytes_to_verify()
    }

    /// Returns the results as one JSON object.
    pub(super) fn json(&self) -> Value {
        let (ring, memif) = (&self.ring, &self.memif);
        json!({
            "verified": self.verified(),
            "verified_bytes": self.verified_bytes,
            "write_bw_ring_gbps": ring.gbps("write_bw"),
            "roofline_ring_gbps": ring.limits.roofline_gbps,
            "roofline_ring_share": ring.roofline_share,
            "write_bw_memif_gbps": memif.gbps("write_bw"),
            "roofline_memif_gbps": memif.limits.roofline_gbps,
            "roofline_memif_share": memif.roofline_share,
            "msg_rate_ring_mps": ring.mps("send_bw 8 B"),
            "msg_rate_memif_mps": memif.mps("send_bw 8 B"),
            "msg_rate_1000qp_share": ring.many_qps_share,
            "qp_state_bytes": self.capacity.qp_state_bytes,
            "open_qp_bytes": self.capacity.open_qp_bytes,
            "max_open_qps": self.capacity.max_open_qps,
            "half_rtt_ring_ns": ring.typical_ns("send_lat"),
            "half_rtt_bare_ns": ring.limits.half_rtt_ns,
            "half_rtt_memif_ns": memif.typical_ns("send_lat"),
            "half_rtt_bare_memif_ns": memif.limits.half_rtt_ns,
            "runs": self.runs,
            "mtu": MTU,
            "size": LARGE,
            "ring": part(ring),
            "memif": part(memif),
            "machine": self.machine,
        })
    }

    /// Returns an error unless every byte was verified.
    pub(super) fn verdict(&self) -> Result<(), BenchError> {
        if self.verified() {
            return Ok(());
        }
        let (seen, all) = (self.verified_bytes, bytes_to_verify());
        Err(BenchError::Corrupt(format!("only {seen} of {all} bytes were checked")))
    }
}

/// Returns all figures of one vdev.
fn part(figures: &Figures) -> Value {
    let bandwidth: serde_json::Map<String, Value> = figures
        .bandwidth
        .iter()
        .map(|(name, row)| {
            let rate = row.messages_per_second() / 1e6;
            (name.clone(), json!({ "size": row.size, "gbps": row.gbps(), "mps": rate }))
        })
        .collect();
    let latency: serde_json::Map<String, Value> = figures
        .latency
        .iter()
        .map(|(name, size, row)| {
            let value = json!({ "size": size, "p50_ns": row.p50, "p99_ns": row.p99,
                "p99.9_ns": row.p99_9, "min_ns": row.min, "max_ns": row.max });
            (name.clone(), value)
        })
        .collect();
    json!({
        "bandwidth": bandwidth,
        "latency": latency,
        "limits": figures.limits,
        "retransmissions": figures.retransmissions,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.verified() { "each as it was sent" } else { "NOT ALL" };
        writeln!(f, "verified: {} bytes of payload, {all}\n", self.verified_bytes)?;
        table(f, "memif: two processes (net_memif)", &self.memif)?;
        table(f, "ring: both ends in one process (net_ring)", &self.ring)?;
        let Capacity { max_open_qps, qp_state_bytes, open_qp_bytes } = self.capacity;
        let share = 100.0 * self.ring.many_qps_share;
        writeln!(
            f,
            "1000 queue pairs have {share:.0} % of the message rate of one;\n{max_open_qps} queue \
             pairs were open at once, {open_qp_bytes} bytes each, of which {qp_state_bytes} are \
             not queues\n"
        )
    }
}

fn table(f: &mut fmt::Formatter<'_>, title: &str, figures: &Figures) -> fmt::Result {
    let limits = &figures.limits;
    let units = Units::new(true, false);
    writeln!(f, "{}\n                    {title}\n{}", line(), line())?;
    writeln!(f, "{}", bandwidth_header(&units))?;
    for (name, row) in &figures.bandwidth {
        let (value, limit, unit) = match row.size > u64::from(MTU) {
            true => (row.gbps(), limits.roofline_gbps, "Gb/s"),
            false => (row.messages_per_second() / 1e6, limits.small_frames_mpps, "M frames/s"),
        };
        // The share of WRITE is the median of the rounds' own shares.
        let share = if name == WRITE { figures.roofline_share } else { value / limit };
        let share = percent(share);
        writeln!(f, "{}     {name}: {share} of {limit:.1} {unit}", bandwidth_row(row, &units))?;
    }
    writeln!(f, "{}\n{}", line(), latency_header(&units))?;
    for (name, size, row) in &figures.latency {
        let bare = limits.half_rtt_ns;
        let trips = if matches!(name.as_str(), "read_lat" | "atomic_lat") { 2.0 } else { 1.0 };
        let added = row.p50 - bare * trips;
        writeln!(
            f,
            "{}     {name}: {:.0} ns, {added:.0} more than a bare frame",
            latency_row(*size, row, &units),
            row.p50
        )?;
    }
    writeln!(f, "{}", line())?;
    writeln!(
        f,
        " limits here, now: frames {:.2} Mpps = {:.1} Gb/s; copy {:.1}, ICRC {:.1}, copy + ICRC \
         {:.1} ({:.1} in one pass) Gb/s;\n roofline {:.1} Gb/s; copy + ICRC from core to core \
         {:.1} Gb/s;\n \
         small frames {:.2} Mpps; a bare frame's half round trip {:.0} ns",
        limits.frames_mpps,
        limits.frames_gbps,
        limits.copy_gbps,
        limits.icrc_gbps,
        limits.copy_icrc_gbps,
        limits.one_pass_gbps,
        limits.roofline_gbps,
        limits.across_gbps,
        limits.small_frames_mpps,
        limits.half_rtt_ns
    )?;
    if figures.retransmissions > 0 {
        writeln!(f, " {} packets were sent again", figures.retransmissions)?;
    }
    writeln!(f, "{}\n", line())
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", 100.0 * share) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::perf::measure::{Bandwidth, Quantiles};

    fn report() -> Report {
        let sample =
            Bandwidth { messages: 1000, size: 65536, elapsed_ns: 5_242_880, peak_rate: 0.0 };
        let rate = Bandwidth { messages: 5000, size: 8, elapsed_ns: 1_000_000, peak_rate: 0.0 };
        let figures = Figures {
            bandwidth: vec![("write_bw".into(), sample), ("send_bw 8 B".into(), rate)],
            latency: vec![("send_lat".into(), 8, Quantiles { p50: 600.0, ..Default::default() })],
            limits: Limits { roofline_gbps: 200.0, half_rtt_ns: 150.0, ..Limits::default() },
            roofline_share: 0.5,
            many_qps_share: 0.8,
            retransmissions: 0,
        };
        Report {
            verified_bytes: bytes_to_verify(),
            memif: figures.clone(),
            ring: figures,
            capacity: Capacity { max_open_qps: 65536, qp_state_bytes: 900, open_qp_bytes: 4000 },
            machine: Machine::this(),
            runs: 5,
        }
    }

    #[test]
    fn the_json_has_the_promised_keys() {
        let value = report().json();
        assert_eq!(value["verified"], true);
        for (key, expected) in [
            ("write_bw_ring_gbps", 100.0),
            ("roofline_ring_gbps", 200.0),
            ("roofline_ring_share", 0.5),
            ("write_bw_memif_gbps", 100.0),
            ("roofline_memif_gbps", 200.0),
            ("msg_rate_ring_mps", 5.0),
            ("half_rtt_ring_ns", 600.0),
            ("half_rtt_bare_ns", 150.0),
            ("msg_rate_1000qp_share", 0.8),
        ] {
            assert_eq!(value[key], expected, "{key}");
        }
        assert_eq!(
            (&value["max_open_qps"], &value["qp_state_bytes"]),
            (&json!(65536), &json!(900))
        );
        assert_eq!(value.to_string().lines().count(), 1);
    }

    #[test]
    fn a_byte_not_looked_at_is_a_failure() {
        let mut report = report();
        assert!(report.verdict().is_ok());
        report.verified_bytes -= 1;
        assert_eq!(report.json()["verified"], false);
        assert!(report.verdict().is_err());
        assert!(report.to_string().contains("NOT ALL"));
    }

    #[test]
    fn the_table_sets_figures_beside_limits() {
        let text = report().to_string();
        assert!(text.contains("write_bw: 50 % of 200.0 Gb/s"), "{text}");
        assert!(text.contains("send_lat: 600 ns, 450 more than a bare frame"), "{text}");
    }
}
