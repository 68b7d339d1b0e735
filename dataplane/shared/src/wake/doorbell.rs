//! Doorbell: tells an lcore which QPs have new posts, so that it does not look at all its QPs.
//!
//! ```text
//!   ring:  newest ─▶ QP ─▶ QP ─▶ QP        each QP has its place, so nothing is allocated
//!   next:  takes the whole list, reverses it, and gives the oldest first
//! ```
//!
//! Invariants
//! - A QP is in a list at most once, by its flag.
//! - An lcore that sleeps is woken by a ring ([`crate::wake::bell`]).
//! - A list is complete at any time, and the lcore takes all of it at once. So it never waits for a
//!   thread that was stopped in the middle of a ring, and such a thread delays no other ring.
//! - The lcore sees everything posted before a ring when it takes the QP from the list after it:
//!   either the ring added the QP, or it found the flag set, and then the QP is still to be taken.
//!   The flag's read-modify-writes order the two.

use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::wake::bell::Bell;
use std::sync::Arc;

/// Bytes per QP: its place.
pub const BYTES_PER_QP: usize = size_of::<Place>();

/// No QP: an index above all.
const NOBODY: u32 = u32::MAX;

/// The QPs of one lcore that have something new in their queues.
#[derive(Debug)]
pub struct Doorbell {
    /// The QP that was rung last, of those that the lcore has not taken.
    newest: AtomicU32,
    places: Box<[Place]>,
    /// Wakes the lcore.
    bell: Arc<Bell>,
}

/// A QP's place.
#[derive(Debug)]
struct Place {
    is_rung: AtomicBool,
    /// The next in the list. Written by the thread that adds this QP, then by the lcore.
    next: AtomicU32,
}

/// The lcore's end.
#[derive(Debug)]
pub struct DoorbellReader {
    doorbell: Arc<Doorbell>,
    /// The first of the QPs that were taken and not yet returned.
    oldest: u32,
}

impl Doorbell {
    /// Makes a doorbell for QP indices 0 to `qps − 1`.
    pub fn new(qps: u32, bell: Arc<Bell>) -> Doorbell {
        let place = |_| Place { is_rung: AtomicBool::new(false), next: AtomicU32::new(NOBODY) };
        Doorbell { newest: AtomicU32::new(NOBODY), places: (0..qps).map(place).collect(), bell }
    }

    /// Adds QP `index` to the list and wakes the lcore. Any thread may call this.
    #[inline]
    pub fn ring(&self, index: u32) {
        let place = &self.places[index as usize];
        if place.is_rung.swap(true, Ordering::AcqRel) {
            return;
        }
        // Pairs with `take`: a thread that takes the list sees the links between its places.
        let _ = self.newest.fetch_update(Ordering::Release, Ordering::Relaxed, |newest| {
            place.next.store(newest, Ordering::Relaxed);
            Some(index)
        });
        self.bell.ring();
    }

    /// Wakes the lcore for work that it finds elsewhere.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

impl DoorbellReader {
    /// Makes the reader. A doorbell has only one.
    pub fn new(doorbell: Arc<Doorbell>) -> DoorbellReader {
        DoorbellReader { doorbell, oldest: NOBODY }
    }

    /// Returns the next QP with new posts.
    #[inline]
    pub fn next_rung(&mut self) -> Option<u32> {
        if self.oldest == NOBODY {
            self.take();
        }
        let index = self.oldest;
        let place = self.doorbell.places.get(index as usize)?;
        self.oldest = place.next.load(Ordering::Relaxed);
        place.is_rung.swap(false, Ordering::AcqRel);
        Some(index)
    }

    /// Takes the list and reverses it.
    fn take(&mut self) {
        let Doorbell { newest, places, .. } = &*self.doorbell;
        if newest.load(Ordering::Relaxed) == NOBODY {
            return;
        }
        let mut newest = newest.swap(NOBODY, Ordering::Acquire);
        while let Some(place) = places.get(newest as usize) {
            let next = place.next.load(Ordering::Relaxed);
            place.next.store(self.oldest, Ordering::Relaxed);
            (self.oldest, newest) = (newest, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    #[test]
    fn rings_before_the_lcore_looks_are_one() {
        let doorbell = Arc::new(Doorbell::new(8, Arc::default()));
        let mut reader = DoorbellReader::new(Arc::clone(&doorbell));
        assert_eq!(reader.next_rung(), None);
        (0..3).for_each(|_| doorbell.ring(5));
        doorbell.ring(2);
        assert_eq!(
            [reader.next_rung(), reader.next_rung(), reader.next_rung()],
            [Some(5), Some(2), None]
        );
        doorbell.ring(5);
        assert_eq!(reader.next_rung(), Some(5));
    }

    #[test]
    fn a_qp_that_rings_again_comes_behind_those_that_wait() {
        let doorbell = Arc::new(Doorbell::new(8, Arc::default()));
        let mut reader = DoorbellReader::new(Arc::clone(&doorbell));
        (0..4).for_each(|index| doorbell.ring(index));
        let mut given = Vec::new();
        for _ in 0..6 {
            given.extend(reader.next_rung());
            doorbell.ring(given[0]);
        }
        assert_eq!(given, [0, 1, 2, 3, 0, 0], "in the order of their rings");
    }

    /// The flag is set and the QP in no list yet: the ringing thread was stopped there.
    #[test]
    fn a_ring_that_stopped_in_the_middle_keeps_no_other_qp_waiting() {
        let doorbell = Arc::new(Doorbell::new(3, Arc::default()));
        let mut reader = DoorbellReader::new(Arc::clone(&doorbell));
        doorbell.ring(0);
        doorbell.places[1].is_rung.store(true, Ordering::Relaxed);
        doorbell.ring(2);
        assert_eq!(
            [reader.next_rung(), reader.next_rung(), reader.next_rung()],
            [Some(0), Some(2), None]
        );
    }

    /// Producers post (count up) and ring; the lcore takes everything posted when it is rung. At
    /// the end, with all rings answered, nothing posted is left.
    #[test]
    fn no_post_is_lost() {
        const QPS: u32 = 4;
        const POSTS: u64 = 100_000;
        let doorbell = Arc::new(Doorbell::new(QPS, Arc::default()));
        let mut reader = DoorbellReader::new(Arc::clone(&doorbell));
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
            while let Some(index) = reader.next_rung() {
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
