//! Addresses of ports: `ip`.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(feature = "tree")]
use super::number::number;

/// Changes of the addresses of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Ip {
    /// Add an address to a port, and a GID to its table; `save config` does not save it
    Add {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// The address, and the length of its network's prefix
        #[cfg_attr(feature = "tree", arg(value_name = "ADDRESS/LEN"))]
        prefix: Prefix,
    },
    /// Remove an address of a port; queue pairs that send from it get no answers any more
    Del {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// The address, and the length of its network's prefix
        #[cfg_attr(feature = "tree", arg(value_name = "ADDRESS/LEN"))]
        prefix: Prefix,
        /// Remove it even if the device serves a program
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        force: bool,
    },
}

/// An address and the length of its network's prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// The length; the process checks its range.
    pub len: u8,
}

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Prefix, Self::Err> {
        let parts = text.split_once('/').and_then(|(address, len)| {
            Some(Prefix { address: address.parse().ok()?, len: len.parse().ok()? })
        });
        parts.ok_or("not an address and a length, as in 192.0.2.1/24")
    }
}

#[cfg(all(test, feature = "tree"))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::tree::{Line, parse};

    #[test]
    fn an_address_has_a_length() {
        let prefix = Prefix { address: "2001:db8::1".parse().unwrap(), len: 64 };
        let add = Line::Request(Request::Ip(Ip::Add { port: 1, prefix }));
        assert_eq!(parse("ip add 1 2001:db8::1/64").unwrap(), Some(add));
        let prefix = Prefix { address: "192.0.2.1".parse().unwrap(), len: 24 };
        let del = Line::Request(Request::Ip(Ip::Del { port: 0, prefix, force: true }));
        assert_eq!(parse("ip d 0 192.0.2.1/24 force").unwrap(), Some(del));
        for wrong in ["ip add 0 192.0.2.1", "ip add 0 192.0.2.1/x", "ip add 192.0.2.1/24", "ip"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
