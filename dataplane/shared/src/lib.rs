//! State that lcores, the control plane and applications share. It needs no DPDK.
//!
//! ```text
//!   seat                     which thread drives an lcore
//!   queue                    work and completion queues between applications and lcores
//!   wake                     doorbells, events, and what wakes a thread that sleeps
//!   memory                   regions and windows, found by their keys
//!   table                    tables that lcores read without waiting
//!   copy · time              moving bytes; clock, timers, rates
//!   sync                     atomics, locks, rings and descriptors; in models, those of loom
//! ```
//!
//! Each module imports from those below it only. All atomics, locks and rings come from `sync`, so
//! that models can explore them: `cargo run -p uroce-shared --example models` with `--cfg loom`
//! in `RUSTFLAGS`, or `deploy/test models`.
//!
//! Invariants
//! - An lcore neither waits for another thread nor allocates in anything that it calls here.
//! - Unsafe code is only in the files that lift this crate's `deny(unsafe_code)` by name.
//!
//! Not here: an lcore's turn, ports and DPDK (`uroce-engine`); the protocol
//! ([`uroce_transport`]).

#![deny(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "models use a part of it"))]

pub mod copy;
pub mod memory;
#[cfg(loom)]
pub mod models;
pub mod queue;
pub mod seat;
pub mod sync;
pub mod table;
pub mod time;
pub mod wake;
