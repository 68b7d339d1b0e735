//! The reliable datagram service (RD): queue pairs without connections, and connections without
//! queues.
//!
//! Read first: IBA 9.7 (reliable services, with what differs for RD), 10 (EE contexts).
//!
//! ```text
//!   RD QPs of a domain                    EEC                   peer's EEC         its RD QPs
//!   [SQ] ─┐ in line      ┌── requester ──> request packets ──> responder ──┬──> [RQ]
//!   [SQ] ─┼────────────> │   one message                                   ├──> [RQ]
//!   [SQ] ─┘              └── completer <── ACK, NAK, READ data <───────────┘
//! ```
//!
//! An EEC is a [`crate::Qp`] with the path, PSNs, timers, retries, rate and migration of RC: it
//! runs the roles of RC in an environment that makes them RD's ([`served`]). Its send queue has
//! room for one request: a copy of the oldest one of the RD QP that has its turn. An RD QP is a
//! [`crate::Qp`] with queues and a Q_Key. Each of its requests names an EEC and an RD QP of the
//! peer.
//!
//! Invariants
//! - One message at a time per EEC, and one per RD QP. The messages of an RD QP are sent in the
//!   order of posting, also if they name different EECs.
//! - An RD QP is in the line of at most one EEC, that of its oldest request ([`line`]).
//! - An error of one RD QP does not stop the EEC: the message is given up, the peer is told by a
//!   RESYNC, and the next RD QP has its turn.
//! - The request that an EEC sends is a copy of the RD QP's oldest. The receive that it fills has
//!   left the RD QP's queue and is lent. The RD QP completes both, once.
//!
//! Not here: the states of both ([`crate::qp`]), how an environment finds the other QP
//! ([`crate::Env::with_other`]); selective repeat and keepalive, which RD does not have.

//= check R30 — path and pace of all its RD QPs are the EEC's
//= check R28 — and so is migration
//= check R37 — PSNs go on from one message to the next, whichever RD QP it is of
mod answers;
mod eec;
mod line;
mod member;
mod served;

pub(crate) use answers::granted;
pub(crate) use eec::{Eec, Front};
pub(crate) use member::{Rd, Terms, qkey_of};
