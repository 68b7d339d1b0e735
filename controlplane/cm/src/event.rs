//! Events of a connection manager, and reasons for which MADs are dropped.

use uroce_wire::cm::{
    Apr, CmParseError, Lap, Mra, PrivateData, Rej, Rep, Req, ServiceId, SidrRep, SidrReq,
};

use crate::MadAddr;

/// Local identifier of a connection or a service ID resolution. It is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(crate) u64);

impl ConnId {
    /// Returns the identifier as a number, for the consumer's tables.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// An event of a connection or a service ID resolution.
///
/// The last event of every id that the consumer does not [destroy](crate::Cm::destroy) is
/// [`CmEvent::Released`]. Every connection has exactly one [`CmEvent::Closed`] before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// A REQ arrived (with a new id): the consumer accepts it, rejects it or sends an MRA. In
    /// peer-to-peer mode, if the peer's REQ takes precedence over ours, the event has the id of our
    /// own request.
    Request(Box<Request>),
    /// The peer sent an MRA: its answer to our REQ, REP or LAP takes longer.
    Patience(Box<Mra>),
    /// A REP arrived: the consumer makes the queue pair ready, then calls [`crate::Cm::ready`].
    /// [`crate::Cm::selective_repeat`] returns the answer to an offer.
    Accepted(Box<Rep>),
    /// The connection is established: by an RTU, which carries private data, or by the peer's
    /// data.
    Established(Option<Box<PrivateData<224>>>),
    /// A DREQ arrived: the consumer stops the queue pair, then calls [`crate::Cm::disconnect`].
    DisconnectRequested(Box<PrivateData<220>>),
    /// A LAP arrived: the consumer loads the path, then calls [`crate::Cm::answer_alternate`].
    LoadAlternate(Box<Lap>),
    /// An APR arrived: the peer's answer to our LAP.
    AlternateAnswered(Box<Apr>),
    /// The peer did not answer our LAP. The connection is unchanged.
    AlternateTimedOut,
    /// A SIDR_REQ arrived (with a new id): the consumer calls [`crate::Cm::sidr_reply`].
    SidrRequest(Box<SidrRequest>),
    /// A SIDR_REP arrived: the answer to our SIDR_REQ.
    SidrReply(Box<SidrRep>),
    /// The connection is over, or was not established. Its QPN is still held.
    Closed(CloseReason),
    /// The id is released: no event follows, and the QPN may be used again.
    Released,
}

/// A received REQ and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Sender's and receiver's address; the port is ours.
    pub addr: MadAddr,
    /// Service ID of the listener, or in peer-to-peer mode of our own request.
    pub service_id: ServiceId,
    /// The peer offers selective repeat.
    pub selective_repeat: bool,
    /// The message, without the offer.
    pub req: Req,
}

/// A received SIDR_REQ and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRequest {
    /// Sender's and receiver's address; the port is ours.
    pub addr: MadAddr,
    /// The message.
    pub req: SidrReq,
}

/// Reason for which a connection is over, or was not established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Our consumer rejected or withdrew it.
    RejectedByUs,
    /// The peer sent this REJ.
    Rejected(Box<Rej>),
    /// The peer did not answer our REQ, REP or SIDR_REQ.
    Unreachable,
    /// Either side disconnected; a DREP's private data, if one arrived. Or the reliable datagram
    /// channel that the connection depends on has ended.
    Disconnected(Option<Box<PrivateData<224>>>),
    /// We sent a DREQ, and the peer did not answer.
    DisconnectUnanswered,
    /// The peer's queue pair is in a newer connection; the old one was torn down.
    Stale,
}

/// Reason for which a MAD had no effect. Each reason has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MadDrop {
    /// The MAD is not 256 bytes long, or is no message of the CM class.
    Malformed,
    /// The MAD has another class version. A REQ or SIDR_REQ was answered with the version we
    /// support.
    ClassVersion,
    /// The message names no connection. A REP was answered with a REJ, a LAP with an APR, a DREQ
    /// with a DREP.
    UnknownId,
    /// The message names a connection, but comes from another address than its peer's, or has IDs
    /// or a QPN that are not the connection's. It may be forged.
    Forged,
    /// The message repeats an earlier one; the answer has been sent again.
    Duplicate,
    /// The message is not allowed in the connection's state.
    Unexpected,
    /// The message was a REQ, REP, LAP or SIDR_REQ and was refused with the reason.
    Refused,
}

impl MadDrop {
    /// All reasons, in the order of their values.
    pub const ALL: [MadDrop; 7] = [
        MadDrop::Malformed,
        MadDrop::ClassVersion,
        MadDrop::UnknownId,
        MadDrop::Forged,
        MadDrop::Duplicate,
        MadDrop::Unexpected,
        MadDrop::Refused,
    ];

    /// Name of the reason's counter.
    pub const fn name(self) -> &'static str {
        match self {
            MadDrop::Malformed => "cm_malformed",
            MadDrop::ClassVersion => "cm_class_version",
            MadDrop::UnknownId => "cm_unknown_id",
            MadDrop::Forged => "cm_forged",
            MadDrop::Duplicate => "cm_duplicate",
            MadDrop::Unexpected => "cm_unexpected",
            MadDrop::Refused => "cm_refused",
        }
    }
}

impl From<CmParseError> for MadDrop {
    fn from(error: CmParseError) -> MadDrop {
        match error {
            CmParseError::ClassVersion => MadDrop::ClassVersion,
            _ => MadDrop::Malformed,
        }
    }
}

impl std::fmt::Display for MadDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
