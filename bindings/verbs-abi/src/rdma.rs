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
//! An [`Id`] is the object behind a program's `rdma_cm_id`. Its `state()` has its stage and
//! addresses, and the numbers ([`uroce::cm::raw::CmId`]) under which the devices' connection
//! managers have it: one for each address that it is bound to, one for a look-up and one for a
//! connection. The control plane never takes the state's lock, so the lock may be held during calls
//! to the control plane.
//!
//! Events are queued as [`Happening`]s: those of the control plane unchanged, those that are made
//! here as [`Draft`](crate::objects::id::draft::Draft)s. An event is applied to its id when the
//! program takes it, on the program's thread, so the fields of public structures change only during
//! the program's calls. From then until it is acknowledged the event counts
//! ([`crate::acks::Acks`]).
//!
//! A call on an id that has a channel of its own (`rdma_create_id` without one) ends with
//! [`sync::complete`], which waits for the event and stores it in `id->event`.
//!
//! Not here: messages and retries, which are the control plane's; the states of the active side's
//! queue pair, which the connection modifies ([`uroce::cm::raw::ConnQp::Begun`]). The passive
//! side's queue pair is modified here when the program accepts ([`qp::begin`]).
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
pub(crate) mod host;
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
