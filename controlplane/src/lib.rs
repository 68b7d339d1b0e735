//! The control plane of a device: configuration, Modify QP, address resolution, connections.
//!
//! ```text
//!   application threads          control-plane thread            lcores
//!   Device::create_qp ──┐
//!   Device::modify_qp ──┼─ requests ─> thread ── Control ──> commands ─> QPs
//!   Device::cm_…      ──┘                │
//!          events <── Driver (connections) ── Gsi <── packets to QP 1 ─────────── rx
//!   kernel's netdevs ──────────────> Ports <── links
//!                                   Neighbours <── slow frames (ARP, ND, echo) ── rx
//! ```
//!
//! A [`Device`] is opened from a [`Config`]. One thread per device owns what changes seldom: it
//! creates, modifies and destroys QPs by commands to their lcores, resolves peers' addresses,
//! follows links and the kernel's netdevs, and answers ARP, neighbour discovery and `ping`. It runs QP 1 of each port and, over it, connections
//! by IP address and port ([`connect`]). Application threads send it requests.
//!
//! Invariants
//! - The thread never waits for a peer, and every request ends.
//! - A QP's state is changed by its lcore alone; Modify QP's rules are the transport's.
//!
//! Not here: posting, polling and memory (the engine's); the messages of connection management and
//! their states (`uroce-cm`'s); when a QP migrates (the transport's).

#![forbid(unsafe_code)]

pub mod config;
pub mod connect;
pub mod device;
mod gsi;
mod netdev;
pub mod path;
mod port_watch;
mod request;
mod thread;

pub use config::{Config, ConfigError};
pub use device::{Device, OpenError, preview, random_psn};
pub use path::{AddressVector, AlternateVector, PathError};
pub use port_watch::PortAttr;
pub use request::{Count, PortStatus, RequestError};
pub use uroce_engine::port::PortStats;
