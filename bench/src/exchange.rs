//! The out-of-band exchange: what the two ends tell each other beside the RDMA connection.
//!
//! Bytes over a TCP connection, or over a socket pair inside one process. A thread that drives an
//! lcore must not block, so waiting calls a function of the caller's again and again. What the bytes
//! mean depends on who is there: perftest's programs have their records ([`perftest`]), two ends of
//! uroce have lines of JSON ([`Link`]), which also carry what perftest has no words for: differing
//! options, verification, the cause of a failure. Which of them it is shows in perftest's first
//! record, see [`perftest::greet`].
//!
//! Invariants
//! - A closed connection and a silent peer end in an error that says so, never in a hang.
//! - A side that fails tells the other why ([`Link::send_failure`]), so both name the cause.
//!
//! Not here: what is said, see [`crate::session`]; ibv_rc_pingpong's own exchange, see
//! [`crate::pingpong`].

mod channel;
mod link;
pub(crate) mod perftest;

pub(crate) use channel::{Channel, Listener, connect};
pub(crate) use link::Link;

use std::time::Duration;

/// How long one end waits for the other's next word.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a thread does that waits and drives nothing.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_micros(10));
}
