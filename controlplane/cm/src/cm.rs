//! The communication manager and what its calls and message handlers share.
//!
//! A consumer's call is checked against the state table, changes the connection and sends a message
//! ([`connect`], [`disconnect`], [`migrate`], [`sidr`]). A received message takes the same steps
//! ([`receive`]). An unanswered message is repeated, then given up ([`timeout`]).
//!
//! Each of these looks its connection up once ([`Cm::call`], [`Cm::with`]). What follows are
//! methods of [`Conn`], which use the other parts of the manager as [`Common`].

mod common;
mod connect;
mod disconnect;
mod migrate;
mod receive;
mod sidr;
mod timeout;

use uroce_transport::Instant;
use uroce_wire::cm::{CmTimeout, CommId, MessageRejected, Rej, RejectReason, ServiceId};
use uroce_wire::mad::Mad;
use uroce_wire::{Psn, Qpn};

use crate::conn::{Conn, Kind};
use crate::state::State;
use crate::table::Table;
use crate::{CmConfig, CmCounters, CmError, CmEvent, ConnId, LapState, MadAddr, Path, RdEnd};
use common::Common;

/// The communication manager of one device; see the [crate]'s documentation.
#[derive(Debug)]
pub struct Cm {
    table: Table,
    common: Common,
}

impl Cm {
    /// Creates a communication manager without listeners and connections.
    pub fn new(config: CmConfig) -> Cm {
        Cm { table: Table::default(), common: Common::new(config) }
    }

    /// Starts to report requests for `service_id` as [`CmEvent::Request`] or
    /// [`CmEvent::SidrRequest`]. At most `backlog` of them wait for the consumer's answer; further
    /// requests are refused.
    ///
    /// # Errors
    /// [`CmError::ServiceInUse`] if `service_id` has a listener already.
    pub fn listen(&mut self, service_id: ServiceId, backlog: usize) -> Result<(), CmError> {
        if self.table.listeners.contains_key(&service_id) {
            return Err(CmError::ServiceInUse(service_id));
        }
        self.table.listen(service_id, backlog);
        Ok(())
    }

    /// Stops listening for `service_id`. Requests already reported still have to be answered.
    ///
    /// # Errors
    /// [`CmError::NotListening`] if `service_id` has no listener.
    pub fn unlisten(&mut self, service_id: ServiceId) -> Result<(), CmError> {
        let listener = self.table.listeners.remove(&service_id);
        listener.map(|_| ()).ok_or(CmError::NotListening(service_id))
    }

    /// Takes the next message to send. It goes out by port `port` of the address, from `src` to
    /// `dst`.
    pub fn poll_transmit(&mut self) -> Option<(MadAddr, Mad)> {
        self.common.out.pop_front()
    }

    /// Takes the oldest event that has not been read.
    pub fn poll_event(&mut self) -> Option<(ConnId, CmEvent)> {
        self.common.events.pop_front()
    }

    /// Returns the earliest deadline: the time at which [`Cm::handle_timeout`] has to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.table.next_timeout()
    }

    /// Returns the state of a connection; [`None`] once its id is released.
    pub fn state(&self, id: ConnId) -> Option<State> {
        self.table.get(id).map(|conn| conn.state)
    }

    /// Returns the progress of loading an alternate path: of our LAP, and of the peer's LAP.
    pub fn lap_state(&self, id: ConnId) -> Option<(LapState, LapState)> {
        self.table.get(id).map(|conn| (conn.lap_out, conn.lap_in))
    }

    /// Returns the primary and the alternate path of a connection, as agreed by messages so far.
    pub fn paths(&self, id: ConnId) -> Option<(Path, Option<Path>)> {
        self.table.get(id).map(|conn| (conn.primary, conn.alternate))
    }

    /// Returns the peer's QPN, which a REQ or REP carries; [`None`] before that. Of reliable
    /// datagrams: its RD queue pair to send to, if it has named one.
    pub fn remote_qpn(&self, id: ConnId) -> Option<Qpn> {
        let named = self.table.get(id).and_then(|conn| conn.remote_qpn);
        named.filter(|qpn| qpn.value() != 0)
    }

    /// Returns the peer's EE context, and the Q_Key of its RD queue pair, which a REQ or REP
    /// carries; [`None`] before that, and of another service than reliable datagrams.
    pub fn remote_rd(&self, id: ConnId) -> Option<RdEnd> {
        self.table.get(id).and_then(|conn| conn.remote_rd)
    }

    /// Tells whether both sides have agreed on selective repeat: a REQ has offered it, and the REP
    /// has accepted it. `false` before the REP.
    pub fn selective_repeat(&self, id: ConnId) -> bool {
        self.table.get(id).is_some_and(|conn| conn.agreed.has_selective_repeat())
    }

    /// Tells whether a QPN is held: its queue pair, or the EE context of this number, is part of a
    /// connection, or in TimeWait after one. A held number must not be given to another queue pair
    /// or EE context. RD queue pairs are held by no connection.
    pub fn holds_qpn(&self, qpn: Qpn) -> bool {
        //= check J9 — a QPN is held until the TimeWait of its last connection is over.
        self.table.by_qpn(qpn).is_some()
    }

    /// Returns the number of ids in use: connections in any state, and service ID resolutions.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Tells whether no id is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of connections that a peer began and that are not yet established.
    pub fn half_open(&self) -> usize {
        self.table.half_open().len()
    }

    /// Returns the counters of messages sent, received and dropped.
    pub fn counters(&self) -> &CmCounters {
        &self.common.counters
    }

    /// Draws a starting PSN that an attacker cannot guess.
    pub fn starting_psn(&mut self) -> Psn {
        //= check J14 — start PSNs, communication and transaction IDs come from a keyed generator.
        Psn::new(self.common.random.next() as u32)
    }

    /// Draws a communication ID that is not in use and not 0.
    fn comm_id(&mut self) -> CommId {
        loop {
            let comm = CommId(self.common.random.next() as u32);
            if comm.0 != 0 && self.table.by_comm(comm).is_none() {
                return comm;
            }
        }
    }

    /// Runs a consumer's call on a connection.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] if the id does not exist or the consumer has destroyed it. Otherwise
    /// the error of `call`.
    fn call<R>(
        &mut self,
        id: ConnId,
        call: impl FnOnce(&mut Conn, &mut Common) -> Result<R, CmError>,
    ) -> Result<R, CmError> {
        match self.table.get(id) {
            Some(conn) if !conn.is_destroyed => {
                self.with(id, call).unwrap_or(Err(CmError::UnknownId))
            }
            _ => Err(CmError::UnknownId),
        }
    }

    /// Runs `step` on a connection if it exists. Removes the connection if it is released
    /// afterwards.
    fn with<R>(&mut self, id: ConnId, step: impl FnOnce(&mut Conn, &mut Common) -> R) -> Option<R> {
        let Cm { table, common } = self;
        let result = table.update(id, |conn| step(conn, common));
        if let Some((now, eecn)) = common.ended.take() {
            //= check R41 — what was agreed on for a channel ends with it
            for user in table.users(eecn) {
                table.update(user, |conn| conn.channel_ended(now, common));
            }
        }
        result
    }

    /// Returns the established connection that is the channel of EE context `eecn`.
    fn channel(&self, eecn: Qpn) -> Option<&Conn> {
        let conn = self.table.get(self.table.by_qpn(eecn)?)?;
        Some(conn).filter(|conn| conn.kind == Kind::Rdc && conn.state == State::Established)
    }
}

/// Builds a REJ without private data.
fn rej(
    local: CommId,
    remote: CommId,
    message: MessageRejected,
    reason: RejectReason,
    ari: &[u8],
) -> Rej {
    let mut rej =
        Rej { local_comm_id: local, remote_comm_id: remote, message, reason, ..Rej::default() };
    let len = ari.len().min(rej.ari.len());
    rej.ari[..len].copy_from_slice(&ari[..len]);
    rej.ari_len = len as u8;
    rej
}

/// Checks that a value fits the bits of its message field.
fn check_range(name: &'static str, value: u8, max: u8) -> Result<(), CmError> {
    if value <= max { Ok(()) } else { Err(CmError::OutOfRange(name)) }
}

fn check_path(path: &Path) -> Result<(), CmError> {
    check_range("service level", path.sl, 15)?;
    check_range("packet rate", path.packet_rate, 63)?;
    let fits = path.flow_label < 1 << 20;
    if fits { Ok(()) } else { Err(CmError::OutOfRange("flow label")) }
}

/// Returns a peer's timeout, limited to `max`.
fn clamped(timeout: CmTimeout, max: CmTimeout) -> CmTimeout {
    timeout.min(max)
}
