//! Round trips of a QP's requests, for people.

use super::Qp;
use super::service::Service;
use crate::rc::RoundTripStats;

impl Qp {
    /// Round trips of the QP's requests. `None` if it has measured none: its service has no
    /// acknowledgements, or the peer has acknowledged nothing yet.
    pub fn round_trips(&self) -> Option<RoundTripStats> {
        match &self.service {
            Service::Rc(rc) => rc.requester.trips.stats(),
            Service::Uc(_) | Service::Ud(_) => None,
        }
    }

    /// Forgets the round trips that were measured, and measures the next request that asks for an
    /// acknowledgement. The protocol's own estimate stays.
    pub fn clear_round_trips(&mut self) {
        if let Service::Rc(rc) = &mut self.service {
            rc.requester.clear_trips();
        }
    }
}
