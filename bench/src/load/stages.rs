//! Cycles that the stages of an end's turns take, in turns that have found work.

use crate::node::Node;
use std::time::Duration;
use uroce::Stage;

/// Number of stages.
const STAGES: usize = Stage::ALL.len();

/// Cycles of each stage, in the order of [`Stage::ALL`].
pub(crate) type Cycles = [u64; STAGES];

/// Begins to measure for `time`, and returns what was measured before.
pub(super) fn begin(node: &Node, time: Duration) -> Cycles {
    node.context.measure_stages(time);
    cycles(node)
}

/// Returns what was measured since `begin`.
pub(super) fn since(node: &Node, begin: &Cycles) -> Cycles {
    let now = cycles(node);
    std::array::from_fn(|at| now[at].saturating_sub(begin[at]))
}

fn cycles(node: &Node) -> Cycles {
    let profile = node.context.stages(0).unwrap_or_default();
    profile.stages.map(|stage| stage.cycles)
}
