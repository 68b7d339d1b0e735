//! A ring of one producer and one consumer, modelled on rtrb's: the same memory orders, on
//! positions that do not wrap.

use super::AtomicUsize;
use loom::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[derive(Debug)]
pub struct Shared<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    slots: Box<[UnsafeCell<Option<T>>]>,
}

// SAFETY: `head` and `tail` give each slot to either the producer or the consumer; loom verifies
// it.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: `head` and `tail` give each slot to either the producer or the consumer; loom verifies
// it.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<Option<T>> {
        &self.slots[position % self.slots.len()]
    }
}

#[derive(Debug)]
pub struct Producer<T>(Arc<Shared<T>>);

#[derive(Debug)]
pub struct Consumer<T>(Arc<Shared<T>>);

pub struct RingBuffer<T>(PhantomData<T>);

impl<T> RingBuffer<T> {
    #[allow(clippy::new_ret_no_self, reason = "as rtrb's")]
    pub fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
        let slots = (0..capacity).map(|_| UnsafeCell::new(None)).collect();
        let shared = Shared { head: AtomicUsize::new(0), tail: AtomicUsize::new(0), slots };
        let shared = Arc::new(shared);
        (Producer(Arc::clone(&shared)), Consumer(shared))
    }
}

impl<T> Producer<T> {
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let Ok(chunk) = self.write_chunk_uninit(1) else { return Err(value) };
        chunk.fill_from_iter([value]);
        Ok(())
    }

    pub fn write_chunk_uninit(&mut self, count: usize) -> Result<Chunk<'_, T>, usize> {
        let tail = self.0.tail.load(Relaxed);
        let room = self.0.slots.len() - (tail - self.0.head.load(Acquire));
        if room < count { Err(room) } else { Ok(Chunk { shared: &self.0, tail, count }) }
    }
}

/// Room for some values, which become readable together.
pub struct Chunk<'a, T> {
    shared: &'a Shared<T>,
    tail: usize,
    count: usize,
}

impl<T> Chunk<'_, T> {
    pub fn fill_from_iter(self, values: impl IntoIterator<Item = T>) -> usize {
        let mut at = self.tail;
        for value in values.into_iter().take(self.count) {
            // SAFETY: the position is between `tail` and `head + capacity`, so it is the
            // producer's.
            self.shared.slot(at).with_mut(|place| unsafe { *place = Some(value) });
            at += 1;
        }
        self.shared.tail.store(at, Release);
        at - self.tail
    }
}

impl<T> Consumer<T> {
    pub fn is_empty(&self) -> bool {
        self.0.tail.load(Acquire) == self.0.head.load(Relaxed)
    }

    pub fn slots(&self) -> usize {
        self.0.tail.load(Acquire) - self.0.head.load(Relaxed)
    }

    /// The oldest value; only this consumer could take it.
    pub fn peek(&self) -> Result<&T, ()> {
        let head = self.0.head.load(Relaxed);
        if self.0.tail.load(Acquire) == head {
            return Err(());
        }
        // SAFETY: the position is between `head` and `tail`, so it is the consumer's; `pop` needs
        // `&mut self` while the reference lives.
        self.0.slot(head).with(|place| unsafe { (*place).as_ref() }).ok_or(())
    }

    /// The state that both ends share.
    pub fn buffer(&self) -> &Shared<T> {
        &self.0
    }

    pub fn pop(&mut self) -> Result<T, ()> {
        let head = self.0.head.load(Relaxed);
        if self.0.tail.load(Acquire) == head {
            return Err(());
        }
        // SAFETY: the position is between `head` and `tail`, so it is the consumer's.
        let value = self.0.slot(head).with_mut(|place| unsafe { (*place).take() });
        self.0.head.store(head + 1, Release);
        value.ok_or(())
    }
}

impl<T: Copy> Consumer<T> {
    pub fn read_chunk(&mut self, count: usize) -> Result<ReadChunk<'_, T>, usize> {
        let head = self.0.head.load(Relaxed);
        let waiting = self.0.tail.load(Acquire) - head;
        if waiting < count {
            return Err(waiting);
        }
        // SAFETY: the positions are between `head` and `tail`, so they are the consumer's.
        let read = |at| self.0.slot(at).with(|place| unsafe { *place });
        let values = (head..head + count).filter_map(read).collect();
        Ok(ReadChunk { shared: &self.0, head, values })
    }
}

/// The oldest values; the producer may reuse their slots once they are committed.
pub struct ReadChunk<'a, T> {
    shared: &'a Shared<T>,
    head: usize,
    values: Vec<T>,
}

impl<T> ReadChunk<'_, T> {
    pub fn as_slices(&self) -> (&[T], &[T]) {
        (&self.values, &[])
    }

    pub fn commit_all(self) {
        self.shared.head.store(self.head + self.values.len(), Release);
    }
}
