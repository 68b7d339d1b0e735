//! Options of `loss`.

use super::DeviceArgs;
use crate::error::BenchError;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Packet buffers of each end, unless chosen. An own peer can hold almost half of them: more than
/// the frames of a full ring, which all come before a packet that is sent again.
const MBUFS: u32 = 2047;

/// Peers to which the goodput is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peers {
    /// Any RC peer: it drops what comes early, and everything after a lost packet is sent again
    Any,
    /// A peer of uroce: it holds what comes early, and only lost packets are sent again
    Own,
    /// One after the other, in each round
    Both,
}

/// Options of `loss`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LossArgs {
    /// Probabilities with which each end drops a packet that it receives, 0 to 1; without loss is
    /// always measured too
    #[arg(long, value_delimiter = ',', default_value = "0,1e-5,1e-4,1e-3,1e-2,5e-2",
        value_name = "P", value_parser = super::device::parse_probability)]
    pub(crate) loss: Vec<f64>,
    /// Peer that the sender has
    #[arg(long, value_enum, default_value = "both", value_name = "PEER")]
    pub(crate) mode: Peers,
    /// Payload bytes of a WRITE
    #[arg(short = 's', long, default_value_t = 65536, value_name = "BYTES")]
    pub(crate) size: u32,
    /// Path MTU, 256 to 4096
    #[arg(short = 'm', long, default_value_t = 4096, value_name = "BYTES")]
    pub(crate) mtu: u32,
    /// Local ACK timeout, 1 to 31: 4.096 µs · 2^N
    #[arg(short = 'u', long, default_value_t = 14, value_name = "N")]
    pub(crate) ack_timeout: u8,
    /// Runs of each probability and peer, in turn with the others; medians are reported
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) runs: u32,
    /// Milliseconds of each run, at most 60000, until no more messages are posted
    #[arg(long, default_value_t = 500, value_name = "MS")]
    pub(crate) time_ms: u64,
    /// File for the plot of goodput against the probability of loss, with a curve for each peer
    #[arg(long, default_value = "loss.svg", value_name = "FILE")]
    pub(crate) plot: PathBuf,
    /// Print one JSON object instead of the table
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print comma-separated values instead of the table
    #[arg(long)]
    pub(crate) csv: bool,
    /// The device; without `--mbufs` each end has [`MBUFS`] packet buffers.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

impl LossArgs {
    /// Checks the ranges of all options, and puts the probabilities in ascending order, 0 first.
    pub(crate) fn checked(mut self) -> Result<Self, BenchError> {
        let DeviceArgs { loss_rx, loss_tx, .. } = &self.device;
        let wrong = if loss_rx.is_some() || loss_tx.is_some() {
            "--loss-rx and --loss-tx have no effect here; --loss sets the loss of both ends"
        } else if !(1..=31).contains(&self.ack_timeout) {
            "--ack-timeout must be 1 to 31"
        } else if !(1..=1000).contains(&self.runs) {
            "--runs must be 1 to 1000"
        } else if !(1..=60_000).contains(&self.time_ms) {
            "--time-ms must be 1 to 60000"
        } else {
            self.loss.push(0.0);
            self.loss.sort_by(f64::total_cmp);
            self.loss.dedup();
            if self.device.config.is_none() {
                self.device.mbufs.get_or_insert(MBUFS);
            }
            return Ok(self);
        };
        Err(BenchError::usage(wrong))
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn checked(words: &str) -> Result<super::LossArgs, crate::error::BenchError> {
        let words = ["uroce-perf", "loss"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).expect("options of loss").command {
            Command::Loss(args) => args.checked(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn loss_free_runs_are_always_measured_and_first() {
        assert_eq!(checked("").unwrap().loss, [0.0, 1e-5, 1e-4, 1e-3, 1e-2, 5e-2]);
        assert_eq!(checked("--loss 0.01,1e-3,0.01").unwrap().loss, [0.0, 0.001, 0.01]);
    }

    #[test]
    fn options_out_of_range_or_without_effect_are_refused() {
        for (words, option) in [
            ("--ack-timeout 0", "--ack-timeout"),
            ("--ack-timeout 32", "--ack-timeout"),
            ("--runs 0", "--runs"),
            ("--time-ms 0", "--time-ms"),
            ("--loss-rx 0.1", "--loss sets"),
        ] {
            let error = checked(words).expect_err(words).to_string();
            assert!(error.contains(option), "{error}");
        }
        for words in [["--loss", "1.5"], ["--loss", ""]] {
            let words = ["uroce-perf", "loss"].into_iter().chain(words);
            assert!(Cli::try_parse_from(words).is_err());
        }
    }
}
