//! Options of bandwidth tests.

use super::{CommonArgs, Group, View};
use crate::error::BenchError;
use crate::perf::plan::{Amount, Pace, Plan, Rate, Speed};
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Options of bandwidth tests.
#[derive(Args, Clone, Debug)]
pub(crate) struct BandwidthArgs {
    /// Send requests outstanding per queue pair
    #[arg(short = 't', long, default_value_t = 128, value_name = "N")]
    tx_depth: u32,
    /// Send requests per completion [default: the value of -l, else 1 for a size above 8192 bytes,
    /// else 100]
    #[arg(short = 'Q', long, value_name = "N")]
    cq_mod: Option<u32>,
    /// Queue pairs
    #[arg(short = 'q', long = "qp", default_value_t = 1, value_name = "N")]
    qps: u32,
    /// EE contexts, with -c RD: the connections, over which the queue pairs go in turn [default:
    /// the value of -q]
    #[arg(long, value_name = "N")]
    eecs: Option<u32>,
    /// Work requests posted at once
    #[arg(short = 'l', long = "post_list", default_value_t = 1, value_name = "N")]
    post_list: u32,
    /// Register memory for each queue pair on its own, instead of once for all
    #[arg(long = "mr_per_qp")]
    mr_per_qp: bool,
    /// Both directions
    #[arg(short = 'b', long)]
    bidirectional: bool,
    /// With -b, also report the two directions on their own
    #[arg(long = "report-both", requires = "bidirectional")]
    report_both: bool,
    /// Do not measure the peak
    #[arg(short = 'N', long = "noPeak")]
    no_peak: bool,
    /// Run until the process is ended, with a row every -D seconds [default: 5]
    #[arg(long = "run_infinitely", conflicts_with_all = ["iters", "margin", "verify"])]
    run_infinitely: bool,
    /// Fail with status 1 if the average is below this many MiB/s, or Gb/s with --report_gbits. Of
    /// several sizes one must reach it
    #[arg(short = 'w', long = "limit_bw", value_name = "BW", value_parser = parse_limit)]
    limit_bw: Option<f64>,
    /// Fail with status 1 if the message rate is below this many million per second. Of several
    /// sizes one must reach it
    #[arg(short = 'y', long = "limit_msgrate", value_name = "MPPS", value_parser = parse_limit)]
    limit_msgrate: Option<f64>,
    /// Highest rate: of a queue pair, or with -c RD of an EE context, counting whole frames, or
    /// with SW of this end, counting payload; in the units below
    #[arg(long = "rate_limit", value_name = "RATE", value_parser = parse_rate)]
    rate_limit: Option<f64>,
    /// Units of the rate: MiB/s, Gb/s, or with SW messages per second [default: g; with PP it is
    /// always kbit/s]
    #[arg(long = "rate_units", value_enum, requires = "rate_limit")]
    rate_units: Option<RateUnits>,
    /// Kind of limit: the path's static rate, rounded up to one of the verbs' rates; pauses of this
    /// program between bursts; or the queue pair's, with -c RD the EE context's
    #[arg(long = "rate_limit_type", value_enum, default_value = "HW", requires = "rate_limit")]
    rate_limit_type: RateLimitType,
    /// Messages of a burst, with SW [default: the value of -t]
    #[arg(long = "burst_size", value_name = "N", requires = "rate_limit",
          value_parser = clap::value_parser!(u32).range(1..))]
    burst_size: Option<u32>,
}

/// Warm-up, for WRITE, READ and ATOMIC.
#[derive(Args, Clone, Debug)]
pub(crate) struct WarmUpArgs {
    /// Send -t messages on each queue pair before the measurement
    #[arg(long = "perform_warm_up")]
    perform_warm_up: bool,
}

/// perftest's units of a rate.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum RateUnits {
    #[value(name = "M")]
    Mebibytes,
    #[value(name = "g")]
    Gigabits,
    #[value(name = "p")]
    Messages,
}

/// perftest's kinds of limits.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum RateLimitType {
    #[value(name = "HW")]
    Path,
    #[value(name = "SW")]
    Program,
    #[value(name = "PP")]
    QueuePair,
}

impl BandwidthArgs {
    /// Adds the options to a plan, and returns the form of its report.
    pub(super) fn apply(&self, common: &CommonArgs, plan: &mut Plan) -> Result<View, BenchError> {
        self.check()?;
        plan.tx_depth = self.tx_depth;
        plan.cq_mod = self.cq_mod;
        plan.qps = self.qps;
        plan.eecs = self.eecs;
        plan.post_list = self.post_list;
        plan.bidirectional = self.bidirectional;
        plan.no_peak = self.no_peak;
        plan.rate = self.rate();
        plan.local.pace = self.pace();
        plan.local.region_per_qp = self.mr_per_qp;
        if self.run_infinitely {
            plan.amount = Amount::Endless;
            plan.local.margin = Duration::ZERO;
            if let Some(seconds) = common.duration {
                plan.local.interval = Duration::from_secs(seconds);
            }
        }
        Ok(View {
            both: self.report_both,
            limit_bw: self.limit_bw,
            limit_msgrate: self.limit_msgrate,
            ..View::default()
        })
    }

    /// Checks what clap cannot.
    fn check(&self) -> Result<(), BenchError> {
        let judged = self.limit_bw.is_some() || self.limit_msgrate.is_some() || self.report_both;
        if self.run_infinitely && judged {
            return Err(BenchError::usage(
                "--run_infinitely never comes to the end at which -w, -y and --report-both look at \
                 the result: give -D alone",
            ));
        }
        let program = self.rate_limit_type == RateLimitType::Program;
        if self.rate_units.is_some() && self.rate_limit_type == RateLimitType::QueuePair {
            return Err(BenchError::usage(
                "--rate_limit_type PP counts in kbit/s: leave out --rate_units",
            ));
        }
        if self.rate_units == Some(RateUnits::Messages) && !program {
            return Err(BenchError::usage(
                "--rate_units p limits messages, which only --rate_limit_type SW does",
            ));
        }
        if self.burst_size.is_some() && !program {
            return Err(BenchError::usage(
                "--burst_size is for --rate_limit_type SW: the other limits have no bursts",
            ));
        }
        Ok(())
    }

    fn rate(&self) -> Rate {
        let Some(rate) = self.rate_limit else { return Rate::Max };
        match (self.rate_limit_type, self.rate_units) {
            (RateLimitType::Program, _) => Rate::Max,
            // A value beyond the range means no limit.
            (RateLimitType::QueuePair, _) => Rate::QueuePair(rate.max(1.0) as u32),
            (RateLimitType::Path, Some(RateUnits::Mebibytes)) => {
                Rate::of_path(rate * f64::from(1 << 20) * 8.0 / 1e6)
            }
            (RateLimitType::Path, _) => Rate::of_path(rate * 1e3),
        }
    }

    fn pace(&self) -> Option<Pace> {
        let program = self.rate_limit_type == RateLimitType::Program;
        let rate = self.rate_limit.filter(|_| program)?;
        let rate = match self.rate_units {
            Some(RateUnits::Mebibytes) => Speed::Bytes(rate * f64::from(1 << 20)),
            Some(RateUnits::Gigabits) | None => Speed::Bytes(rate * 1e9 / 8.0),
            Some(RateUnits::Messages) => Speed::Messages(rate),
        };
        Some(Pace { rate, burst: self.burst_size.unwrap_or(self.tx_depth) })
    }
}

impl Group for WarmUpArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.local.warm_up = self.perform_warm_up;
        Ok(())
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && f64::is_finite(rate) => Ok(rate),
        _ => Err("a number above 0".to_owned()),
    }
}

fn parse_limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if limit >= 0.0 && f64::is_finite(limit) => Ok(limit),
        _ => Err("a number from 0".to_owned()),
    }
}
