//! What the counters of an end say about losses.

use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use uroce_transport::DropReason;

/// Counter of retransmitted packets.
const AGAIN: &str = "retransmitted_packets";
/// Counter of RNR NAKs, at the end that has sent them.
const RNR: &str = "send_rnr_err";
/// Counters of frames that the engine has dropped for another reason than those of the transport.
const DROPPED: [&str; 7] = [
    "rx_injected_loss",
    "tx_injected_loss",
    "bottleneck_dropped",
    "rx_link_down",
    "tx_link_down",
    "tx_stuck",
    "cq_overrun",
];
/// Reasons of drops that take no message from its receiver: a late or doubled acknowledgement, and
/// what follows a loss that is counted already.
const HARMLESS: [DropReason; 3] =
    [DropReason::NotRequester, DropReason::AfterNak, DropReason::Congestion];

/// Events that count as losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Packets sent again.
    pub(super) again: u64,
    /// RNR NAKs.
    pub(super) rnr: u64,
    /// Frames dropped.
    pub(super) dropped: u64,
}

impl Tally {
    /// Reads the counters of an end: those of the device, and those of its port's driver.
    pub(super) fn of(node: &Node) -> Result<Self, BenchError> {
        let counts = node.context.counters().step("reading counters")?;
        let drops: Vec<&str> = DropReason::ALL
            .iter()
            .filter(|reason| !HARMLESS.contains(reason))
            .map(|reason| reason.name())
            .chain(DROPPED)
            .collect();
        let sum = |names: &[&str]| -> u64 {
            let named = counts.iter().filter(|count| names.contains(&count.name));
            named.map(|count| count.value).sum()
        };
        let port = node.context.port_status(PORT).step("reading the port's counters")?.stats;
        let driver = port.rx_missed + port.rx_errors + port.tx_errors + port.rx_no_mbuf;
        Ok(Self { again: sum(&[AGAIN]), rnr: sum(&[RNR]), dropped: sum(&drops) + driver })
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            again: self.again.saturating_add(other.again),
            rnr: self.rnr.saturating_add(other.rnr),
            dropped: self.dropped.saturating_add(other.dropped),
        }
    }
}

impl Sub for Tally {
    type Output = Self;

    /// Subtracts an earlier reading.
    fn sub(self, earlier: Self) -> Self {
        Self {
            again: self.again.saturating_sub(earlier.again),
            rnr: self.rnr.saturating_sub(earlier.rnr),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}
