//! State of objects: what the handles of an object share, and which other objects it keeps alive.
//!
//! ```text
//!   QpShared ──> PdShared ──> Device
//!      ├───────> SrqShared ──> PdShared
//!      └───────> CqShared ──> Device
//! ```
//!
//! The public types are handles of these, with the calls on them. Nothing here imports a handle, so
//! that imports between the files of this crate run one way.

mod cq;
mod pd;
mod qp;
mod rdd;
mod srq;
mod wait;
mod xrcd;

pub use cq::CqId;
pub(crate) use cq::CqShared;
pub(crate) use pd::PdShared;
pub(crate) use qp::{QpParts, QpShared};
pub(crate) use rdd::RddShared;
pub use srq::SrqId;
pub(crate) use srq::SrqShared;
pub use wait::ChannelError;
pub(crate) use wait::wait;
pub(crate) use xrcd::XrcdShared;
