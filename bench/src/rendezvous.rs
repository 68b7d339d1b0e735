//! The out-of-band exchange between the two ends, beside the RDMA connection.
//!
//! The exchange uses a TCP connection, or a socket pair inside one process. A thread that drives an
//! lcore must not block, so that waiting functions call the caller's function repeatedly.
//! perftest's programs exchange fixed records ([`perftest`]). Two ends of uroce exchange lines of
//! JSON ([`Link`]), which also carry what perftest has no record for: different options,
//! verification, the cause of a failure. perftest's first record shows which of the two the other
//! end is, see [`perftest::greet`].
//!
//! Invariants
//! - A closed connection or a silent peer ends in an error with the reason, never in a hang.
//! - An end that fails sends the reason to the other ([`Link::send_failure`]), so that both print
//!   it.
//!
//! Not here: the order of the exchange ([`crate::perf::traffic`]); the exchange of ibv_rc_pingpong
//! ([`crate::pingpong`]).

mod channel;
mod link;
pub(crate) mod perftest;

pub(crate) use channel::{Channel, Listener, connect};
pub(crate) use link::Link;

use std::time::Duration;

/// Longest wait for the other end's next record.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Pauses a thread that waits and does not drive an lcore.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_micros(10));
}
