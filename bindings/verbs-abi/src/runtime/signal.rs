//! SIGINT and SIGTERM with their default action: the process says farewell to its peers before it
//! ends, as Linux's kernel does for it.
//!
//! ```text
//!   signal ─▶ handle ─ wakes ─▶ exit thread: disconnects, then raises the signal with SIG_DFL
//!               └─ blocks its thread until then
//! ```
//!
//! The thread that gets the signal is blocked, as it would be gone with the default action. Other
//! threads go on for the milliseconds that the farewell takes.
//!
//! Invariants
//! - The handler is installed only in place of SIG_DFL. Signals that a program ignores, handles or
//!   blocks and waits for are its own, and a handler that it installs later replaces ours.
//! - The process ends by the signal: its parent sees the same status as without the handler.
//! - The handler allocates nothing and takes no lock. The thread that it interrupts may hold a lock
//!   that the farewell needs: then the process ends without one, after the patience of an exit.
//! - A second signal, or one during an exit, ends the process at once. So does any signal in a
//!   forked child, which has no peers of its own.

use std::ptr;

use libc::c_int;

use super::exit;

/// The signals that end a process on demand.
const SIGNALS: [c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// Installs the handler for each signal that has its default action.
pub(super) fn install() {
    for signal in SIGNALS {
        if exchange(signal, None).is_some_and(|now| now.sa_sigaction == libc::SIG_DFL) {
            // SAFETY: an action of all zeros is SIG_DFL without flags and mask.
            let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = handle as extern "C" fn(c_int) as usize;
            // Other threads' interrupted calls do not matter; the thread may have a small stack.
            ours.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            exchange(signal, Some(&ours));
        }
    }
}

/// Installs an action, if one is given, and returns the one before.
fn exchange(signal: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    // SAFETY: an action of all zeros is a valid one.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or an action with a handler that stays valid, because the library is
    // never unloaded; `old` is a local that may be written.
    let result = unsafe { libc::sigaction(signal, new, &raw mut old) };
    (result == 0).then_some(old)
}

/// The handler. It does not return.
extern "C" fn handle(signal: c_int) {
    exit::say_farewell(signal);
    end(signal);
}

/// Ends the process by the signal's default action. Async-signal-safe.
pub(super) fn end(signal: c_int) -> ! {
    // SAFETY: an action of all zeros is SIG_DFL without flags and mask.
    let system: libc::sigaction = unsafe { std::mem::zeroed() };
    exchange(signal, Some(&system));
    // SAFETY: all zeros is the empty set of signals.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is an initialized local, and `signal` a valid number.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // SAFETY: `set` is an initialized local, and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
    // SAFETY: `signal` is a valid number. It is delivered to this thread at once.
    unsafe { libc::raise(signal) };
    // Reached only if another thread has installed a handler in between.
    // SAFETY: ends the process and runs none of its code.
    unsafe { libc::_exit(128 + signal) }
}
