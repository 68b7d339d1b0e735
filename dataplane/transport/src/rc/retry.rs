//! What is left of a requester's patience: retry counters and the deadline.
//!
//! What holds: progress reloads both counters; while an RNR wait runs, the ACK timer stands.

use bitflags::bitflags;
use uroce_wire::Psn;

use crate::attr::Attributes;
use crate::time::Instant;
use crate::timer::{ack_timeout, rnr_timeout};

/// An `rnr_retry` of 7 means: without end.
const RNR_RETRY_FOREVER: u8 = 7;

//= check A20 — each QP has its own counters and deadlines; loss elsewhere does not reach them
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Retry {
    /// Of the ACK timer, or of the RNR wait.
    deadline: Deadline,
    /// The deadline is that of an RNR wait.
    waits_rnr: bool,
    /// Which NAKs for the oldest PSN have been acted upon.
    noted: Noted,
    transport_left: u8,
    rnr_left: u8,
    /// The end of what was outstanding when the sequence NAK was acted upon.
    nak_end: Psn,
    /// One past the newest PSN answered behind the gap that made the implied NAK.
    answered: Psn,
    /// When the peer took something new last; the origin of time: never.
    last_progress: Instant,
}

const _: () = assert!(size_of::<Retry>() == 32);

bitflags! {
    /// NAKs acted upon.
    #[derive(Clone, Copy, Default, Debug)]
    struct Noted: u8 {
        /// An implied one; a repetition waits for the timer.
        const IMPLIED = 1;
        /// One of the PSN sequence.
        const SEQUENCE = 1 << 1;
    }
}

/// A point in time that may not be set, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Deadline(Instant);

impl Deadline {
    /// The end of time.
    const NEVER: Deadline = Deadline(Instant::from_nanos(u64::MAX));

    fn get(self) -> Option<Instant> {
        (self != Deadline::NEVER).then_some(self.0)
    }

    fn is_due(self, now: Instant) -> bool {
        self != Deadline::NEVER && self.0 <= now
    }
}

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline::NEVER
    }
}

impl Retry {
    pub(super) fn new(attr: &Attributes) -> Retry {
        Retry { transport_left: attr.retry_cnt, rnr_left: attr.rnr_retry, ..Retry::default() }
    }

    /// The attributes of a drained QP have changed.
    pub(super) fn retune(&mut self, attr: &Attributes) {
        *self = Retry { last_progress: self.last_progress, ..Retry::new(attr) };
    }

    /// The counter of transport retries is full again, and the ACK timer stands.
    pub(super) fn reload(&mut self, attr: &Attributes) {
        let is_forgotten = seeded!(BudgetNotReloaded);
        self.transport_left = if is_forgotten { self.transport_left } else { attr.retry_cnt };
        self.noted = Noted::empty();
        self.stop_ack();
    }

    pub(super) fn last_progress(&self) -> Option<Instant> {
        (self.last_progress != Instant::ZERO).then_some(self.last_progress)
    }

    /// The peer has taken something new; `outstanding` says whether more is on its way.
    //= check B4 — the retry counter reloads on progress
    pub(super) fn progress(&mut self, attr: &Attributes, now: Instant, outstanding: bool) {
        self.transport_left =
            if seeded!(NoRetryReload) { self.transport_left } else { attr.retry_cnt };
        self.rnr_left = attr.rnr_retry;
        self.last_progress = now;
        self.noted = Noted::empty();
        self.stop_ack();
        if outstanding {
            self.arm(attr, now);
        }
    }

    /// A request was sent: starts the ACK timer unless it is running.
    //= check B1 — it runs for the whole timeout from the oldest unanswered packet or the last progress
    pub(super) fn arm(&mut self, attr: &Attributes, now: Instant) {
        if self.deadline == Deadline::NEVER
            && !seeded!(NoAckTimer)
            && let Some(timeout) = ack_timeout(attr.timeout)
        {
            let timeout = if seeded!(EarlyTimeout) { timeout / 2 } else { timeout };
            self.deadline = Deadline(now + timeout);
        }
    }

    /// Is the ACK timer yet to be started, or more than half over?
    pub(super) fn is_pressing(&self, attr: &Attributes, now: Instant) -> bool {
        let is_near = |timeout| self.deadline.0 <= now + timeout / 2;
        self.deadline == Deadline::NEVER || ack_timeout(attr.timeout).is_some_and(is_near)
    }

    /// Stops the ACK timer. An RNR wait goes on.
    fn stop_ack(&mut self) {
        if !self.waits_rnr {
            self.deadline = Deadline::NEVER;
        }
    }

    /// Takes one transport retry and stops the ACK timer. False: none was left.
    //= check B3 — retry_cnt retries after the first transmission, then the error
    pub(super) fn charge(&mut self) -> bool {
        self.stop_ack();
        match self.transport_left.checked_sub(1) {
            Some(left) => {
                self.transport_left = left;
                true
            }
            None => false,
        }
    }

    /// Is this implied NAK, by an answer up to `seen`, the first one since the last progress or
    /// timeout?
    ///
    /// As long as it goes on, one newer PSN after the other, the peer still answers what was asked
    /// before, a long READ perhaps, and then what is asked again: the ACK timer begins anew.
    pub(super) fn first_implied(&mut self, seen: Psn, attr: &Attributes, now: Instant) -> bool {
        let is_first = !self.noted.contains(Noted::IMPLIED);
        let is_newer = is_first || self.answered.is_before(seen);
        self.noted |= Noted::IMPLIED;
        if is_newer {
            self.answered = seen;
        }
        if is_newer && self.deadline != Deadline::NEVER {
            self.stop_ack();
            self.arm(attr, now);
        }
        is_first
    }

    /// Is this sequence NAK a copy of the one acted upon last? A responder gives one and then waits
    /// in silence, so a second one can be meant only when everything has been sent again.
    //= check A10 — a copy of a NAK is no new one
    //= check B5 — but after a full repetition it is, and charged
    pub(super) fn is_copy(&self, next_psn: Psn) -> bool {
        self.noted.contains(Noted::SEQUENCE) && next_psn.is_before(self.nak_end)
    }

    /// This sequence NAK is acted upon; `end_psn` is one past the newest PSN ever sent.
    pub(super) fn note_nak(&mut self, end_psn: Psn) {
        self.noted |= Noted::SEQUENCE;
        self.nak_end = end_psn;
    }

    /// Takes one RNR retry and begins the wait of the peer's timer code. False: none was left.
    //= check B7 — rnr_retry retries, 7 without end
    //= check B10 — counted apart from the transport retries
    //= check B9 — while it waits the ACK timer stands and retry_cnt is not charged
    pub(super) fn begin_rnr_wait(&mut self, attr: &Attributes, now: Instant, code: u8) -> bool {
        if attr.rnr_retry != RNR_RETRY_FOREVER {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return false,
            }
        }
        let code = if seeded!(RnrTableTypo) && code == 13 { 12 } else { code };
        self.deadline = Deadline(now + rnr_timeout(code));
        self.waits_rnr = true;
        true
    }

    pub(super) fn waits_for_receiver(&self) -> bool {
        self.waits_rnr
    }

    /// Ends an RNR wait that is over.
    pub(super) fn expire_rnr(&mut self, now: Instant) {
        if self.waits_rnr && self.deadline.is_due(now) {
            self.waits_rnr = false;
            self.deadline = Deadline::NEVER;
        }
    }

    /// Has the ACK timer run out? It then stands until it is armed anew.
    pub(super) fn expire_ack(&mut self, now: Instant) -> bool {
        let expired = !self.waits_rnr && self.deadline.is_due(now);
        if expired {
            self.deadline = Deadline::NEVER;
            self.noted = Noted::empty();
        }
        expired
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.deadline.get()
    }
}
