//! The end of the process: posted requests are sent, then the engine stops in order.
//!
//! A thread that sleeps until then does this work, because `exit` may be called in a signal
//! handler, with any of the program's locks held. The `atexit` handler only wakes the thread and
//! waits for it, for a limited time.
//!
//! Invariants
//! - `exit` is delayed by at most one second.
//! - During the exit, a thread that asks for an event of an object that `main` has destroyed is
//!   held up and gets no error ([`hold_up`]).
//! - Nothing here runs in a forked child.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::thread::futex::{self, Flags, Timespec};

use uroce::Context;

use super::say::say;
use super::{counting, signal, start};

/// How long `exit` waits for the engine to stop.
const PATIENCE: Duration = Duration::from_secs(1);
/// The part of `PATIENCE` that is spent on sending what was posted.
const DRAIN: Duration = Duration::from_millis(400);

struct Exit {
    /// The process that registered the exit handler. A forked child has a copy of this struct.
    pid: u32,
    /// An empty file that belongs to the library alone. See [`Exit::has_files`].
    file: OwnedFd,
    /// The device and inode number of `file`.
    identity: (u64, u64),
}

static EXIT: OnceLock<Exit> = OnceLock::new();

impl Exit {
    fn new() -> io::Result<Exit> {
        let file = memfd_create("uroce-exit", MemfdFlags::CLOEXEC)?;
        let identity = identity(&file)?;
        Ok(Exit { pid: std::process::id(), file, identity })
    }

    /// Whether the library's descriptors are still open. If the program has closed them, their
    /// numbers may now be the program's own files, which the engine must not write to.
    fn has_files(&self) -> bool {
        identity(&self.file).is_ok_and(|identity| identity == self.identity)
    }
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// An event that happens once and that threads can wait for. It is a futex, not a descriptor,
/// because the program may have closed a descriptor and opened its own file under the number.
struct Moment(AtomicU32);

static BEGUN: Moment = Moment(AtomicU32::new(0));
static DONE: Moment = Moment(AtomicU32::new(0));

/// The signal that ends the process; 0 if none does.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

impl Moment {
    fn is_here(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    fn announce(&self) {
        self.0.store(1, Ordering::Release);
        // Fails only if there is no thread to wake.
        let _ = futex::wake(&self.0, Flags::PRIVATE, u32::MAX >> 1);
    }

    /// Blocks until [`announce`](Moment::announce) was called, or until `patience` has passed.
    fn wait(&self, patience: Option<Duration>) {
        let begin = Instant::now();
        while !self.is_here() {
            let left = patience.map(|patience| patience.saturating_sub(begin.elapsed()));
            if left == Some(Duration::ZERO) {
                return;
            }
            // `patience` always fits into a `Timespec`.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            // Why the wait ended does not matter: the loop tests the condition again.
            let _ = futex::wait(&self.0, Flags::PRIVATE, 0, left.as_ref());
        }
    }
}

/// Arranges for the engine to be stopped in order when the process exits: the devices that
/// `running` then returns. Later calls do nothing.
///
/// # Errors
///
/// The thread cannot be started, or its file cannot be made.
pub(super) fn watch(running: fn() -> Vec<Context>) -> io::Result<()> {
    if EXIT.get().is_some() {
        return Ok(());
    }
    let exit = Exit::new()?;
    start::spawn("uroce-exit", move || {
        BEGUN.wait(None);
        counting::update();
        let signal = SIGNAL.load(Ordering::Acquire);
        // Like the kernel, a process that is ended by a signal does not send what was posted.
        let drain = if signal == 0 { DRAIN } else { Duration::ZERO };
        running().iter().for_each(|context| context.shut_down(drain));
        if signal != 0 {
            signal::end(signal);
        }
        DONE.announce();
    })?;
    if EXIT.set(exit).is_ok() {
        // SAFETY: `at_exit` stays valid because the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
        signal::install();
    }
    Ok(())
}

//= check J16 — the peers learn it at once, and the status is the signal's
/// Called in the handler of `signal`. Lets the engine stop in order, and the process end by the
/// signal, and waits for that. Returns if that is not possible: in a forked child, in an exit or
/// farewell that goes on already, or when it takes too long. It takes no lock and allocates no
/// memory.
pub(super) fn say_farewell(signal: i32) {
    let is_own = EXIT.get().is_some_and(|exit| exit.pid == std::process::id() && exit.has_files());
    let is_first =
        || SIGNAL.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if is_own && !BEGUN.is_here() && is_first() {
        BEGUN.announce();
        DONE.wait(Some(PATIENCE));
    }
}

/// Blocks the calling thread while the process exits, for longer than the exit takes. Some programs
/// destroy objects on which their threads wait, and then return from `main`. A thread that gets an
/// error for this reason would call `exit` with a failure. With kernel devices the process has
/// ended before such a thread runs.
pub(crate) fn hold_up() {
    let exits = BEGUN.is_here() && !DONE.is_here();
    if exits && EXIT.get().is_some_and(|exit| exit.pid == std::process::id()) {
        std::thread::sleep(2 * PATIENCE);
    }
}

/// A text for the exit of the process that has asked for it.
struct LastText {
    pid: u32,
    is_due: fn() -> bool,
    text: String,
}

/// Prints the text when the process exits, if `is_due` then returns true. `is_due` may be called in
/// a signal handler, so it must not block.
pub(super) fn say_if(is_due: fn() -> bool, text: String) {
    static TEXTS: Mutex<Vec<LastText>> = Mutex::new(Vec::new());
    extern "C" fn at_exit() {
        if let Ok(texts) = TEXTS.try_lock() {
            // Texts of a parent process are skipped.
            let own = texts.iter().filter(|last| last.pid == std::process::id());
            own.filter(|last| (last.is_due)()).for_each(|last| say(&last.text));
        }
    }
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if texts.is_empty() {
        // SAFETY: `at_exit` stays valid because the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    texts.push(LastText { pid: std::process::id(), is_due, text });
}

/// Registered with `atexit`. It takes no lock and allocates no memory.
extern "C" fn at_exit() {
    if EXIT.get().is_some_and(|exit| exit.pid == std::process::id() && exit.has_files()) {
        BEGUN.announce();
        DONE.wait(Some(PATIENCE));
    }
}
