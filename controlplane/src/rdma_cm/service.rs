//! Consumer of the connection manager, with the role that Linux's `rdma_cm` has for `ib_cm`.
//!
//! ```text
//!   calls ──> ids ── paths resolved ──> Cm (uroce-cm) ──> outbox ──> QP 1
//!   QP 1 ──> Cm ──> events ──> Modify QP, ids' channels
//! ```
//!
//! The control-plane thread runs the service; none of its functions blocks. A connection with
//! unresolved neighbours is parked ([`Stage::Resolving`]) and tried again each turn.
//!
//! A call names its connection by [`CmId`], an event of `uroce-cm` by `ConnId`, and an event of a
//! QP by QPN, or of an EEC by its EECN, which no QP of the device has. [`Service`] finds the
//! connection once ([`Service::call`], [`Service::with_known`]). Every later step is a method of
//! [`Connection`], with the rest of the service as [`Common`].
//!
//! Invariants
//! - Only the service creates [`CmId`]s. A `ConnId` of `uroce-cm` belongs to at most one of them.
//! - A connected QP or an EEC belongs to at most one connection. Its number is held from the
//!   beginning of the connection until `uroce-cm` releases the connection, even if the QP, the EEC
//!   or the id is destroyed before. A UD QP may be in several look-ups, and its QPN is not held.
//! - Work caused by unknown senders is bounded by backlogs, by the limits of `uroce-cm` and by the
//!   outbox.
//!
//! Not here: messages, their states, timers and duplicates (`uroce-cm`); the effects of a Modify
//! QP.

mod active;
mod alternate;
mod common;
mod datagram;
mod end;
mod events;
mod failover;
mod listen;
mod look_up;
mod passive;
mod patience;
mod resolve;
mod seen;
mod terms;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use uroce_cm::{ConnId, MadAddr, MadDrop, State};
use uroce_engine::EventKind;
use uroce_transport::Instant;
use uroce_wire::Qpn;
use uroce_wire::cm::ServiceId;

use super::connection::{Connection, Stage};
use super::context::ServiceContext;
use super::outbox::Letter;
use super::{CmId, CmSink, ConnError, PortSpace};
use crate::call::{Count, RequestError};
use crate::gsi::{Arrived, GSI};
pub(crate) use common::Common;
use common::Tally;
pub(crate) use failover::Proposal;
use look_up::LookUp;
pub(crate) use seen::ConnSeen;

/// Largest number of listeners, connections and look-ups of a device, including those that are
/// ending.
const IDS_MAX: usize = 131_072;

/// Listeners, connections and look-ups of a device, and the protocol behind them.
#[derive(Debug)]
pub(crate) struct Service {
    connections: HashMap<CmId, Connection>,
    /// Paths that applications are looking up.
    look_ups: Vec<LookUp>,
    common: Common,
}

impl Service {
    /// Creates the service of a device. `ca_guid` is the GUID of its channel adapter. `seed` must
    /// be secret.
    pub(crate) fn new(ca_guid: u64, seed: [u8; 16]) -> Service {
        let common = Common::new(ca_guid, seed);
        Service { connections: HashMap::new(), look_ups: Vec::new(), common }
    }

    /// Handles a received message of connection management.
    pub(crate) fn handle_mad(&mut self, arrived: &Arrived, context: &mut ServiceContext<'_>) {
        let handled = self.common.cm.handle_mad(context.now, &from(arrived), &arrived.mad);
        // `uroce-cm` counts the messages that it drops.
        if let Err(reason) = handled {
            tracing::debug!(src = ?arrived.src, reason = reason.name(), "CM message dropped");
        }
        // Events are handled before the next message, which may end a connection that this message
        // began.
        self.take_events(context);
    }

    /// Handles an event of a QP that its lcore has reported.
    pub(crate) fn notice(&mut self, qpn: Qpn, kind: EventKind, context: &mut ServiceContext<'_>) {
        let Some(id) = self.common.by_qpn.get(&qpn).copied() else { return };
        if kind == EventKind::PeerLost {
            return self.peer_lost(id, context);
        }
        self.with_known(id, |connection, common| match kind {
            EventKind::CommEst => connection.communication_established(common),
            EventKind::PathMig => connection.path_migrated(common),
            _ => {}
        });
    }

    /// Returns whether the connection of a QP that the application modifies has agreed on selective
    /// repeat with the peer's QP `dest`. `None` if the QP has no connection, or if the connection
    /// is over or has no agreed parameters yet.
    //= check A28 — a QP follows its connection, also if the application modifies the QP
    pub(crate) fn agreement(&self, qpn: Qpn, dest: Option<Qpn>) -> Option<bool> {
        let id = self.common.by_qpn.get(&qpn)?;
        let agreed = self.connections.get(id).filter(|connection| !connection.is_over)?.agreed?;
        Some(agreed.selective_repeat && dest == Some(agreed.peer_qpn))
    }

    /// Returns the idle time, in milliseconds, of the keepalive of a QP that the application
    /// connects to the peer's QP `dest`. `None` if the QP has no connection to `dest`.
    pub(crate) fn keepalive_ms(
        &self,
        qpn: Qpn,
        dest: Option<Qpn>,
        context: &ServiceContext<'_>,
    ) -> Option<u32> {
        let id = self.common.by_qpn.get(&qpn)?;
        let connection = self.connections.get(id).filter(|connection| !connection.is_over)?;
        let is_peer = dest == Some(connection.agreed?.peer_qpn);
        is_peer.then(|| connection.keepalive_ms(context))
    }

    /// Handles timers, resolved neighbours, and events and messages of `uroce-cm`. Called after
    /// inputs and whenever [`next_timeout`](Self::next_timeout) has passed.
    pub(crate) fn turn(&mut self, context: &mut ServiceContext<'_>) {
        if self.common.cm.next_timeout().is_some_and(|due| due <= context.now) {
            self.common.cm.handle_timeout(context.now);
        }
        self.resolve_waiting(context);
        self.step_look_ups(context);
        self.ask_for_patience(context);
        self.take_events(context);
        let Common { cm, outbox, .. } = &mut self.common;
        outbox.resume(context);
        while let Some((to, mad)) = cm.poll_transmit() {
            outbox.post(Letter { addr: to, to: GSI, mad }, context);
        }
    }

    fn take_events(&mut self, context: &mut ServiceContext<'_>) {
        while let Some((conn, event)) = self.common.cm.poll_event() {
            self.handle_event(conn, event, context);
        }
    }

    /// Returns the time at which [`turn`](Self::turn) has work to do without an input.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let patience = self.common.unanswered.front().map(|(due, _)| *due);
        let look_ups = self.look_ups.iter().map(LookUp::due);
        self.common.cm.next_timeout().into_iter().chain(patience).chain(look_ups).min()
    }

    /// Tells whether a connection waits for the DREP to its DREQ.
    pub(crate) fn is_disconnecting(&self) -> bool {
        let waits = |conn: &ConnId| self.common.cm.state(*conn) == Some(State::DreqSent);
        self.common.by_conn.keys().any(waits)
    }

    /// Tells whether MADs wait for their neighbour's address or for room in a port's queue.
    pub(crate) fn has_mail(&self) -> bool {
        !self.common.outbox.is_empty()
    }

    /// Sends a MAD to the source of a received one.
    pub(crate) fn answer_mad(&mut self, arrived: &Arrived, context: &mut ServiceContext<'_>) {
        let addr = from(arrived).reversed();
        let letter = Letter { addr, to: arrived.src_qpn, mad: arrived.mad };
        self.common.outbox.post(letter, context);
    }

    /// Returns all counters of the service and of `uroce-cm`.
    pub(crate) fn counts(&self) -> Vec<Count> {
        let counters = self.common.cm.counters();
        let drop = |reason: &MadDrop| {
            let description = "A message of connection management dropped, by reason.";
            Count::new(reason.name(), description, counters.dropped(*reason))
        };
        let mut counts: Vec<Count> = MadDrop::ALL.iter().map(drop).collect();
        counts.extend(self.common.counts());
        let connections = self.connections.len() as u64;
        counts.extend([
            Count::new(
                "cm_retransmitted",
                "A message sent again because no answer came.",
                counters.retransmitted,
            ),
            Count::new(
                "cm_evicted",
                "A peer's request given up to make room for others.",
                counters.evicted,
            ),
            Count::new(
                "cm_tx_overflow",
                "A message dropped: the send queue was full.",
                counters.tx_overflow,
            ),
            Count::new(
                "cm_connections",
                "Connections, including those that are ending.",
                connections,
            ),
        ]);
        counts
    }

    fn new_id(&mut self) -> Result<CmId, ConnError> {
        self.check_room()?;
        Ok(self.common.next_id())
    }

    fn check_room(&self) -> Result<(), ConnError> {
        let ids = self.common.listeners.len() + self.connections.len() + self.look_ups.len();
        if ids < IDS_MAX { Ok(()) } else { Err(ConnError::TooMany) }
    }

    /// Runs an application's call on a connection.
    ///
    /// # Errors
    ///
    /// [`ConnError::UnknownId`] if the id does not exist or the application has destroyed it.
    /// Otherwise the error of `call`.
    pub(crate) fn call<R>(
        &mut self,
        id: CmId,
        call: impl FnOnce(&mut Connection, &mut Common) -> Result<R, RequestError>,
    ) -> Result<R, RequestError> {
        let unknown = || ConnError::UnknownId(id).into();
        match self.connections.get(&id) {
            Some(connection) if !connection.is_orphan => {
                self.with(id, call).unwrap_or_else(|| Err(unknown()))
            }
            _ => Err(unknown()),
        }
    }

    /// Runs `step` on a connection that an index of the service names. If the connection does not
    /// exist, the index is wrong: this is logged and counted.
    fn with_known(&mut self, id: CmId, step: impl FnOnce(&mut Connection, &mut Common)) {
        if self.with(id, step).is_none() {
            tracing::error!(id = id.0, "an index names a connection that does not exist");
            self.common.count(Tally::NotFound);
        }
    }

    /// Runs `step` on connection `id`; returns `None` if there is none. Removes the connection if
    /// it is finished afterwards.
    fn with<R>(
        &mut self,
        id: CmId,
        step: impl FnOnce(&mut Connection, &mut Common) -> R,
    ) -> Option<R> {
        let Entry::Occupied(mut entry) = self.connections.entry(id) else { return None };
        let result = step(entry.get_mut(), &mut self.common);
        entry.get_mut().log_transition(&self.common);
        if entry.get().is_finished() {
            entry.remove();
        }
        Some(result)
    }

    /// Moves an id's events, including those that wait, to another channel.
    pub(crate) fn set_channel(
        &mut self,
        id: CmId,
        channel: Arc<dyn CmSink>,
    ) -> Result<(), RequestError> {
        match self.common.listeners.get_mut(&id) {
            Some(listener) => move_events(id, &mut listener.channel, channel),
            None => self.call(id, |connection, common| {
                move_events(id, &mut connection.channel, channel);
                // An application that moves a request has taken it: the request leaves the backlog,
                // and destroying the listener does not reject it.
                if connection.stage(&common.cm) == Stage::Requested {
                    connection.leave_backlog(common);
                }
                Ok(())
            })?,
        }
        Ok(())
    }
}

/// Replaces the channel of an id. The events that wait in the former one move to the new one.
fn move_events(id: CmId, place: &mut Arc<dyn CmSink>, channel: Arc<dyn CmSink>) {
    let former = std::mem::replace(place, Arc::clone(&channel));
    if !Arc::ptr_eq(&former, &channel) {
        former.take_of(id).into_iter().for_each(|event| channel.give(id, event));
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
        PortSpace::Ib => ServiceId::ib(port),
    }
}

/// Checks that private data fits into its field of a message, and pads it to the field's length.
fn private_data<const MAX: usize>(
    bytes: &[u8],
) -> Result<uroce_wire::cm::PrivateData<MAX>, ConnError> {
    uroce_wire::cm::PrivateData::new(bytes)
        .map_err(|_| ConnError::PrivateData { len: bytes.len(), max: MAX })
}
