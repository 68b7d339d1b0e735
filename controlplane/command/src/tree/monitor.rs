//! Commands that repeat requests: `monitor`.

use clap::{Args, Subcommand, value_parser};

use crate::request::number::number;

/// Objects of `monitor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Monitor {
    /// Show events of QPs and ports as they happen
    Events {
        /// How often, and how many
        #[command(flatten)]
        pace: Pace,
    },
    /// Show the rates of a port
    Port {
        /// Number of the port
        #[arg(value_name = "PORT", value_parser = number::<u32>)]
        port: u32,
        /// How often, and how many
        #[command(flatten)]
        pace: Pace,
    },
    /// Show the state and the rates of a queue pair
    Qp {
        /// Its number
        #[arg(value_name = "QPN", value_parser = number::<u32>)]
        qp: u32,
        /// How often, and how many
        #[command(flatten)]
        pace: Pace,
    },
}

/// Pace of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct Pace {
    /// Milliseconds from one request to the next, from 10 to an hour
    #[arg(long, value_name = "MS", default_value_t = 1000,
          value_parser = value_parser!(u32).range(10..=3_600_000))]
    pub interval: u32,
    /// Number of lines after which the monitor ends; without it, the monitor goes on
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub count: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Line, parse};

    #[test]
    fn a_monitor_has_an_object_and_a_pace() {
        let pace = |interval, count| Pace { interval, count };
        let of = |monitor| Some(Line::Monitor(monitor));
        let events = Monitor::Events { pace: pace(1000, None) };
        assert_eq!(parse("monitor events").unwrap(), of(events));
        let port = Monitor::Port { port: 1, pace: pace(250, None) };
        assert_eq!(parse("mon port 1 interval 250").unwrap(), of(port));
        let qp = Monitor::Qp { qp: 0x11, pace: pace(10, Some(3)) };
        assert_eq!(parse("monitor qp 0x11 count 3 interval 10").unwrap(), of(qp));
        for wrong in [
            "monitor",
            "monitor port",
            "monitor port all",
            "monitor qp -1",
            "monitor events interval 9",
            "monitor events count 0",
            "monitor port 0 interval 3600001",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
