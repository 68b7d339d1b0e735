//! Options of the programs that use the connection manager, named as those of rdmacm-utils.

use super::DeviceArgs;
use clap::Args;
use std::net::IpAddr;

/// Default port of rping.
const PORT: u16 = 7174;
/// Default port of cmtime.
const CMTIME_PORT: u16 = 7471;
/// The shortest ping has room for its heading and its number.
const SHORTEST_PING: i64 = 23;
/// Longest ping of the stock program.
const LONGEST_PING: i64 = 65535;
/// Default length of a message in bytes, as in the stock programs.
const MESSAGE: u32 = 100;

/// Options of `rping`.
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("role").required(true).args(["server", "client"]))]
pub(crate) struct RpingArgs {
    /// Wait as the server
    #[arg(short = 's')]
    pub(crate) server: bool,
    /// Connect as the client
    #[arg(short = 'c', requires = "address")]
    pub(crate) client: bool,
    /// The server's address; a server without it listens on all its addresses
    #[arg(short = 'a', value_name = "ADDR")]
    pub(crate) address: Option<IpAddr>,
    /// The server's port
    #[arg(short = 'p', default_value_t = PORT, value_name = "PORT")]
    pub(crate) port: u16,
    /// Number of pings; 0 goes on until the other end disconnects
    #[arg(short = 'C', default_value_t = 0, value_name = "N")]
    pub(crate) count: u64,
    /// Bytes of a ping
    #[arg(short = 'S', default_value_t = 64, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(SHORTEST_PING..=LONGEST_PING))]
    pub(crate) size: u32,
    /// Print the data of every ping
    #[arg(short = 'v')]
    pub(crate) print: bool,
    /// Check the data of every ping: a client what comes back, a server what it reads
    #[arg(short = 'V')]
    pub(crate) validate: bool,
    /// Serve one client after the other, and several at the same time
    #[arg(short = 'P', requires = "server")]
    pub(crate) persistent: bool,
    /// With -P: end after this number of clients; 0 never ends
    #[arg(long, default_value_t = 0, requires = "persistent", value_name = "N")]
    pub(crate) clients: u32,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Options of `ucmatose` and `udaddy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MessageArgs {
    /// The server; without it this is the server
    #[arg(short = 's', value_name = "ADDR")]
    pub(crate) server: Option<IpAddr>,
    /// Local address on which the server listens, or from which the client connects
    #[arg(short = 'b', value_name = "ADDR")]
    pub(crate) bind: Option<IpAddr>,
    /// Connections
    #[arg(short = 'c', default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,
    /// Messages each way over each connection
    #[arg(short = 'C', default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=4096))]
    pub(crate) count: u32,
    /// Bytes of a message
    #[arg(short = 'S', default_value_t = MESSAGE, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) size: u32,
    /// The server's port [default: 7471; of udaddy 7174]
    #[arg(short = 'p', value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Options of `cmtime`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CmtimeArgs {
    /// The server; without it this is the server
    #[arg(short = 's', value_name = "ADDR")]
    pub(crate) server: Option<IpAddr>,
    /// Local address on which the server listens, or from which the client connects
    #[arg(short = 'b', value_name = "ADDR")]
    pub(crate) bind: Option<IpAddr>,
    /// Number of connections, after which the server ends
    #[arg(short = 'c', default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) connections: u32,
    /// The server's port
    #[arg(short = 'p', default_value_t = CMTIME_PORT, value_name = "PORT")]
    pub(crate) port: u16,
    /// Make and end one connection after the other, instead of all connections step by step
    #[arg(long, requires = "server")]
    pub(crate) one_by_one: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}
