//! testpmd's forwarding: `set fwd`, `start`, `show fwd`, `clear fwd`.

use serde::{Deserialize, Serialize};

/// Largest number of bursts of `start tx_first`, as in testpmd.
pub const BURSTS_MAX: u32 = 1000;

/// What ports do with received frames while forwarding is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum FwdMode {
    /// They go to QPs, ARP, neighbour discovery and ICMP echo, as without forwarding.
    #[cfg_attr(feature = "tree", value(alias = "icmpecho"))]
    Endpoint,
    /// They leave through the port that they came from, with their Ethernet addresses exchanged.
    Echo,
    /// They are dropped.
    Rxonly,
    /// They leave unchanged through the other port of a pair: 0 and 1, 2 and 3.
    #[default]
    Io,
    /// They leave as with `io`, with their IPv4 and UDP checksums computed anew.
    Csum,
}

/// Arguments of `start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Start {
    /// Send bursts of 32 frames through each port first
    #[cfg_attr(feature = "tree", arg(long = "tx_first"))]
    #[serde(default)]
    pub tx_first: bool,
    /// How many bursts `tx_first` sends, up to 1000
    #[cfg_attr(feature = "tree", arg(value_name = "N", default_value_t = 1,
        requires = "tx_first", value_parser = clap::value_parser!(u32).range(1..=i64::from(BURSTS_MAX))))]
    #[serde(default = "one")]
    pub bursts: u32,
    /// Start even if a device serves a program or has queue pairs, which get no packets meanwhile
    #[cfg_attr(feature = "tree", arg(long))]
    #[serde(default)]
    pub force: bool,
}

fn one() -> u32 {
    1
}

/// Views of forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Fwd {
    /// Frames that ports have received and sent since forwarding was started
    Stats {
        /// `all`: the ports of all devices
        #[cfg_attr(feature = "tree", arg(value_name = "all"))]
        ports: All,
    },
}

/// The word `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum All {
    /// All of them.
    All,
}

#[cfg(all(test, feature = "tree"))]
mod tests {
    use super::*;
    use crate::request::Set;
    use crate::tree::{Line, parse};
    use crate::{Request, Show};

    fn request(line: &str) -> Request {
        match parse(line) {
            Ok(Some(Line::Request(request))) => request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_of_testpmd_are_requests() {
        let start = |tx_first, bursts, force| Request::Start(Start { tx_first, bursts, force });
        assert_eq!(request("start"), start(false, 1, false));
        assert_eq!(request("start tx_first"), start(true, 1, false));
        assert_eq!(request("start tx_first 3 --force"), start(true, 3, true));
        assert_eq!(request("stop"), Request::Stop);
        assert_eq!(request("set fwd io"), Request::Set(Set::Fwd { mode: FwdMode::Io }));
        let endpoint = Request::Set(Set::Fwd { mode: FwdMode::Endpoint });
        assert_eq!(request("set fwd icmpecho"), endpoint);
        let csum = Request::Set(Set::Fwd { mode: FwdMode::Csum });
        assert_eq!(request("set fwd csum"), csum);
        let all = Fwd::Stats { ports: All::All };
        assert_eq!(request("show fwd stats all"), Request::Show(Show::Fwd(all)));
        for wrong in ["start 3", "start tx_first 0", "start tx_first 1001", "set fwd mac", "stop 1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_without_arguments_sends_nothing_first() {
        let start = Start { tx_first: false, bursts: 1, force: false };
        let read: Request = serde_json::from_str(r#"{"start":{}}"#).unwrap();
        assert_eq!(read, Request::Start(start));
    }
}
