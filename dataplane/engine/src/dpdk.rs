//! DPDK: the environment abstraction layer, mbufs and ports, behind safe types.

pub mod eal;
pub mod mbuf;
pub(crate) mod port;
pub mod telemetry;
