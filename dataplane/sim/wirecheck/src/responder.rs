//! Responses that a reliable responder may send, given what it has received.
//!
//! Read first: IBA 9.7.4 and 9.7.5.
//!
//! Before the answer, the wire does not show whether a request in order was executed or refused,
//! for instance for lack of a receive. So the PSN that the responder expects is known as a range:
//! from `low`, which its own answers show, to `possible`, which is right if it executed everything.
//! If it never refused a request (`is_exact`), it expects `possible`.

use std::collections::VecDeque;

use crate::datagrams::Datagrams;
use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Kind, Seen, Shape};
use crate::psn::{MODULUS, add, distance};
use crate::selective::Come;

/// Shortest time after which a NAK may be given again only because the gap is still there, in
/// nanoseconds.
const NAK_AGAIN_NS: u64 = 50_000;

/// Number of READ and ATOMIC requests that are remembered.
const ASKED_KEPT: usize = 256;

/// A READ or ATOMIC request that arrived.
#[derive(Clone, Copy, Debug)]
struct PendingAnswer {
    psn: u32,
    psns: u32,
    len: u32,
    /// Number of response packets that have been sent.
    next: u32,
    is_atomic: bool,
    /// ATOMIC: the value of its first response.
    original: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Responder {
    mtu: u32,
    rnr_timer: u8,
    /// Set of codes, as bits, that a NAK may still carry because it was due before a change.
    former_timers: u32,
    possible: u32,
    low: u32,
    pub(crate) is_exact: bool,
    /// A request beyond the expected one has arrived since the last sequence NAK.
    has_gap: bool,
    /// PSN of the last sequence NAK, until a request with that PSN arrives.
    nak_for: Option<u32>,
    nak_at: u64,
    /// PSN after the newest request that has arrived.
    newest: u32,
    /// A request has arrived that shows that the NAK, or the answer to it, was lost.
    may_nak_again: bool,
    asked: VecDeque<PendingAnswer>,
    msn: u32,
    messages: u32,
    pub(crate) is_over: bool,
    pub(crate) naks: u64,
    pub(crate) rnr_naks: u64,
    /// With selective repeat: the requests that have come.
    come: Option<Come>,
    /// For an end-to-end context: what RD adds.
    pub(crate) datagrams: Option<Datagrams>,
}

impl Responder {
    pub(crate) fn new(mtu: u32, first_psn: u32, rnr_timer: u8) -> Responder {
        Responder {
            mtu,
            rnr_timer,
            former_timers: 0,
            possible: first_psn,
            low: first_psn,
            is_exact: true,
            has_gap: false,
            nak_for: None,
            nak_at: 0,
            newest: first_psn,
            may_nak_again: false,
            asked: VecDeque::new(),
            msn: 0,
            messages: 0,
            is_over: false,
            naks: 0,
            rnr_naks: 0,
            come: None,
            datagrams: None,
        }
    }

    /// Called before anything has come: the responder holds requests that come early, as many as it
    /// can.
    pub(crate) fn hold_early(&mut self) {
        self.come = Some(Come::default());
        self.is_exact = false;
    }

    /// Notes that later RNR NAKs carry this code.
    pub(crate) fn set_rnr_timer(&mut self, code: u8) {
        self.former_timers |= 1 << (self.rnr_timer & 0x1f);
        self.rnr_timer = code;
    }

    /// Notes that a request arrives undamaged.
    pub(crate) fn arrived(&mut self, now: u64, seen: &Seen, shape: &Shape) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.arrived(seen, shape, psns_of(seen, shape, self.mtu));
        }
        if shape.kind == Kind::Resync {
            return self.resync(seen.psn);
        }
        let ahead = distance(seen.psn, self.possible);
        if self.nak_for == Some(seen.psn) {
            self.nak_for = None;
        }
        let missing = self.nak_for.unwrap_or(self.possible);
        if distance(seen.psn, missing) > 0 {
            self.arrived_ahead(now, seen.psn);
        }
        if distance(seen.psn, self.newest) >= 0 {
            self.newest = add(seen.psn, 1);
        }
        if distance(seen.psn, self.low) >= 0
            && let Some(come) = &mut self.come
        {
            come.insert(seen, shape);
        }
        if ahead > 0 {
            self.has_gap = true;
            return;
        }
        self.served(seen, shape, ahead);
        // Requests that came early may have been held until now.
        while let Some((seen, shape)) = self.come.as_ref().and_then(|come| come.get(self.possible))
        {
            self.served(&seen, &shape, 0);
        }
    }

    /// Notes that a RESYNC arrives, which is never refused. One that is half of all PSNs away is
    /// ahead: the READ that uses them may have been lost.
    fn resync(&mut self, psn: u32) {
        let ahead = distance(psn, self.possible);
        if ahead < 0 && ahead.unsigned_abs() != MODULUS / 2 {
            return;
        }
        self.possible = add(psn, 1);
        (self.low, self.newest) = (self.possible, self.possible);
        (self.has_gap, self.nak_for, self.may_nak_again) = (false, None, false);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.refused = None;
        }
    }

    /// Notes a request that may have been executed, or was before: it lies `ahead` of the newest
    /// PSN that the responder can expect, by 0 or less.
    fn served(&mut self, seen: &Seen, shape: &Shape, ahead: i32) {
        let is_read = shape.kind == Kind::ReadRequest;
        let psns = psns_of(seen, shape, self.mtu);
        if ahead == 0 {
            self.possible = add(self.possible, psns);
            self.messages = add(self.messages, u32::from(shape.is_last));
        }
        if shape.kind.has_response() {
            // The answer to an ATOMIC WRITE or FLUSH is that of a READ of no bytes.
            let len = if is_read { seen.dma_len } else { 0 };
            self.remember(seen.psn, psns, len, shape.kind == Kind::Atomic);
        }
    }

    /// Notes a request beyond the missing one.
    fn arrived_ahead(&mut self, now: u64, psn: u32) {
        let has_gone_back = distance(psn, self.newest) < 0;
        let is_late = now - self.nak_at >= NAK_AGAIN_NS;
        self.may_nak_again |= has_gone_back || is_late;
    }

    /// Remembers a READ or ATOMIC. A repetition of a remembered one is not added, because a
    /// response may begin again at any time.
    fn remember(&mut self, psn: u32, psns: u32, len: u32, is_atomic: bool) {
        let is_same = |asked: &PendingAnswer| {
            (asked.psn, asked.is_atomic, asked.len) == (psn, is_atomic, len)
        };
        if self.asked.iter().any(is_same) {
            return;
        }
        if self.asked.len() == ASKED_KEPT {
            self.asked.pop_front();
        }
        self.asked.push_back(PendingAnswer { psn, psns, len, next: 0, is_atomic, original: None });
    }

    /// Checks a response that is sent.
    pub(crate) fn sent(
        &mut self,
        now: u64,
        seen: &Seen,
        shape: &Shape,
        bitmap: &[u8],
    ) -> Result<(), Flaw> {
        ensure(!self.is_over, Rule::SentAfterEnd, seen.psn, self.low)?;
        if let Some(datagrams) = &self.datagrams {
            datagrams.check(seen)?;
        }
        match shape.kind {
            Kind::SelectiveAck => self.selective_ack(now, seen, bitmap)?,
            Kind::ReadResponse => self.read_response(seen, shape)?,
            Kind::AtomicAck => self.atomic_ack(seen)?,
            _ => self.acknowledge(now, seen)?,
        }
        let has_msn = shape.kind != Kind::ReadResponse || shape.is_first || shape.is_last;
        if has_msn {
            ensure(distance(seen.msn, self.msn) >= 0, Rule::MsnGoesBack, seen.msn, self.msn)?;
            let is_known = distance(seen.msn, self.messages) <= 0;
            ensure(is_known, Rule::MsnAhead, seen.msn, self.messages)?;
            let is_all = !self.is_exact || seen.msn == self.messages;
            ensure(is_all, Rule::MsnBehind, seen.msn, self.messages)?;
            if let Some(datagrams) = &mut self.datagrams {
                datagrams.check_msn(seen.msn, self.msn)?;
            }
            self.msn = seen.msn;
        }
        if let Some(come) = &mut self.come {
            come.advance(self.low);
        }
        Ok(())
    }

    fn selective_ack(&mut self, now: u64, seen: &Seen, bitmap: &[u8]) -> Result<(), Flaw> {
        ensure(seen.syndrome >> 5 == 0, Rule::Syndrome, seen.syndrome, 0_u8)?;
        self.acknowledge(now, seen)?;
        let come = self.come.as_ref().ok_or(Flaw::new(Rule::Service, seen.opcode, 0_u8))?;
        come.check_list(add(seen.psn, 1), bitmap)
    }

    fn acknowledge(&mut self, now: u64, seen: &Seen) -> Result<(), Flaw> {
        let psn = seen.psn;
        match (seen.syndrome >> 5, seen.syndrome & 0x1f) {
            (0, _) => {
                let end = add(psn, 1);
                ensure(distance(end, self.possible) <= 0, Rule::AckOfNothing, psn, self.possible)?;
                ensure(distance(end, self.low) >= 0, Rule::AckGoesBack, psn, self.low)?;
                self.low = end;
            }
            (1, timer) => {
                self.rnr_naks += 1;
                self.check_nak_psn(psn)?;
                // That of reliable datagrams is the RD QP's.
                let is_agreed = timer == self.rnr_timer
                    || self.former_timers >> timer & 1 == 1
                    || self.datagrams.is_some();
                ensure(is_agreed, Rule::RnrTimer, timer, self.rnr_timer)?;
                self.former_timers = 0;
                self.low = psn;
            }
            (3, 0) => {
                self.naks += 1;
                self.check_nak_psn(psn)?;
                let is_there = !self.is_exact || psn == self.possible;
                ensure(is_there, Rule::NakPsn, psn, self.possible)?;
                ensure(!self.is_exact || self.has_gap, Rule::NakWithoutGap, psn, self.possible)?;
                let is_first = self.nak_for != Some(psn);
                ensure(is_first || self.may_nak_again, Rule::NakTwice, psn, psn)?;
                (self.nak_for, self.nak_at, self.may_nak_again) = (Some(psn), now, false);
                self.has_gap = false;
                self.low = psn;
            }
            (3, 1..=4) => {
                let is_known = distance(psn, self.possible) <= 0;
                ensure(is_known, Rule::NakPsn, psn, self.possible)?;
                let is_repeated = distance(psn, self.low) < 0;
                let is_stored = self.covering(psn).next().is_some();
                match &mut self.datagrams {
                    None => self.is_over = true,
                    Some(datagrams) if datagrams.refused.is_some() => {}
                    // A READ that was answered before is not answered again; all else goes on.
                    Some(_) if is_repeated => ensure(is_stored, Rule::NotAsked, psn, self.low)?,
                    Some(datagrams) => datagrams.refused = Some((psn, seen.syndrome)),
                }
            }
            _ => return Err(Flaw::new(Rule::Syndrome, seen.syndrome, 0_u8)),
        }
        Ok(())
    }

    /// The remembered requests with an answer that has this PSN.
    fn covering(&self, psn: u32) -> impl Iterator<Item = &PendingAnswer> {
        self.asked.iter().filter(move |asked| {
            let at = distance(psn, asked.psn);
            at >= 0 && (at as u32) < asked.psns
        })
    }

    fn check_nak_psn(&self, psn: u32) -> Result<(), Flaw> {
        ensure(distance(psn, self.possible) <= 0, Rule::NakPsn, psn, self.possible)?;
        ensure(distance(psn, self.low) >= 0, Rule::NakPsn, psn, self.low)
    }

    fn read_response(&mut self, seen: &Seen, shape: &Shape) -> Result<(), Flaw> {
        let is_covering = |asked: &&mut PendingAnswer| {
            let at = distance(seen.psn, asked.psn);
            !asked.is_atomic && at >= 0 && (at as u32) < asked.psns
        };
        let mut rule = Rule::NotAsked;
        let mut fitting = None;
        for asked in self.asked.iter_mut().rev().filter(is_covering) {
            let at = distance(seen.psn, asked.psn) as u32;
            let is_in_order = if shape.is_first { at == 0 } else { at == asked.next && at > 0 };
            if !is_in_order || shape.is_last != (at + 1 == asked.psns) {
                rule = Rule::ResponseOrder;
                continue;
            }
            let left = asked.len - at * self.mtu;
            if seen.payload_len != left.min(self.mtu) {
                rule = Rule::ResponseLength;
                continue;
            }
            fitting = Some((asked, at));
            break;
        }
        let Some((asked, at)) = fitting else {
            return Err(Flaw::new(rule, seen.psn, self.possible));
        };
        asked.next = at + 1;
        self.answered(seen.psn);
        Ok(())
    }

    fn atomic_ack(&mut self, seen: &Seen) -> Result<(), Flaw> {
        let is_meant = |asked: &&mut PendingAnswer| asked.is_atomic && asked.psn == seen.psn;
        let Some(asked) = self.asked.iter_mut().rev().find(is_meant) else {
            return Err(Flaw::new(Rule::NotAsked, seen.psn, self.possible));
        };
        let original = *asked.original.get_or_insert(seen.compare);
        ensure(original == seen.compare, Rule::AtomicReplay, seen.compare, original)?;
        self.answered(seen.psn);
        Ok(())
    }

    /// Notes that an answer shows that its request was executed.
    fn answered(&mut self, psn: u32) {
        let end = add(psn, 1);
        if distance(end, self.low) > 0 {
            self.low = end;
        }
    }
}

/// Number of PSNs that a request packet uses: for a READ, one per response packet.
fn psns_of(seen: &Seen, shape: &Shape, mtu: u32) -> u32 {
    if shape.kind == Kind::ReadRequest { seen.dma_len.div_ceil(mtu).max(1) } else { 1 }
}
