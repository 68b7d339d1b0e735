//! InfiniBand's transport layer as a pure function of (state, input, now).
//!
//! Read first: IBA 9 (transport layer) and 10 (queue pairs); Annex A17 for what RoCEv2 changes.
//!
//! ```text
//!   post_send ──> [SQ] ── requester ──> request packets ──> peer's responder
//!                            ^  rewind                            │
//!   completions <─────── completer <── ACK, NAK, READ data <──────┘
//!
//!   post_recv ──> [RQ] ── responder <── request packets <── peer's requester
//! ```
//!
//! The drawing shows RC, the reliable connection; UC and UD have no responses, each end of XRC is
//! one half of it, and with RD an EEC has the connection and RD QPs have the queues. The raw
//! services have frames in place of packets. What the services share is in `send_queue`, `segment`
//! (messages to packets), `inbound` (packets to messages) and `recv_queue`.
//!
//! A [`Qp`] is a value. Its inputs are [`Qp::handle_packet`], [`Qp::handle_timeout`],
//! [`Qp::post_send`], [`Qp::post_recv`] and [`Qp::modify`]. Its outputs are [`Qp::poll_transmit`],
//! which must be called after each input, the [`Output`] of the environment, and
//! [`Qp::next_timeout`]. Only a CNP leaves without being polled for, while the packet that it is
//! about is handled. Time is an argument. Memory and packets are accessed only through [`Env`],
//! which the engine and the simulator implement.
//!
//! Invariants
//! - No clock, no pointer, no I/O, and no allocation after [`Qp::new`].
//! - A fault of the peer leads to a NAK or a [`DropReason`]; a fault of the user leads to an error
//!   that changes nothing.
//!
//! Not here: addresses and ICRC ([`uroce_wire`]), key tables, queues towards the application,
//! timers (the engine's), connection management.

#![forbid(unsafe_code)]

#[macro_use]
mod seeded;

mod attr;
mod congestion;
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
mod raw;
mod rc;
mod rd;
mod recv_queue;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "public for fuzz targets"))]
mod ring;
mod segment;
mod send_queue;
mod time;
mod timer;
mod uc;
mod ud;
mod wqe;
mod xrc;

pub use attr::{
    AccessFlags, AltPath, AttrMask, MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC, MAX_UDP_SOURCE_PORTS,
    PathAttr, PathMigState, QpAttr, QpChange, QpType, RdAttr, RtrAttr, RtsAttr,
};
pub use congestion::{Congestion, DcqcnParams, DelayParams, Notification};
pub use counter::Counter;
pub use cqe::{Cqe, Extra, Grh, WcOpcode, WcStatus};
pub use drop_reason::DropReason;
pub use env::{
    AccessKind, Accessor, Ah, AsyncEvent, AtomicOp, Env, Flush, Found, FrameError, Framing, Key,
    Memory, MemoryFault, Outbound, OutboundFrame, Output, PacketSink, Path, Pd, Region,
    SharedReceives, Side, TransmitError,
};
pub use gather::{Gather, Piece};
pub use qp::migration::MigrationStats;
pub use qp::state::{ModifyError, QpState, Rule, rule};
pub use qp::{Handled, Inbound, Progress, Qp, QpInit, WorkQueues};
pub use queue::{MAX_INLINE_DATA, QpCaps};
pub use rate::StaticRate;
pub use raw::InboundFrame;
pub use rc::{RoundTripStats, SelectiveRepeat};
#[cfg(feature = "seeded-bugs")]
pub use seeded::{Bug, is_planted, plant};
pub use time::Instant;
pub use timer::{ack_timeout, rnr_timeout};
pub use wqe::{BindMw, MAX_MESSAGE_LEN, PostError, RdAddress, Rdd, RecvWr, SendOp, SendWr, Sge};

/// Private parts that fuzz targets compare with naive ones.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::rc::{PsnSet, SPAN};
    pub use crate::ring::Ring;
    use crate::{Gather, Sge};

    /// Returns the pieces of `len` bytes of a scatter/gather list from byte `offset` on; the list
    /// must have them.
    pub fn gather(list: &[Sge], offset: u32, len: u32) -> Gather<'_> {
        Gather::sges(list, offset, len)
    }
}
