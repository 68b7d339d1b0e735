//! Demonstrations for `deploy/quickstart` and `deploy/failover-demo`: the main job with its
//! figures, and path migration when a link is cut.

pub(crate) mod failover;
pub(crate) mod quickstart;
