//! The communication manager: what all messages and wishes have in common.
//!
//! A wish of the consumer is checked against the state table, changes the connection, and sends
//! ([`connect`], [`disconnect`], [`migrate`], [`sidr`]); a message of a peer does the same
//! ([`receive`]); what stays unanswered is repeated or given up ([`timeout`]).

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
    /// A communication manager without listeners and connections.
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

    /// Requests for `service_id` are told as [`CmEvent::Request`] or [`CmEvent::SidrRequest`] from
    /// now on. At most `backlog` of them wait for an answer of the consumer; what comes beyond is
    /// refused.
    ///
    /// # Errors
    /// [`CmError::ServiceInUse`].
    pub fn listen(&mut self, service_id: ServiceId, backlog: usize) -> Result<(), CmError> {
        if self.table.listeners.contains_key(&service_id) {
            return Err(CmError::ServiceInUse(service_id));
        }
        self.table.listen(service_id, backlog);
        Ok(())
    }

    /// No more requests for `service_id`. Those that were told stay to be answered.
    ///
    /// # Errors
    /// [`CmError::NotListening`].
    pub fn unlisten(&mut self, service_id: ServiceId) -> Result<(), CmError> {
        let listener = self.table.listeners.remove(&service_id);
        listener.map(|_| ()).ok_or(CmError::NotListening(service_id))
    }

    /// The next message to send, from `src` to `dst` by `port`, if there is one.
    pub fn poll_transmit(&mut self) -> Option<(MadAddr, Mad)> {
        self.out.pop_front()
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<(ConnId, CmEvent)> {
        self.events.pop_front()
    }

    /// When [`Cm::handle_timeout`] is to be called, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.table.next_timeout()
    }

    /// State of a connection; [`None`] once it is over.
    pub fn state(&self, id: ConnId) -> Option<State> {
        self.table.get(id).map(|conn| conn.state)
    }

    /// How far the loading of an alternate path is: our proposal, the peer's proposal.
    pub fn lap_state(&self, id: ConnId) -> Option<(LapState, LapState)> {
        self.table.get(id).map(|conn| (conn.lap_out, conn.lap_in))
    }

    /// The primary path of a connection and its alternate path, as far as messages told.
    pub fn paths(&self, id: ConnId) -> Option<(Path, Option<Path>)> {
        self.table.get(id).map(|conn| (conn.primary, conn.alternate))
    }

    /// The peer's queue pair, once a REQ or REP has named it.
    pub fn remote_qpn(&self, id: ConnId) -> Option<Qpn> {
        self.table.get(id).and_then(|conn| conn.remote_qpn)
    }

    /// Is the queue pair part of a connection, or in TimeWait after one? Then its number must not
    /// be given to another queue pair.
    pub fn holds_qpn(&self, qpn: Qpn) -> bool {
        //= check J9 — a QPN is held until the TimeWait of its last connection is over.
        self.table.by_qpn(qpn).is_some()
    }

    /// Connections in any state, and questions.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections that peers began and that are not established.
    pub fn half_open(&self) -> usize {
        self.table.half_open().len()
    }

    /// What was sent, received and left aside so far.
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// A start PSN that strangers cannot guess.
    pub fn starting_psn(&mut self) -> Psn {
        //= check J14 — start PSNs, communication and transaction IDs come from a keyed generator.
        Psn::new(self.random.next() as u32)
    }

    /// A communication ID that is not in use, and not 0.
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
            self.counters.tx_overflow += 1; // As if the network had lost it.
        }
    }

    /// Sends a message of a connection that is repeated until it is answered.
    fn send_repeated(&mut self, now: Instant, id: ConnId, message: Message) {
        let new_transaction = self.random.next();
        let sent = self.table.update(id, |conn| {
            // An answer belongs to the transaction of what it answers.
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

    /// Sends an answer of a connection, and keeps it for copies of what it answers.
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

    /// Gives the answer once more, if there is one.
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

    /// A REJ that says we waited in vain, or do not wait any longer. The peer may not know our
    /// communication ID's counterpart, so our adapter is named beside.
    fn send_rej_timeout(&mut self, id: ConnId, data: PrivateData<148>) {
        let guid = self.config.ca_guid.0.to_be_bytes();
        self.send_rej(id, RejectReason::TIMEOUT, &guid, data);
    }

    fn tell(&mut self, id: ConnId, event: CmEvent) {
        if self.table.get(id).is_some_and(|conn| !conn.is_destroyed) {
            self.events.push_back((id, event));
        }
    }

    /// The state after an event, for a wish of the consumer.
    fn wish(&self, id: ConnId, event: Event) -> Result<State, CmError> {
        let conn = self.table.get(id).filter(|conn| !conn.is_destroyed);
        let state = conn.ok_or(CmError::UnknownId)?.state;
        state.after(event).ok_or(CmError::State(state))
    }

    /// The connection is over: Idle or TimeWait, as the table has it.
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

    /// The id is over.
    fn release(&mut self, id: ConnId) {
        self.tell(id, CmEvent::Released);
        self.table.remove(id);
    }
}

impl Conn {
    /// Of the last message of ours, or of the peer's that is to be answered.
    fn transaction(&self) -> u64 {
        self.repeated.as_ref().map_or(self.asked, |repeated| repeated.transaction)
    }
}

/// A REJ without private data.
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

/// A range that a message has bits for.
fn check_range(name: &'static str, value: u8, max: u8) -> Result<(), CmError> {
    if value <= max { Ok(()) } else { Err(CmError::OutOfRange(name)) }
}

fn check_path(path: &Path) -> Result<(), CmError> {
    check_range("service level", path.sl, 15)?;
    check_range("packet rate", path.packet_rate, 63)?;
    let fits = path.flow_label < 1 << 20;
    if fits { Ok(()) } else { Err(CmError::OutOfRange("flow label")) }
}

/// A peer's timeout, no longer than we let it be.
fn clamped(timeout: CmTimeout, max: CmTimeout) -> CmTimeout {
    timeout.min(max)
}
