//! An independent checker of packets: is a packet well formed, and may its sender send it now?
//!
//! ```text
//!   frame sent ──> read ──> sender's rules ──> Seen ── link ──> receiver's view
//!                   │ raw bytes, own CRC                          what may be answered,
//!                   └ headers, lengths, pad, ICRC                 what is acknowledged
//! ```
//!
//! The checker sits between two queue pairs like a tap at both ends of the cable. It is given every
//! frame when it is sent ([`Checker::sent`]), and every undamaged frame when it arrives
//! ([`Checker::arrived`]). From these it derives, for each queue pair, what the requester has
//! outstanding and what the responder has received, and so which packets may come next.
//!
//! Invariants
//! - No dependency, least of all on the crates that it checks. Numbers are plain integers, and the
//!   CRC and the parsing of headers are written here. A mistake that both make is found by the
//!   captures of other implementations in `tests`.
//!
//! Not here: the content of memory, and completions, which a tap cannot see.

#![forbid(unsafe_code)]

mod checker;
mod crc;
mod datagrams;
mod flaw;
mod frame;
mod message;
mod migration;
mod psn;
mod requester;
mod responder;
mod selective;
mod unreliable;

pub use checker::{Checker, Peer, Service, Tally, Watched};
pub use crc::crc32;
pub use flaw::{Flaw, Rule};
pub use frame::{Seen, read};
pub use migration::{Route, TimedRoute};
pub use requester::rnr_wait_ns;
