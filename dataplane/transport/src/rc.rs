//! The reliable connected service (RC): requester, completer, responder.
//!
//! Read first: IBA 9.7.
//!
//! Requester and completer share the state of the send queue in flight: the requester advances the
//! end at which packets are sent, the completer the end at which they are acknowledged. The
//! responder is independent of both.

mod completer;
mod requester;
mod resources;
mod responder;
mod retry;
mod rtt;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

/// The roles of an RC QP.
#[derive(Debug)]
pub(crate) struct Rc {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
}
