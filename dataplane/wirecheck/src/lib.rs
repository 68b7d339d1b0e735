//! A second opinion on every packet: is it well formed, and was its sender entitled to send it?
//!
//! ```text
//!   frame sent ──> read ──> sender's rules ──> Seen ── link ──> receiver's view
//!                   │ raw bytes, own CRC                          what may be answered,
//!                   └ headers, lengths, pad, ICRC                 what is acknowledged
//! ```
//!
//! The checker stands between two queue pairs as a tap at both ends of the cable would: it is told
//! of every frame when it leaves ([`Checker::sent`]) and of every undamaged one when it arrives
//! ([`Checker::arrived`]). From these alone it follows, for each queue pair, what the requester
//! has outstanding and what the responder has received, and so which packets may come next.
//!
//! *Invariant:* no dependency, least of all on the crates it judges. Numbers are plain integers,
//! the CRC is computed here, headers are cut out of the bytes here. What both got wrong in the
//! same way is caught by the captures of other implementations in `tests`.
//!
//! Not here: whether memory holds the right bytes, and completions; a tap sees neither.

#![forbid(unsafe_code)]

mod checker;
mod crc;
mod flaw;
mod frame;
mod message;
mod migration;
mod psn;
mod requester;
mod responder;
mod unreliable;

pub use checker::{Checker, Peer, Service, Tally, Watched};
pub use crc::crc32;
pub use flaw::{Flaw, Rule};
pub use frame::{Seen, read};
pub use migration::{Route, TimedRoute};
pub use requester::rnr_wait_ns;
