//! The engine over DPDK's virtual devices, one process per test. It is one program, because each
//! one has to be linked with DPDK. `many` and `steady` count allocations, and are programs of their
//! own.

#[path = "../common/mod.rs"]
mod common;

#[path = "../lab/mod.rs"]
mod lab;

mod adopt;
mod bottleneck;
mod control_plane;
mod dereg;
mod faults;
mod forward;
mod held;
mod hostile;
mod linear;
mod lives;
mod local;
mod migration;
mod pair;
mod pollers;
mod port;
mod port_drivers;
mod ports;
mod raw;
mod rd;
mod sleep;
mod start;
mod steering;
mod tap;
