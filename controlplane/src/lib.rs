//! The control plane of a device: configuration, Modify QP, address resolution, connections.
//!
//! ```text
//!   application threads          control-plane thread            lcores
//!   Device::create_qp ──┐
//!   Device::modify_qp ──┼─── jobs ───> thread ── Control ──> commands ─> QPs
//!   Device::cm_…      ──┘                │
//!          events <── Service (connections) ── Gsi <── packets to QP 1 ─────────── rx
//!   kernel's netdevs ──────────────> Ports <── links
//!                                   Neighbours <── slow frames (ARP, ND, echo) ── rx
//! ```
//!
//! A [`Device`] is opened from a [`Config`]. One thread per device owns all state that changes
//! seldom. It creates, modifies and destroys QPs by commands to their lcores, resolves addresses of
//! peers, follows links and the kernel's netdevs, and answers ARP, neighbour discovery and `ping`.
//! It runs QP 1 of each port and, over it, connections by IP address and port ([`rdma_cm`]).
//! Application threads send it jobs, each of which runs one call.
//!
//! Invariants
//! - The thread never waits for a peer, and every call is answered.
//! - Only its lcore changes a QP's state; `uroce-transport` has the rules of Modify QP.
//!
//! With the environment variable `UROCE_LOG=debug`, the control paths are logged to stderr: states
//! of connections, Modify QP, path resolution, links. The syntax is that of `tracing-subscriber`'s
//! `EnvFilter`. A program with a `tracing` subscriber of its own gets these events instead.
//!
//! Not here: posting, polling and memory (`uroce-engine`); messages and states of connection
//! management (`uroce-cm`); the decision to migrate a QP (`uroce-transport`).

#![forbid(unsafe_code)]

mod call;
mod capture;
pub mod config;
mod container;
mod control_socket;
pub mod device;
mod errno;
mod failover;
mod gsi;
pub mod limits;
mod log;
mod netdev;
pub mod path;
mod port_watch;
pub mod rdma_cm;
mod thread;
mod trace;

pub use call::{Count, PortStatus, RequestError};
pub use config::{Config, ConfigError};
pub use container::ContainerError;
pub use device::{Device, OpenError, PoolSpent, dpdk_parameters, preview, random_psn};
pub use errno::AsErrno;
pub use path::{AddressVector, AlternateVector, PathError};
pub use port_watch::PortAttr;
pub use uroce_engine::port::PortStats;
