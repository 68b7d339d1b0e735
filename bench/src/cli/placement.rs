//! Options of `placement`, with the names that the ping-pongs have.

use super::DeviceArgs;
use clap::{Args, ValueEnum};

/// Options of `placement`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlacementArgs {
    /// TCP port of the exchange between the two ends
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Bytes that each round writes and flushes
    #[arg(short = 's', long, default_value_t = 4096, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) size: u32,
    /// Path MTU
    #[arg(short = 'm', long, default_value_t = 1024, value_name = "BYTES")]
    pub(crate) mtu: u32,
    /// Rounds
    #[arg(short = 'n', long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,
    /// Local ACK timeout: 4.096 µs · 2^N; 0 waits for ever
    #[arg(short = 'u', long, default_value_t = 14, value_name = "N",
          value_parser = clap::value_parser!(u8).range(..=31))]
    pub(crate) qp_timeout: u8,
    /// Index of the local address
    #[arg(short = 'g', long = "gid-idx", default_value_t = 0, value_name = "INDEX")]
    pub(crate) gid_index: u8,
    /// Request that the client posts after the rounds, and that the server must refuse
    #[arg(
        short = 'w',
        long,
        value_enum,
        default_value = "none",
        value_name = "WRONG",
        requires = "server_host"
    )]
    pub(crate) wrong: Wrong,
    /// Leave out the FLUSH of each round
    #[arg(short = 'U', long, requires = "server_host")]
    pub(crate) unflushed: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The server; without it this is the server
    #[arg(value_name = "SERVER_HOST")]
    pub(crate) server_host: Option<String>,
}

/// What is wrong with the last request.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// There is no such request
    None,
    /// ATOMIC WRITE to an address that is not a multiple of 8
    Address,
    /// FLUSH of one byte more than the region has
    Range,
    /// FLUSH to persistence, to which ordinary memory gives no right
    Rights,
}
