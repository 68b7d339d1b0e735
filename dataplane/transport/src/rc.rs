//! The reliable connected service: requester, completer, responder.
//!
//! Requester and completer are two halves of one role's state, the send queue in flight: the one
//! moves its front forward, the other its back. The responder stands alone.

mod completer;
mod requester;
mod resources;
mod responder;
mod retry;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

/// Both roles of a QP.
#[derive(Debug)]
pub(crate) struct Rc {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}
