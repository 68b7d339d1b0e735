//! Options that choose what this process runs: the server, the client, or both.

use super::DeviceArgs;
use clap::Args;

/// Role of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Waits for a client.
    Server,
    /// Connects to a server and prints the report.
    Client {
        /// The server's name or address.
        host: String,
    },
    /// Runs both ends, each on its own thread.
    Both,
}

/// Device and role of this process.
#[derive(Args, Clone, Debug)]
pub(crate) struct EndsArgs {
    /// Both ends in this process, joined by rings
    #[arg(long, conflicts_with = "server_host")]
    pub(crate) in_process: bool,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The server; without it this is the server
    #[arg(value_name = "SERVER_HOST")]
    pub(crate) server_host: Option<String>,
}

impl EndsArgs {
    /// Returns the role of this process.
    pub(crate) fn role(&self) -> Role {
        match (&self.server_host, self.in_process) {
            (Some(host), _) => Role::Client { host: host.clone() },
            (None, true) => Role::Both,
            (None, false) => Role::Server,
        }
    }
}
