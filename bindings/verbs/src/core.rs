//! State of objects: what handles share, and what one object keeps alive of others.
//!
//! ```text
//!   QpShared ──> PdShared ──> Device
//!      ├───────> SrqShared ──> PdShared
//!      └───────> CqShared ──> Device
//! ```
//!
//! The public types are handles of these, with the calls on them. Nothing here imports a handle, so
//! that every arrow between files of this crate runs down.

mod cq;
mod pd;
mod qp;
mod srq;
mod wait;

pub use cq::CqId;
pub(crate) use cq::CqShared;
pub(crate) use pd::PdShared;
pub(crate) use qp::{QpParts, QpShared};
pub use srq::SrqId;
pub(crate) use srq::SrqShared;
pub use wait::ChannelError;
pub(crate) use wait::wait;
