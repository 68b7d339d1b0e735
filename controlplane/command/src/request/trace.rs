//! Requests about traces.

use serde::{Deserialize, Serialize};

#[cfg(feature = "tree")]
use super::number::number;

/// Largest number of packets in a trace.
pub const PACKETS_MAX: u16 = 1000;

/// Objects of `trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// Follow the next packets that a queue pair sends and receives, at all ports; `show trace`
    /// shows them
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
        /// How many, up to 1000
        #[cfg_attr(feature = "tree", arg(long, value_name = "COUNT", default_value_t = 100,
            value_parser = clap::value_parser!(u16).range(1..=i64::from(PACKETS_MAX))))]
        #[serde(default = "default_packets")]
        packets: u16,
    },
}

fn default_packets() -> u16 {
    100
}

#[cfg(all(test, feature = "tree"))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::tree::{Line, parse};

    #[test]
    fn a_trace_has_a_queue_pair_and_a_number_of_packets() {
        let of = |qp, packets| Some(Line::Request(Request::Trace(Trace::Qp { qp, packets })));
        assert_eq!(parse("trace qp 0x11").unwrap(), of(0x11, 100));
        assert_eq!(parse("tr q 17 pac 1000").unwrap(), of(17, 1000));
        for wrong in ["trace qp", "trace qp 1 packets 0", "trace qp 1 packets 1001", "trace qp all"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let short = r#"{"trace":{"qp":{"qp":7}}}"#;
        let read: Request = serde_json::from_str(short).unwrap();
        assert_eq!(Some(Line::Request(read)), of(7, 100));
    }
}
