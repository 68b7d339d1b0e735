//! Responder resources: READ and ATOMIC requests accepted, kept to be answered and answered again.
//!
//! What holds
//! - The newest `max_dest_rd_atomic` requests (rounded up to a power of two, since some peers
//!   round theirs) stay replayable; an older one makes room for a new one once it is answered.
//! - An ATOMIC is kept with its result: it is replayed, never executed twice.
//! - Answers go out in the order of the requests.

use uroce_wire::{Psn, Reth, Rkey, Va};

use crate::attr::MAX_RD_ATOMIC;
use crate::ring::Ring;

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Read { va: Va, rkey: Rkey, len: u32 },
    Atomic { original: u64 },
}

/// One accepted request and how far its answer has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) asked: Asked,
    first_psn: Psn,
    /// PSNs of the whole answer.
    psns: u32,
    /// First packet of the answer being given: 0, or where a repeated READ begins.
    from: u32,
    /// Next packet to send.
    next: u32,
    /// One past the last packet to send; nothing is left when `next` is there.
    end: u32,
    /// Bytes of the READ up to which is answered.
    end_offset: u32,
    /// The whole answer has gone out once. A repetition may be under way.
    is_answered: bool,
}

/// One packet of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) asked: Asked,
    pub(super) psn: Psn,
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// Of a READ: where the packet's payload begins.
    pub(super) offset: u32,
    pub(super) len: u32,
    at: u32,
}

#[derive(Debug)]
pub(super) struct Resources {
    slots: Ring<Resource>,
    depth: u32,
    /// Requests whose answer is not complete.
    unanswered: u32,
}

impl Resources {
    pub(super) fn new() -> Resources {
        let slots = Ring::new(u32::from(MAX_RD_ATOMIC));
        Resources { slots, depth: 0, unanswered: 0 }
    }

    pub(super) fn start(&mut self, max_dest_rd_atomic: u8) {
        self.clear();
        self.set_depth(max_dest_rd_atomic);
    }

    pub(super) fn set_depth(&mut self, max_dest_rd_atomic: u8) {
        let depth = u32::from(max_dest_rd_atomic);
        self.depth = if depth == 0 { 0 } else { depth.next_power_of_two() };
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.unanswered = 0;
    }

    /// Is there room for one more request?
    //= check C14 — with max_dest_rd_atomic 0 there never is
    pub(super) fn has_room(&self) -> bool {
        self.depth > 0 && (self.slots.len() < self.depth || self.oldest_is_answered())
    }

    /// Keeps a request that takes `psns` PSNs from `first_psn` on. [`has_room`] was true.
    ///
    /// [`has_room`]: Resources::has_room
    pub(super) fn push(&mut self, asked: Asked, first_psn: Psn, psns: u32) {
        while self.slots.len() >= self.depth && self.oldest_is_answered() {
            self.forget_oldest();
        }
        let end_offset = match asked {
            Asked::Read { len, .. } => len,
            Asked::Atomic { .. } => 0,
        };
        self.slots.push(Resource {
            asked,
            first_psn,
            psns,
            from: 0,
            next: 0,
            end: psns,
            end_offset,
            is_answered: false,
        });
        self.unanswered += 1;
    }

    /// The next packet that is owed to the peer.
    pub(super) fn next_reply(&self, mtu: u32) -> Option<Reply> {
        if self.unanswered == 0 {
            return None;
        }
        let (at, resource) = self.iter().find(|(_, resource)| resource.next != resource.end)?;
        let offset = resource.next * mtu;
        Some(Reply {
            asked: resource.asked,
            psn: resource.first_psn.plus(resource.next),
            is_first: resource.next == resource.from,
            is_last: resource.next + 1 == resource.end,
            offset,
            len: resource.end_offset.saturating_sub(offset).min(mtu),
            at,
        })
    }

    /// The reply went out.
    pub(super) fn sent(&mut self, reply: &Reply) {
        let resource = &mut self.slots[reply.at];
        resource.next += 1;
        if resource.next == resource.end {
            resource.is_answered = true;
            self.unanswered -= 1;
        }
    }

    /// A repeated READ: answers again from `psn` on, if it lies within a kept request.
    //= check C5 — a repeated READ is answered from memory again, with the same PSNs
    //= check C6 — a larger range, a lower address or another key is not answered
    pub(super) fn replay_read(&mut self, psn: Psn, reth: &Reth, mtu: u32) -> bool {
        let Some(at) = self.find(psn) else { return false };
        let resource = &mut self.slots[at];
        let Asked::Read { va, rkey, len } = resource.asked else { return false };
        let from = psn.distance_from(resource.first_psn) as u32;
        let offset = from * mtu;
        let is_inside = reth.rkey == rkey
            && reth.va == Va(va.0.wrapping_add(u64::from(offset)))
            && reth.dma_len <= len.saturating_sub(offset);
        if !is_inside {
            return false;
        }
        let end = from + super::packets(reth.dma_len, mtu);
        let was_answered = resource.next == resource.end;
        if !was_answered && resource.next <= from && end <= resource.end {
            return true; // still owed, it will come in its turn
        }
        resource.from = from;
        resource.next = from;
        resource.end = end;
        resource.end_offset = offset + reth.dma_len;
        self.unanswered += u32::from(was_answered);
        true
    }

    /// A repeated ATOMIC: gives the kept result again.
    //= check D1 — the original value is replayed, memory is not touched again
    //= check D3 — whatever the repetition's operands are
    pub(super) fn replay_atomic(&mut self, psn: Psn) -> bool {
        let Some(at) = self.find(psn) else { return false };
        let resource = &mut self.slots[at];
        if !matches!(resource.asked, Asked::Atomic { .. }) {
            return false;
        }
        self.unanswered += u32::from(resource.next == resource.end);
        resource.next = 0;
        true
    }

    /// A peer that keeps to its limit asks for one more only when it has the oldest answer. A
    /// repetition of that, which some late duplicate has asked for, need not be finished.
    fn oldest_is_answered(&self) -> bool {
        self.slots.front().is_some_and(|oldest| oldest.is_answered)
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.slots.pop() {
            self.unanswered -= u32::from(oldest.next != oldest.end);
        }
    }

    /// The newest request that holds `psn`: after 2^24 packets an older one may hold it as well.
    fn find(&self, psn: Psn) -> Option<u32> {
        let holds = |resource: &Resource| {
            let index = psn.distance_from(resource.first_psn);
            index >= 0 && (index as u32) < resource.psns
        };
        self.iter().rev().find(|(_, resource)| holds(resource)).map(|(at, _)| at)
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &Resource)> {
        let head = self.slots.head();
        (0..self.slots.len()).map(move |index| {
            let at = head.wrapping_add(index);
            (at, &self.slots[at])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= check D5 test
    fn of_two_requests_with_one_psn_the_newer_is_replayed() {
        let mut resources = Resources::new();
        resources.start(4);
        for original in [1, 2] {
            resources.push(Asked::Atomic { original }, Psn::new(5), 1);
            let reply = resources.next_reply(256).unwrap();
            resources.sent(&reply);
        }
        assert!(resources.replay_atomic(Psn::new(5)));
        let reply = resources.next_reply(256).unwrap();
        assert!(matches!(reply.asked, Asked::Atomic { original: 2 }));
    }
}
