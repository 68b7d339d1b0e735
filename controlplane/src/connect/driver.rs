//! The connection manager's consumer: what Linux's `rdma_cm` is to its `ib_cm`.
//!
//! ```text
//!   requests ──> ids ── paths resolved ──> Cm (uroce-cm) ──> outbox ──> QP 1
//!   QP 1 ──> Cm ──> events ──> Modify QP, ids' channels
//! ```
//!
//! The driver is a value that the control-plane thread runs; nothing in it waits. A connection
//! whose neighbours are not known stands aside ([`Stage::Resolving`]) and is looked at each turn.
//!
//! Invariants
//! - It is the one owner of connection ids. Each id of the CM's belongs to one of them at most, and
//!   each QP to one connection at most.
//! - A QP's number stays held from the connection's beginning until the CM releases it, whether the
//!   QP or the id live or not.
//! - What strangers cause is bounded: by backlogs, by the CM's limits, by the outbox.
//!
//! Not here: messages, their states, timers and copies (`uroce-cm`); what a Modify QP does.

mod active;
mod alternate;
mod datagram;
mod end;
mod events;
mod listen;
mod look_up;
mod passive;
mod patience;
mod resolve;
mod terms;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use uroce_cm::{Cm, CmConfig, CmLimits, ConnId, MadAddr, MadDrop, State};
use uroce_engine::EventKind;
use uroce_transport::{Instant, QpState, QpType};
use uroce_wire::cm::{CaGuid, ServiceId};
use uroce_wire::{Psn, Qpn};

use super::around::Around;
use super::connection::{Connection, Listener, OwnQp, Stage};
use super::outbox::{Letter, Outbox};
use super::ports::Ports;
use super::{CmError, CmEvent, CmEventKind, CmId, CmRequest, CmSink, ConnQp, PortSpace};
use crate::gsi::{Arrived, GSI};
use crate::request::{Count, Reply, RequestError};
use look_up::LookUp;

/// Listeners, connections and look-ups of a device, those that are ending among them.
const IDS_MAX: usize = 131_072;

uroce_transport::counted! {
    /// What the driver counts.
    pub enum Tally {
        Active "cm_active_established" "A connection established that this side began."
        Passive "cm_passive_established" "A connection established that a peer began."
        Resolved "cm_resolved" "A UD QP found by its port."
        Rejected "cm_rejected" "A connection that the peer refused."
        Unreachable "cm_unreachable" "A connection to a peer that did not answer."
        Failed "cm_failed" "A connection that failed for a reason of this side."
        Disconnected "cm_disconnected" "A connection ended."
        Refused "cm_requests_refused" "A peer's request refused for what it asks for."
        BacklogFull "cm_backlog_full" "A peer's request refused: its listener has enough of them."
        AlternateLoaded "cm_alternate_loaded" "An alternate path loaded by LAP, on either side."
        AlternateRefused "cm_alternate_refused" "A peer's alternate path refused."
        CommEst "cm_comm_est" "A connection established by a packet before its RTU."
        Migrated "cm_path_migrated" "A connection whose QP has taken its alternate path."
    }
}

#[derive(Debug)]
pub(crate) struct Driver {
    cm: Cm,
    ports: Ports,
    listeners: HashMap<CmId, Listener>,
    connections: HashMap<CmId, Connection>,
    by_conn: HashMap<ConnId, CmId>,
    by_qpn: HashMap<Qpn, CmId>,
    /// Connections that wait for neighbours.
    resolving: Vec<CmId>,
    /// Of these, such that are to be answered, with a question out.
    replies_asking: usize,
    /// Ways that applications want to know.
    look_ups: Vec<LookUp>,
    /// When peers are asked for patience whose wishes the application has not answered by then.
    unanswered: VecDeque<(Instant, CmId)>,
    outbox: Outbox,
    last_id: u64,
    tally: [u64; Tally::ALL.len()],
}

impl Driver {
    /// Of a device whose channel adapter has this GUID. The seed is secret.
    pub(crate) fn new(ca_guid: u64, seed: [u8; 16]) -> Driver {
        let ports = Ports::new(u32::from_ne_bytes([seed[0], seed[1], seed[2], seed[3]]));
        let config = CmConfig { ca_guid: CaGuid(ca_guid), limits: CmLimits::default(), seed };
        Driver {
            cm: Cm::new(config),
            ports,
            listeners: HashMap::new(),
            connections: HashMap::new(),
            by_conn: HashMap::new(),
            by_qpn: HashMap::new(),
            resolving: Vec::new(),
            replies_asking: 0,
            look_ups: Vec::new(),
            unanswered: VecDeque::new(),
            outbox: Outbox::default(),
            last_id: 0,
            tally: [0; Tally::ALL.len()],
        }
    }

    /// Serves an application's request.
    pub(crate) fn serve(&mut self, request: CmRequest, around: &mut Around<'_>) {
        match request {
            CmRequest::Bind { channel, space, address, options, reply } => {
                answer(&reply, self.bind(channel, space, address, options, around));
            }
            CmRequest::BeginListening { id, backlog, reply } => {
                answer(&reply, self.begin_listening(id, backlog));
            }
            CmRequest::IsHeard { space, to, reply } => {
                answer(&reply, Ok(self.is_heard(space, to)));
            }
            CmRequest::Resolve { channel, path, timeout, reply } => {
                answer(&reply, self.resolve(channel, &path, timeout, around));
            }
            CmRequest::Listen { channel, space, address, backlog, reply } => {
                answer(&reply, self.listen(channel, space, address, backlog, around));
            }
            CmRequest::Connect { channel, spec, reply } => {
                answer(&reply, self.connect(channel, *spec, around));
            }
            CmRequest::Accept { id, qp, param, reply } => {
                answer(&reply, self.accept(id, qp, *param, around));
            }
            CmRequest::Reject { id, reason, private_data, reply } => {
                answer(&reply, self.reject(id, reason, &private_data, around));
            }
            CmRequest::Establish { id, reply } => answer(&reply, self.establish(id, around)),
            CmRequest::Disconnect { id, private_data, reply } => {
                answer(&reply, self.disconnect(id, &private_data, around));
            }
            CmRequest::LoadAlternate { id, path, reply } => {
                answer(&reply, self.load_alternate(id, &path, around));
            }
            CmRequest::AnswerAlternate { id, accept, reply } => {
                answer(&reply, self.answer_alternate(id, accept, around));
            }
            CmRequest::SetChannel { id, channel, reply } => {
                answer(&reply, self.set_channel(id, channel));
            }
            CmRequest::Destroy { id, reply } => answer(&reply, self.destroy(id, around)),
        }
    }

    /// Takes a message of connection management.
    pub(crate) fn handle_mad(&mut self, arrived: &Arrived, around: &mut Around<'_>) {
        // The CM counts what it leaves aside.
        let _ = self.cm.handle_mad(around.now, &from(arrived), &arrived.mad);
        // Before the next message: it may end what this one has begun.
        self.take_events(around);
    }

    /// Something happened to a QP: its owner lcore says so.
    pub(crate) fn notice(&mut self, qpn: Qpn, kind: EventKind, around: &mut Around<'_>) {
        let Some(id) = self.by_qpn.get(&qpn).copied() else { return };
        match kind {
            EventKind::CommEst => self.communication_established(id, around),
            EventKind::PathMig => self.path_migrated(id, around),
            _ => {}
        }
    }

    /// Timers, what waits for neighbours, events and messages of the CM: to be called after inputs
    /// and whenever [`next_timeout`](Self::next_timeout) is due.
    pub(crate) fn turn(&mut self, around: &mut Around<'_>) {
        if self.cm.next_timeout().is_some_and(|due| due <= around.now) {
            self.cm.handle_timeout(around.now);
        }
        self.resolve_waiting(around);
        self.step_look_ups(around);
        self.ask_for_patience(around);
        self.take_events(around);
        self.outbox.resume(around);
        while let Some((to, mad)) = self.cm.poll_transmit() {
            let letter = Letter { addr: to, to: GSI, mad };
            self.outbox.post(letter, around);
        }
    }

    fn take_events(&mut self, around: &mut Around<'_>) {
        while let Some((conn, event)) = self.cm.poll_event() {
            self.handle_event(conn, event, around);
        }
    }

    /// When [`turn`](Self::turn) has something to do without an input.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let patience = self.unanswered.front().map(|(due, _)| *due);
        let look_ups = self.look_ups.iter().map(LookUp::due);
        self.cm.next_timeout().into_iter().chain(patience).chain(look_ups).min()
    }

    /// Does a peer owe an answer to our wish to disconnect?
    pub(crate) fn is_disconnecting(&self) -> bool {
        let waits = |conn: &ConnId| self.cm.state(*conn) == Some(State::DreqSent);
        self.by_conn.keys().any(waits)
    }

    /// Do messages wait, for their neighbours' addresses or for a port?
    pub(crate) fn has_mail(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends a MAD back to where it came from.
    pub(crate) fn answer_mad(&mut self, arrived: &Arrived, around: &mut Around<'_>) {
        let addr = from(arrived).reversed();
        self.outbox.post(Letter { addr, to: arrived.src_qpn, mad: arrived.mad }, around);
    }

    pub(crate) fn counts(&self) -> Vec<Count> {
        let counters = self.cm.counters();
        let drop = |reason: &MadDrop| {
            let text = "A message of connection management left aside, by its reason.";
            (reason.name(), text, counters.dropped(*reason))
        };
        let tally = |what: &Tally| (what.name(), what.description(), self.tally[*what as usize]);
        let mut counts: Vec<Count> = MadDrop::ALL.iter().map(drop).collect();
        counts.extend(Tally::ALL.iter().map(tally));
        counts.extend(self.outbox.counts());
        counts.extend([
            (
                "cm_retransmitted",
                "A message sent again for want of an answer.",
                counters.retransmitted,
            ),
            ("cm_evicted", "A peer's request given up early to make room.", counters.evicted),
            ("cm_tx_overflow", "A message lost: too many waited to be sent.", counters.tx_overflow),
        ]);
        counts.push((
            "cm_connections",
            "Connections, ending ones too.",
            self.connections.len() as u64,
        ));
        counts
    }

    fn count(&mut self, what: Tally) {
        self.tally[what as usize] += 1;
    }

    fn new_id(&mut self) -> Result<CmId, CmError> {
        if self.listeners.len() + self.connections.len() + self.look_ups.len() >= IDS_MAX {
            return Err(CmError::TooMany);
        }
        self.last_id += 1;
        Ok(CmId(self.last_id))
    }

    fn connection(&mut self, id: CmId) -> Result<&mut Connection, CmError> {
        let connection = self.connections.get_mut(&id).filter(|connection| !connection.is_orphan);
        connection.ok_or(CmError::UnknownId(id))
    }

    /// Tells the application, unless it has given the id up.
    fn tell(&self, id: CmId, kind: CmEventKind) {
        if let Some(connection) = self.connections.get(&id)
            && !connection.is_orphan
        {
            connection.channel.give(CmEvent { id, kind });
        }
    }

    fn set_channel(&mut self, id: CmId, channel: Arc<dyn CmSink>) -> Result<(), RequestError> {
        let place = match self.listeners.get_mut(&id) {
            Some(listener) => &mut listener.channel,
            None => &mut self.connection(id)?.channel,
        };
        let former = std::mem::replace(place, Arc::clone(&channel));
        if !Arc::ptr_eq(&former, &channel) {
            former.take_of(id).into_iter().for_each(|event| channel.give(event));
        }
        // A request that somebody has taken is that one's, whatever becomes of its listener.
        if self.connections.get(&id).is_some_and(|it| it.stage == Stage::Requested) {
            self.leave_backlog(id);
        }
        Ok(())
    }

    /// The QP that a connection is to have, if it can have it.
    fn own_qp(
        &mut self,
        qp: ConnQp,
        space: PortSpace,
        around: &mut Around<'_>,
    ) -> Result<OwnQp, RequestError> {
        let own = match qp {
            ConnQp::Foreign { qpn, qp_type, psn, has_srq, stops_with_peer } => OwnQp {
                qpn,
                qp_type,
                psn,
                has_srq,
                is_driven: false,
                is_kept: true,
                stops_with_peer,
            },
            ConnQp::Driven(qpn) | ConnQp::Begun(qpn) => {
                let info = around.query_qp(qpn)?;
                let is_fresh = matches!(info.attr.state, QpState::Reset | QpState::Init);
                if !is_fresh && !info.qp_type.is_datagram() {
                    return Err(CmError::WrongState.into());
                }
                let (qp_type, has_srq) = (info.qp_type, info.has_srq);
                let (psn, is_kept) = (Psn::default(), matches!(qp, ConnQp::Begun(_)));
                let (is_driven, stops_with_peer) = (true, true);
                OwnQp { qpn, qp_type, psn, has_srq, is_driven, is_kept, stops_with_peer }
            }
        };
        let fits = match space {
            PortSpace::Tcp => matches!(own.qp_type, QpType::Rc | QpType::Uc),
            PortSpace::Udp => own.qp_type == QpType::Ud,
        };
        match fits {
            false => Err(CmError::WrongService(own.qpn).into()),
            true if space == PortSpace::Tcp && self.by_qpn.contains_key(&own.qpn) => {
                Err(CmError::QpInUse(own.qpn).into())
            }
            true => Ok(own),
        }
    }
}

fn from(arrived: &Arrived) -> MadAddr {
    let Arrived { port, src, dst, .. } = *arrived;
    MadAddr { port, src, dst, ..MadAddr::default() }
}

fn service_id(space: PortSpace, port: u16) -> ServiceId {
    match space {
        PortSpace::Tcp => ServiceId::tcp(port),
        PortSpace::Udp => ServiceId::udp(port),
    }
}

/// Whoever asked may have given up.
fn answer<T>(reply: &Reply<T>, result: Result<T, RequestError>) {
    let _ = reply.send(result);
}

/// Private data of exactly that message.
fn private_data<const MAX: usize>(
    bytes: &[u8],
) -> Result<uroce_wire::cm::PrivateData<MAX>, CmError> {
    uroce_wire::cm::PrivateData::new(bytes)
        .map_err(|_| CmError::PrivateData { len: bytes.len(), max: MAX })
}
