//! Consumer of the connection manager, with the role that Linux's `rdma_cm` has for `ib_cm`.
//!
//! ```text
//!   requests ──> ids ── paths resolved ──> Cm (uroce-cm) ──> outbox ──> QP 1
//!   QP 1 ──> Cm ──> events ──> Modify QP, ids' channels
//! ```
//!
//! The control-plane thread runs the driver; none of its functions blocks. A connection with
//! unresolved neighbours is parked ([`Stage::Resolving`]) and tried again each turn.
//!
//! Invariants
//! - The driver alone creates connection ids. A connection of `uroce-cm` belongs to at most one id,
//!   and a QP to at most one connection.
//! - A QPN is held from the beginning of its connection until `uroce-cm` releases the connection,
//!   even if the QP or the id is destroyed before.
//! - Work caused by unknown senders is bounded by backlogs, by the limits of `uroce-cm` and by the
//!   outbox.
//!
//! Not here: messages, their states, timers and duplicates (`uroce-cm`); the effects of a Modify
//! QP.

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
use super::{CmError, CmEvent, CmEventKind, CmId, CmSink, ConnQp, PortSpace};
use crate::call::{Count, RequestError};
use crate::gsi::{Arrived, GSI};
use look_up::LookUp;

/// Most listeners, connections and look-ups of a device, including those that are ending.
const IDS_MAX: usize = 131_072;

uroce_transport::counted! {
    /// Counters of the driver.
    pub enum Tally {
        Active "cm_active_established" "A connection established that this side began."
        Passive "cm_passive_established" "A connection established that a peer began."
        Resolved "cm_resolved" "A UD QP found by its port."
        Rejected "cm_rejected" "A connection that the peer refused."
        Unreachable "cm_unreachable" "A connection to a peer that did not answer."
        Failed "cm_failed" "A connection that failed for a reason of this side."
        Disconnected "cm_disconnected" "A connection ended."
        Refused "cm_requests_refused" "A peer's request refused for its parameters."
        BacklogFull "cm_backlog_full" "A peer's request refused: its listener's backlog is full."
        AlternateLoaded "cm_alternate_loaded" "An alternate path loaded by LAP, on either side."
        AlternateRefused "cm_alternate_refused" "A peer's alternate path refused."
        CommEst "cm_comm_est" "A connection established by a packet before its RTU."
        Migrated "cm_path_migrated" "A connection moved to the alternate path of its QP."
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
    /// Connections with unresolved neighbours.
    resolving: Vec<CmId>,
    /// Number of these that have to send a REP and have started to resolve a neighbour.
    replies_asking: usize,
    /// Paths that applications are looking up.
    look_ups: Vec<LookUp>,
    /// Requests without the application's answer, and the time at which an MRA is sent for each.
    unanswered: VecDeque<(Instant, CmId)>,
    outbox: Outbox,
    last_id: u64,
    tally: [u64; Tally::ALL.len()],
}

impl Driver {
    /// Creates the driver of a device. `ca_guid` is the GUID of its channel adapter, `seed` is
    /// secret.
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

    /// Handles a received message of connection management.
    pub(crate) fn handle_mad(&mut self, arrived: &Arrived, around: &mut Around<'_>) {
        // `uroce-cm` counts the messages that it drops.
        let _ = self.cm.handle_mad(around.now, &from(arrived), &arrived.mad);
        // The next message may end a connection that this one has begun.
        self.take_events(around);
    }

    /// Handles an event of a QP, which its lcore has reported.
    pub(crate) fn notice(&mut self, qpn: Qpn, kind: EventKind, around: &mut Around<'_>) {
        let Some(id) = self.by_qpn.get(&qpn).copied() else { return };
        match kind {
            EventKind::CommEst => self.communication_established(id, around),
            EventKind::PathMig => self.path_migrated(id, around),
            _ => {}
        }
    }

    /// Handles timers, resolved neighbours, and events and messages of `uroce-cm`. Called after
    /// inputs and whenever [`next_timeout`](Self::next_timeout) has passed.
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

    /// Returns the time at which [`turn`](Self::turn) has work to do without an input.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let patience = self.unanswered.front().map(|(due, _)| *due);
        let look_ups = self.look_ups.iter().map(LookUp::due);
        self.cm.next_timeout().into_iter().chain(patience).chain(look_ups).min()
    }

    /// Tells whether a DREQ waits for its DREP.
    pub(crate) fn is_disconnecting(&self) -> bool {
        let waits = |conn: &ConnId| self.cm.state(*conn) == Some(State::DreqSent);
        self.by_conn.keys().any(waits)
    }

    /// Tells whether MADs wait for their neighbour's address or for room in a port's queue.
    pub(crate) fn has_mail(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends a MAD to the source of a received one.
    pub(crate) fn answer_mad(&mut self, arrived: &Arrived, around: &mut Around<'_>) {
        let addr = from(arrived).reversed();
        self.outbox.post(Letter { addr, to: arrived.src_qpn, mad: arrived.mad }, around);
    }

    pub(crate) fn counts(&self) -> Vec<Count> {
        let counters = self.cm.counters();
        let drop = |reason: &MadDrop| {
            let text = "A message of connection management dropped, by reason.";
            (reason.name(), text, counters.dropped(*reason))
        };
        let tally = |what: &Tally| (what.name(), what.description(), self.tally[*what as usize]);
        let mut counts: Vec<Count> = MadDrop::ALL.iter().map(drop).collect();
        counts.extend(Tally::ALL.iter().map(tally));
        counts.extend(self.outbox.counts());
        counts.extend([
            (
                "cm_retransmitted",
                "A message sent again because no answer came.",
                counters.retransmitted,
            ),
            ("cm_evicted", "A peer's request given up to make room for others.", counters.evicted),
            ("cm_tx_overflow", "A message dropped: the send queue was full.", counters.tx_overflow),
        ]);
        counts.push((
            "cm_connections",
            "Connections, including those that are ending.",
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

    /// Reports an event to the application, unless it has destroyed the id.
    fn tell(&self, id: CmId, kind: CmEventKind) {
        if let Some(connection) = self.connections.get(&id)
            && !connection.is_orphan
        {
            connection.channel.give(CmEvent { id, kind });
        }
    }

    pub(crate) fn set_channel(
        &mut self,
        id: CmId,
        channel: Arc<dyn CmSink>,
    ) -> Result<(), RequestError> {
        let place = match self.listeners.get_mut(&id) {
            Some(listener) => &mut listener.channel,
            None => &mut self.connection(id)?.channel,
        };
        let former = std::mem::replace(place, Arc::clone(&channel));
        if !Arc::ptr_eq(&former, &channel) {
            former.take_of(id).into_iter().for_each(|event| channel.give(event));
        }
        // A request moved to another channel has been taken from the backlog, whatever happens to
        // its listener.
        if self.connections.get(&id).is_some_and(|it| it.stage == Stage::Requested) {
            self.leave_backlog(id);
        }
        Ok(())
    }

    /// Checks that a QP can be used for a connection, and returns its state for the driver.
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

/// Checks and pads private data to the length of its message field.
fn private_data<const MAX: usize>(
    bytes: &[u8],
) -> Result<uroce_wire::cm::PrivateData<MAX>, CmError> {
    uroce_wire::cm::PrivateData::new(bytes)
        .map_err(|_| CmError::PrivateData { len: bytes.len(), max: MAX })
}
