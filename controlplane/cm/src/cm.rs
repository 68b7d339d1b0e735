//! The communication manager and what its calls and message handlers share.
//!
//! A consumer's call is checked against the state table, changes the connection and sends a message
//! ([`connect`], [`disconnect`], [`migrate`], [`sidr`]). A received message takes the same steps
//! ([`receive`]). An unanswered message is repeated, then given up ([`timeout`]).

mod connect;
mod disconnect;
mod migrate;
mod receive;
mod sidr;
mod timeout;

use std::collections::VecDeque;

use uroce_transport::Instant;
use uroce_wire::cm::{
    CmTimeout, CommId, Message, MessageRejected, PrivateData, Rej, RejectReason, ServiceId,
};
use uroce_wire::mad::Mad;
use uroce_wire::{Psn, Qpn};

use crate::conn::{Answer, Conn, Repeated};
use crate::random::Generator;
use crate::state::{Event, State};
use crate::table::Table;
use crate::{
    CloseReason, CmConfig, CmCounters, CmError, CmEvent, ConnId, LapState, MadAddr, MadDrop, Path,
};

/// The communication manager of one device; see the [crate]'s documentation.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    random: Generator,
    table: Table,
    out: VecDeque<(MadAddr, Mad)>,
    events: VecDeque<(ConnId, CmEvent)>,
    counters: CmCounters,
}

impl Cm {
    /// Creates a communication manager without listeners and connections.
    pub fn new(config: CmConfig) -> Cm {
        Cm {
            config,
            random: Generator::new(config.seed),
            table: Table::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            counters: CmCounters::default(),
        }
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
        self.out.pop_front()
    }

    /// Takes the oldest event that has not been read.
    pub fn poll_event(&mut self) -> Option<(ConnId, CmEvent)> {
        self.events.pop_front()
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

    /// Returns the peer's QPN, which a REQ or REP carries; [`None`] before that.
    pub fn remote_qpn(&self, id: ConnId) -> Option<Qpn> {
        self.table.get(id).and_then(|conn| conn.remote_qpn)
    }

    /// Tells whether a QPN is held: its queue pair is part of a connection, or in TimeWait after
    /// one. A held QPN must not be given to another queue pair.
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
        &self.counters
    }

    /// Draws a starting PSN that an attacker cannot guess.
    pub fn starting_psn(&mut self) -> Psn {
        //= check J14 — start PSNs, communication and transaction IDs come from a keyed generator.
        Psn::new(self.random.next() as u32)
    }

    /// Draws a communication ID that is not in use and not 0.
    fn comm_id(&mut self) -> CommId {
        loop {
            let comm = CommId(self.random.next() as u32);
            if comm.0 != 0 && self.table.by_comm(comm).is_none() {
                return comm;
            }
        }
    }

    fn send(&mut self, addr: MadAddr, message: &Message, transaction: u64) {
        if self.out.len() < self.config.limits.queue {
            self.counters.count_sent(message.attribute());
            self.out.push_back((addr, message.emit(transaction)));
        } else {
            self.counters.tx_overflow += 1; // The peer repeats its message, as after a loss.
        }
    }

    /// Sends a message of a connection and repeats it until it is answered.
    fn send_repeated(&mut self, now: Instant, id: ConnId, message: Message) {
        let new_transaction = self.random.next();
        let sent = self.table.update(id, |conn| {
            // An answer carries the transaction ID of the message it answers.
            let is_answer = matches!(message, Message::Rep(_));
            let transaction = if is_answer { conn.asked } else { new_transaction };
            conn.deadline = Some(now + conn.interval);
            conn.answer = None;
            let message = Box::new(message);
            conn.repeated = Some(Repeated { message, transaction, left: conn.max_retries });
            (conn.addr, transaction)
        });
        if let Some((addr, transaction)) = sent {
            self.send(addr, &message, transaction);
        }
    }

    /// Sends an answer of a connection and keeps it, to send it again if the peer repeats its
    /// message.
    fn send_answer(&mut self, id: ConnId, message: Message) {
        let sent = self.table.update(id, |conn| {
            let transaction = conn.asked;
            conn.answer = Some(Answer { message: Box::new(message), transaction });
            (conn.addr, transaction)
        });
        if let Some((addr, transaction)) = sent {
            self.send(addr, &message, transaction);
        }
    }

    /// Sends the kept answer of a connection again, if there is one.
    fn answer_again(&mut self, id: ConnId) -> MadDrop {
        let found = self.table.get(id).and_then(|conn| {
            let answer = conn.answer.as_ref()?;
            Some((conn.addr, *answer.message, answer.transaction))
        });
        if let Some((addr, message, transaction)) = found {
            self.send(addr, &message, transaction);
        }
        MadDrop::Duplicate
    }

    /// Sends a REJ of a connection.
    fn send_rej(&mut self, id: ConnId, reason: RejectReason, ari: &[u8], data: PrivateData<148>) {
        let Some(conn) = self.table.get(id) else { return };
        let message = match conn.state {
            State::ReqRcvd | State::MraReqSent => MessageRejected::Req,
            State::RepRcvd | State::MraRepSent => MessageRejected::Rep,
            _ => MessageRejected::Other,
        };
        let rej = rej(conn.local_comm, conn.remote_comm_or_none(), message, reason, ari);
        let (addr, transaction) = (conn.addr, conn.transaction());
        self.send(addr, &Message::Rej(Rej { private_data: data, ..rej }), transaction);
    }

    /// Sends a REJ with reason timeout. It carries our CA GUID, because the peer may not have
    /// received our communication ID yet.
    fn send_rej_timeout(&mut self, id: ConnId, data: PrivateData<148>) {
        let guid = self.config.ca_guid.0.to_be_bytes();
        self.send_rej(id, RejectReason::TIMEOUT, &guid, data);
    }

    fn tell(&mut self, id: ConnId, event: CmEvent) {
        if self.table.get(id).is_some_and(|conn| !conn.is_destroyed) {
            self.events.push_back((id, event));
        }
    }

    /// Returns the state that follows a consumer's call, or why the call is refused.
    fn wish(&self, id: ConnId, event: Event) -> Result<State, CmError> {
        let conn = self.table.get(id).filter(|conn| !conn.is_destroyed);
        let state = conn.ok_or(CmError::UnknownId)?.state;
        state.after(event).ok_or(CmError::State(state))
    }

    /// Ends a connection: it moves to Idle or TimeWait, as the state table says.
    fn close(&mut self, now: Instant, id: ConnId, event: Event, reason: CloseReason) {
        let next = self.table.get(id).and_then(|conn| conn.state.after(event));
        let Some(next) = next else { return };
        let was_closed = self.table.update(id, |conn| {
            conn.state = next;
            conn.repeated = None;
            conn.lap_deadline = None;
            conn.drop_laps();
            conn.deadline = Some(now + conn.time_wait);
            std::mem::replace(&mut conn.is_closed, true)
        });
        if was_closed == Some(false) {
            self.tell(id, CmEvent::Closed(reason));
        }
        if next == State::Idle {
            self.release(id);
        }
    }

    /// Reports [`CmEvent::Released`] and removes the connection.
    fn release(&mut self, id: ConnId) {
        self.tell(id, CmEvent::Released);
        self.table.remove(id);
    }
}

impl Conn {
    /// Returns the transaction ID of our repeated message, else of the peer's message to be
    /// answered.
    fn transaction(&self) -> u64 {
        self.repeated.as_ref().map_or(self.asked, |repeated| repeated.transaction)
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
