//! The unreliable connected service: nothing is acknowledged, nothing is sent again, and a message
//! that lacks a packet is dropped whole.

mod requester;
mod responder;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

/// Both roles of a QP.
#[derive(Debug)]
pub(crate) struct Uc {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}
