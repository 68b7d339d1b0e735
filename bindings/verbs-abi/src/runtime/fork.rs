//! `fork`: a child goes on with the identity of its parent, never with its engine.
//!
//! The lock of the process's state is held while it forks, so that the child's copy is whole and its
//! lock is free.

use std::cell::RefCell;
use std::sync::MutexGuard;
use std::sync::Once;

use super::process::{self, Process};

thread_local! {
    /// Held by the thread that forks, from before it does until after.
    static HELD: RefCell<Option<MutexGuard<'static, Process>>> = const { RefCell::new(None) };
}

/// Sees to it that we are told of every fork.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions stay: the library is never unloaded. Without memory for them a
        // child is not told, and finds its parent's engine silent.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

unsafe extern "C" fn prepare() {
    let held = process::lock_existing();
    // A thread that is ending has nothing to keep it in.
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
