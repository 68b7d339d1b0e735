//! A lock that a thread of the program can hold from one call to another, for example between
//! `ibv_wr_start` and `ibv_wr_complete`.
//!
//! It records its owner, so a thread that locks it twice gets an error instead of a deadlock. A
//! lock without a value cannot be taken.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::errno::Errno;

/// Attempts before a waiting thread yields its CPU.
const SPINS: u32 = 100;
const FREE: usize = 0;
/// Owner of a lock without a value. No thread has it, because it is no address.
const EMPTY: usize = usize::MAX;

/// A value that one thread at a time can access.
pub(crate) struct Locked<T> {
    /// Identifies the owning thread; [`FREE`] if there is none; [`EMPTY`] if there is no value.
    owner: AtomicUsize,
    /// Initialised unless the owner is [`EMPTY`].
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: only the thread in `owner` accesses the value.
unsafe impl<T: Send> Sync for Locked<T> {}

/// Releases the lock when dropped.
struct Release<'a>(&'a AtomicUsize);

impl Drop for Release<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

/// Identifies the calling thread. Never 0.
#[inline]
fn me() -> usize {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        if *self.owner.get_mut() != EMPTY {
            // SAFETY: only a lock without a value has this owner, and nothing uses it any more.
            unsafe { self.value.get_mut().assume_init_drop() }
        }
    }
}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Locked<T> {
        Locked { owner: AtomicUsize::new(FREE), value: UnsafeCell::new(MaybeUninit::new(value)) }
    }

    /// A lock without a value. Every attempt to lock it fails with EINVAL.
    pub(crate) const fn empty() -> Locked<T> {
        Locked { owner: AtomicUsize::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Locks the value and calls `work` with it.
    ///
    /// `work` must not call methods of this lock.
    ///
    /// # Errors
    ///
    /// EBUSY if this thread already holds the lock; EINVAL if there is no value.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, Errno> {
        self.acquire()?;
        let _release = Release(&self.owner);
        // SAFETY: this thread has just become the owner, so there is a value and no other reference
        // to it.
        Ok(work(unsafe { &mut *self.value.get().cast::<T>() }))
    }

    /// Locks the value until [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// EBUSY if this thread already holds the lock; EINVAL if there is no value.
    #[inline]
    pub(crate) fn acquire(&self) -> Result<(), Errno> {
        let me = me();
        match self.owner.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(owner) if owner == me => Err(Errno::EBUSY),
            Err(EMPTY) => Err(Errno::EINVAL),
            Err(_) => {
                self.wait(me);
                Ok(())
            }
        }
    }

    /// Calls `work` with the value if this thread has acquired the lock, else returns `None`.
    ///
    /// `work` must not call methods of this lock.
    #[inline]
    pub(crate) fn held<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.load(Ordering::Relaxed) != me() {
            return None;
        }
        // SAFETY: this thread is the owner, so there is a value, and `work` does not call methods
        // of this lock, so no other reference to the value exists.
        Some(work(unsafe { &mut *self.value.get().cast::<T>() }))
    }

    /// Calls `work` with the value and releases the lock. `None` if this thread has not acquired
    /// it.
    ///
    /// `work` must not call methods of this lock.
    #[inline]
    pub(crate) fn release<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.owner.load(Ordering::Relaxed) != me() {
            return None;
        }
        let _release = Release(&self.owner);
        // SAFETY: this thread is the owner, so there is a value, and `work` does not call methods
        // of this lock, so no other reference to the value exists.
        Some(work(unsafe { &mut *self.value.get().cast::<T>() }))
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
    fn a_lock_without_a_value_is_never_taken() {
        let nothing = Locked::<String>::empty();
        assert_eq!(nothing.acquire(), Err(Errno::EINVAL));
        assert_eq!(nothing.with(|_| ()), Err(Errno::EINVAL));
        assert_eq!(nothing.held(|_| ()), None);
        assert_eq!(nothing.release(|_| ()), None);
    }

    #[test]
    fn the_value_is_dropped_with_its_lock() {
        let value = std::sync::Arc::new(());
        drop(Locked::new(std::sync::Arc::clone(&value)));
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_thread_without_the_lock_has_no_access() {
        let value = Locked::new(1);
        value.acquire().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| assert_eq!(value.release(|value| *value), None));
        });
        assert_eq!(value.held(|value| *value), Some(1));
    }
}
