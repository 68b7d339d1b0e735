//! The unreliable connected service (UC): nothing is acknowledged, nothing is sent again, and a
//! message that lacks a packet is dropped as a whole.
//!
//! Read first: IBA 9.8.

mod requester;
mod responder;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

/// The roles of a UC QP.
#[derive(Debug)]
pub(crate) struct Uc {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}
