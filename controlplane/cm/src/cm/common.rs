//! The parts of the manager that every connection uses, and the steps that its calls and messages
//! share.

use std::collections::VecDeque;

use uroce_transport::Instant;
use uroce_wire::Qpn;
use uroce_wire::cm::{CommId, Message, MessageRejected, PrivateData, Rej, RejectReason};
use uroce_wire::mad::Mad;

use super::rej;
use crate::conn::{Answer, Conn, Kind, Repeated};
use crate::random::Generator;
use crate::state::{Event, State};
use crate::{CloseReason, CmConfig, CmCounters, CmError, CmEvent, ConnId, MadAddr, MadDrop};

/// The parts of the manager that every connection uses: limits, random numbers, queues, counters.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) config: CmConfig,
    pub(super) random: Generator,
    pub(super) out: VecDeque<(MadAddr, Mad)>,
    pub(super) events: VecDeque<(ConnId, CmEvent)>,
    pub(super) counters: CmCounters,
    /// The EE context of a channel that has just ended, and when: what depends on it ends, too.
    pub(super) ended: Option<(Instant, Qpn)>,
}

impl Common {
    pub(super) fn new(config: CmConfig) -> Common {
        Common {
            config,
            random: Generator::new(config.seed),
            out: VecDeque::new(),
            events: VecDeque::new(),
            counters: CmCounters::default(),
            ended: None,
        }
    }

    pub(super) fn send(&mut self, addr: MadAddr, message: &Message, transaction: u64) {
        if self.out.len() < self.config.limits.queue {
            self.counters.count_sent(message.attribute());
            self.out.push_back((addr, message.emit(transaction)));
        } else {
            self.counters.tx_overflow += 1; // The peer repeats its message, as after a loss.
        }
    }

    /// Answers a message that belongs to no connection with a REJ. `ids` are the receiver's and the
    /// sender's communication ID as the message has them.
    pub(super) fn refuse(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        ids: (CommId, CommId),
        message: MessageRejected,
        reason: RejectReason,
        ari: &[u8],
    ) -> MadDrop {
        let rej = rej(ids.0, ids.1, message, reason, ari);
        self.send(addr.reversed(), &Message::Rej(rej), transaction);
        MadDrop::Refused
    }
}

impl Conn {
    /// Sends a message of the connection and repeats it until it is answered.
    pub(super) fn send_repeated(&mut self, now: Instant, message: Message, common: &mut Common) {
        let new_transaction = common.random.next();
        // An answer carries the transaction ID of the message it answers.
        let is_answer = matches!(message, Message::Rep(_));
        let transaction = if is_answer { self.asked } else { new_transaction };
        self.deadline = Some(now + self.interval);
        self.answer = None;
        let left = self.max_retries;
        self.repeated = Some(Repeated { message: Box::new(message), transaction, left });
        common.send(self.addr, &message, transaction);
    }

    /// Sends an answer of the connection and keeps it, to send it again if the peer repeats its
    /// message.
    pub(super) fn send_answer(&mut self, message: Message, common: &mut Common) {
        let transaction = self.asked;
        self.answer = Some(Answer { message: Box::new(message), transaction });
        common.send(self.addr, &message, transaction);
    }

    /// Sends the kept answer of the connection again, if there is one.
    pub(super) fn answer_again(&self, common: &mut Common) -> MadDrop {
        if let Some(answer) = &self.answer {
            common.send(self.addr, &answer.message, answer.transaction);
        }
        MadDrop::Duplicate
    }

    /// Sends a REJ of the connection.
    pub(super) fn send_rej(
        &self,
        reason: RejectReason,
        ari: &[u8],
        data: PrivateData<148>,
        common: &mut Common,
    ) {
        let message = match self.state {
            State::ReqRcvd | State::MraReqSent => MessageRejected::Req,
            State::RepRcvd | State::MraRepSent => MessageRejected::Rep,
            _ => MessageRejected::Other,
        };
        let rej = rej(self.local_comm, self.remote_comm_or_none(), message, reason, ari);
        let message = Message::Rej(Rej { private_data: data, ..rej });
        common.send(self.addr, &message, self.transaction());
    }

    /// Sends a REJ with reason timeout. It carries our CA GUID, because the peer may not have
    /// received our communication ID yet.
    pub(super) fn send_rej_timeout(&self, data: PrivateData<148>, common: &mut Common) {
        let guid = common.config.ca_guid.0.to_be_bytes();
        self.send_rej(RejectReason::TIMEOUT, &guid, data, common);
    }

    /// Reports an event, unless the consumer has destroyed the id.
    pub(super) fn tell(&self, event: CmEvent, common: &mut Common) {
        if !self.is_destroyed {
            common.events.push_back((self.id, event));
        }
    }

    /// Returns the state that follows a consumer's call, or why the call is refused.
    pub(super) fn wish(&self, event: Event) -> Result<State, CmError> {
        self.state.after(event).ok_or(CmError::State(self.state))
    }

    /// Ends the connection: it moves to Idle or TimeWait, as the state table says.
    pub(super) fn close(
        &mut self,
        now: Instant,
        event: Event,
        reason: CloseReason,
        common: &mut Common,
    ) {
        let Some(next) = self.state.after(event) else { return };
        self.state = next;
        self.repeated = None;
        self.lap_deadline = None;
        self.drop_laps();
        self.deadline = Some(now + self.time_wait);
        if !std::mem::replace(&mut self.is_closed, true) {
            self.tell(CmEvent::Closed(reason), common);
            common.ended = self.held_number().filter(|_| self.kind == Kind::Rdc).map(|n| (now, n));
        }
        if next == State::Idle {
            self.release(common);
        }
    }

    /// Reports [`CmEvent::Released`]. The table removes the connection.
    pub(super) fn release(&mut self, common: &mut Common) {
        self.tell(CmEvent::Released, common);
        self.is_released = true;
    }

    /// Returns the transaction ID of our repeated message, else of the peer's message to be
    /// answered.
    fn transaction(&self) -> u64 {
        self.repeated.as_ref().map_or(self.asked, |repeated| repeated.transaction)
    }
}
