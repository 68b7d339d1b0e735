//! Connection management: sets up, migrates and tears down connections by service ID, as a pure
//! function of state, messages and time.
//!
//! Read first: IBA 12; Annex A11 for the service IDs and private data of RDMA IP CM.
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
//! [`Cm`] is a value. Its owner passes in received messages with [`Cm::handle_mad`] and the time as
//! an argument. After each call the owner drains [`Cm::poll_transmit`] and [`Cm::poll_event`] and
//! reads [`Cm::next_timeout`].
//!
//! Active side: [`Cm::connect`] → [`CmEvent::Accepted`] → (queue pair to RTR and RTS) →
//! [`Cm::ready`]. Passive side: [`Cm::listen`] → [`CmEvent::Request`] → (queue pair to RTR) →
//! [`Cm::accept`] → [`CmEvent::Established`], or [`Cm::communication_established`] if data arrives
//! before the RTU → (queue pair to RTS). Disconnecting side: [`Cm::disconnect`] →
//! [`CmEvent::Closed`] → [`CmEvent::Released`]. Other side: [`CmEvent::DisconnectRequested`] →
//! [`Cm::disconnect`] → [`CmEvent::Closed`] → [`CmEvent::Released`].
//!
//! Reliable datagrams: a connection is the channel of two EE contexts, which take the place of the
//! queue pairs. Its REQ and REP may name an RD queue pair of each side. Later REQs that say that
//! the channel exists ([`ConnectParams::rdc_exists`]) make both sides known to further RD queue
//! pairs by name. Each is a connection by itself, which changes nothing in the channel and ends
//! with it.
//!
//! Invariants
//! - No clock, no I/O, no DPDK. No sequence of received bytes causes a panic.
//! - A MAD acts on a connection only if it carries our communication ID, which an attacker cannot
//!   guess, comes from a GID of that connection's paths, and carries the peer's communication ID
//!   once that is known.
//! - The memory that unknown senders can occupy is bounded ([`CmLimits`]), and an established
//!   connection is never given up to make room for them.
//! - A QPN, or the number of an EE context, is not accepted for a new connection before the
//!   TimeWait of its last one is over.
//! - No connection outlives the channel that it uses.
//! - Both ends use selective repeat or neither does ([`Cm::selective_repeat`]).
//! - The last event of every id is one [`CmEvent::Released`], unless the consumer destroys the id.
//!   No event follows [`Cm::destroy`].
//!
//! Not here: queue pairs, port addresses and GID tables. The consumer decides whether a path can be
//! used.

#![forbid(unsafe_code)]

mod agreement;
mod cm;
mod conn;
mod counters;
mod event;
mod params;
mod random;
pub mod state;
mod table;

pub use agreement::TAG_LEN;
pub use cm::Cm;
pub use counters::CmCounters;
pub use event::{CloseReason, CmEvent, ConnId, MadDrop, Request, SidrRequest};
pub use params::{
    AcceptParams, CmConfig, CmError, CmLimits, ConnectParams, MadAddr, Path, RdEnd, SidrAnswer,
    SidrParams,
};
pub use state::{LapState, State};
pub use uroce_transport::Instant;
