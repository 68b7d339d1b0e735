//! Ports of a running process: `port`, `show rxq`, `show txq`.

use serde::{Deserialize, Serialize};

use super::Select;
#[cfg(feature = "tree")]
use super::number::number;

/// Objects of `port`.
///
/// Hidden commands are known from testpmd but change nothing here. Their answer names the setting
/// that has the same effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Port {
    /// Take the links of ports up
    Start {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// Take the links of ports down: they send and receive nothing; their drivers go on
    Stop {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
        /// Stop even if the device serves a program, which gets no packets meanwhile
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        force: bool,
    },
    /// Open a device in place of one that was detached, closed or unplugged
    Attach {
        /// DPDK's name of the device, with its arguments after a comma: `0000:01:00.0`
        #[cfg_attr(feature = "tree", arg(value_name = "DEVARGS"))]
        devargs: String,
        /// Number of the port that gets the device; the first one without a device if not given
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        #[serde(default)]
        port: Option<u16>,
    },
    /// Close the devices of ports, until others are attached; for NICs
    Detach {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
        /// Close even if the device serves a program, which gets no packets from then on
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        force: bool,
    },
    /// Close the devices of ports, as `detach`
    Close {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
        /// Close even if the device serves a program, which gets no packets from then on
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        force: bool,
    },
    /// Reset the devices of ports and start them again as they were; for NICs
    Reset {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
        /// Reset even if the device serves a program, which gets no packets meanwhile
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        force: bool,
    },
    /// Set MTU, queues, descriptors
    #[cfg_attr(feature = "tree", command(hide = true))]
    Config(Fixed),
}

/// The words after the name of a command that cannot change anything while a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Fixed {
    /// Any words
    #[cfg_attr(feature = "tree", arg(value_name = "WORDS", num_args = 0..))]
    pub words: Vec<String>,
}

/// Views of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum ShowQueue {
    /// Descriptors, packet buffers, and the lcore that polls the queue
    Info {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// Number of the queue, from 0
        #[cfg_attr(feature = "tree", arg(value_name = "QUEUE", value_parser = number::<u16>))]
        queue: u16,
    },
}

/// Views of how received packets are spread over queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum ShowRss {
    /// The driver's table of queues; also `show port PORT rss reta`, as testpmd has it
    Reta {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
}

#[cfg(all(test, feature = "tree"))]
mod tests {
    use super::*;
    use crate::tree::{Line, complete, parse};
    use crate::{Request, Show, ShowPort};

    #[test]
    fn lines_are_as_testpmds() {
        let port = |port| Line::Request(Request::Port(port));
        let one = Select::One(0);
        let attach = |devargs: &str, to| port(Port::Attach { devargs: devargs.into(), port: to });
        for (line, expected) in [
            ("port start all", port(Port::Start { port: Select::All })),
            ("port stop 0", port(Port::Stop { port: one, force: false })),
            ("port stop 0 force", port(Port::Stop { port: one, force: true })),
            ("port reset all", port(Port::Reset { port: Select::All, force: false })),
            ("port close 0 force", port(Port::Close { port: one, force: true })),
            ("port det 0", port(Port::Detach { port: one, force: false })),
            ("port attach net_null0,no-rx=1", attach("net_null0,no-rx=1", None)),
            ("port att 0000:01:00.0 0x1", attach("0000:01:00.0", Some(1))),
            (
                "show rxq info 1 0x2",
                Line::Request(Request::Show(Show::Rxq(ShowQueue::Info { port: 1, queue: 2 }))),
            ),
        ] {
            assert_eq!(parse(line).unwrap(), Some(expected), "{line}");
        }
        for wrong in ["port", "port st all", "port start", "port start x", "show txq info 0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_number_of_a_port_may_stand_before_rss() {
        let reta = |port| {
            let rss = ShowPort::Rss(ShowRss::Reta { port });
            Some(Line::Request(Request::Show(Show::Port(rss))))
        };
        for (line, port) in [
            ("show port rss reta 1", Select::One(1)),
            ("show port 1 rss reta", Select::One(1)),
            ("sh po 0x1 r r", Select::One(1)),
            ("show port all rss reta", Select::All),
        ] {
            assert_eq!(parse(line).unwrap(), reta(port), "{line}");
        }
        for (wrong, column) in
            [("show port 1", 10), ("show port 1 rss", 10), ("show 1 rss reta", 5)]
        {
            assert_eq!(parse(wrong).unwrap_err().column, column, "{wrong}");
        }
        assert_eq!(parse("show port 1 rss rate").unwrap_err().column, 16);
    }

    #[test]
    fn what_cannot_change_is_understood_and_not_offered() {
        let words = ["0", "mtu", "1500"].map(str::to_owned).to_vec();
        let config = Line::Request(Request::Port(Port::Config(Fixed { words })));
        assert_eq!(parse("port config 0 mtu 1500").unwrap(), Some(config));
        let offered: Vec<String> =
            complete("port ").words.into_iter().map(|candidate| candidate.word).collect();
        assert_eq!(offered, ["start", "stop", "attach", "detach", "close", "reset"]);
        assert_eq!(parse("port x").unwrap_err().expected, offered);
        assert!(!crate::tree::help(&["port".into()]).unwrap().contains("config"));
    }
}
