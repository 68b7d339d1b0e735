//! What is left of a requester's patience: retry counters and the two deadlines.
//!
//! What holds: progress reloads both counters; while an RNR wait runs, the ACK timer stands.

use uroce_wire::Psn;

use crate::attr::QpAttr;
use crate::time::Instant;
use crate::timer::{ack_timeout, rnr_timeout};

/// An `rnr_retry` of 7 means: without end.
const RNR_RETRY_FOREVER: u8 = 7;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Retry {
    transport_left: u8,
    rnr_left: u8,
    ack_deadline: Option<Instant>,
    rnr_deadline: Option<Instant>,
    /// The PSN for which an implied NAK has been acted upon; a repetition waits for the timer.
    implied_psn: Option<Psn>,
    /// The same of a PSN-sequence NAK: a responder gives one and then waits in silence, so a second
    /// one is a copy of the first.
    nak_psn: Option<Psn>,
}

impl Retry {
    pub(super) fn new(attr: &QpAttr) -> Retry {
        Retry { transport_left: attr.retry_cnt, rnr_left: attr.rnr_retry, ..Retry::default() }
    }

    /// The peer has taken something new; `outstanding` says whether more is on its way.
    //= check B4 — the retry counter reloads on progress
    pub(super) fn progress(&mut self, attr: &QpAttr, now: Instant, outstanding: bool) {
        self.transport_left = attr.retry_cnt;
        self.rnr_left = attr.rnr_retry;
        self.implied_psn = None;
        self.nak_psn = None;
        self.ack_deadline = None;
        if outstanding && self.rnr_deadline.is_none() {
            self.arm(attr, now);
        }
    }

    /// A request was sent: starts the ACK timer unless it is running.
    pub(super) fn arm(&mut self, attr: &QpAttr, now: Instant) {
        if self.ack_deadline.is_none() {
            self.ack_deadline = ack_timeout(attr.timeout).map(|timeout| now + timeout);
        }
    }

    /// Takes one transport retry and stops the ACK timer. False: none was left.
    //= check B3 — retry_cnt retries after the first transmission, then the error
    pub(super) fn charge(&mut self) -> bool {
        self.ack_deadline = None;
        match self.transport_left.checked_sub(1) {
            Some(left) => {
                self.transport_left = left;
                true
            }
            None => false,
        }
    }

    /// Is this implied NAK the first one for `psn` since the last progress or timeout?
    pub(super) fn first_implied(&mut self, psn: Psn) -> bool {
        self.implied_psn.replace(psn) != Some(psn)
    }

    /// Is this sequence NAK the first one for `psn` since the last progress or timeout?
    //= check A10 — a NAK that comes again is no new one
    pub(super) fn first_nak(&mut self, psn: Psn) -> bool {
        self.nak_psn.replace(psn) != Some(psn)
    }

    /// Takes one RNR retry and begins the wait of the peer's timer code. False: none was left.
    //= check B7 — rnr_retry retries, 7 without end
    //= check B9 — while it waits the ACK timer stands and retry_cnt is not charged
    pub(super) fn begin_rnr_wait(&mut self, attr: &QpAttr, now: Instant, code: u8) -> bool {
        if attr.rnr_retry != RNR_RETRY_FOREVER {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return false,
            }
        }
        self.ack_deadline = None;
        self.rnr_deadline = Some(now + rnr_timeout(code));
        true
    }

    pub(super) fn waits_for_receiver(&self) -> bool {
        self.rnr_deadline.is_some()
    }

    /// Ends an RNR wait that is over.
    pub(super) fn expire_rnr(&mut self, now: Instant) {
        if self.rnr_deadline.is_some_and(|deadline| deadline <= now) {
            self.rnr_deadline = None;
        }
    }

    /// Has the ACK timer run out? It then stands until it is armed anew.
    pub(super) fn expire_ack(&mut self, now: Instant) -> bool {
        let expired = self.ack_deadline.is_some_and(|deadline| deadline <= now);
        if expired {
            self.ack_deadline = None;
            self.implied_psn = None;
            self.nak_psn = None;
        }
        expired
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.rnr_deadline.or(self.ack_deadline)
    }
}
