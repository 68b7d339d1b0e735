//! Reliable datagrams: what an end-to-end context's responses have besides those of a connection.

use std::collections::VecDeque;

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Kind, Seen, Shape};
use crate::psn::{add, distance};

/// Number of requests that are remembered.
const KEPT: usize = 1024;

/// A request packet that has come.
#[derive(Clone, Copy, Debug)]
struct Source {
    psn: u32,
    /// Number of PSNs of its responses, 1 unless it is a READ.
    psns: u32,
    /// RD QP that it is of.
    qpn: u32,
}

/// What is known of the requests that an end-to-end context has got.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// The newest request packets that have come.
    sources: VecDeque<Source>,
    /// The one with the newest PSN.
    newest: Option<Source>,
    /// A request that may have been executed has come since the last response.
    may_have_executed: bool,
    /// PSN and syndrome of the refusal after which there is no other response. It is repeated for
    /// earlier packets, too, with their PSNs.
    pub(crate) refused: Option<(u32, u8)>,
}

impl Datagrams {
    /// Notes that a request arrives, with a response of `psns` PSNs.
    pub(crate) fn arrived(&mut self, seen: &Seen, shape: &Shape, psns: u32) {
        if self.sources.len() == KEPT {
            self.sources.pop_front();
        }
        let source = Source { psn: seen.psn, psns, qpn: seen.src_qpn };
        self.sources.push_back(source);
        let is_newest = |newest: Source| distance(seen.psn, newest.psn) >= 0;
        if self.newest.is_none_or(is_newest) {
            self.newest = Some(source);
        }
        self.may_have_executed |= shape.kind != Kind::Resync;
    }

    /// Checks the count of messages in a response, when `before` was that in the last one: there is
    /// one message at a time, and a RESYNC is none.
    pub(crate) fn check_msn(&mut self, msn: u32, before: u32) -> Result<(), Flaw> {
        let most = add(before, u32::from(self.may_have_executed));
        self.may_have_executed = false;
        ensure(distance(msn, most) <= 0, Rule::MsnAhead, msn, most)
    }

    /// Checks a response: it goes to the RD QP with the request of its PSN, or to the one with the
    /// newest request, and after a refusal there is no other.
    pub(crate) fn check(&self, seen: &Seen) -> Result<(), Flaw> {
        if let Some((psn, syndrome)) = self.refused {
            let is_it = seen.syndrome == syndrome && distance(seen.psn, psn) <= 0;
            ensure(is_it, Rule::SentAfterEnd, seen.psn, psn)?;
        }
        let Some(newest) = self.newest else { return Ok(()) };
        let is_its = |source: &Source| {
            let at = distance(seen.psn, source.psn);
            source.qpn == seen.dest_qpn && at >= 0 && (at as u32) < source.psns
        };
        let is_known = newest.qpn == seen.dest_qpn || self.sources.iter().any(is_its);
        ensure(is_known, Rule::OtherRdQp, seen.dest_qpn, newest.qpn)
    }
}
