//! Answers about round trips of queue pairs.

use uroce_command::answer::{Bucket, Distribution, Latency, Times};
use uroce_command::{Answer, Select};
use uroce_engine::RoundTripDistribution;
use uroce_transport::RoundTripStats;

use super::super::Served;
use super::{Part, qp};
use crate::call::RequestError;

/// Answers with the round trips of QPs.
pub(super) fn show(served: &Served, select: Select, at: u32) -> Result<Part, RequestError> {
    qp::each(served, select, at, Answer::Latency, |served, qpn, info| Latency {
        device: served.config.name.clone(),
        qpn: qpn.value(),
        service: info.qp_type.to_string(),
        samples: info.round_trips.map_or(0, |of| of.samples),
        times: info.round_trips.map(times),
    })
}

/// Returns the distribution of a device's round trips, without those of an earlier reading.
pub(super) fn distribution(
    served: &Served,
    before: Option<&RoundTripDistribution>,
) -> Distribution {
    let now = served.engine.round_trips();
    let of = before.map_or_else(|| now.clone(), |before| now.since(before));
    let buckets = of.buckets().filter(|(_, count)| *count > 0);
    Distribution {
        device: served.config.name.clone(),
        sum_ns: of.sum_ns(),
        buckets: buckets.map(|(le_ns, count)| Bucket { le_ns, count }).collect(),
    }
}

/// Forgets the round trips of QPs.
pub(super) fn clear(served: &Served, at: u32) -> Result<Part, RequestError> {
    let next = served.calls.call(move |thread| thread.clear_round_trips(at))?;
    Ok(Part { answer: Answer::Done, is_found: true, next })
}

fn times(of: RoundTripStats) -> Times {
    let RoundTripStats { min_ns, mean_ns, max_ns, last_ns, .. } = of;
    Times { min_ns, mean_ns, max_ns, last_ns }
}
