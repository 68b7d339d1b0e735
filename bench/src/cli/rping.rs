//! Options of `rping`, named as those of rdmacm-utils' program.

use super::DeviceArgs;
use clap::Args;
use std::net::{IpAddr, ToSocketAddrs};

/// Default port of the stock program.
const PORT: u16 = 7174;
/// The shortest ping has room for its heading and its number.
const SHORTEST_PING: i64 = 23;
/// Longest ping of the stock program.
const LONGEST_PING: i64 = 65535;

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
    /// The server's address or name; a server without it listens on all its addresses
    #[arg(short = 'a', value_name = "ADDR", value_parser = address)]
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

/// Returns the address itself, or the first that the system's resolver has for a name.
fn address(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut found = (text, PORT).to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().map(|found| found.ip()).ok_or_else(|| "the name has no address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_server_is_named_by_an_address_or_a_name() {
        assert_eq!(address("192.0.2.1").map(|found| found.to_string()), Ok("192.0.2.1".into()));
        assert!(address("localhost").is_ok_and(|found| found.is_loopback()));
        assert!(address("no such name").is_err_and(|error| !error.is_empty()));
    }
}
