//! What a consumer is told, and why a MAD was left aside.

use uroce_wire::cm::{
    Apr, CmParseError, Lap, Mra, PrivateData, Rej, Rep, Req, ServiceId, SidrRep, SidrReq,
};

use crate::MadAddr;

/// Our own name for a connection or a service ID resolution: never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(crate) u64);

impl ConnId {
    /// As a number, for tables of the consumer.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// What happened to a connection.
///
/// Of every id that the consumer does not [destroy](crate::Cm::destroy) the last event is
/// [`CmEvent::Released`], and of every connection exactly one [`CmEvent::Closed`] comes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// A peer wants to connect (a new id): accept, reject or ask for patience. Where our own REQ
    /// yielded to the peer's, peer to peer, this comes for the id of ours.
    Request(Box<Request>),
    /// The peer asks for patience with our REQ, REP or LAP.
    Patience(Box<Mra>),
    /// The peer accepts: make the queue pair ready, then call [`crate::Cm::ready`].
    Accepted(Box<Rep>),
    /// The peer is ready, by its RTU (with private data) or by the first of its data.
    Established(Option<Box<PrivateData<224>>>),
    /// The peer disconnects: stop the queue pair, then call [`crate::Cm::disconnect`].
    DisconnectRequested(Box<PrivateData<220>>),
    /// The peer proposes an alternate path: load it, then call
    /// [`crate::Cm::answer_alternate`].
    LoadAlternate(Box<Lap>),
    /// What the peer did with our alternate path.
    AlternateAnswered(Box<Apr>),
    /// The peer says nothing about our alternate path. The connection stands as it did.
    AlternateTimedOut,
    /// A peer asks for the queue pair of a service (a new id): call [`crate::Cm::sidr_reply`].
    SidrRequest(Box<SidrRequest>),
    /// The answer to our own such question.
    SidrReply(Box<SidrRep>),
    /// The connection is over, or did not come about. Its QPN is not yet free.
    Closed(CloseReason),
    /// The id is over: nothing more comes, the QPN may be used again.
    Released,
}

/// A REQ with its surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it came from, and to which of our ports and GIDs.
    pub addr: MadAddr,
    /// The listener's, or in peer-to-peer mode our own.
    pub service_id: ServiceId,
    /// What the peer asks for.
    pub req: Req,
}

/// A SIDR_REQ with its surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidrRequest {
    /// Where it came from, and to which of our ports and GIDs.
    pub addr: MadAddr,
    /// The question.
    pub req: SidrReq,
}

/// Why a connection is over, or did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Our consumer rejected.
    RejectedByUs,
    /// The peer rejected, or gave up; how it put that.
    Rejected(Box<Rej>),
    /// No answer to our REQ, REP or SIDR_REQ.
    Unreachable,
    /// Disconnected, by either side.
    Disconnected(Option<Box<PrivateData<224>>>),
    /// Disconnected by us; the peer did not answer.
    DisconnectUnanswered,
    /// The peer's queue pair is part of a newer connection of its own: the old one was torn down.
    Stale,
}

/// Why a MAD had no effect; each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MadDrop {
    /// Not 256 bytes, or no message of the class.
    Malformed,
    /// Another version of the class; whoever asked for something was told.
    ClassVersion,
    /// It names no connection of ours. A REP was answered with a REJ, a LAP with an APR.
    UnknownId,
    /// It names a connection, and comes from elsewhere than that connection's peer, or with ids
    /// or a QPN that are not the connection's. Perhaps forged.
    Forged,
    /// It was here before; the answer has been given again.
    Duplicate,
    /// It has no place in the connection's state.
    Unexpected,
    /// REQ or SIDR_REQ: refused, and the peer was told why.
    Refused,
}

impl MadDrop {
    /// All reasons.
    pub const ALL: [MadDrop; 7] = [
        MadDrop::Malformed,
        MadDrop::ClassVersion,
        MadDrop::UnknownId,
        MadDrop::Forged,
        MadDrop::Duplicate,
        MadDrop::Unexpected,
        MadDrop::Refused,
    ];

    /// Name of the counter.
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
