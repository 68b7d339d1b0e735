//! Starting a device's engine inside somebody else's process.
//!
//! Threads inherit the signal mask and the CPUs of who makes them. So a thread of our own, which
//! blocks all signals and has chosen its CPUs, makes those of the engine; the caller's mask and CPUs
//! are as before when this returns.

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::thread::JoinHandle;

use uroce::{Config, Context, OpenError};

/// Files that an engine opens, and some more.
const FILES: usize = 40;

/// Sees whether there is room for the engine's files. DPDK does not start twice in a process, and
/// may end it where it finds no room.
///
/// # Errors
///
/// The system's.
pub(super) fn check_room() -> io::Result<()> {
    let open = || eventfd(0, EventfdFlags::CLOEXEC);
    (0..FILES).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// Opens a device, from a thread that ends with it.
///
/// # Errors
///
/// That there is no thread, or why the device does not open.
pub(super) fn open(config: &Config, name: &str) -> io::Result<Result<Context, OpenError>> {
    let (config, name) = (config.clone(), name.to_owned());
    let cpus = cpus();
    let opening = spawn("uroce-start", move || {
        // A mask that the system does not take leaves the inherited one.
        let _ = cpus.map(|cpus| sched_setaffinity(None, &cpus));
        Context::open(&config, &name)
    })?;
    opening.join().map_err(|_| io::Error::other("the thread that opens the device has panicked"))
}

/// Starts a thread that no signal of the program's is delivered to.
///
/// # Errors
///
/// The process may have no other thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Blocked before, so that none comes between the thread's start and its first line.
    let before = block_all();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    restore(&before);
    thread
}

fn block_all() -> libc::sigset_t {
    // SAFETY: a set of bits.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: writable.
    unsafe { libc::sigfillset(&raw mut all) };
    let mut before = all;
    // SAFETY: both are sets; the second is writable.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    before
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: a set that the system gave; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

/// The CPUs for the engine's threads, if there is something to choose.
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

/// A caller that is bound to one CPU polls there: the engine goes elsewhere, wherever the system
/// lets this process (its cpuset). A caller that was given several has the engine among them.
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
        // All but KILL, STOP and the two that the C library keeps for itself.
        let expected = !((1 << (libc::SIGKILL - 1)) | (1 << (libc::SIGSTOP - 1)) | (3 << 31));
        assert_eq!(inside & 0x7fff_ffff, expected & 0x7fff_ffff);
    }
}
