//! A memory barrier that costs only one of two threads.
//!
//! A thread that goes to sleep and a thread that has work for it each write one word and read the
//! word of the other. Without a barrier between the write and the read on both sides, both may miss
//! what the other has written. The sleeper passes here rarely, the other thread for each message.
//! So the sleeper has the kernel run a barrier on all processors (`heavy_fence`), and the other
//! thread only keeps the compiler from reordering (`light_fence`).
//!
//! Invariants
//! - Heavy fences of other processes also reach the threads of a [registered](register) process:
//!   lcores of several processes share the rings of a memif link.
//!
//! Not here: what an lcore does where the kernel has no such call ([`crate::seat::idle`]).

use crate::sync::Ordering;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

/// Registers this process, once, so that heavy fences reach its threads. Returns whether the kernel
/// supports that.
pub fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
            && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    })
}

/// The frequent thread's half: orders its accesses against a `heavy_fence` of any other thread as
/// a sequentially consistent fence would.
#[inline]
pub(crate) fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// The rare thread's half: a system call.
#[cold]
pub(crate) fn heavy_fence() {
    // This cannot fail: [`register`] has made the same call, and no thread sleeps if that failed.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}
