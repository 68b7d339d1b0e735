//! Communication management: connections by service ID, as a pure function of state, messages
//! and time.
//!
//! ```text
//!   consumer: listen connect accept ready reject mra disconnect load_alternate sidr_request …
//!        │                                                   ▲
//!        ▼                                                   │ poll_event
//!   ┌ Cm ────────────────────────────────────────────────────┴──────────────┐
//!   │ state table · connections by id, comm ID, peer, QPN · deadlines       │
//!   └──▲──────────────▲─────────────────────────────────────┬───────────────┘
//!      │ handle_mad   │ handle_timeout ◀─ next_timeout      │ poll_transmit
//! ```
//!
//! [`Cm`] is a value. Messages come by [`Cm::handle_mad`] and go by [`Cm::poll_transmit`]; time is
//! an argument. Whoever owns it asks for messages, events and the next deadline after each call.
//!
//! A connection on the active side: [`Cm::connect`] → [`CmEvent::Accepted`] → (queue pair to RTR
//! and RTS) → [`Cm::ready`]. On the passive side: [`Cm::listen`] → [`CmEvent::Request`] → (queue
//! pair to RTR) → [`Cm::accept`] → [`CmEvent::Established`], or
//! [`Cm::communication_established`] when data comes first → (queue pair to RTS). The end:
//! [`Cm::disconnect`] → [`CmEvent::Closed`] → [`CmEvent::Released`]; on the other side
//! [`CmEvent::DisconnectRequested`] → [`Cm::disconnect`], and so on.
//!
//! Invariants
//! - No clock, no I/O, no DPDK; nothing panics on any bytes in any order.
//! - A MAD acts on a connection only if it names our communication ID, which strangers cannot
//!   guess, comes from a GID of that connection's paths, and names the peer's ID if it is known.
//! - What strangers can occupy is bounded ([`CmLimits`]), and never at the cost of a connection
//!   that is established.
//! - A QPN is not taken for a new connection before the TimeWait of the last one is over.
//! - Every id ends with one [`CmEvent::Released`] unless it is destroyed; a destroyed one says
//!   nothing any more.
//!
//! Not here: queue pairs, addresses of ports, GID tables: whether a path can be used is for the
//! consumer to say.

#![forbid(unsafe_code)]

mod cm;
mod conn;
mod counters;
mod event;
mod params;
mod random;
#[cfg(feature = "sim")]
pub mod sim;
pub mod state;
mod table;

pub use cm::Cm;
pub use counters::CmCounters;
pub use event::{CloseReason, CmEvent, ConnId, MadDrop, Request, SidrRequest};
pub use params::{
    AcceptParams, CmConfig, CmError, CmLimits, ConnectParams, MadAddr, Path, SidrAnswer, SidrParams,
};
pub use state::{LapState, State};
pub use uroce_transport::Instant;
