//! Poll-mode lcores and ports under the transport.
//!
//! ```text
//!   application            SendQueueEnd ─┐ doorbell     ┌─▶ CompletionQueue ─▶ CompletionChannel
//!                          RecvQueueEnd ─┤              │
//!   ─────────────────────────────────────┼──────────────┼──────────────────────────────────────
//!   lcore    ┌───────────────────────────▼──────────────┴───────────────────────────────────┐
//!            │ commands ─▶ receive ─▶ timers ─▶ doorbells ─▶ transmit ─▶ completions ─▶ ▒▒▒ │
//!            └────▲──────────▲───────────────────────────────────┬──────────────────────────┘
//!   ──────────────┼──────────┼───────────────────────────────────┼──────────────────────────────
//!   Control ──────┘      rx_burst                            tx_burst                     Port
//! ```
//!
//! An lcore owns queue pair *i* of each port, a shard of the QPs with their timers, and its
//! counters. It touches nothing that another thread writes except through rings. A QP lives on one
//! lcore; others send it messages: the application sends work requests, the control plane commands,
//! and another lcore the packets that it received. All lcores read two tables, QPN → owner and key
//! → memory region, by plain acquire loads. What is removed from the second is freed once each
//! lcore has ended the turn it was in (`▒▒▒`, the quiescent point).
//!
//! The wings, from the ground up, each of which imports from those before it only: `dpdk` (EAL,
//! mbufs, ethdevs), `port` (a face for all kinds), `lane` (an lcore's state of a port), `qp` (its
//! QPs), `rx` (received frames), `lcore` (its turn, its thread), `control` (what other threads do
//! with it).
//!
//! [`Engine`] is the interface for any thread, [`Control`] that for the one control-plane thread.
//!
//! Invariants
//! - After start an lcore does not allocate, lock, log or enter the kernel, except to raise the
//!   event of an armed completion queue, to wake a thread that sleeps, or to rest when idle if its
//!   policy asks for that.
//! - Unsafe code is in the files that lift the denial below by name, and nowhere else.
//!
//! Not here: the protocol ([`uroce_transport`]), packet formats ([`uroce_wire`]), the tables and
//! queues that lcores share with other threads ([`uroce_shared`]), verbs objects, address
//! resolution.

#![deny(unsafe_code)]

mod control;
mod counters;
mod distribution;
mod dpdk;
mod lane;
mod lcore;
mod limits;
pub mod port;
mod qp;
mod rx;

pub use control::config::EngineConfig;
pub use control::engine::{Engine, EngineError, ObjectCounts};
pub use control::memory::OwnedRegion;
pub use control::poller::Poller;
pub use control::rd::RdDomain;
pub use control::{Control, ControlError, DeviceError, QpHandle, QpInfo, QpSpec, SendFrameError};
pub use counters::{Counters, EngineCounter};
pub use distribution::RoundTripDistribution;
pub use dpdk::{eal, mbuf, telemetry};
pub use lane::binding::{PortAddresses, PortBinding, ROCE_OVERHEAD, path_mtu_of};
pub use lane::bottleneck::{BottleneckConfig, BottleneckError};
pub use lane::faults::{FaultConfig, PortFaults};
pub use lane::forward::Forward;
pub use lane::loss::LossConfig;
pub use lane::tap::{TapFrame, TapReader, TapSpec};
pub use lcore::thread::ThreadError;
pub use lcore::{AdoptError, LcoreGuard, LcoreProfile, Stage, StageProfile};
pub use limits::{MAX_GIDS, MAX_LCORES, MAX_MRS, MAX_PORTS, MAX_QPS};
pub use qp::context::{Migrated, PathLoader, QpTraffic};
pub use rx::{GsiFrame, SlowFrame};
pub use uroce_shared::memory::mr_table::{GoneRegion, MrError, MrKeys, MrSpec};
pub use uroce_shared::memory::mw::MwType;
pub use uroce_shared::queue::xrc::{MAX_XRC_SRQS, XrcDomain, XrcName};
pub use uroce_shared::queue::{
    Arm, CompletionChannel, CompletionQueue, CqError, MAX_CQ_DEPTH, MAX_SGE, MAX_SRQ_DEPTH, MAX_WR,
    RecvBatch, RecvQueueEnd, SendBatch, SendData, SendQueueEnd, SharedReceiveQueue, SrqBatch,
    SrqError,
};
pub use uroce_shared::seat::Turn;
pub use uroce_shared::seat::idle::{Driver, IdlePolicy};
pub use uroce_shared::sync::eventfd::EventFd;
pub use uroce_shared::sync::tokens::Tokens;
pub use uroce_shared::table::ah_table::{AhError, MAX_AHS};
pub use uroce_shared::table::flows::{FlowError, FlowId, FlowKind, MAX_FLOW_PRIORITY, MAX_FLOWS};
pub use uroce_shared::table::mcast::{GroupError, MAX_GROUP_QPS, MAX_GROUPS, multicast_mac};
pub use uroce_shared::time::clock;
pub use uroce_shared::wake::events::{Event, EventChannel, EventGuard, EventKind, Subject};
pub use uroce_shared::wake::waker::Waker;
