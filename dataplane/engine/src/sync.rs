//! The atomics of this crate, in one place.
//!
//! Everything shared between lcores, the control plane and applications goes through these names,
//! so that a model checker can be put under them and so that a reader finds all of it by one word.

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};
