//! Work queues and completion queues: the application posts to them and polls them.
//!
//! ```text
//!   application                                 lcore
//!   SendQueueEnd ── work requests, SGEs ──▶ SendQueueFeed ──▶ Qp::post_send
//!   RecvQueueEnd ── work requests, SGEs ──▶ RecvQueueFeed ──▶ Qp::post_recv
//!                ◀──────── state ──────────  QpShared
//!   CompletionQueue ◀────────────────────── completions of a turn
//!     poll ── free places ──▶ Places ──▶ both ends
//! ```
//!
//! Invariants
//! - Each ring has one producer and one consumer; it carries requests that the core has not yet
//!   taken.
//! - A request takes a place of its queue from its post until its completion, or a later one of the
//!   same queue, has been polled. The core has the request for a shorter time, so all requests in a
//!   ring fit into the core's queue.

pub mod channel;
pub mod cq;
pub mod places;
#[cfg(not(loom))]
mod recv;
pub mod ring;
#[cfg(not(loom))]
mod send;
pub mod srq;
pub mod xrc;

pub use channel::CompletionChannel;
pub use cq::{Arm, CompletionQueue, CqError, MAX_CQ_DEPTH};
#[cfg(not(loom))]
pub use recv::{RecvBatch, RecvQueueEnd, RecvQueueFeed, core_caps, recv_queue};
pub use ring::{QpShared, RingSpec};
#[cfg(not(loom))]
pub use send::{SendBatch, SendData, SendQueueEnd, SendQueueFeed, SendSpec, send_queue};
pub use srq::{MAX_SRQ_DEPTH, SharedReceiveQueue, SrqBatch, SrqError};

/// Largest number of work requests of a queue.
pub const MAX_WR: u32 = 1 << 16;

/// Largest number of scatter/gather elements of a work request.
pub const MAX_SGE: u32 = if cfg!(loom) { 4 } else { 32 };
