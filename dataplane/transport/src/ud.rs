//! The unreliable datagram service (UD): each message is one packet, to and from any QP that has
//! the Q_Key.
//!
//! Read first: IBA 9.8.

mod requester;
mod responder;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

/// The roles of a UD QP.
#[derive(Debug)]
pub(crate) struct Ud {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// The QP is QP 1.
    pub(crate) is_gsi: bool,
}
