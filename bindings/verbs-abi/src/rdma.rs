//! librdmacm: connections by IP address and port.
//!
//! ```text
//!   control plane ── CmEvent ──> Post ──> Channel: queue and descriptor     (channel.rs)
//!                                            │ rdma_get_cm_event
//!                                            v
//!                     what it means to the id (event.rs) ──> rdma_cm_event
//!   rdma_cm_id = Entry<Id> { mailbox, acks, state() }                       (id.rs)
//! ```
//!
//! An [`id::Id`] is what a program's `rdma_cm_id` stands for. Its `state()` has what is known, and
//! the ids that it has at connection managers: addresses that it is bound to, one connection. The
//! lock of the state is never taken by the control plane, so it may be held while that is asked.
//!
//! Events wait as [`channel::Happening`]s: those of the control plane as they come, those that are
//! made here as [`event::Draft`]s ([`channel::Mailbox::send`]). What they mean to the id is done
//! when the program takes them, on its thread; so the fields of its structures change only in its own
//! calls. An event counts ([`crate::acks::Acks`]) from then until it is acknowledged.
//!
//! Calls of an id whose channel is its own (`rdma_create_id` without one) end with
//! [`sync::complete`], which waits for the event and leaves it in `id->event`.
//!
//! Not here: messages and retries (the control plane's), queue pairs' states where a connection
//! drives them (of who connects: [`uroce::cm::raw::ConnQp::Begun`]; who accepts does it before).

pub(crate) mod address;
pub(crate) mod addrinfo;
pub(crate) mod attr;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod devices;
pub(crate) mod ece;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod listen;
pub(crate) mod mcast;
pub(crate) mod migrate;
pub(crate) mod option;
pub(crate) mod qp;
pub(crate) mod resolve;
pub(crate) mod shared;
pub(crate) mod srq;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
