//! The line of RD QPs that wait for an EEC: first come, first served.
//!
//! ```text
//!   first ──> RD QP ── next ──> RD QP ── next ──> RD QP <── last
//! ```
//!
//! The links are in the RD QPs ([`super::member::Requester::next`]), so that a line of any length
//! needs no memory.
//!
//! Invariants
//! - A QP in the line exists, and is in no other line: it steps out before it is destroyed.

use uroce_wire::Qpn;

use crate::env::Env;
use crate::time::Instant;

/// No QP: QP 0 is no RD QP.
const NONE: Qpn = Qpn::new(0);

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Line {
    first: Qpn,
    last: Qpn,
}

/// Result of looking for an RD QP that may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// This QP, which is behind the other one; 0 if it is the first.
    Of(Qpn, Qpn),
    /// All wait after an RNR NAK, the first one until then.
    NotBefore(Instant),
    /// The line is empty.
    Empty,
}

impl Line {
    /// Appends an RD QP.
    pub(super) fn push(&mut self, qpn: Qpn, env: &mut impl Env) {
        match self.last {
            NONE => self.first = qpn,
            last => link(last, qpn, env),
        }
        self.last = qpn;
    }

    /// The first QP that may send at `now`.
    pub(super) fn turn(&self, now: Instant, env: &mut impl Env) -> Turn {
        let (mut before, mut at) = (NONE, self.first);
        let mut turn = Turn::Empty;
        while at != NONE {
            let place = env.with_other(at, |qp, _| {
                qp.member().map(|rd| (rd.requester.next, rd.requester.resume_at))
            });
            let Some((next, resume_at)) = place.flatten() else {
                debug_assert!(false, "an RD QP in line cannot be reached");
                break;
            };
            if resume_at <= now {
                return Turn::Of(at, before);
            }
            turn = match turn {
                Turn::NotBefore(other) => Turn::NotBefore(other.min(resume_at)),
                _ => Turn::NotBefore(resume_at),
            };
            (before, at) = (at, next);
        }
        turn
    }

    /// Takes the QP `qpn` out of the line, which is behind `before` and has `next` behind it.
    pub(super) fn take(&mut self, before: Qpn, qpn: Qpn, next: Qpn, env: &mut impl Env) {
        match before {
            NONE => self.first = next,
            before => link(before, next, env),
        }
        if self.last == qpn {
            self.last = before;
        }
    }

    /// Takes the QP `qpn`, which has `next` behind it, out of the line, if it is in it.
    pub(super) fn remove(&mut self, qpn: Qpn, next: Qpn, env: &mut impl Env) {
        let (mut before, mut at) = (NONE, self.first);
        while at != NONE && at != qpn {
            before = at;
            at = next_of(at, env);
        }
        if at == qpn {
            self.take(before, qpn, next, env);
        }
    }

    /// Takes the first QP out of the line.
    pub(super) fn pop(&mut self, env: &mut impl Env) -> Option<Qpn> {
        let first = Some(self.first).filter(|first| *first != NONE)?;
        let next = next_of(first, env);
        self.take(NONE, first, next, env);
        Some(first)
    }
}

/// The QP behind `qpn`.
pub(super) fn next_of(qpn: Qpn, env: &mut impl Env) -> Qpn {
    let next = env.with_other(qpn, |qp, _| qp.member().map(|rd| rd.requester.next));
    next.flatten().unwrap_or(NONE)
}

/// Sets the QP behind `qpn`.
fn link(qpn: Qpn, next: Qpn, env: &mut impl Env) {
    env.with_other(qpn, |qp, _| {
        if let Some(rd) = qp.member_mut() {
            rd.requester.next = next;
        }
    });
}
