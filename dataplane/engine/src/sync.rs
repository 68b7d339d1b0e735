//! What threads share, in one place: atomics, locks, and the queues between them.
//!
//! Everything shared between lcores, the control plane and applications goes through these names,
//! so that a model checker can be put under them (`dataplane/verify`) and so that a reader finds
//! all of it by one word.

pub(crate) use crossbeam_queue::ArrayQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use rtrb::{Consumer, Producer, RingBuffer};
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, park, park_timeout};
