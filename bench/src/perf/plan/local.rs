//! Choices of one end alone, which the other need not make too.

use crate::error::BenchError;
use std::time::Duration;
use uroce::Gid;

/// Time between two results of an endless run unless it is given, as in perftest.
const INTERVAL: Duration = Duration::from_secs(5);

/// How one end posts, waits and keeps its results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Local {
    /// Header fields of sent packets.
    pub(crate) fields: Fields,
    /// Each queue pair's memory is a region of its own.
    pub(crate) region_per_qp: bool,
    /// Queue pairs take receive requests from one shared queue.
    pub(crate) srq: bool,
    /// Receive requests posted at once; `None` leaves the number to the test.
    pub(crate) receive_list: Option<u32>,
    /// The thread sleeps on completion events instead of polling.
    pub(crate) events: bool,
    /// Messages are sent before the measurement.
    pub(crate) warm_up: bool,
    /// Parts of a run by time, at its beginning and end, that are not measured.
    pub(crate) margin: Duration,
    /// Time between two results of an endless run.
    pub(crate) interval: Duration,
    /// Limit of this end's sending rate.
    pub(crate) pace: Option<Pace>,
    /// Pause before each message of a latency test.
    pub(crate) gap: Duration,
    /// Every latency is kept.
    pub(crate) keep: bool,
    /// The multicast group to receive from; `None` for one made from the queue pair's number.
    pub(crate) group: Option<Gid>,
}

impl Default for Local {
    fn default() -> Self {
        Self {
            fields: Fields::default(),
            region_per_qp: true,
            srq: false,
            receive_list: None,
            events: false,
            warm_up: false,
            margin: Duration::ZERO,
            interval: INTERVAL,
            pace: None,
            gap: Duration::ZERO,
            keep: false,
            group: None,
        }
    }
}

/// Header fields of sent packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Priority in the VLAN tag.
    pub(crate) service_level: u8,
    /// DSCP and ECN.
    pub(crate) traffic_class: u8,
    /// IPv6 flow labels, which the queue pairs take in turn; none for 0.
    pub(crate) flow_labels: Vec<u32>,
    /// TTL or hop limit.
    pub(crate) hop_limit: u8,
}

impl Default for Fields {
    fn default() -> Self {
        Self { service_level: 0, traffic_class: 0, flow_labels: Vec::new(), hop_limit: 64 }
    }
}

impl Fields {
    /// Returns the flow label of a queue pair.
    pub(crate) fn flow_label(&self, worker: usize) -> u32 {
        let count = self.flow_labels.len().max(1);
        self.flow_labels.get(worker % count).copied().unwrap_or(0)
    }
}

/// Limit of an end's sending rate by pauses between bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// The limit.
    pub(crate) rate: Speed,
    /// Messages of a burst.
    pub(crate) burst: u32,
}

/// A rate per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// Bytes of payload.
    Bytes(f64),
    /// Messages.
    Messages(f64),
}

impl Pace {
    /// Returns the time from the beginning of a burst to that of the next, in ns.
    pub(crate) fn period_ns(&self, size: u32) -> u64 {
        let per_second = match self.rate {
            Speed::Bytes(bytes) => bytes / f64::from(size.max(1)),
            Speed::Messages(messages) => messages,
        };
        // The conversion saturates: a rate near 0 is a pause without end.
        (f64::from(self.burst) * 1e9 / per_second.max(f64::MIN_POSITIVE)) as u64
    }
}

impl Local {
    /// Checks the choices against the plan's receive depth.
    pub(super) fn check(&self, rx_depth: u32, receives: bool) -> Result<(), BenchError> {
        match self.receive_list {
            Some(_) if !receives => Err(BenchError::usage(
                "--recv_post_list: the other end posts no receive requests without --write_with_imm",
            )),
            Some(list) if !(1..=rx_depth).contains(&list) => Err(BenchError::usage(format!(
                "--recv_post_list must be 1 to {rx_depth}, the value of -r, not {list}"
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_are_taken_in_turn() {
        let fields = Fields { flow_labels: vec![7, 9], ..Fields::default() };
        assert_eq!([0, 1, 2].map(|worker| fields.flow_label(worker)), [7, 9, 7]);
        assert_eq!(Fields::default().flow_label(3), 0);
    }

    #[test]
    fn a_pace_is_bursts_at_a_period() {
        let of = |rate, burst, size| Pace { rate, burst }.period_ns(size);
        assert_eq!(of(Speed::Messages(1e6), 10, 64), 10_000);
        assert_eq!(of(Speed::Bytes(1e9), 1, 1000), 1000);
        assert_eq!(of(Speed::Messages(f64::MIN_POSITIVE), 1, 1), u64::MAX);
    }
}
