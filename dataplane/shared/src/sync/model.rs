//! The names of [`crate::sync`] in models, with each operation explored by loom.
//!
//! The atomics are loom's, in a wrapper with two purposes. It can weaken the order at one place of
//! the source ([`weaken`]). And it makes loom try all orders of threads. loom tries another
//! order where operations of two threads on one atomic conflict, but it compares an operation with
//! the last one before it only, so that a thread's own load can hide the load of another thread
//! from its next store. Therefore each operation first stores to a word beside the atomic, which
//! conflicts with everything.
//!
//! loom treats sequentially consistent accesses as acquiring and releasing ones. Where the engine
//! relies on more ([`weaken::is_consistent`]), the wrapper puts such fences around them,
//! which is somewhat stronger than the engine's code. loom cannot look into the queues of other
//! crates, so they are written again here with their memory orders; the subject of the models is
//! what the engine builds around them.

#![allow(unsafe_code)]
#![allow(missing_docs, reason = "the names mean what they mean in the crates they stand for")]

mod array_queue;
pub mod barrier;
mod spsc;
pub mod tokens;
pub mod wakers;
pub(crate) mod weaken;

use std::cell::Cell;
use std::sync::{LockResult, TryLockResult};
use weaken::{Kind, is_consistent, is_lost, ordering};

pub use array_queue::ArrayQueue;
pub use loom::sync::{Condvar, MutexGuard};
pub use loom::thread::{Thread, park, yield_now};
pub use spsc::{Consumer, Producer, RingBuffer};
pub use std::sync::atomic::Ordering;

pub fn null_pointers<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    (0..count).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect()
}

macro_rules! atomic {
    ($($name:ident of $value:ty;)*) => {$(
        #[derive(Debug, Default)]
        pub struct $name {
            conflict: Conflict,
            value: loom::sync::atomic::$name,
        }

        #[allow(dead_code, reason = "not every atomic needs every operation")]
        impl $name {
            #[track_caller]
            pub fn new(value: $value) -> $name {
                let value = loom::sync::atomic::$name::new(value);
                $name { conflict: Conflict::default(), value }
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.conflict.touch();
                let order = ordering(Kind::Load, order);
                fenced(is_consistent(order), || self.value.load(order))
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                if is_lost() {
                    return;
                }
                self.conflict.touch();
                let order = ordering(Kind::Store, order);
                fenced(is_consistent(order), || self.value.store(value, order));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.conflict.touch();
                let value = if is_lost() { self.value.load(Ordering::Relaxed) } else { value };
                self.value.swap(value, ordering(Kind::Update, order))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let new = if is_lost() { current } else { new };
                let success = ordering(Kind::Update, success);
                let failure = ordering(Kind::Load, failure);
                self.conflict.touch();
                fenced(is_consistent(success), || {
                    self.value.compare_exchange(current, new, success, failure)
                })
            }

            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let is_lost = is_lost();
                let update = |old| update(old).map(|new| if is_lost { old } else { new });
                let set = ordering(Kind::Update, set);
                self.conflict.touch();
                self.value.fetch_update(set, ordering(Kind::Load, fetch), update)
            }
        }
    )*};
}

macro_rules! number {
    ($($name:ident of $value:ty;)*) => {$(
        #[allow(dead_code, reason = "not every atomic needs every operation")]
        impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.conflict.touch();
                let value = if is_lost() { 0 } else { value };
                self.value.fetch_add(value, ordering(Kind::Update, order))
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.conflict.touch();
                let value = if is_lost() { 0 } else { value };
                self.value.fetch_sub(value, ordering(Kind::Update, order))
            }

            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.conflict.touch();
                let value = if is_lost() { 0 } else { value };
                self.value.fetch_max(value, ordering(Kind::Update, order))
            }

            #[track_caller]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.conflict.touch();
                let value = if is_lost() { <$value>::MAX } else { value };
                self.value.fetch_and(value, ordering(Kind::Update, order))
            }

            #[track_caller]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.conflict.touch();
                let value = if is_lost() { 0 } else { value };
                self.value.fetch_or(value, ordering(Kind::Update, order))
            }
        }
    )*};
}

atomic! {
    AtomicBool of bool;
    AtomicU8 of u8;
    AtomicU32 of u32;
    AtomicU64 of u64;
    AtomicUsize of usize;
}
number! { AtomicU8 of u8; AtomicU32 of u32; AtomicU64 of u64; }

/// A word through which every operation on the atomic beside it conflicts with every other.
#[derive(Debug, Default)]
struct Conflict(loom::sync::atomic::AtomicBool);

impl Conflict {
    fn touch(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs an operation, between two sequentially consistent fences if `is_fenced`.
fn fenced<R>(is_fenced: bool, operation: impl FnOnce() -> R) -> R {
    let fence = || {
        if is_fenced {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    };
    fence();
    let result = operation();
    fence();
    result
}

/// An atomic pointer; `get_mut` returns a copy, which is enough for reading.
#[derive(Debug)]
pub struct AtomicPtr<T> {
    conflict: Conflict,
    shared: loom::sync::atomic::AtomicPtr<T>,
    copy: *mut T,
}

// SAFETY: `copy` is only accessed through `&mut self`, and a pointer may be sent to any thread.
unsafe impl<T> Send for AtomicPtr<T> {}
// SAFETY: `copy` is only accessed through `&mut self`; `shared` is an atomic.
unsafe impl<T> Sync for AtomicPtr<T> {}

impl<T> Default for AtomicPtr<T> {
    fn default() -> AtomicPtr<T> {
        AtomicPtr::new(std::ptr::null_mut())
    }
}

impl<T> AtomicPtr<T> {
    #[track_caller]
    pub fn new(pointer: *mut T) -> AtomicPtr<T> {
        let shared = loom::sync::atomic::AtomicPtr::new(pointer);
        AtomicPtr { conflict: Conflict::default(), shared, copy: pointer }
    }

    #[track_caller]
    pub fn load(&self, order: Ordering) -> *mut T {
        self.conflict.touch();
        self.shared.load(ordering(Kind::Load, order))
    }

    #[track_caller]
    pub fn store(&self, pointer: *mut T, order: Ordering) {
        if is_lost() {
            return;
        }
        self.conflict.touch();
        self.shared.store(pointer, ordering(Kind::Store, order));
    }

    #[track_caller]
    pub fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
        self.conflict.touch();
        let pointer = if is_lost() { self.shared.load(Ordering::Relaxed) } else { pointer };
        self.shared.swap(pointer, ordering(Kind::Update, order))
    }

    pub fn get_mut(&mut self) -> &mut *mut T {
        self.copy = self.shared.with_mut(|pointer| *pointer);
        &mut self.copy
    }
}

thread_local! {
    static TIME_STANDS: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether `park_timeout` sleeps until it is woken, instead of yielding.
pub fn set_time_stands(stands: bool) {
    TIME_STANDS.set(stands);
}

/// Naps: a model has no time, so this yields to another thread.
pub fn sleep(_: std::time::Duration) {
    yield_now();
}

/// Sleeps: yields to another thread, or waits until it is woken if time stands still.
pub fn park_timeout(_: std::time::Duration) {
    if TIME_STANDS.get() {
        park();
    } else {
        yield_now();
    }
}

#[track_caller]
pub fn fence(order: Ordering) {
    if ordering(Kind::Fence, order) != Ordering::Relaxed {
        loom::sync::atomic::fence(order);
    }
}

/// A back-off that yields to another thread.
pub struct Backoff;

impl Backoff {
    pub fn new() -> Backoff {
        Backoff
    }

    pub fn snooze(&self) {
        yield_now();
    }
}

/// A lock. A thread that panics ends the model, so it is never poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.0.lock()
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    pub fn is_poisoned(&self) -> bool {
        false
    }
}
