//! An lcore's access to a port: by its own queue pair, or by another lcore's.
//!
//! A device may have fewer queue pairs than there are lcores. Then the first lcores have one each,
//! and each other lcore hands its frames to one of those, by a ring of its own. Packets for such an
//! lcore are handed over by the lcore that received them ([`crate::rx`]).
//!
//! ```text
//!   lcore 0 ── batch ──▶ queue pair 0        lcore 2 ── batch ──▶ ring ──▶ batch of lcore 0
//!   lcore 1 ── batch ──▶ queue pair 1
//! ```

use crate::dpdk::mbuf::{Mbuf, MbufBatch};
use crate::lane::binding::PortBinding;
use crate::port::{QueueError, QueuePair};
use rtrb::{Consumer, Producer, RingBuffer};
use std::io;
use std::sync::Arc;
use uroce_shared::wake::bed::Bed;
use uroce_shared::wake::bell::Bell;
use uroce_transport::Instant;
use uroce_wire::Mac;

/// Capacity, in frames, of the ring from an lcore without a queue pair to one that has one: as many
/// as a port has descriptors by default.
const DEPTH: usize = 1024;

/// An lcore's access to a port.
#[derive(Debug)]
pub(crate) enum Queue {
    /// A queue pair, and the rings of the lcores that send through it.
    Own(QueuePair, Vec<Consumer<Mbuf>>),
    /// The ring to an lcore that has a queue pair, and that lcore's bell.
    Shared(Producer<Mbuf>, Arc<Bell>),
    /// The queue pair is with the control plane. Nothing is received or sent.
    Away(Vec<Consumer<Mbuf>>),
}

/// Makes the queues of a port, one for each lcore; `bells` are the lcores' bells.
///
/// # Errors
/// [`QueueError`] if a queue pair of the port is taken, or the port has none.
pub(crate) fn queues(binding: &PortBinding, bells: &[Arc<Bell>]) -> Result<Vec<Queue>, QueueError> {
    let lcores = bells.len();
    // The number fits: there are at most 64 lcores.
    let own = (binding.port.queue_pairs() as usize).clamp(1, lcores) as u16;
    let pair = |index| Ok(Queue::Own(binding.port.queue_pair(index)?, Vec::new()));
    let mut queues = (0..own).map(pair).collect::<Result<Vec<_>, QueueError>>()?;
    for lcore in queues.len()..lcores {
        let (producer, consumer) = RingBuffer::new(DEPTH);
        let owner = lcore % usize::from(own);
        if let Queue::Own(_, guests) = &mut queues[owner] {
            guests.push(consumer);
        }
        queues.push(Queue::Shared(producer, Arc::clone(&bells[owner])));
    }
    Ok(queues)
}

impl Queue {
    /// Gives the queue pair away; `None` if there is none.
    pub(crate) fn give_away(&mut self) -> Option<QueuePair> {
        match std::mem::replace(self, Queue::Away(Vec::new())) {
            Queue::Own(pair, guests) => {
                *self = Queue::Away(guests);
                Some(pair)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes `pair` in place of the queue pair that was given away. Returns `pair` if the queue is
    /// not [`Away`](Queue::Away). Frames in the rings of other lcores are dropped, because the link
    /// was down when they were sent.
    pub(crate) fn take_back(&mut self, pair: QueuePair) -> Option<QueuePair> {
        match self {
            Queue::Away(guests) => {
                guests.iter_mut().for_each(|guest| while guest.pop().is_ok() {});
                *self = Queue::Own(pair, std::mem::take(guests));
                None
            }
            Queue::Own(..) | Queue::Shared(..) => Some(pair),
        }
    }

    /// Begins a turn of the lcore.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant) {
        if let Queue::Own(pair, _) = self {
            pair.begin(now);
        }
    }

    /// Appends received frames to the batch; an lcore without a queue pair receives none.
    #[inline]
    pub(crate) fn rx_burst(&mut self, batch: &mut MbufBatch) {
        if let Queue::Own(pair, _) = self {
            pair.rx_burst(batch);
        }
    }

    /// Sends as many frames of the batch as there is room for; returns how many.
    #[inline]
    pub(crate) fn tx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        match self {
            Queue::Own(pair, _) => pair.tx_burst(batch),
            Queue::Shared(ring, owner) => {
                let count = hand_over(ring, batch);
                if count > 0 {
                    owner.ring();
                }
                count
            }
            Queue::Away(_) => 0,
        }
    }

    /// Frees what was sent, as far as that is possible, when the mempool is empty.
    #[cold]
    pub(crate) fn reclaim(&mut self) {
        if let Queue::Own(pair, _) = self {
            pair.reclaim();
        }
    }

    /// Takes frames of other lcores until the batch is full. Returns whether there were any.
    #[inline]
    pub(crate) fn take_over(&mut self, batch: &mut MbufBatch) -> bool {
        match self {
            Queue::Own(_, guests) if !guests.is_empty() => take_over(guests, batch),
            _ => false,
        }
    }

    /// Returns whether frames to this Ethernet address have to wait, while others need not.
    pub(crate) fn is_waiting(&self, mac: Mac) -> bool {
        matches!(self, Queue::Own(pair, _) if pair.is_waiting(mac))
    }

    /// Returns whether frames that were taken from a batch still wait in the port.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        matches!(self, Queue::Own(pair, _) if pair.has_parked())
    }

    /// Drops the frames that wait in the port; returns how many.
    pub(crate) fn drop_parked(&mut self) -> usize {
        match self {
            Queue::Own(pair, _) => pair.drop_parked(),
            Queue::Shared(..) | Queue::Away(_) => 0,
        }
    }

    /// Returns whether no frame waits in the port, and none of another lcore waits to be sent.
    pub(crate) fn is_at_rest(&self) -> bool {
        match self {
            Queue::Own(pair, guests) => !pair.has_parked() && guests.iter().all(Consumer::is_empty),
            Queue::Shared(..) | Queue::Away(_) => true,
        }
    }

    /// Makes received frames wake a bed while the queue is [armed](Queue::arm). An lcore without a
    /// queue pair is woken by its bell alone.
    ///
    /// # Errors
    /// The driver has no interrupt, or the process has no descriptor left.
    pub(crate) fn listen(&self, bed: &Bed) -> io::Result<()> {
        match self {
            Queue::Own(pair, _) => pair.listen(bed),
            Queue::Shared(..) | Queue::Away(_) => Ok(()),
        }
    }

    /// Arms the queue: received frames wake the bed from now on. Returns false if they cannot now,
    /// so that the queue has to be polled.
    pub(crate) fn arm(&mut self) -> bool {
        match self {
            Queue::Own(pair, _) => pair.arm(),
            Queue::Shared(..) | Queue::Away(_) => true,
        }
    }

    /// Disarms the queue: it is polled again.
    pub(crate) fn disarm(&mut self) {
        if let Queue::Own(pair, _) = self {
            pair.disarm();
        }
    }

    /// Returns the number of frames dropped since the start because no mbuf could hold them whole.
    #[inline]
    pub(crate) fn multi_segment_drops(&self) -> u64 {
        match self {
            Queue::Own(pair, _) => pair.multi_segment_drops(),
            Queue::Shared(..) | Queue::Away(_) => 0,
        }
    }

    /// Returns whether the port itself drops frames that have waited for too long.
    pub(crate) fn bounds_waits(&self) -> bool {
        matches!(self, Queue::Own(pair, _) if pair.bounds_waits())
    }

    /// Returns the number of frames that the port has dropped since the start because their peer
    /// has taken nothing for long.
    #[inline]
    pub(crate) fn stuck_drops(&self) -> u64 {
        match self {
            Queue::Own(pair, _) => pair.stuck_drops(),
            Queue::Shared(..) | Queue::Away(_) => 0,
        }
    }
}

fn hand_over(ring: &mut Producer<Mbuf>, batch: &mut MbufBatch) -> usize {
    let count = batch.len().min(ring.slots());
    let mut rest = MbufBatch::new();
    for (at, mbuf) in batch.drain().enumerate() {
        if at < count {
            let pushed = ring.push(mbuf);
            debug_assert!(pushed.is_ok(), "this is the ring's only producer, and there was room");
        } else {
            let pushed = rest.push(mbuf);
            debug_assert!(pushed.is_ok(), "both batches have the same capacity");
        }
    }
    *batch = rest;
    count
}

fn take_over(guests: &mut [Consumer<Mbuf>], batch: &mut MbufBatch) -> bool {
    let before = batch.len();
    for guest in guests.iter_mut() {
        while batch.room() > 0 {
            let Ok(mbuf) = guest.pop() else { break };
            let pushed = batch.push(mbuf);
            debug_assert!(pushed.is_ok(), "the loop checks for room");
        }
    }
    // The next call begins with another lcore's ring.
    guests.rotate_left(1);
    batch.len() > before
}
