//! The QPs of an lcore: each with its queues, its completions and its place in the schedule.
//!
//! ```text
//!   rx, timers, doorbells ─▶ shard ─▶ context ─▶ the core, in its environment ─▶ lane
//!   end of the turn ───────▶ schedule ─▶ shard …            ├─▶ completions
//!                                                          └─▶ held, if it came early
//! ```

pub(crate) mod completions;
pub(crate) mod context;
pub(crate) mod env;
pub(crate) mod held;
pub(crate) mod rd;
pub(crate) mod schedule;
pub(crate) mod shard;
pub(crate) mod tables;
