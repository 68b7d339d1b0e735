//! testpmd's `dump`.

use serde::{Deserialize, Serialize};

/// What DPDK describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Dump {
    /// Mempools: sizes, flags, free packet buffers
    Mempool,
    /// Memory zones: addresses and lengths
    Memzone,
    /// Memory segments with their addresses
    Physmem,
    /// Rings: sizes, and how much is in them
    Ring,
    /// Threads that DPDK knows, with their CPUs
    Lcores,
    /// Kinds of DPDK's log messages, with their levels
    #[cfg_attr(feature = "tree", command(name = "log_types"))]
    LogTypes,
    /// Heaps of each NUMA node: size, free, used
    #[cfg_attr(feature = "tree", command(name = "socket_mem"))]
    SocketMem,
}

#[cfg(all(test, feature = "tree"))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::tree::{Line, parse};

    #[test]
    fn words_are_testpmds() {
        for (line, what) in [
            ("dump mempool", Dump::Mempool),
            ("dump memz", Dump::Memzone),
            ("dump physmem", Dump::Physmem),
            ("du r", Dump::Ring),
            ("dump lcores", Dump::Lcores),
            ("dump log_types", Dump::LogTypes),
            ("dump socket_mem", Dump::SocketMem),
        ] {
            assert_eq!(parse(line).unwrap(), Some(Line::Request(Request::Dump(what))), "{line}");
        }
        for wrong in ["dump", "dump mem", "dump trace", "dump ring 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
