//! A memory barrier that only one of two threads pays for.
//!
//! A thread that goes to sleep and one that has something for it each write one word and read the
//! other's; without a barrier in between on both sides each may miss what the other has written. One of
//! them sleeps rarely, the other looks for each message. So the rare one has the kernel run a barrier
//! on all processors ([`heavy_fence`]), and the other keeps the compiler from reordering and no more
//! ([`light_fence`]).
//!
//! Invariants
//! - A process that has [registered](register) is met by the heavy fences of each other process, too:
//!   lcores of several processes share the rings of a memif link.
//!
//! Not here: what is done where the kernel has no such call ([`crate::idle`]).

use crate::sync::Ordering;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

/// Lets heavy fences meet this process's threads, once per process. Says whether the kernel does that.
pub(crate) fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// The half of the thread that passes often: orders its accesses against a [`heavy_fence`] of any other
/// thread as a sequentially consistent fence would.
#[inline]
pub(crate) fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// The half of the thread that passes rarely; a system call.
#[cold]
pub(crate) fn heavy_fence() {
    // It has succeeded at the registration, without which no thread sleeps.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}
