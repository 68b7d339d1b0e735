//! Round trips of a QP's requests, for people.

use super::Qp;
use crate::rc::RoundTripStats;

impl Qp {
    /// Round trips of the QP's requests. `None` if it has measured none: its service has no
    /// acknowledgements, or the peer has acknowledged nothing yet.
    pub fn round_trips(&self) -> Option<RoundTripStats> {
        self.service.reliable()?.requester.trips.stats()
    }

    /// Forgets the round trips that were measured, and measures the next request that asks for an
    /// acknowledgement. The protocol's own estimate stays.
    pub fn clear_round_trips(&mut self) {
        if let Some(rc) = self.service.reliable_mut() {
            rc.requester.clear_trips();
        }
    }
}
