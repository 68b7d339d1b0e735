//! `fork`: a child keeps its parent's identity, but not its engine.
//!
//! The forking thread holds the lock of the process's state during the fork, so that the child's
//! copy is consistent and its lock can be released.

use std::cell::RefCell;
use std::sync::MutexGuard;
use std::sync::Once;

use super::process::{self, Process};

thread_local! {
    /// The guard of the process's state, held by the forking thread from before the fork until
    /// after it.
    static HELD: RefCell<Option<MutexGuard<'static, Process>>> = const { RefCell::new(None) };
}

/// Registers the handlers below with `pthread_atfork`, once.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions stay valid because the library is never unloaded. If memory for the
        // registration is short, forked children are not marked and find the parent's engine
        // silent.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

unsafe extern "C" fn prepare() {
    let held = process::lock_existing();
    // A thread that is ending may have destroyed the thread-local already.
    let _ = HELD.try_with(|place| place.replace(held));
}

unsafe extern "C" fn parent() {
    if let Some(mut process) = release() {
        process.has_forked();
    }
}

unsafe extern "C" fn child() {
    if let Some(mut process) = release() {
        process.is_forked();
    }
}

fn release() -> Option<MutexGuard<'static, Process>> {
    HELD.try_with(RefCell::take).ok().flatten()
}
