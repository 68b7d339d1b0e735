//! InfiniBand's transport as a pure function of (state, input, now).
//!
//! ```text
//!   post_send ──> [SQ] ── requester ──> request packets ──> peer's responder
//!                            ^  rewind                            │
//!   completions <─────── completer <── ACK, NAK, READ data <──────┘
//!
//!   post_recv ──> [RQ] ── responder <── request packets <── peer's requester
//! ```
//!
//! This is RC, the reliable connection; UC and UD lack the way back. What the services share stands
//! once: `send_queue`, `segment` (messages to packets), `inbound` (packets to messages),
//! `recv_queue`.
//!
//! A [`Qp`] is a value. Its inputs are [`Qp::handle_packet`], [`Qp::handle_timeout`],
//! [`Qp::post_send`], [`Qp::post_recv`] and [`Qp::modify`]; its outputs are
//! [`Qp::poll_transmit`], which is to be called after each input, the [`Output`] of the
//! surroundings, and [`Qp::next_timeout`]. Time is an argument. Memory and packets are touched
//! through [`Env`] only, which the engine and the simulator each implement.
//!
//! What holds: no clock, no pointer, no I/O, no allocation after [`Qp::new`]; a peer's fault is
//! a NAK or a [`DropReason`], a user's fault is an error that changes nothing.
//!
//! Not here: addresses and ICRC ([`uroce_wire`]), key tables, queues towards the application,
//! timers (the engine's), connection management.

#![forbid(unsafe_code)]

#[macro_use]
mod seeded;

mod attr;
mod context;
mod counted;
mod counter;
mod cqe;
mod drop_reason;
mod env;
mod gather;
mod inbound;
mod qp;
mod queue;
mod rate;
mod rc;
mod recv_queue;
mod ring;
mod segment;
mod send_queue;
#[cfg(feature = "sim")]
pub mod sim;
mod time;
mod timer;
mod uc;
mod ud;
mod wqe;

pub use attr::{
    AccessFlags, AltPath, AttrMask, MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC, PathAttr, PathMigState,
    QpAttr, QpChange, QpType,
};
pub use counter::Counter;
pub use cqe::{Cqe, Grh, WcOpcode, WcStatus};
pub use drop_reason::DropReason;
pub use env::{
    Access, Accessor, Ah, AsyncEvent, AtomicOp, Env, Found, Key, Memory, MemoryFault, Outbound,
    Output, PacketSink, Path, Pd, Region, SharedReceives, Side, TransmitError,
};
pub use gather::{Gather, Piece};
pub use qp::migration::MigrationStats;
pub use qp::state::{ModifyError, QpState, Rule, rule};
pub use qp::{Inbound, Progress, Qp, QpInit, WorkQueues};
pub use queue::{MAX_INLINE_DATA, QpCaps};
pub use rate::StaticRate;
#[cfg(feature = "seeded-bugs")]
pub use seeded::{Bug, plant};
pub use time::Instant;
pub use timer::{ack_timeout, rnr_timeout};
pub use wqe::{BindMw, MAX_MESSAGE_LEN, PostError, RecvWr, SendOp, SendWr, Sge};
