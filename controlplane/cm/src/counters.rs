//! Counters of messages sent, received and dropped.

use uroce_wire::cm::Attribute;

use crate::MadDrop;

/// Counters of a [`crate::Cm`] since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    sent: [u64; Attribute::ALL.len()],
    received: [u64; Attribute::ALL.len()],
    dropped: [u64; MadDrop::ALL.len()],
    /// Messages sent again because no answer came.
    pub retransmitted: u64,
    /// Half-open connections given up early to make room.
    pub evicted: u64,
    /// Messages dropped because the queue of messages to send was full.
    pub tx_overflow: u64,
}

fn index(attribute: Attribute) -> usize {
    usize::from(attribute as u16 - Attribute::Req as u16)
}

impl CmCounters {
    /// Returns the number of messages of a kind that were sent, repetitions included.
    pub fn sent(&self, attribute: Attribute) -> u64 {
        self.sent[index(attribute)]
    }

    /// Returns the number of well-formed messages of a kind that were received.
    pub fn received(&self, attribute: Attribute) -> u64 {
        self.received[index(attribute)]
    }

    /// Returns the number of MADs dropped for `reason`.
    pub fn dropped(&self, reason: MadDrop) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) fn count_sent(&mut self, attribute: Attribute) {
        self.sent[index(attribute)] += 1;
    }

    pub(crate) fn count_received(&mut self, attribute: Attribute) {
        self.received[index(attribute)] += 1;
    }

    pub(crate) fn count_dropped(&mut self, reason: MadDrop) {
        self.dropped[reason as usize] += 1;
    }
}
