//! The objects behind a program's handles: their state, and the look-ups of each kind.
//!
//! ```text
//!   Flow ──> Qp ──> Srq, Cq ──> Channel         Mr ──> Dm
//!   Qp, Srq, Mr, Mw, Ah, Buffer ──> Pd ──> Td ──> Context
//!   Id ──> its Channel, the Qp of its Groups
//! ```
//!
//! Registries own the objects ([`crate::handle`]). An object keeps the objects busy that it was
//! made from: they cannot be destroyed before it. Fields that programs read directly are in the
//! public structures.
//!
//! Not here: C's calls, which create and change objects ([`crate::ibv`], [`crate::rdma`]). Nothing
//! here imports from them.

pub(crate) mod ah;
pub(crate) mod batch;
pub(crate) mod buffer;
pub(crate) mod cm_event;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod event;
pub(crate) mod flow;
pub(crate) mod id;
pub(crate) mod lock;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod td;
pub(crate) mod xrcd;
