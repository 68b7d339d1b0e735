//! RDMA verbs in safe Rust, over any NIC that DPDK drives.
//!
//! A [`Context`] is an open device. With it an application allocates memory that peers can reach
//! ([`MemoryRegion`]), makes queue pairs ([`QueuePair`]), connects them to those of peers, posts
//! work requests ([`SendWr`], [`RecvWr`]) and polls completions ([`CompletionQueue`]). Queue pairs
//! are reliable or unreliable connections or send datagrams ([`QpType`], [`AddressHandle`]), may
//! share their receives ([`SharedReceiveQueue`]), and may open memory to peers for a while
//! ([`MemoryWindow`]). What happens to an object besides is told by an [`AsyncEvent`].
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
//! Two devices of one process, joined by a ring instead of a network: the first writes into the
//! memory of the second, reads it back and compares.
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
//! // The side that is written to and read from. It has nothing to do once it is connected.
//! let target_pd = right.allocate_pd();
//! let target = target_pd.allocate(1 << 20, AccessFlags::all())?;
//! let target_cq = right.create_cq(16)?;
//! let mut target_qp = target_pd.create_qp(&QpInit::new(&target_cq))?;
//!
//! // The side that works.
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
//! // The write is not signaled: the completion of what follows it is its own as well.
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
//! Everything is [`Send`]; everything but the queues is [`Sync`]. Posting takes `&mut`
//! [`SendQueue`] or `&mut` [`RecvQueue`], the two halves of a [`QueuePair`], so two threads that
//! post to one queue bring their own lock; the compiler sees to it. Polling a completion queue takes
//! `&`, and each completion is given to one thread.
//!
//! The work is done by the device's lcores, which poll. Where CPUs are few, the configuration's
//! `idle` says what they do without work, a thread can drive an lcore itself
//! ([`Context::adopt_lcore`]), and with `driver = "poller"` threads that poll do so while they poll.
//! Then a poll that finds nothing makes a turn of the lcores; nothing that it does waits, enters the
//! kernel or needs the thread to be known. A signal handler may poll in the middle of that; one that
//! leaves it by `longjmp`, or by `exit` to where the device is closed, leaves the lcore driven for
//! ever and whoever needs it waiting. A thread that is cancelled ends after the turn.
//!
//! # Cleaning up
//!
//! Objects may be dropped in any order, on any thread but an lcore's; each keeps alive what it
//! needs. Dropping a [`QueuePair`] destroys it; completions that are in its queues already stay
//! there. Dropping a [`MemoryRegion`] returns when nothing touches the memory any more; work
//! requests that still name it complete with `LOC_PROT_ERR`, and peers get a remote access error.
//! The device closes with the last object made with it.
//!
//! # Misuse
//!
//! What can be an error at compile time is one: keys and addresses are types of their own,
//!
//! ```compile_fail,E0308
//! # fn f(mr: uroce::MemoryRegion) {
//! let forged = uroce::RemoteBuffer { rkey: mr.lkey(), ..mr.remote() };
//! # }
//! ```
//!
//! a slice of a region cannot outlive it ([`MemoryRegion::slice`]), and a queue has one poster
//! ([`QueuePair`]). What cannot is an error value that names the fault, and nothing has changed
//! then. What a peer does wrong is not an error here but a completion's status or a counter.

#![deny(unsafe_code)]

mod ah;
mod channel;
pub mod cm;
mod context;
mod cq;
mod event;
mod mr;
mod mw;
mod pd;
mod qp;
pub mod raw;
mod srq;
mod wr;

pub use ah::AddressHandle;
pub use channel::{ChannelError, CompletionChannel};
pub use context::{Context, DeviceAttr, LcoreGuard};
pub use cq::{CompletionQueue, CqId, WorkCompletion};
pub use event::{AsyncEvent, EventSource};
pub use mr::{MemoryRegion, MemorySlice, OutOfRange, RegisterError, RemoteBuffer};
pub use mw::MemoryWindow;
pub use pd::ProtectionDomain;
pub use qp::{
    ConnectOptions, Endpoint, PostListError, QpControl, QpInit, QueuePair, RecvQueue, SendQueue,
};
pub use srq::{SharedReceiveQueue, SrqId};
pub use wr::{RecvWr, SendWr};

pub use uroce_controlplane::config;
pub use uroce_controlplane::{
    AddressVector, AlternateVector, Config, ConfigError, Count, OpenError, PathError, PortAttr,
    PortStats, PortStatus, RequestError,
};
pub use uroce_engine::eal::{EalError, remedy};
pub use uroce_engine::port::vdev;
pub use uroce_engine::{
    AdoptError, AhError, Arm, ControlError, CqError, EventKind, GroupError, MrError, MwType,
    QpInfo, SrqError, Turn,
};
pub use uroce_transport::{
    AccessFlags, AltPath, AttrMask, MigrationStats, ModifyError, PathAttr, PathMigState, PostError,
    QpAttr, QpCaps, QpChange, QpState, QpType, StaticRate, WcOpcode, WcStatus,
};
pub use uroce_wire::{Gid, ImmDt, Lkey, Mac, PathMtu, Pkey, Psn, Qkey, Qpn, Rkey, Va};

/// Bytes in front of each datagram in a receive's memory: the network header, of IPv4 in the last
/// 20 of them.
pub const GRH_LEN: usize = 40;
