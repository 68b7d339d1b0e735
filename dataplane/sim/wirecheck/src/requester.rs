//! Requests that a reliable requester may send, given what it has sent and what has come back.
//!
//! Read first: IBA 9.7.3 and 9.7.6.
//!
//! Invariants
//! - `units` are the requests from the oldest unacknowledged PSN `una` up to `end`.
//! - `end` is one past the newest PSN ever sent; `next` is the PSN after the packet sent last, not
//!   counting probes.

use std::collections::VecDeque;

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Kind, Seen, Shape};
use crate::message::Messages;
use crate::psn::{MODULUS, add, distance};
use crate::selective::Known;

/// Duration of RNR timer code `code` in nanoseconds. Codes come in pairs of 1 and 1.5 times a power
/// of two, from 0.01 ms on; code 0 is the longest.
pub fn rnr_wait_ns(code: u8) -> u64 {
    let octave = |power: u32| 10_000_u64 << power;
    match code & 0x1f {
        0 => octave(16),
        1 => octave(0),
        code if code % 2 == 0 => octave(u32::from(code) / 2),
        code => octave(u32::from(code) / 2) * 3 / 2,
    }
}

/// Shortest time without progress after which a probe may be sent, in nanoseconds.
const QUIET_MIN_NS: u64 = 50_000;

/// Number of messages that were put off that are remembered.
const PUT_OFF_KEPT: usize = 64;

/// Length of a payload from which on two of the same bytes are the same message, in bytes.
const TOLD_APART: u32 = 16;

/// One request packet, or a READ request with all PSNs of its responses.
#[derive(Clone, Copy, Debug)]
struct Unit {
    seen: Seen,
    psns: u32,
    first_sent_at: u64,
    sent_at: u64,
    kind: Kind,
}

impl Unit {
    fn end(&self) -> u32 {
        add(self.seen.psn, self.psns)
    }
}

/// Whether everything before a PSN is acknowledged, or a READ or ATOMIC lacks its response.
#[derive(PartialEq, Eq)]
enum Acked {
    All,
    Gap,
}

#[derive(Debug)]
pub(crate) struct Requester {
    messages: Messages,
    mtu: u32,
    max_reads: u32,
    pub(crate) timeout: Option<u64>,
    units: VecDeque<Unit>,
    una: u32,
    end: u32,
    next: u32,
    /// The PSN to be sent next if the repetition that was sent last was a probe.
    other_next: Option<u32>,
    /// PSN of the last probe.
    probed: Option<u32>,
    reads: u32,
    /// There is a cause for which the requester may go back, such as a NAK.
    pub(crate) has_cause: bool,
    /// No request may be sent before this time.
    not_before: Option<u64>,
    last_sent: u64,
    pub(crate) last_progress: u64,
    pub(crate) repeated: u64,
    pub(crate) rewinds: u64,
    /// One message at a time.
    is_context: bool,
    /// First packet of the newest message of an end-to-end context, unless it was given up. An
    /// acknowledgement may come after it was given up and before the RESYNC is sent.
    begun: Option<Seen>,
    /// First packets of messages that were given up during an RNR wait, and its end.
    put_off: VecDeque<(Seen, u64)>,
    /// With selective repeat: what is known of each packet.
    known: Option<Known>,
    /// Silence of the peer after which a keepalive may be sent, in nanoseconds; `None` means never.
    pub(crate) keepalive_ns: Option<u64>,
    /// Time of the last keepalive, if nothing has been heard and no path has changed since.
    keepalive_at: Option<u64>,
    /// Time at which the peer was heard last.
    heard_at: u64,
    /// Time at which the last silence of `keepalive_ns` or longer ended.
    silent_until: u64,
}

impl Requester {
    pub(crate) fn new(mtu: u32, first_psn: u32, max_reads: u32, timeout: Option<u64>) -> Requester {
        Requester {
            messages: Messages::new(mtu),
            mtu,
            max_reads,
            timeout,
            units: VecDeque::new(),
            una: first_psn,
            end: first_psn,
            next: first_psn,
            other_next: None,
            probed: None,
            reads: 0,
            has_cause: false,
            not_before: None,
            last_sent: 0,
            last_progress: 0,
            repeated: 0,
            rewinds: 0,
            is_context: false,
            begun: None,
            put_off: VecDeque::new(),
            known: None,
            keepalive_ns: None,
            keepalive_at: None,
            heard_at: 0,
            silent_until: 0,
        }
    }

    /// Called before anything is sent: the requester sends packets again one by one.
    pub(crate) fn repeat_selectively(&mut self) {
        self.known = Some(Known::new(self.una));
    }

    /// Returns whether selective repeat is at work: no READ or ATOMIC makes it rest.
    fn is_selective(&self) -> bool {
        self.known.as_ref().is_some_and(|known| distance(self.una, known.rests_until) >= 0)
    }

    /// Returns whether a requester with selective repeat may go back now to send `psn`, or has done
    /// so before and continues: while a READ or ATOMIC makes selective repeat rest.
    fn may_go_back(&self, now: u64, psn: u32) -> bool {
        let begins = psn == self.una && (self.has_cause || self.is_timed_out(now));
        !self.is_selective() && (begins || psn == self.next || self.other_next == Some(psn))
    }

    /// Called before anything is sent: the requester is an end-to-end context's.
    pub(crate) fn take_turns(&mut self) {
        self.is_context = true;
    }

    /// Checks a RESYNC that is sent for the first time: everything before it is given up.
    fn resync(&mut self, now: u64, seen: &Seen) -> Result<(), Flaw> {
        ensure(seen.psn == self.end, Rule::ResyncPsn, seen.psn, self.end)?;
        // A message may be given up for a fault that the wire does not show.
        let begun = self.begun.take();
        ensure(begun.is_some(), Rule::NothingGivenUp, seen.psn, self.end)?;
        self.put_off.extend(begun.zip(self.not_before));
        self.put_off.truncate(PUT_OFF_KEPT);
        ensure(seen.ack_req, Rule::ProbeUnasked, seen.psn, self.end)?;
        self.units.clear();
        self.messages.give_up();
        (self.una, self.end, self.next) = (seen.psn, add(seen.psn, 1), add(seen.psn, 1));
        (self.other_next, self.probed, self.not_before) = (None, None, None);
        (self.reads, self.has_cause, self.last_sent) = (0, false, now);
        let (sent_at, kind) = (now, Kind::Resync);
        self.units.push_back(Unit { seen: *seen, psns: 1, first_sent_at: now, sent_at, kind });
        Ok(())
    }

    /// Checks that a message that was put off is not sent before the end of its RNR wait. It is
    /// known by its content, so that a short one cannot be told from another.
    fn begin_again(&mut self, now: u64, seen: &Seen) -> Result<(), Flaw> {
        self.put_off.retain(|(_, due)| *due > now);
        let Seen { src, dst, pkey, mig_req, ack_req, psn, .. } = *seen;
        let is_it = |first: &Seen| {
            let same = Seen { src, dst, pkey, mig_req, ack_req, psn, ..*first };
            same == *seen && seen.payload_len >= TOLD_APART
        };
        match self.put_off.iter().find(|(first, _)| is_it(first)) {
            Some((_, due)) => Err(Flaw::new(Rule::BeforeRnrTimer, now, *due)),
            None => Ok(()),
        }
    }

    /// Returns whether the RESYNC with this PSN is outstanding.
    fn is_resync(&self, psn: u32) -> bool {
        let oldest = self.units.front();
        oldest.is_some_and(|unit| unit.kind == Kind::Resync && unit.seen.psn == psn)
    }

    /// Checks a request that is sent. `slack` is the time by which timeouts may be late for outside
    /// reasons. Returns whether the packet is new.
    pub(crate) fn sent(
        &mut self,
        now: u64,
        slack: u64,
        seen: &Seen,
        shape: &Shape,
    ) -> Result<bool, Flaw> {
        if shape.kind == Kind::Resync && !self.is_resync(seen.psn) {
            return self.resync(now, seen).map(|()| true);
        }
        let due = self.not_before.unwrap_or(0);
        ensure(now >= due, Rule::BeforeRnrTimer, now, due)?;
        if self.keepalive_ns.is_some() && self.is_quiet() && add(seen.psn, 1) == self.end {
            return self.keepalive(now, slack, seen, shape).map(|()| false);
        }
        let may_probe = seen.psn == self.una && self.may_probe(now);
        if may_probe && let Some(known) = &mut self.known {
            known.probed();
        }
        if self.known.is_some() && seen.psn != self.end && !self.may_go_back(now, seen.psn) {
            return self.repeat_alone(now, seen, may_probe).map(|()| false);
        }
        if distance(seen.psn, self.next) < 0 {
            if may_probe && !self.has_cause && !self.is_timed_out(now) {
                return self.probe(seen).map(|()| false);
            }
            let next = self.next;
            self.check_rewind(now, slack, seen.psn)?;
            if may_probe {
                self.other_next = self.other_next.or(Some(next));
                self.probed = Some(seen.psn);
                // If it was a probe, the rewind is still to come.
                self.has_cause = true;
            }
        } else if self.other_next == Some(seen.psn) {
            self.other_next = None;
        } else {
            // What looked like going back may have been repetitions of single packets.
            let is_next = seen.psn == self.next || self.known.is_some() && seen.psn == self.end;
            ensure(is_next, Rule::PsnSkipped, seen.psn, self.next)?;
            if !may_probe {
                self.other_next = None;
            }
        }
        let is_new = seen.psn == self.end;
        let end = if is_new {
            self.send_new(now, seen, shape)?
        } else {
            self.repeated += 1;
            let end = self.check_repeated(seen)?;
            self.unit_of(seen.psn).expect("it was checked").sent_at = now;
            end
        };
        self.next = end;
        self.last_sent = now;
        if let Some(known) = &mut self.known {
            known.sent(seen.psn);
            let asks = shape.kind.has_response();
            if asks || !is_new {
                known.rests_until = self.end;
            }
        }
        Ok(is_new)
    }

    /// Checks a packet that is sent again out of its order, with selective repeat.
    fn repeat_alone(&mut self, now: u64, seen: &Seen, may_probe: bool) -> Result<(), Flaw> {
        let is_late = seen.psn == self.una && self.is_timed_out(now);
        let Some(known) = &mut self.known else { return Ok(()) };
        if is_late || core::mem::take(&mut self.has_cause) {
            known.doubt_all(is_late);
        }
        known.check_repeated(seen.psn, may_probe)?;
        known.sent(seen.psn);
        self.check_repeated(seen)?;
        if !may_probe {
            self.unit_of(seen.psn).expect("it was checked").sent_at = now;
        }
        self.repeated += 1;
        self.last_sent = now;
        if may_probe {
            self.probed = Some(seen.psn);
        }
        Ok(())
    }

    /// Checks a keepalive, a duplicate without effect while nothing is outstanding.
    fn keepalive(&mut self, now: u64, slack: u64, seen: &Seen, shape: &Shape) -> Result<(), Flaw> {
        let is_empty_write = shape.kind == Kind::Write && shape.is_first && shape.is_last;
        let has_effect = seen.payload_len > 0 || seen.dma_len > 0 || shape.has_imm;
        ensure(is_empty_write && !has_effect, Rule::KeepaliveEffect, seen.opcode, 0x0a_u8)?;
        ensure(seen.ack_req, Rule::ProbeUnasked, seen.psn, self.next)?;
        // A keepalive that is due may be sent a little after the silence has ended.
        let earliest = self.heard_at + self.keepalive_ns.unwrap_or(u64::MAX);
        let is_silent = now >= earliest || now <= self.silent_until + slack;
        ensure(is_silent, Rule::KeepaliveTooSoon, now, earliest)?;
        if let Some((at, timeout)) = self.keepalive_at.zip(self.timeout) {
            ensure(now >= at + timeout, Rule::KeepaliveTooSoon, now, at + timeout)?;
        }
        // What ended the silence before it was sent ends the wait for its answer, too.
        self.keepalive_at = (now >= earliest).then_some(now);
        Ok(())
    }

    /// Notes that the peer was heard.
    pub(crate) fn heard(&mut self, now: u64) {
        if self.keepalive_ns.is_some_and(|idle| now >= self.heard_at + idle) {
            self.silent_until = now;
        }
        (self.heard_at, self.keepalive_at) = (now, None);
    }

    /// Notes that requests take another path from now on, which is a cause to repeat what is
    /// unacknowledged.
    pub(crate) fn takes_other_path(&mut self, timeout: Option<u64>) {
        self.timeout = timeout;
        self.has_cause = true;
        self.keepalive_at = None;
    }

    /// Notes that the queue pair has migrated.
    pub(crate) fn migrated(&mut self) {
        self.has_cause = true;
        self.keepalive_at = None;
    }

    /// Returns whether everything is acknowledged, and no message is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        self.units.is_empty() && self.messages.is_between()
    }

    fn check_rewind(&mut self, now: u64, slack: u64, psn: u32) -> Result<(), Flaw> {
        ensure(distance(psn, self.una) >= 0, Rule::SentAfterAck, psn, self.una)?;
        ensure(psn == self.una, Rule::RewindTarget, psn, self.una)?;
        if !self.has_cause {
            ensure(self.is_timed_out(now), Rule::RewindWithoutCause, psn, self.next)?;
            let quiet_since =
                self.last_sent.max(self.last_progress).max(self.not_before.unwrap_or(0));
            let latest = quiet_since + 4 * self.timeout.unwrap_or(0) + slack;
            ensure(now <= latest, Rule::TimeoutTooLate, now, latest)?;
        }
        let is_late = self.is_timed_out(now);
        if let Some(known) = &mut self.known {
            // Packets may be repeated one by one as well.
            known.doubt_all(is_late);
        }
        self.has_cause = false;
        self.rewinds += 1;
        Ok(())
    }

    /// Returns whether the peer has been silent for so long that a probe may be sent.
    fn may_probe(&self, now: u64) -> bool {
        let Some(oldest) = self.units.front().filter(|_| self.timeout.is_some()) else {
            return false;
        };
        now >= oldest.first_sent_at.max(self.last_progress) + QUIET_MIN_NS
    }

    /// Checks a probe, a repetition of the oldest packet without a cause. The packet sent next is
    /// the one that would have been next without it.
    fn probe(&mut self, seen: &Seen) -> Result<(), Flaw> {
        self.check_repeated(seen)?;
        let unit = self.unit_of(seen.psn).expect("it was checked");
        let asks = seen.ack_req || unit.kind.has_response();
        ensure(asks, Rule::ProbeUnasked, seen.psn, self.next)?;
        self.repeated += 1;
        self.probed = Some(seen.psn);
        Ok(())
    }

    /// Returns whether the timeout of the oldest unacknowledged packet may have passed.
    fn is_timed_out(&self, now: u64) -> bool {
        let Some((timeout, oldest)) = self.timeout.zip(self.units.front()) else { return false };
        now >= oldest.sent_at.max(self.last_progress) + timeout
    }

    fn send_new(&mut self, now: u64, seen: &Seen, shape: &Shape) -> Result<u32, Flaw> {
        if self.is_context && shape.is_first {
            let is_alone = self.units.is_empty();
            ensure(is_alone, Rule::NotOneAtATime, seen.psn, self.una)?;
            self.begin_again(now, seen)?;
            self.begun = Some(*seen);
        }
        let psns = self.messages.next(seen, shape)?;
        let unit = Unit { seen: *seen, psns, first_sent_at: now, sent_at: now, kind: shape.kind };
        if unit.kind.has_response() {
            self.reads += 1;
            ensure(self.reads <= self.max_reads, Rule::TooManyReads, self.reads, self.max_reads)?;
        }
        self.end = unit.end();
        let width = self.end.wrapping_sub(self.una) % MODULUS;
        ensure(width <= MODULUS / 2, Rule::WindowTooWide, width, MODULUS / 2)?;
        self.units.push_back(unit);
        Ok(self.end)
    }

    /// Checks that a repeated packet equals the first one; a READ may request only the rest of its
    /// range. Returns the PSN after it.
    fn check_repeated(&mut self, seen: &Seen) -> Result<u32, Flaw> {
        let (mtu, una) = (self.mtu, self.una);
        let Some(unit) = self.unit_of(seen.psn) else {
            return Err(Flaw::new(Rule::SentAfterAck, seen.psn, una));
        };
        let packets = distance(seen.psn, unit.seen.psn) as u32;
        ensure(packets < unit.psns, Rule::PsnSkipped, seen.psn, unit.seen.psn)?;
        let offset = packets * mtu;
        // Path and MigReq may have changed.
        let Seen { src, dst, pkey, mig_req, ack_req, psn, .. } = *seen;
        let mut wanted = Seen { src, dst, pkey, mig_req, ack_req, psn, ..unit.seen };
        if unit.kind == Kind::ReadRequest {
            wanted.va = wanted.va.wrapping_add(u64::from(offset));
            wanted.dma_len -= offset;
        }
        ensure(*seen == wanted, Rule::Changed, seen.payload_mark, wanted.payload_mark)?;
        Ok(unit.end())
    }

    /// The newest request that begins at or before `psn`.
    fn unit_of(&mut self, psn: u32) -> Option<&mut Unit> {
        let at = self.units.partition_point(|unit| distance(unit.seen.psn, psn) <= 0);
        self.units.get_mut(at.checked_sub(1)?)
    }

    /// Notes that a response arrives undamaged.
    pub(crate) fn arrived(&mut self, now: u64, seen: &Seen, shape: &Shape, bitmap: &[u8]) {
        self.note_rest(now);
        match shape.kind {
            Kind::SelectiveAck => self.told(now, seen, bitmap),
            _ => self.answered_by(now, seen, shape),
        }
        self.note_rest(now);
    }

    /// Notes that a requester that may have gone back, while selective repeat rests, makes it rest
    /// until all that was sent until now is acknowledged.
    fn note_rest(&mut self, now: u64) {
        let may_have_gone_back = self.has_cause || self.is_timed_out(now);
        if may_have_gone_back
            && !self.is_selective()
            && let Some(known) = &mut self.known
        {
            known.rests_until = self.end;
        }
    }

    /// Notes that a response of RC's own arrives undamaged.
    fn answered_by(&mut self, now: u64, seen: &Seen, shape: &Shape) {
        if distance(seen.psn, self.una) < 0 || distance(seen.psn, self.end) >= 0 {
            return;
        }
        // The requester may have gone back already, and be about to send.
        let may_have_gone_back = self.has_cause || self.is_timed_out(now);
        match shape.kind {
            Kind::Acknowledge => self.acknowledged(now, seen, may_have_gone_back),
            _ => self.answered(now, seen, shape),
        }
        self.has_cause |= may_have_gone_back;
    }

    /// Notes that a selective acknowledgement arrives undamaged.
    fn told(&mut self, now: u64, seen: &Seen, bitmap: &[u8]) {
        let first = add(seen.psn, 1);
        let is_old = distance(first, self.una) < 0 || distance(first, self.end) > 0;
        if is_old || self.acknowledge_before(now, first) == Acked::Gap || self.una != first {
            return;
        }
        let is_selective = self.is_selective();
        let Some(known) = &mut self.known else { return };
        known.answered();
        if known.told(first, self.end, bitmap) && !is_selective {
            self.has_cause = true;
        }
    }

    fn acknowledged(&mut self, now: u64, seen: &Seen, may_have_gone_back: bool) {
        let may_be_lost = self.known.as_ref().is_some_and(|known| known.is_doubtful(seen.psn));
        match seen.syndrome >> 5 {
            0 => {
                if let Some(known) = &mut self.known {
                    known.answered();
                }
                self.acknowledge_before(now, add(seen.psn, 1));
                // An ACK for the probe alone shows that what was sent before it was lost.
                let is_alone = self.una == add(seen.psn, 1);
                self.has_cause |= is_alone && self.probed == Some(seen.psn);
            }
            1 => {
                let waits = self.not_before.is_some_and(|due| now <= due);
                if self.acknowledge_before(now, seen.psn) == Acked::Gap {
                    return;
                }
                if !waits && !may_have_gone_back && self.next != seen.psn && !may_be_lost {
                    self.not_before = Some(now + rnr_wait_ns(seen.syndrome));
                }
                match &mut self.known {
                    Some(known) if distance(self.una, known.rests_until) >= 0 => {
                        known.refused(seen.psn);
                    }
                    _ => self.has_cause = true,
                }
            }
            // If the response of a READ or ATOMIC is missing, that is a cause as well.
            3 => {
                self.acknowledge_before(now, seen.psn);
                self.has_cause = true;
            }
            _ => {}
        }
    }

    fn answered(&mut self, now: u64, seen: &Seen, shape: &Shape) {
        if self.acknowledge_before(now, seen.psn) == Acked::Gap {
            return;
        }
        let Some(&unit) = self.units.front() else { return };
        let fits = match shape.kind {
            Kind::ReadResponse if unit.kind.is_placed() => seen.payload_len == 0,
            Kind::ReadResponse => unit.kind == Kind::ReadRequest,
            _ => unit.kind == Kind::Atomic,
        };
        if !fits {
            return;
        }
        let before = self.una;
        self.una = add(seen.psn, 1);
        self.note_acked(before);
        if self.una == unit.end() {
            self.units.pop_front();
            self.reads -= 1;
        }
        self.progress(now);
    }

    fn acknowledge_before(&mut self, now: u64, limit: u32) -> Acked {
        let before = self.una;
        let mut acked = Acked::All;
        while distance(self.una, limit) < 0 {
            let Some(unit) = self.units.front() else { break };
            if unit.kind.has_response() {
                acked = Acked::Gap;
                self.has_cause = true;
                break;
            }
            self.una = unit.end();
            self.units.pop_front();
        }
        if self.una != before {
            self.note_acked(before);
            self.progress(now);
        }
        acked
    }

    /// Notes for selective repeat that everything from `before` on to `una` is acknowledged.
    fn note_acked(&mut self, before: u32) {
        if let Some(known) = &mut self.known {
            known.advance(before, self.una);
        }
    }

    fn progress(&mut self, now: u64) {
        self.last_progress = now;
        // The refused request was accepted after all: another copy of it found a receive.
        self.not_before = None;
        if distance(self.next, self.una) < 0 {
            self.next = self.una;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rnr_waits_are_those_of_the_specification() {
        let micros = |code| rnr_wait_ns(code) / 1000;
        assert_eq!(micros(0), 655_360);
        assert_eq!([1, 2, 3, 4, 5, 6].map(micros), [10, 20, 30, 40, 60, 80]);
        assert_eq!([30, 31].map(micros), [327_680, 491_520]);
    }
}
