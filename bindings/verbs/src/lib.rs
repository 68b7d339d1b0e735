//! RDMA verbs in safe Rust, over any NIC that DPDK drives.
//!
//! A [`Context`] is an open device. With it an application allocates memory that peers can access
//! ([`MemoryRegion`]), creates queue pairs ([`QueuePair`]), connects them to those of peers, posts
//! work requests ([`SendWr`], [`RecvWr`]) and polls completions ([`CompletionQueue`]). Queue pairs
//! are reliable connections, unreliable connections or unreliable datagrams ([`QpType`],
//! [`AddressHandle`]), or carry frames of other protocols ([`Flow`]); reliable datagrams have queue
//! pairs of their own ([`rd`]). They can share receives ([`SharedReceiveQueue`]) and give peers
//! temporary access to memory ([`MemoryWindow`]). Other changes of objects are reported as
//! [`AsyncEvent`]s.
//!
//! ```text
//!   Context ──> ProtectionDomain ──> MemoryRegion ──> MemorySlice ─┐
//!      │               ├───────────> QueuePair <── SendWr, RecvWr ─┘
//!      │               └───────────> MemoryWindow, SharedReceiveQueue, AddressHandle
//!      ├──> CompletionQueue <───────────┘ completes to
//!      └──> CompletionChannel <── events of armed queues
//! ```
//!
//! # Example
//!
//! Two devices of one process are joined by a ring instead of a network. The first one writes to
//! the memory of the second one, reads it back and compares.
//!
//! ```
//! use std::time::Duration;
//! use uroce::{AccessFlags, Config, ConnectOptions, Context, QpInit, SendWr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::from_toml(r#"
//!     [[device]]
//!     name = "left"
//!     [[device.port]]
//!     ethdev = { ring = "example" }
//!     ip = ["192.0.2.1/24"]
//!
//!     [[device]]
//!     name = "right"
//!     [[device.port]]
//!     ethdev = { ring = "example" }
//!     ip = ["192.0.2.2/24"]
//! "#)?;
//! let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
//!
//! // The passive side: it does nothing after it is connected.
//! let target_pd = right.allocate_pd();
//! let target = target_pd.allocate(1 << 20, AccessFlags::all())?;
//! let target_cq = right.create_cq(16)?;
//! let mut target_qp = target_pd.create_qp(&QpInit::new(&target_cq))?;
//!
//! // The active side.
//! let pd = left.allocate_pd();
//! let memory = pd.allocate(2 << 20, AccessFlags::LOCAL_WRITE)?;
//! let cq = left.create_cq(16)?;
//! let mut qp = pd.create_qp(&QpInit::new(&cq))?;
//!
//! // Endpoints and remote buffers are plain numbers; two processes would exchange them by TCP.
//! let options = ConnectOptions::default();
//! let (here, there) = (qp.endpoint(1, 0)?, target_qp.endpoint(1, 0)?);
//! target_qp.connect(&here, &options)?;
//! qp.connect(&there, &options)?;
//!
//! let message: Vec<u8> = (0..1 << 20).map(|n| (n % 251) as u8).collect();
//! memory.write_at(0, &message)?;
//! let (source, sink) = (memory.slice(..1 << 20)?, memory.slice(1 << 20..)?);
//! qp.post_send(&SendWr::write(&[source], target.remote()).id(1))?;
//! qp.post_send(&SendWr::read(&[sink], target.remote()).id(2).signaled())?;
//!
//! // The write is not signaled. The completion of the later read implies that it succeeded.
//! let completion = cq.wait(Duration::from_secs(10))?.ok_or("no completion in time")?;
//! completion.ok()?;
//! assert_eq!(completion.wr_id, 2);
//!
//! let mut copy = vec![0; message.len()];
//! memory.read_at(1 << 20, &mut copy)?;
//! assert!(copy == message);
//! target.read_at(0, &mut copy)?;
//! assert!(copy == message);
//! # Ok(()) }
//! ```
//!
//! # Threads
//!
//! All types are [`Send`], and all but the queues are [`Sync`]. Posting needs `&mut` [`SendQueue`]
//! or `&mut` [`RecvQueue`], the two halves of a [`QueuePair`], so the compiler makes threads that
//! post to one queue use a lock. Polling a completion queue needs `&`, and each completion is given
//! to one thread.
//!
//! The device's lcores do the work; they are threads that poll. The configuration's `idle` sets
//! what an lcore does when it has no work. A thread can drive an lcore itself
//! ([`Context::adopt_lcore`]). With `driver = "poller"` a poll that finds no completion runs a turn
//! of the lcores. Such a turn never blocks, makes no system call, and works on any thread. A signal
//! handler may poll even if the signal interrupted a turn. A handler that leaves a turn with
//! `longjmp`, or calls `exit` and thereby closes the device, leaves the lcore driven for ever, and
//! callers that need it block. A cancelled thread ends after the turn.
//!
//! # Cleaning up
//!
//! Objects may be dropped in any order, on any thread except an lcore's; each keeps alive the
//! objects that it needs. Dropping a [`QueuePair`] destroys it; its completions stay in their
//! queues. Dropping a [`MemoryRegion`] returns when nothing accesses the memory any more. Work
//! requests that still name the region complete with `LOC_PROT_ERR`, and peers get a remote access
//! error. The device closes when the last object made with it is dropped.
//!
//! # Misuse
//!
//! Where possible, misuse is a compile-time error. Keys and addresses have types of their own,
//!
//! ```compile_fail,E0308
//! # fn f(mr: uroce::MemoryRegion) {
//! let forged = uroce::RemoteBuffer { rkey: mr.lkey(), ..mr.remote() };
//! # }
//! ```
//!
//! a slice cannot outlive its region ([`MemoryRegion::slice`]), and each queue has one poster
//! ([`QueuePair`]). Any other misuse gives an error value that names the fault, and changes
//! nothing. A fault of the peer is not an error of a call but a completion's status or a counter.

#![deny(unsafe_code)]

/// The project's README, for `cargo test --doc`: its Rust example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

mod ah;
mod channel;
pub mod cm;
mod context;
mod core;
mod cq;
mod event;
mod flow;
mod mr;
mod mw;
mod pd;
mod qp;
pub mod raw;
pub mod rd;
mod srq;
mod wr;
mod xrc;

pub use ah::AddressHandle;
pub use channel::CompletionChannel;
pub use context::{Context, LcoreGuard};
pub use core::{ChannelError, CqId, SrqId};
pub use cq::{CompletionQueue, WorkCompletion};
pub use event::{AsyncEvent, EventSource};
pub use flow::Flow;
pub use mr::{MemoryRegion, MemorySlice, OutOfRange, RegisterError, RemoteBuffer};
pub use mw::MemoryWindow;
pub use pd::ProtectionDomain;
pub use qp::{ConnectOptions, Endpoint, QpControl, QpInit, QueuePair, RecvQueue, SendQueue};
pub use srq::SharedReceiveQueue;
pub use wr::{PostListError, RecvWr, SendWr};
pub use xrc::XrcDomain;

pub use uroce_controlplane::config;
pub use uroce_controlplane::limits::DeviceAttr;

/// Numbers of processes in the local fabric, the ports `{ local = "DIRECTORY" }`.
pub mod local {
    pub use uroce_engine::port::{Holder, LocalError, MEMBERS_MAX, Reservation};
}
pub use uroce_controlplane::{
    AddressVector, AlternateVector, AsErrno, Config, ConfigError, ContainerError, Count, OpenError,
    PathError, PortAttr, PortStats, PortStatus, RequestError,
};
pub use uroce_engine::eal::{EalError, explained};
pub use uroce_engine::port::{PortError, vdev};
pub use uroce_engine::{
    AdoptError, AhError, Arm, ControlError, CqError, EngineError, EventKind, FlowError, FlowKind,
    GroupError, LcoreProfile, MrError, MwType, PathLoader, QpInfo, SrqError, Stage, StageProfile,
    ThreadError, Turn,
};
pub use uroce_transport::{
    AccessFlags, AltPath, AttrMask, Congestion, DcqcnParams, DelayParams, MigrationStats,
    ModifyError, PathAttr, PathMigState, PostError, QpAttr, QpCaps, QpChange, QpState, QpType,
    StaticRate, WcOpcode, WcStatus,
};
pub use uroce_wire::flow::{EthSpec, FlowMatch, FlowSpec, Ipv4Spec, Ipv6Spec, PortsSpec};
pub use uroce_wire::{
    EtherType, Gid, ImmDt, Lkey, Mac, PathMtu, Pkey, Placement, Psn, Qkey, Qpn, Rkey, Srqn, Va,
};

/// Bytes before each datagram in a receive's memory: the GRH. An IPv4 header is in the last 20 of
/// them.
pub const GRH_LEN: usize = 40;
