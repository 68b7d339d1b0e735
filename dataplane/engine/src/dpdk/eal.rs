//! EAL: DPDK's environment, started once per process.
//!
//! `rte_eal_init` pins its caller, starts threads that inherit the caller's signal mask and CPUs,
//! and cannot be undone. A library must not do that to the application's thread. So it is called on
//! a thread of our own that blocks signals, runs on the control CPUs, and ends.
//!
//! Invariants
//! - One EAL per process: the same configuration again gives the same [`Eal`]; another one is
//!   refused. An EAL that the program has started itself is used as it is, whatever the
//!   configuration.
//! - `&'static Eal` proves that EAL runs; mempools and ports take it as an argument.
//! - DPDK's log goes to a buffer of ours, from which errors are explained; nothing is printed by
//!   default.
//!
//! Not here: lcores. EAL has one, the thread above; ours register with
//! [`Eal::register_thread`].

#![allow(unsafe_code)]

mod config;
mod dump;
mod error;
mod nic;
mod remedy;

pub use config::{EalConfig, LogLevel, Memory, sets_memory};
pub use dump::Dump;
pub use error::EalError;
pub(crate) use error::errnos_of;
pub use nic::hugepages_for;
pub use remedy::explained;

use crate::dpdk::mbuf::RetiredPools;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The running EAL. Only [`Eal::init`] makes it.
#[derive(Debug)]
pub struct Eal {
    /// The ports that are open. The lock also serializes probing and removing of devices, which
    /// DPDK allows from one thread at a time only.
    pub(crate) open_ports: Mutex<BTreeSet<u16>>,
    pub(crate) retired_pools: Mutex<RetiredPools>,
}

/// The state of this process's only EAL.
enum State {
    /// Not started.
    Fresh,
    /// `rte_eal_init` has failed and left options and mappings behind: DPDK cannot start again.
    Spent { reason: String, errnos: Vec<i32> },
    /// EAL runs with this configuration.
    Running(EalConfig, &'static Eal),
}

static STATE: Mutex<State> = Mutex::new(State::Fresh);

/// EAL's arguments: NUL-terminated strings to which it may point until the process ends.
static ARGUMENTS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Eal {
    /// Starts EAL, or returns the one that runs with the same configuration.
    ///
    /// The caller's affinity and signal mask do not change. A failure is final in this process,
    /// except for [`EalError::Affinity`] and [`EalError::Nic`].
    ///
    /// # Errors
    ///
    /// [`EalError`], with DPDK's log.
    pub fn init(config: &EalConfig) -> Result<&'static Eal, EalError> {
        let mut state = lock(&STATE);
        match &*state {
            State::Running(with, eal) if with == config => return Ok(eal),
            State::Running(..) => return Err(EalError::OtherConfig),
            State::Spent { reason, errnos } => {
                let (reason, errnos) = (reason.clone(), errnos.clone());
                return Err(EalError::Spent { reason, errnos });
            }
            State::Fresh => {}
        }
        // SAFETY: the function only reads DPDK's state.
        let is_the_programs = unsafe { dpdk_sys::uroce_eal_is_running() } != 0;
        if !is_the_programs {
            nic::check(config)?;
            if let Err(error) = start(config) {
                if !matches!(error, EalError::Affinity(_)) {
                    let (reason, errnos) = (error.to_string(), error.errnos());
                    *state = State::Spent { reason, errnos };
                }
                return Err(error);
            }
        }
        let eal: &'static Eal = Box::leak(Box::new(Eal {
            open_ports: Mutex::default(),
            retired_pools: Mutex::default(),
        }));
        *state = State::Running(config.clone(), eal);
        Ok(eal)
    }

    /// Returns the EAL of this process, if it runs.
    pub fn running() -> Option<&'static Eal> {
        match &*lock(&STATE) {
            State::Running(_, eal) => Some(eal),
            _ => None,
        }
    }

    /// Returns the memory with which this process's EAL was started, if it runs.
    pub fn memory() -> Option<Memory> {
        match &*lock(&STATE) {
            State::Running(config, _) => Some(config.memory),
            _ => None,
        }
    }

    /// Returns DPDK's name and release, such as `DPDK 22.11.11`.
    pub fn dpdk_version() -> &'static str {
        // SAFETY: the function has no preconditions.
        let version = unsafe { dpdk_sys::uroce_version() };
        // SAFETY: the function returns a NUL-terminated string in static storage, which DPDK writes
        // once, before it returns it the first time.
        unsafe { CStr::from_ptr(version) }.to_str().unwrap_or("DPDK")
    }

    /// Gives the calling thread a mempool cache until the guard is dropped.
    ///
    /// Without a cache each mbuf allocation uses the mempool's shared ring.
    ///
    /// # Errors
    ///
    /// [`EalError::NoLcoreLeft`] when DPDK's 128 lcore numbers are taken.
    pub fn register_thread(&self) -> Result<ThreadGuard, EalError> {
        // SAFETY: `self` proves that EAL runs; the call writes only DPDK's own thread-local state.
        match unsafe { dpdk_sys::uroce_thread_register() } {
            0 => Ok(ThreadGuard { registered: true, _not_send: PhantomData }),
            1 => Ok(ThreadGuard { registered: false, _not_send: PhantomData }),
            _ => Err(EalError::NoLcoreLeft),
        }
    }
}

/// Keeps the thread that made it registered with EAL.
#[derive(Debug)]
pub struct ThreadGuard {
    /// False if the thread had another guard already, which will unregister it.
    registered: bool,
    /// The registration is thread-local, so the guard must be dropped on its thread.
    _not_send: PhantomData<*const ()>,
}

/// The EAL number of a thread, which another thread may use for a while: with it comes the mempool
/// cache.
///
/// Each number exists once. The thread that it was taken from, like all others, uses mbufs only
/// while it has the number: it is kept with the lcore, under the lock of the driving thread
/// ([`uroce_shared::seat`]).
#[derive(Debug)]
pub(crate) struct ThreadNumber(u32);

/// The calling thread uses another number than its own, until this is dropped.
#[derive(Debug)]
pub(crate) struct Bearing<'n> {
    before: dpdk_sys::uroce_bearer,
    /// The number is thread-local, and no other thread uses it meanwhile.
    _number: PhantomData<(&'n mut ThreadNumber, *const ())>,
}

impl ThreadGuard {
    /// Returns the thread's number, for threads that do its work.
    pub(crate) fn number(&self) -> ThreadNumber {
        // SAFETY: the function reads one word of the calling thread.
        ThreadNumber(unsafe { dpdk_sys::uroce_thread_id() })
    }
}

impl ThreadNumber {
    /// Makes the calling thread, whatever thread it is, use this number until the result is
    /// dropped. The thread is not cancelled before that.
    #[inline]
    pub(crate) fn bear(&mut self) -> Bearing<'_> {
        let mut before = dpdk_sys::uroce_bearer { id: 0, cancel: 0 };
        // SAFETY: the call writes words of the calling thread, and `before`. The number's cache is
        // not thread-safe, but `&mut self` keeps all other threads from using the number.
        unsafe { dpdk_sys::uroce_thread_bear(self.0, &mut before) };
        Bearing { before, _number: PhantomData }
    }
}

impl Drop for Bearing<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is not `Send`, so it is dropped on the thread that made it, and its own
        // number is restored.
        unsafe { dpdk_sys::uroce_thread_restore(&self.before) };
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: this thread registered in `register_thread`, which made this value; it is the
            // same thread, since the value is not `Send`.
            unsafe { dpdk_sys::uroce_thread_unregister() }
        }
    }
}

/// Returns DPDK's log since the last call.
pub(crate) fn take_log() -> String {
    let mut text = vec![0u8; 8192];
    // SAFETY: `text` is writable for its length, and the function writes no more, including a
    // terminator.
    let length = unsafe { dpdk_sys::uroce_log_take(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(length);
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

/// Blocks the application's signals on the calling thread, which is one of ours, and on threads
/// that it makes. SIGSEGV and SIGBUS stay unblocked, since the thread itself causes them.
pub fn block_signals() {
    // SAFETY: the function changes the signal mask of the calling thread only, and cannot fail with
    // a full set and a valid operation.
    unsafe { dpdk_sys::uroce_block_signals() };
}

/// Locks a mutex with data that stay valid if a holder panicked: each critical section is a plain
/// update.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name for C; a NUL in it ends it.
pub(crate) fn c_string(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().take_while(|&byte| byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

fn start(config: &EalConfig) -> Result<(), EalError> {
    let cpus = config.allowed_cpus().map_err(EalError::Affinity)?;
    let args = config.arguments(&cpus);
    let echo = config.log > LogLevel::Quiet;
    let result = std::thread::Builder::new()
        .name("uroce-eal".into())
        .spawn(move || start_here(&args, &cpus, echo))
        .map_err(EalError::Affinity)?
        .join();
    // The thread's code does not panic itself; if the allocator does, report what is known.
    let code = result.unwrap_or(Ok(-1)).map_err(EalError::Affinity)?;
    if code == 0 { Ok(()) } else { Err(EalError::explain(-code, take_log(), config)) }
}

/// The body of the thread that EAL takes for the main one.
fn start_here(args: &[String], cpus: &[usize], echo: bool) -> io::Result<c_int> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set)?;

    block_signals();
    // SAFETY: the buffer to which it redirects DPDK's log is static and has its own lock.
    let code = unsafe { dpdk_sys::uroce_log_open(c_int::from(echo)) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(-code));
    }

    // SAFETY: EAL has not started, and `STATE` is locked, so no other thread of ours loads drivers.
    unsafe { dpdk_sys::uroce_drivers_load() };
    let mut strings = lock(&ARGUMENTS);
    *strings = args.iter().map(|arg| c_string(arg).into_bytes_with_nul()).collect();
    // EAL permutes the array and keeps pointers to the strings.
    let mut argv: Vec<*mut c_char> =
        strings.iter_mut().map(|arg| arg.as_mut_ptr().cast()).collect();
    argv.push(std::ptr::null_mut());
    let argc = c_int::try_from(argv.len() - 1).unwrap_or(c_int::MAX);
    // SAFETY: `argv` holds `argc` NUL-terminated strings and a null, all writable. The strings are
    // never freed, since this is done once. `STATE` is locked, so no other thread of ours calls
    // this.
    Ok(unsafe { dpdk_sys::uroce_eal_init(argc, argv.as_mut_ptr()) })
}
