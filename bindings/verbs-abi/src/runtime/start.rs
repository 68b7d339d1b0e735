//! Starts a device's engine inside the program's process.
//!
//! A thread inherits the signal mask and CPU affinity of its creator. So a thread of the library,
//! with all signals blocked and its CPUs chosen, starts the engine's threads. The calling thread's
//! mask and affinity are unchanged afterwards.

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::thread::JoinHandle;

use uroce::{Config, Context, OpenError};

/// File descriptors that must be free before an engine starts: those that it opens, and some spare.
const FILES: usize = 40;

/// Checks that the process can open the engine's files. DPDK cannot start twice in a process, and
/// may end the process if a file cannot be opened.
///
/// # Errors
///
/// The error of the operating system, EMFILE for one.
pub(super) fn check_room() -> io::Result<()> {
    let open = || eventfd(0, EventfdFlags::CLOEXEC);
    (0..FILES).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// Opens a device on a thread that ends afterwards.
///
/// # Errors
///
/// The outer error if the thread cannot be started or panics, the inner one if the device does not
/// open.
pub(super) fn open(config: &Config, name: &str) -> io::Result<Result<Context, OpenError>> {
    let (config, name) = (config.clone(), name.to_owned());
    let cpus = cpus();
    let opening = spawn("uroce-start", move || {
        // If the affinity cannot be set, the thread keeps the inherited one.
        let _ = cpus.map(|cpus| sched_setaffinity(None, &cpus));
        Context::open(&config, &name)
    })?;
    opening.join().map_err(|_| io::Error::other("the thread that opens the device has panicked"))
}

/// Starts a thread on which all signals are blocked, so that no signal handler of the program runs
/// on it.
///
/// # Errors
///
/// The process cannot start another thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Signals are blocked before the thread exists, so that none arrives before its first
    // instruction.
    let before = block_all();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    restore(&before);
    thread
}

fn block_all() -> libc::sigset_t {
    // SAFETY: `sigset_t` is an array of integers, for which zeros are valid.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a local that may be written.
    unsafe { libc::sigfillset(&raw mut all) };
    let mut before = all;
    // SAFETY: `all` is initialised, and `before` is a local that may be written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: `before` is a valid set, and a null pointer for the old mask is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

/// The CPUs for the engine's threads. `None` if the affinity cannot be read.
fn cpus() -> Option<CpuSet> {
    let caller = sched_getaffinity(None).ok()?;
    let allowed = spawn("uroce-cpus", || {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        sched_setaffinity(None, &all).and_then(|()| sched_getaffinity(None))
    });
    let allowed = allowed.ok()?.join().ok()?.ok()?;
    Some(choose(&caller, &allowed))
}

/// The engine's CPUs, given the caller's affinity and the CPUs that the process may use (its
/// cpuset). A caller that is bound to one CPU polls there, so the engine gets the other CPUs, if
/// there are any. A caller with several CPUs shares them with the engine.
fn choose(caller: &CpuSet, allowed: &CpuSet) -> CpuSet {
    if caller.count() != 1 {
        return *caller;
    }
    let mut others = *allowed;
    (0..CpuSet::MAX_CPU).filter(|cpu| caller.is_set(*cpu)).for_each(|cpu| others.unset(cpu));
    if others.count() == 0 { *caller } else { others }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn a_program_bound_to_one_cpu_has_the_engine_on_others_if_there_are_any() {
        assert_eq!(choose(&set(&[0]), &set(&[0, 1, 3])), set(&[1, 3]));
        assert_eq!(choose(&set(&[2]), &set(&[2])), set(&[2]));
        assert_eq!(choose(&set(&[0, 1]), &set(&[0, 1, 2, 3])), set(&[0, 1]));
    }

    #[test]
    fn the_caller_keeps_its_cpus_and_its_signals_and_the_thread_has_none() {
        let signals = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let blocked = |status: &str| {
            let line = status.lines().find(|line| line.starts_with("SigBlk:")).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        let before = (blocked(&signals()), sched_getaffinity(None).unwrap());
        let inside = spawn("x", move || blocked(&signals())).unwrap().join().unwrap();
        cpus().unwrap();
        assert_eq!((blocked(&signals()), sched_getaffinity(None).unwrap()), before);
        // All but KILL, STOP and the two signals that the C library reserves.
        let expected = !((1 << (libc::SIGKILL - 1)) | (1 << (libc::SIGSTOP - 1)) | (3 << 31));
        assert_eq!(inside & 0x7fff_ffff, expected & 0x7fff_ffff);
    }
}
