//! A bounded queue of several producers and consumers, modelled on crossbeam's `ArrayQueue`: the
//! same steps and memory orders, on positions that do not wrap.
//!
//! A producer takes a position by moving `tail`, writes, and stamps the slot. A consumer checks the
//! stamp, takes the position by moving `head`, reads, and stamps the slot for the next lap.

use super::{AtomicUsize, fence};
use loom::cell::UnsafeCell;
use loom::thread::yield_now;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

#[derive(Debug)]
pub struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[Slot<T>]>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Twice the position that may be written next, or one more than that once it may be read. The
    /// position of lap *n* and slot *i* is `n · capacity + i`.
    stamp: AtomicUsize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the thread that took a position accesses its slot's value, which loom verifies.
unsafe impl<T: Send> Send for ArrayQueue<T> {}
// SAFETY: only the thread that took a position accesses its slot's value, which loom verifies.
unsafe impl<T: Send> Sync for ArrayQueue<T> {}

#[allow(dead_code, reason = "as far as the engine's files use it")]
impl<T> ArrayQueue<T> {
    pub fn new(capacity: usize) -> ArrayQueue<T> {
        let slot = |at| Slot { stamp: AtomicUsize::new(2 * at), value: UnsafeCell::new(None) };
        ArrayQueue {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            slots: (0..capacity).map(slot).collect(),
        }
    }

    pub fn push(&self, value: T) -> Result<(), T> {
        let mut tail = self.tail.load(Relaxed);
        loop {
            let slot = &self.slots[tail % self.slots.len()];
            let stamp = slot.stamp.load(Acquire);
            if stamp == 2 * tail {
                match self.tail.compare_exchange(tail, tail + 1, SeqCst, Relaxed) {
                    Ok(_) => {
                        // SAFETY: the exchange of `tail` has given this thread the position.
                        slot.value.with_mut(|place| unsafe { *place = Some(value) });
                        slot.stamp.store(2 * tail + 1, Release);
                        return Ok(());
                    }
                    Err(moved) => tail = moved,
                }
                continue;
            }
            if tail >= self.slots.len() && stamp == 2 * (tail - self.slots.len()) + 1 {
                fence(SeqCst);
                if self.head.load(Relaxed) + self.slots.len() == tail {
                    return Err(value);
                }
            }
            yield_now();
            tail = self.tail.load(Relaxed);
        }
    }

    pub fn pop(&self) -> Option<T> {
        let mut head = self.head.load(Relaxed);
        loop {
            let slot = &self.slots[head % self.slots.len()];
            let stamp = slot.stamp.load(Acquire);
            if stamp == 2 * head + 1 {
                match self.head.compare_exchange(head, head + 1, SeqCst, Relaxed) {
                    Ok(_) => {
                        // SAFETY: the exchange of `head` has given this thread the position.
                        let value = slot.value.with_mut(|place| unsafe { (*place).take() });
                        slot.stamp.store(2 * (head + self.slots.len()), Release);
                        return value;
                    }
                    Err(moved) => head = moved,
                }
                continue;
            }
            if stamp == 2 * head {
                fence(SeqCst);
                if self.tail.load(Relaxed) == head {
                    return None;
                }
            }
            yield_now();
            head = self.head.load(Relaxed);
        }
    }

    pub fn is_empty(&self) -> bool {
        let head = self.head.load(SeqCst);
        self.tail.load(SeqCst) == head
    }

    pub fn len(&self) -> usize {
        let tail = self.tail.load(SeqCst);
        tail.saturating_sub(self.head.load(SeqCst))
    }

    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}
