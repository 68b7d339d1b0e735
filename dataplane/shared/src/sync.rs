//! What threads share and wait on: atomics, locks, rings, descriptors and barriers.
//!
//! All other modules take these names from here, so that models can replace them by loom's
//! (`--cfg loom`), and so that a search for this module finds all that threads share.

#[cfg(not(loom))]
pub mod barrier;
pub mod eventfd;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
pub mod peer;
#[cfg(not(loom))]
pub mod seqpacket;
#[cfg(not(loom))]
pub mod tokens;
#[cfg(not(loom))]
pub mod wakers;

#[cfg(not(loom))]
pub use crossbeam_queue::ArrayQueue;
#[cfg(not(loom))]
pub use crossbeam_utils::Backoff;
#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use rtrb::{Consumer, Producer, RingBuffer};
#[cfg(not(loom))]
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::thread::{Thread, park, park_timeout, sleep, yield_now};

/// Returns `count` null pointers. The kernel provides their memory when it is first written.
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub fn null_pointers<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    // SAFETY: an `AtomicPtr` has the layout of a pointer, and all zeros are a null pointer.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

/// Counts how often one thread of a test has seen a value of another. A race is tested only if the
/// threads overlap; on a busy machine one may end before the other begins.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Default)]
pub struct Meetings(AtomicU64);

#[cfg(any(test, feature = "testing"))]
impl Meetings {
    /// Notes that the other thread's value was seen.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the other thread's value is seen once more. Panics after a minute.
    pub fn wait(&self) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let before = self.0.load(Ordering::Relaxed);
        while self.0.load(Ordering::Relaxed) == before {
            assert!(std::time::Instant::now() < deadline, "no thread has met it");
            std::thread::yield_now();
        }
    }
}
