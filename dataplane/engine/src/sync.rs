//! What threads share, in one place: atomics, locks, and the queues between them.
//!
//! Everything shared between lcores, the control plane and applications goes through these names,
//! so that a model checker can be put under them (`dataplane/verify`) and so that a reader finds
//! all of it by one word.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use rtrb::{Consumer, Producer, RingBuffer};
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, park, park_timeout};

/// So many null pointers, in memory that is taken as they are written.
#[allow(unsafe_code)]
pub(crate) fn null_pointers<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    // SAFETY: an `AtomicPtr` is a pointer in memory, and zeros are a null pointer.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

/// How often one thread of a test has met what another shows it. A race is tested only if the threads
/// meet, and on a busy machine one of them may be done before the other has begun.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Meetings(AtomicU64);

#[cfg(test)]
impl Meetings {
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for one more, a minute at most.
    pub(crate) fn wait(&self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let before = self.0.load(Ordering::Relaxed);
        while self.0.load(Ordering::Relaxed) == before {
            assert!(std::time::Instant::now() < deadline, "nobody has met it");
            std::thread::yield_now();
        }
    }
}
