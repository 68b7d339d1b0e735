//! State of one connection, or of one service ID resolution.

use std::time::Duration;

use uroce_transport::Instant;
use uroce_wire::cm::{CaGuid, CommId, Message, Req, ServiceId, TransportService};
use uroce_wire::{Gid, Qpn};

use crate::agreement::Features;
use crate::state::{LapState, State};
use crate::{ConnId, MadAddr, Path, RdEnd};

/// A message that is repeated until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Repeated {
    pub(crate) message: Box<Message>,
    pub(crate) transaction: u64,
    pub(crate) left: u8,
}

/// An answer that is given again to copies of the message it answers.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) message: Box<Message>,
    pub(crate) transaction: u64,
}

/// What a connection connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Queue pairs of RC or UC.
    Qp,
    /// Queue pairs of XRC: the initiator of the active side, the target of the passive side.
    Xrc,
    /// EE contexts: the connection is a reliable datagram channel. Each side may name an RD queue
    /// pair, which has no part in the connection.
    Rdc,
    /// Nothing: each side names an RD queue pair, for a channel that exists already.
    RdQp,
}

/// The one end of a connection, by the number that it has on its side. A peer may have a queue pair
/// and an EE context of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Qp(Qpn),
    Eec(Qpn),
}

impl Kind {
    /// Returns what a REQ asks for, if it is one that [`Cm`](crate::Cm) serves.
    pub(crate) fn of(req: &Req) -> Kind {
        match req.transport_service {
            TransportService::Rc | TransportService::Uc => Kind::Qp,
            TransportService::Extended => Kind::Xrc,
            TransportService::Rd if req.rdc_exists => Kind::RdQp,
            TransportService::Rd => Kind::Rdc,
        }
    }

    /// Returns the end that can be in one connection only, of a side with this queue pair and this
    /// EE context.
    pub(crate) fn end(self, qpn: Qpn, rd: Option<RdEnd>) -> Option<End> {
        match self {
            Kind::Qp | Kind::Xrc => Some(End::Qp(qpn)),
            //= check R43 — an EE context is in one connection, whatever queue pairs are named
            Kind::Rdc => rd.map(|end| End::Eec(end.eecn)),
            Kind::RdQp => None,
        }
    }
}

/// State of a connection, or of a service ID resolution.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    /// Set by the table.
    pub(crate) id: ConnId,
    pub(crate) state: State,
    /// Progress of our LAP.
    pub(crate) lap_out: LapState,
    /// Progress of the peer's LAP.
    pub(crate) lap_in: LapState,
    /// The consumer has destroyed the id; no further event is reported.
    pub(crate) is_destroyed: bool,
    /// [`crate::CmEvent::Closed`] has been reported.
    pub(crate) is_closed: bool,
    /// [`crate::CmEvent::Released`] has been reported: the table removes the connection.
    pub(crate) is_released: bool,
    pub(crate) service_id: ServiceId,
    pub(crate) listener: Option<ServiceId>,
    pub(crate) peer_to_peer: bool,
    pub(crate) local_comm: CommId,
    pub(crate) remote_comm: Option<CommId>,
    pub(crate) remote_guid: CaGuid,
    pub(crate) kind: Kind,
    /// Our queue pair. Of reliable datagrams 0 if none is named, as in `remote_qpn`.
    pub(crate) local_qpn: Option<Qpn>,
    /// The peer's queue pair. Only a connection has one, no service ID resolution.
    pub(crate) remote_qpn: Option<Qpn>,
    /// Our EE context, of reliable datagrams.
    pub(crate) local_rd: Option<RdEnd>,
    /// The peer's EE context, of reliable datagrams.
    pub(crate) remote_rd: Option<RdEnd>,
    /// Features that the connection's REQ offers, ours or the peer's.
    pub(crate) offered: Features,
    /// Features that the REP has accepted.
    pub(crate) agreed: Features,
    /// Address to which our MADs go.
    pub(crate) addr: MadAddr,
    pub(crate) primary: Path,
    pub(crate) alternate: Option<Path>,
    /// GID from which the peer's MADs may still come after a migration.
    pub(crate) former: Option<Gid>,
    /// Transaction ID of the peer's message to be answered.
    pub(crate) asked: u64,
    pub(crate) repeated: Option<Repeated>,
    pub(crate) answer: Option<Answer>,
    /// Time to wait for an answer before a message is repeated.
    pub(crate) interval: Duration,
    pub(crate) max_retries: u8,
    pub(crate) time_wait: Duration,
    pub(crate) deadline: Option<Instant>,
    /// Our LAP, and the path in it.
    pub(crate) lap: Option<(Repeated, Path)>,
    /// The peer's LAP: its transaction ID, and the path in it.
    pub(crate) proposed: Option<(u64, Path)>,
    pub(crate) lap_answer: Option<Answer>,
    pub(crate) lap_deadline: Option<Instant>,
}

impl Conn {
    pub(crate) fn new(local_comm: CommId, service_id: ServiceId, primary: Path) -> Conn {
        Conn {
            id: ConnId(0),
            state: State::Idle,
            lap_out: LapState::Idle,
            lap_in: LapState::Idle,
            is_destroyed: false,
            is_closed: false,
            is_released: false,
            service_id,
            listener: None,
            peer_to_peer: false,
            local_comm,
            remote_comm: None,
            remote_guid: CaGuid::default(),
            kind: Kind::Qp,
            local_qpn: None,
            remote_qpn: None,
            local_rd: None,
            remote_rd: None,
            offered: Features::NONE,
            agreed: Features::NONE,
            addr: primary.mad_addr(),
            primary,
            alternate: None,
            former: None,
            asked: 0,
            repeated: None,
            answer: None,
            interval: Duration::ZERO,
            max_retries: 0,
            time_wait: primary.local_ack_timeout.duration(),
            deadline: None,
            lap: None,
            proposed: None,
            lap_answer: None,
            lap_deadline: None,
        }
    }

    /// Tells whether a MAD of this connection may come from `src`.
    pub(crate) fn knows(&self, src: Gid) -> bool {
        src == self.addr.dst
            || src == self.primary.remote
            || self.alternate.is_some_and(|path| src == path.remote)
            || self.former == Some(src)
    }

    /// Returns the number by which a DREQ or LAP of the peer names our side: of the queue pair, or
    /// of reliable datagrams, of the EE context.
    pub(crate) fn local_number(&self) -> Option<Qpn> {
        self.local_rd.map(|end| end.eecn).or(self.local_qpn)
    }

    /// Returns the number by which our DREQ or LAP names the peer's side.
    pub(crate) fn remote_number(&self) -> Option<Qpn> {
        //= check R42 — DREQ and LAP name the EE context, where other services have a queue pair
        self.remote_rd.map(|end| end.eecn).or(self.remote_qpn)
    }

    /// Returns the local number that no other connection may use.
    pub(crate) fn held_number(&self) -> Option<Qpn> {
        self.local_number().filter(|_| self.kind != Kind::RdQp)
    }

    /// Returns our EE context, if another connection is its channel and this one depends on it.
    pub(crate) fn used_channel(&self) -> Option<Qpn> {
        self.local_number().filter(|_| self.kind == Kind::RdQp)
    }

    /// Returns the peer's end, if no other connection may have it.
    pub(crate) fn remote_end(&self) -> Option<End> {
        self.kind.end(self.remote_qpn?, self.remote_rd)
    }

    /// Tells whether a REQ is of the peer that this connection is with.
    pub(crate) fn is_with(&self, req: &Req) -> bool {
        let ours = (self.kind, self.remote_qpn, self.remote_rd);
        ours == (Kind::of(req), Some(req.local_qpn), RdEnd::of_req(req))
    }

    /// Tells whether the peer has left a REP unanswered for at least one interval.
    pub(crate) fn is_silent(&self) -> bool {
        let left = self.repeated.as_ref().map(|repeated| repeated.left);
        self.state == State::RepSent && left.is_some_and(|left| left < self.max_retries)
    }

    /// Returns the peer's communication ID, or 0 while it is unknown.
    pub(crate) fn remote_comm_or_none(&self) -> CommId {
        self.remote_comm.unwrap_or_default()
    }

    /// Sets TimeWait to the longer ACK timeout of both paths, limited to `max`.
    pub(crate) fn set_time_wait(&mut self, max: Option<Duration>) {
        let alternate = self.alternate.map(|path| path.local_ack_timeout);
        let code = Some(self.primary.local_ack_timeout).max(alternate).unwrap_or_default();
        self.time_wait = code.duration().min(max.unwrap_or(Duration::MAX));
    }

    /// Stops loading alternate paths in both directions.
    pub(crate) fn drop_laps(&mut self) {
        (self.lap_out, self.lap_in) = (LapState::Idle, LapState::Idle);
        (self.lap, self.proposed, self.lap_answer) = (None, None, None);
    }
}
