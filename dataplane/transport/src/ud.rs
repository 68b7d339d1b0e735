//! The unreliable datagram service: each message is one packet, to and from anybody who has the
//! Q_Key.

mod requester;
mod responder;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

/// Both roles of a QP.
#[derive(Debug)]
pub(crate) struct Ud {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// QP 1.
    pub(crate) is_gsi: bool,
}
