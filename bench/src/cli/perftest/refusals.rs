//! perftest's options in tests that do not have them, and options that uroce-perf does not have:
//! one line that says why, instead of clap's that the argument is unknown.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// perftest's tests, as far as the reasons distinguish them.
const BANDWIDTH: &[&str] = &["write_bw", "read_bw", "send_bw", "atomic_bw"];
const LATENCY: &[&str] = &["write_lat", "read_lat", "send_lat", "atomic_lat"];
const WRITE: &[&str] = &["write_bw", "write_lat"];
const ATOMIC: &[&str] = &["atomic_bw", "atomic_lat"];
const ANY: &[&str] = &[];

/// Option names, the tests that refuse them ([`ANY`]: all), and the reason.
const REFUSALS: &[(&[&str], &[&str], &str)] = &[
    (&["-e", "--events"], WRITE, "a WRITE has no completion at its target to sleep on"),
    (&["-a", "--all", "-s", "--size"], ATOMIC, "an atomic operation has 8 bytes"),
    (&["-q", "--qp"], LATENCY, "several queue pairs are for bandwidth tests"),
    (
        &["-b", "--bidirectional", "--report-both"],
        LATENCY,
        "both directions are for bandwidth tests",
    ),
    (
        &["-l", "--post_list", "--recv_post_list"],
        LATENCY,
        "lists of requests are for bandwidth tests",
    ),
    (&["-N", "--noPeak"], LATENCY, "a latency has no peak bandwidth"),
    (
        &["-w", "--limit_bw", "-y", "--limit_msgrate"],
        LATENCY,
        "the limits are those of bandwidth tests",
    ),
    (&["--run_infinitely"], LATENCY, "endless runs are for bandwidth tests"),
    (
        &["--rate_limit", "--rate_limit_type", "--rate_units", "--burst_size"],
        LATENCY,
        "one message is in flight, so there is no rate to limit: see --latency_gap",
    ),
    (&["--mr_per_qp"], LATENCY, "there is one queue pair, which has one memory region"),
    (&["-t", "--tx-depth", "-Q", "--cq-mod"], LATENCY, "one message is in flight"),
    (&["--latency_gap"], BANDWIDTH, "the gap is for latency tests: see --rate_limit_type SW"),
    (
        &["-C", "--report-cycles", "-H", "--report-histogram", "-U", "--report-unsorted"],
        BANDWIDTH,
        "single times are for latency tests",
    ),
    (
        &["--perform_warm_up"],
        &["send_bw", "write_lat", "read_lat", "send_lat", "atomic_lat"],
        "the warm-up is for bandwidth tests of WRITE, READ and ATOMIC",
    ),
    (&["--use-srq"], ANY, "only SEND takes receive requests from a shared queue"),
    (&["-g", "--mcg", "-M", "--MGID"], ANY, "only SEND has datagrams, to send to a group"),
    (&["--send_with_imm"], ANY, "this option is for send_bw and send_lat"),
    (&["--write_with_imm"], ANY, "this option is for write_bw and write_lat"),
    (&["-r", "--rx-depth", "--recv_post_list"], ANY, "the other end posts no receive requests"),
    (&["-o", "--outs"], ANY, "only READ and ATOMIC have requests outstanding at the responder"),
    (&["-A", "--atomic_type"], ANY, "this option is for atomic_bw and atomic_lat"),
    (
        &["--report_min_max", "--report-min-max"],
        ANY,
        "no release of perftest has it; a latency table has t_min and t_max, and --run_infinitely \
         prints each interval",
    ),
    (
        &["-d", "--ib-dev", "-i", "--ib-port"],
        ANY,
        "--vdev, --pci, --udp or --config choose the device",
    ),
    (&["-X", "--vector"], ANY, "completion events have no vectors here"),
    (&["-O", "--dualport"], ANY, "a test has one port"),
    (&["-z", "--comm_rdma_cm", "--com_rdma_cm"], ANY, "the ends exchange their data over TCP"),
    (&["--dont_xchg_versions"], ANY, "the versions show whether the other end is perftest's"),
];

/// Returns the reason for which a test refuses an option, if the error is that it has none of that
/// name and perftest has.
pub(crate) fn refusal(error: &clap::Error, test: &str) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_perftests = BANDWIDTH.contains(&test) || LATENCY.contains(&test);
    let name = given.split('=').next().unwrap_or(given);
    let refused = |(names, tests, _): &&(&[&str], &[&str], &str)| {
        names.contains(&name) && (tests.is_empty() || tests.contains(&test))
    };
    let (.., reason) = REFUSALS.iter().find(refused).filter(|_| is_perftests)?;
    Some(format!("{test} has no {name}: {reason}"))
}
