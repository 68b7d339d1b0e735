//! Which work requests an end of a bandwidth test posts.

use crate::perf::plan::Plan;
use crate::pin::Side;

/// Work requests that an end posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// The end posts send requests.
    pub(super) sends: bool,
    /// The end posts receive requests.
    pub(super) receives: bool,
}

impl Flow {
    /// Returns the flow of an end of a bandwidth test.
    pub(super) fn of(plan: &Plan, side: Side) -> Self {
        let both = plan.bidirectional;
        Self {
            sends: side == Side::Client || both,
            receives: plan.takes_receives() && (side == Side::Server || both),
        }
    }

    /// Tells whether the end only serves.
    pub(super) fn is_passive(self) -> bool {
        !self.sends && !self.receives
    }
}
