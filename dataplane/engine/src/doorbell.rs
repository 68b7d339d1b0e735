//! How a post wakes an lcore: the lcore looks at one queue of QP indices, not at all its QPs.
//!
//! Invariants
//! - A QP is in the queue at most once, by its flag; so a queue as long as there are QPs never
//!   overflows.
//! - What was posted before a ring is seen by the lcore when it takes the QP from the queue after
//!   it: either the ring put the QP there, or it found the flag up, and then the QP is still to be
//!   taken. The flag's read-modify-writes order the two.

use crate::sync::{ArrayQueue, AtomicBool, Ordering};

/// A flag, and a place in the queue: an index and a stamp of a word.
pub(crate) const BYTES_PER_QP: usize = size_of::<AtomicBool>() + 2 * size_of::<usize>();

/// The QPs of one lcore that have something new in their queues.
#[derive(Debug)]
pub(crate) struct Doorbell {
    queue: ArrayQueue<u32>,
    rung: Box<[AtomicBool]>,
}

impl Doorbell {
    /// For QP indices 0 to `qps − 1`.
    pub(crate) fn new(qps: u32) -> Doorbell {
        let rung = (0..qps).map(|_| AtomicBool::new(false)).collect();
        Doorbell { queue: ArrayQueue::new(qps.max(1) as usize), rung }
    }

    /// Tells the lcore to look at QP `index`. Any thread may.
    #[inline]
    pub(crate) fn ring(&self, index: u32) {
        if !self.rung[index as usize].swap(true, Ordering::AcqRel) {
            let pushed = self.queue.push(index);
            debug_assert!(pushed.is_ok(), "each index is in the queue at most once");
        }
    }

    /// The next QP to look at. Only the lcore calls it.
    #[inline]
    pub(crate) fn next(&self) -> Option<u32> {
        if self.queue.is_empty() {
            return None;
        }
        let index = self.queue.pop()?;
        self.rung[index as usize].swap(false, Ordering::AcqRel);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::sync::Arc;

    #[test]
    fn rings_before_the_lcore_looks_are_one() {
        let doorbell = Doorbell::new(8);
        (0..3).for_each(|_| doorbell.ring(5));
        doorbell.ring(2);
        assert_eq!([doorbell.next(), doorbell.next(), doorbell.next()], [Some(5), Some(2), None]);
        doorbell.ring(5);
        assert_eq!(doorbell.next(), Some(5));
    }

    /// Producers post (count up) and ring; the lcore takes everything posted when it is rung. At
    /// the end, with all rings answered, nothing posted is left.
    #[test]
    fn no_post_is_lost() {
        const QPS: u32 = 4;
        const POSTS: u64 = 100_000;
        let doorbell = Arc::new(Doorbell::new(QPS));
        let posted: Arc<Vec<AtomicU64>> = Arc::new((0..QPS).map(|_| AtomicU64::new(0)).collect());
        let producers: Vec<_> = (0..QPS)
            .map(|index| {
                let (doorbell, posted) = (Arc::clone(&doorbell), Arc::clone(&posted));
                std::thread::spawn(move || {
                    for count in 1..=POSTS {
                        posted[index as usize].store(count, Ordering::Release);
                        doorbell.ring(index);
                    }
                })
            })
            .collect();
        let mut taken = [0; QPS as usize];
        let mut look = || {
            while let Some(index) = doorbell.next() {
                taken[index as usize] = posted[index as usize].load(Ordering::Acquire);
            }
        };
        while !producers.iter().all(|producer| producer.is_finished()) {
            look();
        }
        look();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!(taken, [POSTS; QPS as usize]);
    }
}
