//! A queue in stretches: its greatest length is fixed, but memory is allocated stretch by stretch.
//!
//! Pushing neither allocates nor locks. Making a stretch does both; the caller does it for new
//! places.

use crate::sync::ArrayQueue;
use std::sync::OnceLock;

/// Length of the first stretch. Each further one is as long as all before it together.
const FIRST: usize = 1024;

#[derive(Debug)]
pub(super) struct Ready<T> {
    stretches: Box<[Stretch<T>]>,
}

#[derive(Debug)]
struct Stretch<T> {
    len: usize,
    queue: OnceLock<ArrayQueue<T>>,
}

impl<T> Ready<T> {
    /// Makes a queue for `len` entries, without any stretch yet.
    pub(super) fn new(len: usize) -> Ready<T> {
        let mut made = 0;
        let lengths = std::iter::from_fn(|| {
            let next = made.max(FIRST).min(len - made);
            made += next;
            (next > 0).then_some(next)
        });
        let stretches = lengths.map(|len| Stretch { len, queue: OnceLock::new() });
        Ready { stretches: stretches.collect() }
    }

    /// Returns the number of places of a stretch.
    pub(super) fn len_of(&self, at: usize) -> usize {
        self.stretches.get(at).map_or(0, |stretch| stretch.len)
    }

    /// Allocates a stretch. Returns false if there is no such stretch.
    pub(super) fn make(&self, at: usize) -> bool {
        let Some(stretch) = self.stretches.get(at) else { return false };
        stretch.queue.get_or_init(|| ArrayQueue::new(stretch.len));
        true
    }

    /// Adds an entry to an allocated stretch. Returns false if there is no room.
    pub(super) fn push(&self, at: usize, entry: T) -> bool {
        self.queue(at).is_some_and(|queue| queue.push(entry).is_ok())
    }

    /// Takes the oldest entry of a stretch.
    pub(super) fn pop_of(&self, at: usize) -> Option<T> {
        self.queue(at)?.pop()
    }

    /// Takes an entry of the first stretch, from `next` on, that has one. Sets `next` to the
    /// stretch after it.
    pub(super) fn pop(&self, next: &mut usize) -> Option<T> {
        let count = self.stretches.len();
        for offset in 0..count {
            let at = (*next + offset) % count;
            if let Some(entry) = self.pop_of(at) {
                *next = at + 1;
                return Some(entry);
            }
        }
        None
    }

    /// Returns the number of entries in a stretch.
    pub(super) fn waiting(&self, at: usize) -> usize {
        self.queue(at).map_or(0, ArrayQueue::len)
    }

    fn queue(&self, at: usize) -> Option<&ArrayQueue<T>> {
        self.stretches.get(at)?.queue.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_as_long_as_all_before_and_end_where_they_are_to() {
        for len in [0, 1, 1023, 1024, 1025, 2048, 5000, 1 << 18] {
            let ready = Ready::<u8>::new(len);
            let lengths: Vec<usize> =
                (0..).map(|at| ready.len_of(at)).take_while(|len| *len > 0).collect();
            assert_eq!(lengths.iter().sum::<usize>(), len);
            for (at, &length) in lengths.iter().enumerate() {
                let before: usize = lengths[..at].iter().sum();
                assert!(length == before.max(FIRST) || at + 1 == lengths.len(), "{lengths:?}");
            }
            assert!(!ready.make(lengths.len()));
        }
    }

    #[test]
    fn stretches_are_served_in_turn() {
        let ready = Ready::new(3000);
        assert!(!ready.push(0, 1), "it is not made");
        assert!(ready.make(0) && ready.make(1) && ready.make(1));
        for (at, entry) in [(0, 1), (0, 2), (1, 3), (0, 4)] {
            assert!(ready.push(at, entry));
        }
        let mut next = 0;
        let order: Vec<i32> = std::iter::from_fn(|| ready.pop(&mut next)).collect();
        assert_eq!(order, [1, 3, 2, 4]);
    }
}
