//! Options of `ndr`.

use super::{EndsArgs, Role};
use crate::error::BenchError;
use crate::ndr::shape::Size;
use crate::perf::plan::Service;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Options of `ndr`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NdrArgs {
    /// TCP port of the exchange between the two ends
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Lengths of frames with their check sequence, 64 to 9216, or imix; none leaves them out
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "64,128,256,512,1024,1280,1518,4096,9000,imix",
        value_name = "BYTES"
    )]
    pub(crate) frames: Vec<Frames>,
    /// Payload bytes of messages, beside the lengths of frames
    #[arg(short = 's', long, value_delimiter = ',', value_name = "BYTES",
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 24))]
    pub(crate) size: Vec<u32>,
    /// Transport services
    #[arg(
        short = 'c',
        long,
        value_parser = services(),
        value_delimiter = ',',
        default_value = "RC,UC,UD",
        value_name = "SERVICE"
    )]
    pub(crate) connection: Vec<Service>,
    /// Shares of loss that are searched for, in percent
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.5], value_name = "PERCENT")]
    pub(crate) loss: Vec<f64>,
    /// Searches of each point, of which the figures are given
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) searches: u32,
    /// Milliseconds of a trial
    #[arg(long, default_value_t = 50, value_name = "MS")]
    pub(crate) time_ms: u64,
    /// Trials at a load, at most: an odd number, of which more than half must agree
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) trials: u32,
    /// Distance of the bounds at which a search ends, in percent
    #[arg(long, default_value_t = 0.5, value_name = "PERCENT")]
    pub(crate) width: f64,
    /// Speeds of wires to compare with, in Gb/s
    #[arg(long, value_delimiter = ',', default_values_t = [100], value_name = "GBPS",
        value_parser = parse_link)]
    pub(crate) link: Vec<u32>,
    /// Loads at which the latency is measured (RC), in percent of the rate with the least loss;
    /// none measures no latency
    #[arg(long, value_delimiter = ',', default_value = "10,50,90", value_name = "PERCENT",
        value_parser = parse_load)]
    pub(crate) load: Vec<Loads>,
    /// Milliseconds at each of these loads
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    pub(crate) load_time_ms: u64,
    /// File for the histograms of latencies, in the log format of HdrHistogram
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr_log: Option<PathBuf>,
    /// Second device, in the form of DPDK's --vdev: its bare port is measured beside; rings
    /// (--in-process) have one of their own
    #[arg(long, value_name = "DEVARGS", conflicts_with = "in_process")]
    pub(crate) bare: Option<String>,
    /// Measure two dpdk-testpmd beside, txonly and rxonly, over memif on the same CPUs
    #[arg(long)]
    pub(crate) testpmd: bool,
    /// Path MTU, 256 to 4096
    #[arg(short = 'm', long, default_value_t = 4096, value_name = "BYTES")]
    pub(crate) mtu: u32,
    /// Receive requests of the server
    #[arg(short = 'r', long, default_value_t = 512, value_name = "N")]
    pub(crate) rx_depth: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The ends; `--seed` also chooses the messages that ask for a completion.
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
}

/// A length of frames, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    /// No lengths of frames.
    None,
    /// A length, or the mix.
    Size(Size),
}

impl std::str::FromStr for Frames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Size) }
    }
}

/// A load, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loads {
    /// No latency is measured.
    None,
    /// Percent of the rate.
    Percent(f64),
}

impl NdrArgs {
    /// Checks the ranges of all options, and that each point can be.
    pub(crate) fn checked(self) -> Result<Self, BenchError> {
        let percents = |values: &[f64]| values.iter().all(|value| (0.0..100.0).contains(value));
        let wrong = if self.sizes().is_empty() {
            "there is nothing to measure: give --frames or -s"
        } else if !(1..=1000).contains(&self.searches) {
            "--searches must be 1 to 1000"
        } else if !(1..=60_000).contains(&self.time_ms) {
            "--time-ms must be 1 to 60000"
        } else if self.trials.is_multiple_of(2) || self.trials > 99 {
            "--trials must be an odd number, 1 to 99"
        } else if !(0.01..=50.0).contains(&self.width) {
            "--width must be 0.01 to 50"
        } else if self.loss.is_empty() || !percents(&self.loss) {
            "--loss must be 0 to less than 100"
        } else if !(1..=60_000).contains(&self.load_time_ms) {
            "--load-time-ms must be 1 to 60000"
        } else if self.ends.role() == Role::Server
            && (self.json || self.hdr_log.is_some() || self.testpmd)
        {
            "--json, --hdr-log and --testpmd are the client's: give them there"
        } else if self.hdr_log.is_some() && self.loads().is_empty() {
            "--hdr-log has no effect without --load"
        } else if uroce::PathMtu::from_bytes(self.mtu).is_none() {
            "-m must be 256, 512, 1024, 2048 or 4096"
        } else if !(1..=16384).contains(&self.rx_depth) {
            "-r must be 1 to 16384"
        } else {
            return Ok(self);
        };
        Err(BenchError::usage(wrong))
    }

    /// Returns the sizes of all points.
    pub(crate) fn sizes(&self) -> Vec<Size> {
        let frames = self.frames.iter().filter_map(|frames| match frames {
            Frames::None => None,
            Frames::Size(size) => Some(*size),
        });
        frames.chain(self.size.iter().copied().map(Size::Message)).collect()
    }

    /// Returns the loads at which the latency is measured, in percent.
    pub(crate) fn loads(&self) -> Vec<f64> {
        let percent = |load: &Loads| match load {
            Loads::None => None,
            Loads::Percent(percent) => Some(*percent),
        };
        self.load.iter().filter_map(percent).collect()
    }
}

/// Reads a service. The generator of loads has no queue pairs of XRC and RD.
fn services() -> impl TypedValueParser<Value = Service> {
    let is_known = |service: &&Service| !matches!(service, Service::Xrc | Service::Rd);
    let known = Service::value_variants().iter().filter(is_known);
    let known = known.filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(known).try_map(|name| Service::from_str(&name, false))
}

fn parse_link(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(gbps) if [10, 25, 40, 100, 200, 400].contains(&gbps) => Ok(gbps),
        _ => Err("10, 25, 40, 100, 200 or 400".to_owned()),
    }
}

fn parse_load(text: &str) -> Result<Loads, String> {
    match text.parse() {
        _ if text == "none" => Ok(Loads::None),
        Ok(percent) if (0.1..=200.0).contains(&percent) => Ok(Loads::Percent(percent)),
        _ => Err("a number from 0.1 to 200, or none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(words: &str) -> Result<super::NdrArgs, String> {
        let words = ["uroce-perf", "ndr"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Ndr(args) => args.checked().map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_is_csits_sizes_over_all_services_and_ten_searches() {
        let args = parsed("host --json").expect("valid");
        assert_eq!((args.sizes().len(), args.connection.len(), args.searches), (10, 3, 10));
        assert_eq!((&args.loss[..], &args.loads()[..]), (&[0.0, 0.5][..], &[10.0, 50.0, 90.0][..]));
        let one = parsed("--frames none -s 65536 --load none -c RC").expect("valid");
        assert_eq!((one.sizes().len(), one.loads().len()), (1, 0));
    }

    #[test]
    fn values_out_of_range_or_without_effect_are_refused() {
        for (words, part) in [
            ("--frames 63", "64 to 9216"),
            ("--frames none", "nothing to measure"),
            ("-s 0", "0 is not in"),
            ("--link 50", "10, 25, 40, 100, 200 or 400"),
            ("--trials 2", "odd number"),
            ("-c RC,XRC", "invalid value 'XRC'"),
            ("-c RD", "invalid value 'RD'"),
            ("--searches 0", "--searches must be"),
            ("--width 0", "--width must be"),
            ("--loss 100", "--loss must be"),
            ("--load 0", "0.1 to 200"),
            ("--load none --hdr-log x host", "--hdr-log has no effect"),
            ("--json", "--json, --hdr-log and --testpmd are the client's"),
            ("-m 1500", "-m must be"),
        ] {
            let error = parsed(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
