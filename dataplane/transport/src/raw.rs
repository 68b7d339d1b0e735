//! The raw services: each message is one frame, which the core neither makes nor reads.
//!
//! Read first: IBA 9.8.4 (raw datagrams); the verbs' raw packet queue pairs.
//!
//! Raw packet and Raw EtherType send and receive whole Ethernet frames, Raw IPv6 sends and receives
//! IPv6 packets, to which the environment adds the Ethernet header. Each work request has a static
//! rate of its own.
//!
//! Not here: which frames a QP receives (the environment's flow rules).

mod requester;
mod responder;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;

use crate::attr::QpType;

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct InboundFrame<'a> {
    /// Local port that received it, counted from 1.
    pub port: u8,
    /// The frame, from the destination address on, without the check sequence.
    pub bytes: &'a [u8],
    /// The IPv6 packet in it, without padding, if it has one.
    pub ipv6: Option<&'a [u8]>,
}

/// The roles of a raw QP.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// One of the raw types.
    pub(crate) qp_type: QpType,
}
