//! Types shared between threads: atomics, locks, and the queues between them.
//!
//! Everything that lcores, the control plane and applications share uses these names, so that a
//! model checker can replace them (`dataplane/verify`), and so that a search for this module finds
//! all of it.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use rtrb::{Consumer, Producer, RingBuffer};
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, park, park_timeout};

/// Returns `count` null pointers; the kernel provides the memory when it is written.
#[allow(unsafe_code)]
pub(crate) fn null_pointers<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    // SAFETY: an `AtomicPtr` has the layout of a pointer, and all zeros are a null pointer.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

/// Counts how often one thread of a test has seen a value of another. A race is tested only if the
/// threads overlap; on a busy machine one may end before the other begins.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Meetings(AtomicU64);

#[cfg(test)]
impl Meetings {
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for one more, at most for a minute.
    pub(crate) fn wait(&self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let before = self.0.load(Ordering::Relaxed);
        while self.0.load(Ordering::Relaxed) == before {
            assert!(std::time::Instant::now() < deadline, "nobody has met it");
            std::thread::yield_now();
        }
    }
}
