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

use crate::attr::QpAttr;
use crate::cqe::WcStatus;
use crate::env::Accessor;
use crate::time::Instant;

/// What every role may know of its QP.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) by: Accessor,
    pub(crate) attr: &'a QpAttr,
    pub(crate) now: Instant,
}

impl Context<'_> {
    /// The payload of a full packet, in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }
}

/// What became of an attempt to send one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A packet went out.
    Sent,
    /// There is nothing to send.
    Idle,
    /// The sink is full.
    Blocked,
    /// The responder has sent the NAK that ends the connection.
    Refused,
    /// The oldest send WQE cannot go on.
    Failed(WcStatus),
}

/// PSNs that a message of `len` bytes takes: one a packet, at least one.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}
