//! Time: the clock that an lcore reads once a turn, its timers, and the rate of an address handle.

pub mod clock;
#[cfg(not(loom))]
pub mod rate;
#[cfg(not(loom))]
pub mod timer_wheel;
