//! A bottleneck: one shared link to a node, served at a rate from a queue that marks and drops.
//!
//! ```text
//!   senders' ports ── latency ──> [ queue ] ── gbps ── latency ──> receiver
//!                                 │ marks between kmin and kmax with probability 0 to pmax,
//!                                 │ above kmax always; drops what does not fit
//! ```
//!
//! Invariants
//! - Frames leave in the order in which they have come, none earlier than the link is free.
//! - Only ECN-capable frames are marked. Others pass, as at a switch that drops at the end only.

use core::time::Duration;

use crate::world::frame;
use crate::world::{Event, World};
use uroce_transport::Instant;

/// Parameters of a bottleneck.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bottleneck {
    /// Rate of the link in Gb/s.
    pub gbps: u64,
    /// Largest number of bytes in the queue.
    pub capacity: u64,
    /// Length of the queue in bytes from which frames are marked.
    pub kmin: u64,
    /// Length of the queue in bytes from which every frame is marked.
    pub kmax: u64,
    /// Probability of a mark just below `kmax`.
    pub pmax: f64,
    /// Time from the queue to the receiver.
    pub latency: Duration,
}

/// Counts of a bottleneck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Frames that were marked.
    pub marked: u64,
    /// Frames that did not fit into the queue.
    pub dropped: u64,
    /// Frames that have passed.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The queue of a bottleneck.
#[derive(Debug)]
pub(crate) struct Queue {
    terms: Bottleneck,
    /// Time at which the link has sent all that is queued.
    free_at: Instant,
    passed: Passed,
}

impl Queue {
    fn bytes(&self, now: Instant) -> u64 {
        self.free_at.since(now).as_nanos() as u64 * self.terms.gbps / 8
    }

    /// Probability of a mark at this length.
    fn mark_rate(&self, bytes: u64) -> f64 {
        let Bottleneck { kmin, kmax, pmax, .. } = self.terms;
        match bytes {
            _ if bytes >= kmax => 1.0,
            _ if bytes <= kmin => 0.0,
            _ => pmax * (bytes - kmin) as f64 / (kmax - kmin) as f64,
        }
    }
}

impl World {
    /// Puts a bottleneck before a node, for all frames from other nodes.
    pub fn narrow(&mut self, to: u16, terms: Bottleneck) {
        let queue = Queue { terms, free_at: Instant::ZERO, passed: Passed::default() };
        let to = usize::from(to);
        if self.queues.len() <= to {
            self.queues.resize_with(to + 1, || None);
        }
        self.queues[to] = Some(queue);
    }

    /// Bytes in the queue of the bottleneck before a node; 0 if there is none.
    pub fn queued_bytes(&self, to: u16) -> u64 {
        let queue = self.queues.get(usize::from(to)).and_then(Option::as_ref);
        queue.map_or(0, |queue| queue.bytes(self.now()))
    }

    /// Counts of the bottleneck before a node; zeros if there is none.
    pub fn passed(&self, to: u16) -> Passed {
        let queue = self.queues.get(usize::from(to)).and_then(Option::as_ref);
        queue.map_or(Passed::default(), |queue| queue.passed)
    }

    /// Returns whether there is a bottleneck before a node.
    pub(crate) fn is_narrow(&self, to: u16) -> bool {
        self.queues.get(usize::from(to)).is_some_and(Option::is_some)
    }

    /// Handles a frame that has come to the queue before a node.
    pub(crate) fn enqueue(&mut self, to: u16, place: u32) {
        let now = self.now();
        let Some(queue) = self.queues[usize::from(to)].as_mut() else { return };
        let bytes = &mut self.flying[place as usize].frame;
        let (len, queued) = (bytes.len() as u64, queue.bytes(now));
        if queued + len > queue.terms.capacity {
            queue.passed.dropped += 1;
            let connection = self.flying[place as usize].connection;
            self.blame(connection);
            return self.lose(to, place);
        }
        let rate = queue.mark_rate(queued);
        if rate > 0.0 && frame::is_ecn_capable(bytes) && self.rng.f64() < rate {
            frame::mark(bytes);
            queue.passed.marked += 1;
        }
        queue.passed.frames += 1;
        queue.passed.bytes += len;
        queue.free_at =
            queue.free_at.max(now) + Duration::from_nanos((len * 8).div_ceil(queue.terms.gbps));
        let arrival = queue.free_at + queue.terms.latency;
        self.agenda.enter(arrival, Event::Arrive { to, frame: place });
    }
}
