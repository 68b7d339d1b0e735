//! librdmacm: connections by IP address and port.
//!
//! ```text
//!   control plane ── ConnEvent ─> Post ──> Channel: queue and descriptor  (objects/id/channel.rs)
//!                                            │ rdma_get_cm_event
//!                                            v
//!                     what it means to the id (event.rs) ──> rdma_cm_event
//!   rdma_cm_id = Entry<Id> { mailbox, acks, state() }                            (objects/id.rs)
//! ```
//!
//! An [`Id`] is the object behind a program's `rdma_cm_id`. Its `state()` records what is known
//! about it and its ids at connection managers: for the addresses that it is bound to, and for one
//! connection. The control plane never takes the state's lock, so the lock may be held during calls
//! to the control plane.
//!
//! Events are queued as [`Happening`]s: those of the control plane unchanged, those that are made
//! here as [`Draft`](crate::objects::id::draft::Draft)s. Their effect on the id happens
//! when the program takes them, on the program's thread. So the fields of its structures only
//! change during its own calls. An event counts ([`crate::acks::Acks`]) from then until it is
//! acknowledged.
//!
//! A call on an id that has a channel of its own (`rdma_create_id` without one) ends with
//! [`sync::complete`], which waits for the event and stores it in `id->event`.
//!
//! Not here: messages and retries, which are the control plane's; states of queue pairs that a
//! connection drives. The connection drives those of the active side
//! ([`uroce::cm::raw::ConnQp::Begun`]); the passive side's are modified here when it accepts
//! ([`qp::begin`]).
//!
//! [`Id`]: crate::objects::id::Id
//! [`Happening`]: crate::objects::id::channel::Happening

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
pub(crate) mod path;
pub(crate) mod qp;
pub(crate) mod resolve;
pub(crate) mod shared;
mod show;
pub(crate) mod srq;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
