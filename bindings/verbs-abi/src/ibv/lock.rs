//! A lock that a program's thread may hold from one call to another, as between `ibv_wr_start` and
//! `ibv_wr_complete`.
//!
//! It knows its thread: who has it already is told so instead of waiting for itself.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::errno::Errno;

/// Looks before a waiting thread gives its CPU away.
const SPINS: u32 = 100;
const FREE: usize = 0;

/// A value for one thread at a time.
pub(crate) struct Locked<T> {
    /// The thread that has it.
    owner: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by the thread in `owner` only.
unsafe impl<T: Send> Sync for Locked<T> {}

/// Gives the lock back.
struct Release<'a>(&'a AtomicUsize);

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// Names the calling thread; never 0.
#[inline]
fn me() -> usize {
    // SAFETY: has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Locked<T> {
        Locked { owner: AtomicUsize::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Works with the value.
    ///
    /// # Errors
    ///
    /// EBUSY: this thread holds the lock.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, Errno> {
        self.acquire()?;
        let _release = Release(&self.owner);
        // SAFETY: this thread is the owner, and got it just now, so that no other reference exists.
        Ok(work(unsafe { &mut *self.value.get() }))
    }

    /// Takes the lock for the calls to come.
    ///
    /// # Errors
    ///
    /// EBUSY: this thread holds it.
    #[inline]
    pub(crate) fn acquire(&self) -> Result<(), Errno> {
        let me = me();
        match self.owner.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(owner) if owner == me => Err(Errno::EBUSY),
            Err(_) => {
                self.wait(me);
                Ok(())
            }
        }
    }

    /// Works with the value under the lock that this thread has acquired; `None` if it has not.
    ///
    /// `work` must not come back here.
    #[inline]
    pub(crate) fn held<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.load(Ordering::Relaxed) != me() {
            return None;
        }
        // SAFETY: this thread is the owner; it is in none of the other methods, whose `work` is
        // ours and does not come back.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    /// The same, and gives the lock back.
    #[inline]
    pub(crate) fn release<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.load(Ordering::Relaxed) != me() {
            return None;
        }
        let _release = Release(&self.owner);
        // SAFETY: as in `held`.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    #[cold]
    fn wait(&self, me: usize) {
        for round in 0u32.. {
            let taken =
                self.owner.compare_exchange_weak(FREE, me, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return;
            }
            if round % SPINS == SPINS - 1 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        let counter = Locked::new(0u32);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..10_000 {
                        counter.with(|count| *count += 1).unwrap();
                    }
                });
            }
        });
        assert_eq!(counter.with(|count| *count), Ok(40_000));
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let value = Locked::new(1);
        value.acquire().unwrap();
        assert_eq!(value.acquire(), Err(Errno::EBUSY));
        assert_eq!(value.with(|value| *value), Err(Errno::EBUSY));
        assert_eq!(value.held(|value| *value), Some(1));
        assert_eq!(value.release(|value| *value), Some(1));
        assert_eq!(value.held(|value| *value), None);
        assert_eq!(value.with(|value| *value), Ok(1));
    }

    #[test]
    fn who_has_not_acquired_it_has_nothing() {
        let value = Locked::new(1);
        value.acquire().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| assert_eq!(value.release(|value| *value), None));
        });
        assert_eq!(value.held(|value| *value), Some(1));
    }
}
