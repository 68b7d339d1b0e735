//! Reliable datagrams: what an end-to-end context's responses have besides those of a connection.

use std::collections::VecDeque;

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::Seen;
use crate::psn::distance;

/// Number of requests that are remembered.
const KEPT: usize = 1024;

/// What is known of the requests that an end-to-end context has got.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// PSN and RD QP of each request packet.
    sources: VecDeque<(u32, u32)>,
    /// Those of the request packet with the newest PSN.
    newest: Option<(u32, u32)>,
    /// PSN and syndrome of the refusal after which there is no other response. It is repeated for
    /// earlier packets, too, with their PSNs.
    pub(crate) refused: Option<(u32, u8)>,
}

impl Datagrams {
    /// Notes that a request arrives.
    pub(crate) fn arrived(&mut self, seen: &Seen) {
        if self.sources.len() == KEPT {
            self.sources.pop_front();
        }
        self.sources.push_back((seen.psn, seen.src_qpn));
        if self.newest.is_none_or(|(psn, _)| distance(seen.psn, psn) >= 0) {
            self.newest = Some((seen.psn, seen.src_qpn));
        }
    }

    /// Checks a response: it goes to the RD QP with the request of its PSN, if that has come, or to
    /// the one with the newest request, and after a refusal there is no other.
    pub(crate) fn check(&self, seen: &Seen) -> Result<(), Flaw> {
        if let Some((psn, syndrome)) = self.refused {
            let is_it = seen.syndrome == syndrome && distance(seen.psn, psn) <= 0;
            ensure(is_it, Rule::SentAfterEnd, seen.psn, psn)?;
        }
        let asked = self.sources.iter().rev().find(|(psn, _)| *psn == seen.psn);
        match asked {
            Some((_, source)) => {
                let is_newest = self.newest.is_some_and(|(_, newest)| newest == seen.dest_qpn);
                let is_its = seen.dest_qpn == *source || is_newest;
                ensure(is_its, Rule::OtherRdQp, seen.dest_qpn, *source)
            }
            None => Ok(()),
        }
    }
}
