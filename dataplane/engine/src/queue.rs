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

mod channel;
pub(crate) mod cq;
pub(crate) mod places;
mod recv;
mod ring;
mod send;
mod srq;
pub(crate) mod tokens;

pub use channel::CompletionChannel;
pub use cq::{Arm, CompletionQueue, CqError, MAX_CQ_DEPTH};
pub use recv::{RecvBatch, RecvQueueEnd};
pub(crate) use recv::{RecvQueueFeed, core_caps, recv_queue};
pub(crate) use ring::{QpShared, RingSpec};
pub use send::{SendBatch, SendData, SendQueueEnd};
pub(crate) use send::{SendQueueFeed, SendSpec, send_queue};
pub use srq::{MAX_SRQ_DEPTH, SharedReceiveQueue, SrqBatch, SrqError};
pub use tokens::Tokens;

/// Most work requests of a queue.
pub const MAX_WR: u32 = 1 << 16;

/// Most scatter/gather elements of a work request.
pub const MAX_SGE: u32 = 32;
