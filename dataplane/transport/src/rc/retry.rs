//! Retry state of a requester: retry counters and one deadline.
//!
//! Read first: IBA 9.7.5 and 9.7.6 (9.7.6.1.3 for the ACK timer).
//!
//! Invariants
//! - Progress reloads both counters.
//! - The ACK timer does not run during an RNR wait.
//! - A sign of life is waited for only while nothing is outstanding.

use core::time::Duration;

use bitflags::bitflags;
use uroce_wire::Psn;

use crate::attr::Attributes;
use crate::time::Instant;
use crate::timer::{ack_timeout, rnr_timeout};

/// Value of `rnr_retry` that means no limit.
const RNR_RETRY_FOREVER: u8 = 7;

/// Logarithm of the unit of [`Retry::lead`] in nanoseconds. With it 32 bits hold the longest ACK
/// timeout.
const LEAD_SHIFT: u32 = 11;

//= check A20 — each QP has its own counters and deadlines; loss on another QP does not affect them
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Retry {
    /// Deadline of the ACK timer or of the RNR wait.
    deadline: Deadline,
    /// The wait that `deadline` limits.
    waits: Waits,
    /// NAKs for the oldest PSN, and probes of it.
    noted: Noted,
    transport_left: u8,
    rnr_left: u8,
    /// `end_psn` at the time when the sequence NAK was acted upon.
    nak_end: Psn,
    /// PSN after the newest one answered beyond the gap of the implied NAK.
    answered: Psn,
    /// Time at which the peer last acknowledged something new; zero means never.
    last_progress: Instant,
    /// Time before `deadline` at which a probe is due, in units of 2.048 µs; 0 means no probe.
    lead: u32,
}

const _: () = assert!(size_of::<Retry>() == 32);

/// The event that a requester waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Waits {
    /// The answers to packets that are outstanding, if there are any.
    #[default]
    Answer,
    /// The end of an RNR wait.
    Receiver,
    /// The answer to a keepalive.
    Life,
}

bitflags! {
    /// NAKs, and the silence of the peer, since the last progress.
    #[derive(Clone, Copy, Default, Debug)]
    struct Noted: u8 {
        /// An implied NAK; further ones wait for the timer.
        const IMPLIED = 1;
        /// A PSN sequence NAK.
        const SEQUENCE = 1 << 1;
        /// The peer was silent, and a probe or keepalive is to be sent.
        const PROBE_DUE = 1 << 2;
        /// A probe was sent.
        const PROBED = 1 << 3;
        /// An implied NAK on the former path, by which later answers may still come.
        const FORMER = 1 << 4;
        /// An RNR NAK.
        const REFUSED = 1 << 5;
    }
}

/// A point in time or none, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Deadline(Instant);

impl Deadline {
    /// No deadline: the end of time.
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

    /// Applies changed attributes of a drained QP. A wait for a sign of life goes on.
    pub(super) fn retune(&mut self, attr: &Attributes) {
        let Retry { deadline, waits, noted, last_progress, .. } = *self;
        *self = Retry { last_progress, ..Retry::new(attr) };
        if waits == Waits::Life {
            (self.deadline, self.waits, self.noted) = (deadline, waits, noted);
        }
    }

    /// Reloads the transport retry counter and stops the ACK timer.
    pub(super) fn reload(&mut self, attr: &Attributes) {
        let is_forgotten = seeded!(BudgetNotReloaded);
        self.transport_left = if is_forgotten { self.transport_left } else { attr.retry_cnt };
        self.noted &= Noted::REFUSED;
        self.stop_ack();
        self.noted.set(Noted::PROBE_DUE, self.waits_for_life());
    }

    /// Reloads the transport retry counter for another path.
    //= check I5 — answers that were under way by the former path do not charge it
    pub(super) fn change_path(&mut self, attr: &Attributes) {
        let has_implied = self.noted.contains(Noted::IMPLIED);
        self.reload(attr);
        self.noted.set(Noted::FORMER, has_implied);
    }

    pub(super) fn last_progress(&self) -> Option<Instant> {
        (self.last_progress != Instant::ZERO).then_some(self.last_progress)
    }

    /// Notes that the peer has acknowledged something new; `outstanding` is whether more is in
    /// flight.
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

    /// Notes that the peer has received something, though nothing new is acknowledged: starts the
    /// time until the next probe, and the ACK timer, again. The retry counters stay as they are.
    pub(super) fn heard(&mut self, attr: &Attributes, now: Instant) {
        if self.deadline != Deadline::NEVER && !self.waits_for_receiver() {
            self.stop_ack();
            self.arm(attr, now);
        }
    }

    /// Starts the ACK timer after a request was sent, unless it is running.
    //= check B1 — a whole timeout from the oldest unanswered packet or the last progress
    pub(super) fn arm(&mut self, attr: &Attributes, now: Instant) {
        if self.deadline == Deadline::NEVER
            && !seeded!(NoAckTimer)
            && let Some(timeout) = ack_timeout(attr.timeout)
        {
            let timeout = if seeded!(EarlyTimeout) { timeout / 2 } else { timeout };
            self.deadline = Deadline(now + timeout);
        }
    }

    /// Returns whether the ACK timer is not running, or at least half of the time to the next probe
    /// or to its end has passed.
    pub(super) fn is_pressing(&self, attr: &Attributes, now: Instant) -> bool {
        let lead = Duration::from_nanos(u64::from(self.lead) << LEAD_SHIFT);
        let is_near = |at: Instant| {
            ack_timeout(attr.timeout).is_some_and(|all| at <= now + all.saturating_sub(lead) / 2)
        };
        self.next_timeout().is_none_or(is_near)
    }

    /// Stops the ACK timer, but not an RNR wait.
    fn stop_ack(&mut self) {
        if !self.waits_for_receiver() {
            self.deadline = Deadline::NEVER;
        }
    }

    /// Takes one transport retry and stops the ACK timer. Returns false if none was left.
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

    /// Returns whether an implied NAK, by an answer up to `seen`, is the first one since the last
    /// progress or timeout.
    ///
    /// While each implied NAK has a newer PSN, the peer is still answering earlier requests,
    /// such as a long READ, and will then answer the repeated one. Each such NAK therefore restarts
    /// the ACK timer.
    pub(super) fn first_implied(&mut self, seen: Psn, attr: &Attributes, now: Instant) -> bool {
        // What is answered on the new path begins before the newest answer of the former one.
        let is_former = self.noted.contains(Noted::FORMER) && self.answered.is_before(seen);
        let is_first = !self.noted.contains(Noted::IMPLIED) && !is_former;
        let is_newer = is_first || self.answered.is_before(seen);
        self.noted.set(Noted::IMPLIED, self.noted.contains(Noted::IMPLIED) || is_first);
        if is_newer {
            self.answered = seen;
        }
        if is_newer && self.deadline != Deadline::NEVER {
            self.stop_ack();
            self.arm(attr, now);
        }
        is_first
    }

    /// Returns whether this sequence NAK is a copy of the last one acted upon, or was given again
    /// for the same loss. A second one is genuine only after everything has been sent again.
    //= check A10 — a copy of a NAK is not a new one
    //= check B5 — after a full repetition it is a new one, and is charged
    pub(super) fn is_copy(&self, next_psn: Psn) -> bool {
        self.noted.contains(Noted::SEQUENCE) && next_psn.is_before(self.nak_end)
    }

    /// Returns whether a selective acknowledgement of packets up to `high` shows no other loss than
    /// the one acted upon last: then something newer than all that was sent until then must have
    /// come.
    pub(super) fn is_known_gap(&self, high: Psn) -> bool {
        self.noted.contains(Noted::SEQUENCE) && !self.nak_end.is_before(high)
    }

    /// Notes that a sequence NAK is acted upon; `end_psn` is one past the newest PSN ever sent.
    pub(super) fn note_nak(&mut self, end_psn: Psn) {
        self.noted |= Noted::SEQUENCE;
        self.nak_end = end_psn;
    }

    /// Sets when a probe is due: after the peer has been silent for `quiet`, unless the ACK timer
    /// expires before.
    //= check B2 — with timeout code 0 nothing is sent again, and there is no probe either
    pub(super) fn set_probe(&mut self, attr: &Attributes, quiet: Option<Duration>) {
        if self.is_held() {
            return;
        }
        let lead = quiet.and_then(|quiet| ack_timeout(attr.timeout)?.checked_sub(quiet));
        self.lead = lead.map_or(0, |lead| (lead.as_nanos() >> LEAD_SHIFT) as u32);
    }

    /// Returns whether the peer has been silent for so long that a probe is due; notes that.
    pub(super) fn expire_quiet(&mut self, now: Instant) -> bool {
        let is_over = self.next_timeout().is_some_and(|at| at <= now);
        let is_due = self.lead > 0 && is_over;
        self.noted.set(Noted::PROBE_DUE, self.owes_probe() || is_due);
        is_due
    }

    /// Returns whether a probe is to be sent.
    #[inline]
    pub(super) fn owes_probe(&self) -> bool {
        self.noted.contains(Noted::PROBE_DUE)
    }

    /// Notes that a probe was sent, or that none can be.
    pub(super) fn end_probe(&mut self, is_sent: bool) {
        self.noted -= Noted::PROBE_DUE;
        self.noted.set(Noted::PROBED, self.is_probed() || is_sent);
    }

    /// Notes that a probe was answered. Returns whether one was sent since the last progress.
    pub(super) fn take_probed(&mut self) -> bool {
        let is_probed = self.is_probed();
        self.noted -= Noted::PROBED;
        is_probed
    }

    /// Returns whether the oldest packet was sent as a probe since the last progress.
    pub(super) fn is_probed(&self) -> bool {
        self.noted.contains(Noted::PROBED)
    }

    /// Takes one RNR retry and begins the wait of the peer's timer code. Returns false if none was
    /// left.
    //= check B7 — rnr_retry retries; 7 means no limit
    //= check B10 — counted apart from the transport retries
    //= check B9 — during the wait the ACK timer does not run and retry_cnt is not charged
    pub(super) fn begin_rnr_wait(&mut self, attr: &Attributes, now: Instant, code: u8) -> bool {
        if attr.rnr_retry != RNR_RETRY_FOREVER {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return false,
            }
        }
        let code = if seeded!(RnrTableTypo) && code == 13 { 12 } else { code };
        self.deadline = Deadline(now + rnr_timeout(code));
        self.waits = Waits::Receiver;
        self.noted |= Noted::REFUSED;
        // The end of the wait has no probe before it.
        self.lead = 0;
        true
    }

    /// End of the RNR wait, and the retries that are left after it; `None` if there is no wait.
    pub(super) fn rnr_wait(&self) -> Option<(Instant, u8)> {
        let until = self.deadline.get().filter(|_| self.waits_for_receiver())?;
        Some((until, self.rnr_left))
    }

    /// Sets the number of RNR retries that are left.
    pub(super) fn set_rnr_left(&mut self, rnr_left: u8) {
        self.rnr_left = rnr_left;
    }

    /// Returns whether an RNR NAK has come since the last progress. Never without an ACK timer: the
    /// loss of a lone packet would not show.
    #[inline]
    pub(super) fn is_refused(&self, attr: &Attributes) -> bool {
        self.noted.contains(Noted::REFUSED) && attr.timeout != 0
    }

    #[inline]
    pub(super) fn waits_for_receiver(&self) -> bool {
        self.waits == Waits::Receiver
    }

    /// Returns whether packets are not simply sent: an RNR wait goes on, or a sign of life is
    /// waited for.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.waits != Waits::Answer
    }

    /// Returns whether nothing is waited for.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_held() && self.deadline == Deadline::NEVER
    }

    /// Begins to wait for a sign of life: a keepalive is to be sent, and repeated as often as a
    /// request.
    pub(super) fn begin_life(&mut self, attr: &Attributes) {
        self.waits = Waits::Life;
        self.transport_left = attr.retry_cnt;
        self.noted = Noted::PROBE_DUE;
        self.lead = 0;
    }

    /// Returns whether a sign of life is waited for.
    pub(super) fn waits_for_life(&self) -> bool {
        self.waits == Waits::Life
    }

    /// Notes that a keepalive was sent, and starts the ACK timer.
    pub(super) fn sent_keepalive(&mut self, attr: &Attributes, now: Instant) {
        self.noted -= Noted::PROBE_DUE;
        self.arm(attr, now);
    }

    /// Returns whether the answer to a keepalive is overdue.
    pub(super) fn is_life_overdue(&self, now: Instant) -> bool {
        self.waits_for_life() && self.deadline.is_due(now)
    }

    /// Takes one transport retry for a keepalive that was not answered in time; another one is to
    /// be sent. Returns false if no retry was left.
    pub(super) fn charge_keepalive(&mut self) -> bool {
        self.noted |= Noted::PROBE_DUE;
        self.charge()
    }

    /// Ends the wait for a sign of life, with a full retry counter.
    pub(super) fn end_life(&mut self, attr: &Attributes) {
        self.waits = Waits::Answer;
        self.reload(attr);
    }

    /// Returns whether an RNR wait is over by `now`; if so it ends.
    pub(super) fn expire_rnr(&mut self, now: Instant) -> bool {
        let is_over = self.waits_for_receiver() && self.deadline.is_due(now);
        if is_over {
            self.waits = Waits::Answer;
            self.deadline = Deadline::NEVER;
        }
        is_over
    }

    /// Returns whether the ACK timer has expired; if so it stops until it is armed again.
    pub(super) fn expire_ack(&mut self, now: Instant) -> bool {
        let expired = !self.is_held() && self.deadline.is_due(now);
        if expired {
            self.deadline = Deadline::NEVER;
            self.noted &= Noted::REFUSED;
        }
        expired
    }

    #[inline]
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let at = self.deadline.get()?;
        let lead = u64::from(self.lead) << LEAD_SHIFT;
        Some(Instant::from_nanos(at.as_nanos().saturating_sub(lead)))
    }
}
