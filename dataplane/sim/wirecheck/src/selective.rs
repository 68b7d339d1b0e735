//! Selective repeat: which packets a requester may send again, and what a responder may list as
//! held. Both ends have agreed on it.
//!
//! A packet may be sent again once a later one is known to have arrived, where later means sent
//! after its newest copy. While a READ or ATOMIC is outstanding, the rules are those of any
//! requester ([`crate::requester`]).

use std::collections::{BTreeMap, HashSet};

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::{Seen, Shape};
use crate::psn::{add, distance};

/// The PSNs that a selective acknowledgement for the PSN before `first` lists.
pub(crate) fn listed(first: u32, bitmap: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let bits = bitmap.len() as u32 * 8;
    (0..bits)
        .filter(|at| bitmap[*at as usize / 8] >> (at % 8) & 1 == 1)
        .map(move |at| add(first, at))
}

/// What a requester knows of the packets that it has sent.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Position in the order of sending of each packet's newest copy, from the oldest
    /// unacknowledged on.
    sent: BTreeMap<u32, u64>,
    /// PSNs that the peer has told to hold.
    held: HashSet<u32>,
    /// Position of the packet sent last.
    last: u64,
    /// Copies sent before this position may be lost.
    doubtful: u64,
    /// Position at the time of the last probe.
    probed: u64,
    /// Until everything before it is acknowledged, the requester goes back like any other.
    pub(crate) rests_until: u32,
}

impl Known {
    pub(crate) fn new(first_psn: u32) -> Known {
        Known { rests_until: first_psn, ..Known::default() }
    }

    /// Notes that a packet is sent.
    pub(crate) fn sent(&mut self, psn: u32) {
        self.last += 1;
        self.sent.insert(psn, self.last);
    }

    /// Checks that a packet may be sent again for what is known, or because it may be a probe.
    pub(crate) fn check_repeated(&self, psn: u32, may_probe: bool) -> Result<(), Flaw> {
        let newest = self.sent.get(&psn).copied().unwrap_or(0);
        let is_lost = newest <= self.doubtful && !self.held.contains(&psn);
        ensure(is_lost || may_probe, Rule::RepeatedAlone, psn, self.rests_until)
    }

    /// Notes that a packet is sent that may be a probe.
    pub(crate) fn probed(&mut self) {
        self.probed = self.last;
    }

    /// Notes a cause to send everything again that was sent until now. `is_forgotten` tells whether
    /// the peer may have lost what it held.
    pub(crate) fn doubt_all(&mut self, is_forgotten: bool) {
        self.doubtful = self.last;
        if is_forgotten {
            self.held.clear();
        }
    }

    /// Notes that the peer has refused a packet for now.
    pub(crate) fn refused(&mut self, psn: u32) {
        self.held.remove(&psn);
        self.sent.insert(psn, 0);
    }

    /// Returns whether the packet may be known to be lost, and be yet to be sent again.
    pub(crate) fn is_doubtful(&self, psn: u32) -> bool {
        self.sent.get(&psn).is_none_or(|sent| *sent <= self.doubtful)
    }

    /// Notes that everything before `una` is acknowledged, of which `before` was the oldest.
    pub(crate) fn advance(&mut self, before: u32, una: u32) {
        let mut psn = before;
        while distance(psn, una) < 0 && !(self.sent.is_empty() && self.held.is_empty()) {
            // A packet that is acknowledged has arrived.
            if let Some(sent) = self.sent.remove(&psn) {
                self.doubtful = self.doubtful.max(sent.saturating_sub(1));
            }
            self.held.remove(&psn);
            psn = add(psn, 1);
        }
        // The peer expects `una`: if it held that, it has refused it.
        if self.held.contains(&una) {
            self.refused(una);
        }
        if distance(self.rests_until, una) < 0 {
            self.rests_until = una;
        }
    }

    /// Notes the list of a selective acknowledgement; `end` is the PSN after the newest sent.
    /// Returns whether it lists anything.
    pub(crate) fn told(&mut self, first: u32, end: u32, bitmap: &[u8]) -> bool {
        let mut has_any = false;
        for psn in listed(first, bitmap).filter(|psn| distance(*psn, end) < 0) {
            has_any = true;
            self.held.insert(psn);
            let sent = self.sent.get(&psn).copied().unwrap_or(0);
            self.doubtful = self.doubtful.max(sent.saturating_sub(1));
        }
        has_any
    }

    /// Notes any acknowledgement: if a probe was sent before, all that was sent before it may be
    /// lost.
    pub(crate) fn answered(&mut self) {
        self.doubtful = self.doubtful.max(self.probed);
    }
}

/// Requests that have arrived at a responder, from the PSN on that it may still expect.
#[derive(Debug, Default)]
pub(crate) struct Come {
    requests: BTreeMap<u32, (Seen, Shape)>,
}

impl Come {
    pub(crate) fn insert(&mut self, seen: &Seen, shape: &Shape) {
        self.requests.insert(seen.psn, (*seen, *shape));
    }

    pub(crate) fn get(&self, psn: u32) -> Option<(Seen, Shape)> {
        self.requests.get(&psn).copied()
    }

    /// Forgets the requests before `low`.
    pub(crate) fn advance(&mut self, low: u32) {
        self.requests.retain(|psn, _| distance(*psn, low) >= 0);
    }

    /// Checks the list of a selective acknowledgement: all of it has come, and the expected PSN
    /// `first` is not in it.
    pub(crate) fn check_list(&self, first: u32, bitmap: &[u8]) -> Result<(), Flaw> {
        for psn in listed(first, bitmap) {
            ensure(psn != first, Rule::ListsExpected, psn, first)?;
            ensure(self.requests.contains_key(&psn), Rule::AckOfNothing, psn, first)?;
        }
        Ok(())
    }
}
