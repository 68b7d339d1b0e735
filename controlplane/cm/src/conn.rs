//! State of one connection, or of one service ID resolution.

use std::time::Duration;

use uroce_transport::Instant;
use uroce_wire::cm::{CaGuid, CommId, Message, ServiceId};
use uroce_wire::{Gid, Qpn};

use crate::agreement::Features;
use crate::state::{LapState, State};
use crate::{ConnId, MadAddr, Path};

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
    pub(crate) local_qpn: Option<Qpn>,
    pub(crate) remote_qpn: Option<Qpn>,
    /// The connection is XRC's: its active side has the initiator, its passive side the target.
    pub(crate) is_xrc: bool,
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
            local_qpn: None,
            remote_qpn: None,
            is_xrc: false,
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
