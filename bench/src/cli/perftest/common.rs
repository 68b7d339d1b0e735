//! Options of every test.

use super::path::PathArgs;
use crate::cli::EndsArgs;
use crate::perf::plan::{Amount, Measure, Operation, Plan, Service};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Longest run by time in seconds: eleven days.
const SECONDS_MAX: u64 = 1_000_000;

/// Options that every test has.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// TCP port of the exchange between the two ends
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Messages per queue pair [default: 5000 for write_bw, else 1000]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    pub(crate) iters: Option<u64>,
    /// Run for this many seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    pub(crate) duration: Option<u64>,
    /// Seconds at the beginning and at the end of a run by time that are not measured [default: a
    /// quarter of -D, rounded down]
    #[arg(short = 'f', long, value_name = "SECONDS", requires = "duration",
        value_parser = clap::value_parser!(u64).range(..=SECONDS_MAX))]
    pub(crate) margin: Option<u64>,
    /// Path MTU, 256 to 4096 [default: the largest that both ports support]
    #[arg(short = 'm', long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Local ACK timeout: 4.096 µs · 2^N; 0 waits for ever
    #[arg(short = 'u', long, default_value_t = 14, value_name = "N")]
    pub(crate) qp_timeout: u8,
    /// Transport retries, 0 to 7
    #[arg(long = "retry_count", default_value_t = 7, value_name = "N")]
    pub(crate) retry_count: u8,
    /// Index of the local address
    #[arg(short = 'x', long, default_value_t = 0, value_name = "INDEX")]
    pub(crate) gid_index: u8,
    /// Transport service
    #[arg(short = 'c', long, value_enum, default_value = "RC", value_name = "SERVICE")]
    pub(crate) connection: Service,
    /// Copy payloads of up to this many bytes, at most 1024, when they are posted (SEND, WRITE)
    #[arg(short = 'I', long = "inline_size", default_value_t = 0, value_name = "BYTES")]
    pub(crate) inline_size: u32,
    /// Header fields of sent packets.
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Not supported
    #[arg(short = 'R', long = "rdma_cm", hide = true)]
    pub(crate) rdma_cm: bool,
    /// Suppress the warning about the CPU's frequency (accepted, there is no such warning)
    #[arg(short = 'F', long = "CPU-freq")]
    pub(crate) cpu_freq: bool,
    /// Report in Gb/s, 10^9 bits, instead of MiB/s
    #[arg(long = "report_gbits")]
    pub(crate) report_gbits: bool,
    /// Share of the machine's CPU time that was not idle during the measurement, as a column
    /// (perftest leaves out the kernel's time)
    #[arg(long = "cpu_util", requires = "duration")]
    pub(crate) cpu_util: bool,
    /// Print how much these counters have grown, below each row: counters/NAME of the port,
    /// hw_counters/NAME of the device
    #[arg(short = 'W', long = "report-counters", value_delimiter = ',', value_name = "LIST")]
    pub(crate) report_counters: Vec<String>,
    /// Also write the results to perftest_out.json
    #[arg(long = "out_json")]
    pub(crate) out_json: bool,
    /// Also write the results to this file
    #[arg(long = "out_json_file", value_name = "FILE")]
    pub(crate) out_json_file: Option<PathBuf>,
    /// Also write the rows to perftest_out.csv, one line each (not in perftest)
    #[arg(long = "out_csv")]
    pub(crate) out_csv: bool,
    /// Also write the rows to this file, one line each (not in perftest)
    #[arg(long = "out_csv_file", value_name = "FILE")]
    pub(crate) out_csv_file: Option<PathBuf>,
    /// Check every byte at its destination; the results then include the time for the checks
    #[arg(long, visible_alias = "data_validation")]
    pub(crate) verify: bool,
    /// Use the exchange of perftest's programs over TCP even if the other end is uroce-perf
    #[arg(long)]
    pub(crate) perftest_exchange: bool,
    /// The ends.
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
}

impl CommonArgs {
    /// Returns the plan of a test with these options.
    pub(super) fn plan(&self, operation: Operation, measure: Measure) -> Plan {
        let mut plan = Plan::new(operation, measure);
        if let Some(iterations) = self.iters {
            plan.amount = Amount::Iterations(iterations);
        }
        if let Some(seconds) = self.duration {
            plan.amount = Amount::Duration(Duration::from_secs(seconds));
            plan.local.margin = Duration::from_secs(self.margin.unwrap_or(seconds / 4));
        }
        plan.mtu = self.mtu;
        plan.qp_timeout = self.qp_timeout;
        plan.retry_count = self.retry_count;
        plan.service = self.connection;
        plan.inline = self.inline_size;
        plan.verify = self.verify;
        plan.local.fields = self.path.fields();
        plan.local.region_per_qp = false;
        plan
    }

    /// Returns the JSON file to write, if any.
    pub(crate) fn json_file(&self) -> Option<PathBuf> {
        let default = self.out_json.then(|| PathBuf::from("perftest_out.json"));
        self.out_json_file.clone().or(default)
    }

    /// Returns the CSV file to write, if any.
    pub(crate) fn csv_file(&self) -> Option<PathBuf> {
        let default = self.out_csv.then(|| PathBuf::from("perftest_out.csv"));
        self.out_csv_file.clone().or(default)
    }
}
