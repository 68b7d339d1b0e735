//! The process's end: what was posted leaves, then the engine stops in order.
//!
//! A thread that sleeps until then does the work, as whoever calls `exit` may do so in a signal
//! handler, with any lock of the program's held. The handler here wakes it and waits, not for ever.
//!
//! Invariants
//! - `exit` is delayed by a second at most.
//! - Who asks meanwhile for an event of what `main` has destroyed learns nothing ([`hold_up`]).
//! - Nothing here runs in a child that was forked.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::thread::futex::{self, Flags, Timespec};

use super::say::say;
use super::{process, start};

/// How long the exit may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much of it is for what is still to be sent.
const DRAIN: Duration = Duration::from_millis(400);

struct Exit {
    /// The process whose exit it is: a child has a copy.
    pid: u32,
    /// An empty file that nobody else has.
    file: OwnedFd,
    /// Its file system and inode.
    identity: (u64, u64),
}

static EXIT: OnceLock<Exit> = OnceLock::new();

impl Exit {
    fn new() -> io::Result<Exit> {
        let file = memfd_create("uroce-exit", MemfdFlags::CLOEXEC)?;
        let identity = identity(&file)?;
        Ok(Exit { pid: std::process::id(), file, identity })
    }

    /// Whether the program has left the library's descriptors open. If not, the engine's may be
    /// files of the program's now, which it must not write to.
    fn has_files(&self) -> bool {
        identity(&self.file).is_ok_and(|identity| identity == self.identity)
    }
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Something that happens once. Not a descriptor, which a program may have closed, and opened again
/// for something of its own.
struct Moment(AtomicU32);

static BEGUN: Moment = Moment(AtomicU32::new(0));
static DONE: Moment = Moment(AtomicU32::new(0));

impl Moment {
    fn is_here(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    fn announce(&self) {
        self.0.store(1, Ordering::Release);
        // There is nobody to wake in the worst case.
        let _ = futex::wake(&self.0, Flags::PRIVATE, u32::MAX >> 1);
    }

    /// Returns when it is here, or when nothing is left of `patience`.
    fn wait(&self, patience: Option<Duration>) {
        let begin = Instant::now();
        while !self.is_here() {
            let left = patience.map(|patience| patience.saturating_sub(begin.elapsed()));
            if left == Some(Duration::ZERO) {
                return;
            }
            // Never too long for a `Timespec`.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            // Whatever ends it, the reason is looked for again.
            let _ = futex::wait(&self.0, Flags::PRIVATE, 0, left.as_ref());
        }
    }
}

/// Has the engine stopped in order when the process exits. Later calls do nothing.
///
/// # Errors
///
/// There is no thread or no file for it.
pub(super) fn watch() -> io::Result<()> {
    if EXIT.get().is_some() {
        return Ok(());
    }
    let exit = Exit::new()?;
    start::spawn("uroce-exit", || {
        BEGUN.wait(None);
        stop();
        DONE.announce();
    })?;
    if EXIT.set(exit).is_ok() {
        // SAFETY: the function stays: the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    Ok(())
}

/// Holds a thread up while the process exits: longer than that takes. Programs destroy what their
/// threads ask for events of, return from `main` at once, and have the thread that meets an error exit
/// with it; where the kernel ends the process nobody comes to ask.
pub(crate) fn hold_up() {
    let exits = BEGUN.is_here() && !DONE.is_here();
    if exits && EXIT.get().is_some_and(|exit| exit.pid == std::process::id()) {
        std::thread::sleep(2 * PATIENCE);
    }
}

/// Says it when the process exits, if it has no engine by then: a program that was refused something and
/// went on without needs no word.
pub(super) fn say_without_engine(text: String) {
    static TEXTS: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
    extern "C" fn at_exit() {
        let has_none = process::try_lock().is_some_and(|process| process.contexts().is_empty());
        if let (true, Ok(texts)) = (has_none, TEXTS.try_lock()) {
            // Not what was said to a parent.
            let own = texts.iter().filter(|(pid, _)| *pid == std::process::id());
            own.for_each(|(_, text)| say(text));
        }
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if texts.is_empty() {
        // SAFETY: the function stays: the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    texts.push((std::process::id(), text));
}

/// The thread's work.
fn stop() {
    // Who is starting an engine right now has sent nothing yet.
    if let Some(process) = process::try_lock() {
        let contexts = process.contexts();
        drop(process);
        contexts.iter().for_each(|context| context.shut_down(DRAIN));
    }
}

/// Takes no lock and no memory.
extern "C" fn at_exit() {
    if EXIT.get().is_some_and(|exit| exit.pid == std::process::id() && exit.has_files()) {
        BEGUN.announce();
        DONE.wait(Some(PATIENCE));
    }
}
