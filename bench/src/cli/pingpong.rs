//! Options of the ping-pongs, named as those of ibv_rc_pingpong.

use super::DeviceArgs;
use clap::Args;

/// Options of a ping-pong.
#[derive(Args, Clone, Debug)]
pub(crate) struct PingpongArgs {
    /// TCP port of the exchange between the two ends
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Bytes of a message
    #[arg(short = 's', long, default_value_t = 4096, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) size: u32,
    /// Path MTU; for ud_pingpong the longest message
    #[arg(short = 'm', long, default_value_t = 1024, value_name = "BYTES")]
    pub(crate) mtu: u32,
    /// Receive requests posted at a time
    #[arg(short = 'r', long = "rx-depth", default_value_t = 500, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub(crate) rx_depth: u32,
    /// Messages each way
    #[arg(short = 'n', long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iters: u64,
    /// Local ACK timeout: 4.096 µs · 2^N; 0 waits for ever. The stock program uses 14
    #[arg(short = 'u', long, default_value_t = 14, value_name = "N",
          value_parser = clap::value_parser!(u8).range(..=31))]
    pub(crate) qp_timeout: u8,
    /// Sleep on completion events instead of polling
    #[arg(short = 'e', long)]
    pub(crate) events: bool,
    /// Index of the local address
    #[arg(short = 'g', long = "gid-idx", default_value_t = 0, value_name = "INDEX")]
    pub(crate) gid_index: u8,
    /// Check every byte received
    #[arg(short = 'c', long)]
    pub(crate) chk: bool,
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
