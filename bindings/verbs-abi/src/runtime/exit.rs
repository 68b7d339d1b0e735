//! The process's end: what was posted leaves, then the engine stops in order.
//!
//! A thread that sleeps until then does the work, as whoever calls `exit` may do so in a signal
//! handler, with any lock of the program's held. The handler here wakes it and waits, not for ever.
//!
//! Invariants
//! - `exit` is delayed by a second at most.
//! - Nothing here runs in a child that was forked.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{process, start};

/// How long the exit may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of it is for what is still to be sent.
const DRAIN: Duration = Duration::from_millis(400);

struct Exit {
    /// The process whose exit it is: a child has a copy.
    pid: u32,
    begin: OwnedFd,
    done: OwnedFd,
}

static EXIT: OnceLock<Exit> = OnceLock::new();

/// Has the engine stopped in order when the process exits. Later calls do nothing.
///
/// # Errors
///
/// There is no thread or no file for it.
pub(super) fn watch() -> io::Result<()> {
    if EXIT.get().is_some() {
        return Ok(());
    }
    let flags = EventfdFlags::CLOEXEC;
    let (begin, done) = (eventfd(0, flags)?, eventfd(0, flags)?);
    let waiting = begin.try_clone()?;
    start::spawn("uroce-exit", move || {
        while let Err(rustix::io::Errno::INTR) = rustix::io::read(&waiting, &mut [0u8; 8]) {}
        stop();
    })?;
    let exit = Exit { pid: std::process::id(), begin, done };
    if EXIT.set(exit).is_ok() {
        // SAFETY: the function stays: the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    Ok(())
}

/// The thread's work.
fn stop() {
    // Who is starting an engine right now has sent nothing yet.
    if let Some(process) = process::try_lock() {
        let contexts = process.contexts();
        drop(process);
        contexts.iter().for_each(|context| context.shut_down(DRAIN));
    }
    if let Some(exit) = EXIT.get() {
        let _ = rustix::io::write(&exit.done, &1u64.to_ne_bytes());
    }
}

/// Takes no lock and no memory.
extern "C" fn at_exit() {
    let Some(exit) = EXIT.get().filter(|exit| exit.pid == std::process::id()) else { return };
    if rustix::io::write(&exit.begin, &1u64.to_ne_bytes()).is_err() {
        // The program has closed the descriptor.
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Never too long for a `Timespec`.
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut done = [PollFd::new(&exit.done, PollFlags::IN)];
        if poll(&mut done, Some(&left)) != Err(rustix::io::Errno::INTR) {
            return;
        }
    }
}
