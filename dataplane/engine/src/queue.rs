//! The queues that an application sees: where it posts, where it polls.
//!
//! ```text
//!   application                                 lcore
//!   SendQueueEnd ── work requests, SGEs ──▶ SendQueueFeed ──▶ Qp::post_send
//!   RecvQueueEnd ── work requests, SGEs ──▶ RecvQueueFeed ──▶ Qp::post_recv
//!                ◀──── state, retired ─────  QpShared
//!   CompletionQueue ◀────────────────────── completions of a turn
//! ```
//!
//! Invariants
//! - The rings have one producer and one consumer each; they carry requests the core has not seen.
//! - A slot of a queue is taken from the post until the core has retired the work request, so what
//!   is in a ring always fits into the core's queue.
//! - A slot is free again before the completion that says so can be polled.

mod channel;
pub(crate) mod cq;
mod recv;
mod ring;
mod send;
mod srq;
pub(crate) mod tokens;

pub use channel::CompletionChannel;
pub use cq::{Arm, CompletionQueue, CqError, MAX_CQ_DEPTH};
pub use recv::{RecvBatch, RecvQueueEnd};
pub(crate) use recv::{RecvQueueFeed, core_caps, recv_queue};
pub(crate) use ring::{QpShared, RingSpec, Which};
pub use send::{SendBatch, SendData, SendQueueEnd};
pub(crate) use send::{SendQueueFeed, SendSpec, send_queue};
pub use srq::{MAX_SRQ_DEPTH, SharedReceiveQueue, SrqBatch, SrqError};
pub use tokens::Tokens;

/// Most scatter/gather elements of a work request.
pub const MAX_SGE: u32 = 32;
