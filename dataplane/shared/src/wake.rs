//! Waking threads: an lcore that sleeps, the control plane, and applications that wait for events.

pub mod bed;
pub mod bell;
pub mod doorbell;
pub mod events;
pub mod notices;
pub mod waker;
