//! Agreement of two control planes on the alternate path of one QP: a pure function of state, input
//! and time.
//!
//! ```text
//!   initiator                                            responder
//!   OFFERING   ── OFFER: GIDs of other ports ──────────>  CHOOSING   finds a path to one of them
//!   RESOLVING  <─────────── ACCEPT: the path, token ────  ACCEPTED
//!   PROBING    ══ PROBE: token ════════════════════════>  LOADING    loads and arms the path
//!   LOADING    <══════════════════════════════ READY ═══  ARMING
//!   ARMING        loads and arms the path
//!
//!   ── by the path in use   ══ by the alternate path
//! ```
//!
//! The end with the smaller QPN is the initiator. A probe and its answer show that the alternate
//! path leads to the peer, in both directions, before either end is armed. The token is sent to the
//! address of the QP's peer only, so that a stranger that forges its address cannot go on.
//!
//! A message is repeated until it is answered, [`TRIES`] times at growing intervals. An initiator
//! with a peer that never answers gives up; one that has been refused tries again. An offer that
//! comes while the responder looks for a path, or holds the former one open, is refused.
//!
//! Invariants
//! - One timer is running at most.
//! - A message that is not part of the agreement changes nothing.
//!
//! Not here: the sender's address, ports and paths, the QP ([`super`]).

use std::time::Duration;

use uroce_transport::Instant;

use super::message::{Kind, Message, Refusal};
use super::state::{Action, Event, State, next};

/// Number of times that a message without an answer is sent.
const TRIES: u32 = 8;
/// Time before a message is sent again. It doubles each time.
const FIRST: Duration = Duration::from_millis(20);
/// Longest time between two messages about one offer.
const LONGEST: Duration = Duration::from_secs(1);
/// Longest time between two offers.
const RARE: Duration = Duration::from_secs(10);
/// Time before a responder without an offer asks for one.
const PATIENCE: Duration = Duration::from_millis(40);
/// Time before a responder asks for another offer because no probe has come. It is longer than all
/// tries of the initiator take.
const UNPROBED: Duration = Duration::from_secs(8);
/// Time before the first look at a QP that waits to be armed. It doubles each time, up to [`RARE`].
const LOOK: Duration = Duration::from_millis(5);
/// Number of packets that tell the peer of a migration.
const NUDGES: u32 = 5;
/// Shortest time between two offers of the peer that are taken, and between two calls.
const SPACED: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Reason for which a message changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutOfPlace {
    /// It belongs to another offer, or has another token.
    Stale,
    /// It is not expected now.
    Order,
    /// It is an offer that cannot be taken now: it is to be refused.
    Later,
}

/// The agreement on one QP's alternate path, at one end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Exchange {
    state: State,
    is_initiator: bool,
    /// Number of the present offer; 0 before the first.
    transaction: u64,
    token: u64,
    /// Whether the path is loaded by LAP.
    pub(super) is_by_lap: bool,
    /// Messages sent, or looks, since the state was entered.
    tries: u32,
    /// Offers in a row that have led to nothing.
    failures: u32,
    /// The peer has answered.
    has_answered: bool,
    due: Option<Instant>,
    /// Time before which no other path is agreed on.
    hold: Instant,
    /// Time before which the peer's next offer or call is not taken.
    spaced: Instant,
}

impl Exchange {
    /// Begins an agreement.
    pub(super) fn new(now: Instant, is_initiator: bool) -> Exchange {
        let due = if is_initiator { now } else { now + PATIENCE };
        Exchange {
            state: State::Idle,
            is_initiator,
            transaction: 0,
            token: 0,
            is_by_lap: false,
            tries: 0,
            failures: 0,
            has_answered: false,
            due: Some(due),
            hold: now,
            spaced: now,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// Number of messages sent, or of looks, since the present state was entered.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) has to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn is_initiator(&self) -> bool {
        self.is_initiator
    }

    /// Number of the present offer.
    pub(super) fn transaction(&self) -> u64 {
        self.transaction
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Handles the expiry of the timer. `fresh` is a random number.
    pub(super) fn handle_timeout(&mut self, now: Instant, fresh: u64) -> Option<Action> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        self.due = None;
        let is_asked = matches!(self.state, State::Offering | State::Probing | State::Calling);
        let event = match self.state {
            State::Moved if self.tries >= NUDGES => Event::Spent,
            _ if is_asked && self.tries >= TRIES => match self.has_answered {
                true => Event::Spent,
                false => Event::Silent,
            },
            State::Idle | State::Accepted if !self.is_initiator => Event::Ask,
            _ => Event::Due,
        };
        self.handle(now, event, fresh)
    }

    /// Handles a message from the peer, of which the addresses are checked. `fresh` is a random
    /// number.
    ///
    /// # Errors
    /// [`OutOfPlace`]; nothing has changed.
    pub(super) fn handle_message(
        &mut self,
        now: Instant,
        message: &Message,
        fresh: u64,
    ) -> Result<Option<Action>, OutOfPlace> {
        let Message { kind, transaction, token, is_by_lap, refusal, .. } = *message;
        let is_present = transaction == self.transaction;
        let is_for_role = match kind {
            Kind::Offer | Kind::Probe => !self.is_initiator,
            Kind::Accept | Kind::Refuse | Kind::Ready | Kind::Call => self.is_initiator,
        };
        if !is_for_role {
            return Err(OutOfPlace::Order);
        }
        let is_stale = match kind {
            Kind::Offer | Kind::Call => false,
            Kind::Accept | Kind::Refuse => !is_present,
            Kind::Probe | Kind::Ready => !is_present || token != self.token,
        };
        if is_stale {
            return Err(OutOfPlace::Stale);
        }
        if kind == Kind::Offer && is_present {
            return self.repeated_offer();
        }
        let event = match refusal {
            Some(Refusal::OfProgram) => Event::Declined,
            _ => Event::Got(kind),
        };
        let is_early = now < self.hold || now < self.spaced;
        match kind {
            Kind::Offer if is_early || next(self.state, event).is_none() => {
                return Err(OutOfPlace::Later);
            }
            Kind::Call if is_early => return Err(OutOfPlace::Order),
            _ if next(self.state, event).is_none() => return Err(OutOfPlace::Order),
            Kind::Offer => {
                (self.transaction, self.token, self.is_by_lap) = (transaction, fresh, is_by_lap);
                self.spaced = now + SPACED[0];
            }
            Kind::Call => self.spaced = now + SPACED[1],
            Kind::Accept => self.token = token,
            Kind::Refuse | Kind::Probe | Kind::Ready => {}
        }
        self.has_answered = true;
        Ok(self.handle(now, event, fresh))
    }

    /// Answers an offer that has come before.
    fn repeated_offer(&self) -> Result<Option<Action>, OutOfPlace> {
        match self.state {
            State::Accepted => Ok(Some(Action::Send(Kind::Accept))),
            State::Idle | State::Choosing | State::Loading => Err(OutOfPlace::Later),
            _ => Err(OutOfPlace::Order),
        }
    }

    /// Handles an event that is neither a message nor the timer. `fresh` is a random number.
    pub(super) fn handle(&mut self, now: Instant, event: Event, fresh: u64) -> Option<Action> {
        let (state, action) = next(self.state, event)?;
        let is_anew = matches!(event, Event::Got(Kind::Offer) | Event::Moved);
        let is_repeated = state == self.state && !is_anew;
        self.state = state;
        if event == Event::Moved {
            self.failures = 0;
        }
        if !is_repeated {
            self.tries = 0;
        }
        self.due = match action {
            Action::Send(Kind::Offer) => {
                if !is_repeated {
                    self.transaction = fresh;
                }
                Some(now + self.interval())
            }
            Action::Send(Kind::Probe | Kind::Call) | Action::Nudge => Some(now + self.interval()),
            Action::Wait => self.wait(now, event),
            Action::Loaded => Some(now + LOOK),
            Action::Look if state == State::Arming => {
                Some(now + (LOOK * (1 << self.tries.min(11))).min(RARE))
            }
            Action::Look => Some(now + RARE),
            Action::Armed => {
                self.failures = 0;
                None
            }
            // The answer to a repeated probe leaves the timer of the looks alone.
            Action::Send(Kind::Ready) => self.due.or(Some(now + LOOK)),
            Action::Send(Kind::Accept) => Some(now + UNPROBED),
            Action::Send(Kind::Refuse)
            | Action::Choose
            | Action::Resolve
            | Action::Load
            | Action::Stop => None,
        };
        self.tries = self.tries.saturating_add(1);
        Some(action)
    }

    /// Sets the time of the next look at an armed QP; `None`: there is none.
    pub(super) fn look_at(&mut self, due: Option<Instant>) {
        if self.state == State::Armed {
            self.due = due;
        }
    }

    /// Begins the looks at a QP that waits to be armed anew, because it may send from now on.
    pub(super) fn look_again(&mut self, now: Instant) {
        if self.state == State::Arming {
            (self.tries, self.due) = (0, Some(now + LOOK));
        }
    }

    /// Agrees on no other path before `until`.
    pub(super) fn hold(&mut self, until: Instant) {
        self.hold = until;
    }

    /// Stops the timer, because the QP handles no packets any more.
    pub(super) fn rest(&mut self) {
        self.due = None;
    }

    /// Postpones the timer, as long as the state stays.
    pub(super) fn postpone(&mut self, until: Instant) {
        self.due = self.due.map(|due| due.max(until));
    }

    /// Returns the time before a message is repeated.
    fn interval(&self) -> Duration {
        (FIRST * (1 << self.tries.min(10))).min(LONGEST)
    }

    /// Returns the time of the next offer after something that has led to nothing.
    fn wait(&mut self, now: Instant, event: Event) -> Option<Instant> {
        if event == Event::Again {
            self.failures = 0;
            return Some(now.max(self.hold));
        }
        let pause = (FIRST * (1 << self.failures.min(10))).min(RARE);
        self.failures = self.failures.saturating_add(1);
        self.is_initiator.then_some((now + pause).max(self.hold))
    }
}

#[cfg(test)]
mod tests;
