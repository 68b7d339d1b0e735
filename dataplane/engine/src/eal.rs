//! EAL: DPDK's environment, started once per process.
//!
//! `rte_eal_init` pins its caller, starts threads that inherit the caller's signal mask and CPUs,
//! and cannot be undone. A library in somebody else's process must not pass that on, so it runs on
//! a thread of our own that blocks signals, stays on the control CPUs, and ends.
//!
//! Invariants
//! - One EAL per process: the same configuration again gives the same [`Eal`], another is refused. An
//!   EAL that the program has started itself is used as it is, whatever the configuration says of it.
//! - `&'static Eal` proves that EAL runs; mempools and ports take it as an argument.
//! - DPDK's log goes to a buffer of ours, which explains errors; nothing is printed by default.
//!
//! Not here: lcores. EAL knows one, the thread above; ours register with
//! [`Eal::register_thread`].

#![allow(unsafe_code)]

mod config;
mod error;
mod nic;
mod remedy;

pub use config::{EalConfig, LogLevel, Memory};
pub use error::EalError;
pub use remedy::remedy;

use crate::mbuf::RetiredPools;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The running EAL. Only [`Eal::init`] makes one.
#[derive(Debug)]
pub struct Eal {
    /// Ports that an owner holds. The lock also serializes probing and removing of devices, which
    /// DPDK wants from one thread at a time.
    pub(crate) open_ports: Mutex<BTreeSet<u16>>,
    pub(crate) retired_pools: Mutex<RetiredPools>,
}

/// How far this process's only EAL is.
enum State {
    /// Not started.
    Fresh,
    /// `rte_eal_init` failed, which leaves options and maps behind: DPDK does not start again.
    Spent(String),
    /// Runs with this configuration.
    Running(EalConfig, &'static Eal),
}

static STATE: Mutex<State> = Mutex::new(State::Fresh);

/// What EAL was started with: terminated strings that it may point into until the process ends.
static ARGUMENTS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Eal {
    /// Starts EAL, or gives the one that runs with the same configuration.
    ///
    /// The caller's affinity and signal mask are untouched. A failure is final in this process,
    /// except for [`EalError::Affinity`] and [`EalError::Nic`].
    ///
    /// # Errors
    ///
    /// See [`EalError`]; each carries what DPDK said.
    pub fn init(config: &EalConfig) -> Result<&'static Eal, EalError> {
        let mut state = lock(&STATE);
        match &*state {
            State::Running(with, eal) if with == config => return Ok(eal),
            State::Running(..) => return Err(EalError::OtherConfig),
            State::Spent(reason) => return Err(EalError::Spent { reason: reason.clone() }),
            State::Fresh => {}
        }
        // SAFETY: it only looks.
        let is_the_programs = unsafe { dpdk_sys::uroce_eal_is_running() } != 0;
        if !is_the_programs {
            nic::check(config)?;
            if let Err(error) = start(config) {
                if !matches!(error, EalError::Affinity(_)) {
                    *state = State::Spent(error.to_string());
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

    /// The EAL of this process, if it runs.
    pub fn running() -> Option<&'static Eal> {
        match &*lock(&STATE) {
            State::Running(_, eal) => Some(eal),
            _ => None,
        }
    }

    /// DPDK's name and release, e.g. `DPDK 22.11.11`.
    pub fn dpdk_version() -> &'static str {
        // SAFETY: the function has no preconditions.
        let version = unsafe { dpdk_sys::uroce_version() };
        // SAFETY: it returns a terminated string in static storage, which DPDK writes once, before
        // returning it the first time.
        unsafe { CStr::from_ptr(version) }.to_str().unwrap_or("DPDK")
    }

    /// Gives the calling thread a mempool cache until the guard is dropped.
    ///
    /// Without it each mbuf allocation goes to the mempool's shared ring.
    ///
    /// # Errors
    ///
    /// [`EalError::NoLcoreLeft`] when DPDK's 128 lcore numbers are taken.
    pub fn register_thread(&self) -> Result<ThreadGuard, EalError> {
        // SAFETY: EAL runs (`self` proves it); the call writes only DPDK's own thread-local state.
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
    /// False inside another guard's scope: that one unregisters.
    registered: bool,
    /// The registration is thread-local, so the guard must be dropped where it was made.
    _not_send: PhantomData<*const ()>,
}

/// An EAL number that another thread may bear for a while: with it goes the mempool cache.
///
/// There is one of each. The thread that it was taken from uses mbufs only while it has it, as does
/// everybody else: it lies with the lcore, under the lock of who drives ([`crate::slot`]).
#[derive(Debug)]
pub(crate) struct ThreadNumber(u32);

/// The calling thread bears another number than its own.
#[derive(Debug)]
pub(crate) struct Bearing<'n> {
    before: dpdk_sys::uroce_bearer,
    /// The number is thread-local, and nobody else's meanwhile.
    _number: PhantomData<(&'n mut ThreadNumber, *const ())>,
}

impl ThreadGuard {
    /// The thread's number, for those who do its work.
    pub(crate) fn number(&self) -> ThreadNumber {
        // SAFETY: it reads a word of the calling thread's.
        ThreadNumber(unsafe { dpdk_sys::uroce_thread_id() })
    }
}

impl ThreadNumber {
    /// Makes the number the calling thread's, whatever thread it is. Until the end of that the
    /// thread is not cancelled.
    #[inline]
    pub(crate) fn bear(&mut self) -> Bearing<'_> {
        let mut before = dpdk_sys::uroce_bearer { id: 0, cancel: 0 };
        // SAFETY: it writes words of the calling thread's, and `before`. That nobody else bears
        // the number, whose cache is not thread-safe, is what the type is for.
        unsafe { dpdk_sys::uroce_thread_bear(self.0, &mut before) };
        Bearing { before, _number: PhantomData }
    }
}

impl Drop for Bearing<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: on the same thread, as this is not `Send`; what it was before, it is again.
        unsafe { dpdk_sys::uroce_thread_restore(&self.before) };
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: this thread registered in `register_thread`, which made this value, and it
            // is the same thread, as the value is not `Send`.
            unsafe { dpdk_sys::uroce_thread_unregister() }
        }
    }
}

/// What DPDK logged since the last call.
pub(crate) fn take_log() -> String {
    let mut text = vec![0u8; 8192];
    // SAFETY: `text` is writable for `len` bytes, the function writes no more and a terminator.
    let length = unsafe { dpdk_sys::uroce_log_take(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(length);
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

/// Keeps the application's signals off the calling thread, which is one of ours, and off those it
/// makes; not SIGSEGV and SIGBUS, which are about what the thread itself does.
pub fn block_signals() {
    // SAFETY: it changes the signal mask of the calling thread only. With a full set and a valid
    // operation it cannot fail.
    unsafe { dpdk_sys::uroce_block_signals() };
}

/// A lock whose data stay valid if a holder panicked: each critical section is a plain update.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name for C; a NUL inside it ends it.
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
    // The thread's code has no panic of its own; if the allocator had one, say what is known.
    let code = result.unwrap_or(Ok(-1)).map_err(EalError::Affinity)?;
    if code == 0 { Ok(()) } else { Err(EalError::explain(-code, take_log(), config)) }
}

/// The body of the thread that EAL believes to be the main one.
fn start_here(args: &[String], cpus: &[usize], echo: bool) -> io::Result<c_int> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    rustix::thread::sched_setaffinity(None, &set)?;

    block_signals();
    // SAFETY: the buffer that it redirects DPDK's log to is static; it takes its own lock.
    let code = unsafe { dpdk_sys::uroce_log_open(c_int::from(echo)) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(-code));
    }

    let mut strings = lock(&ARGUMENTS);
    *strings = args.iter().map(|arg| c_string(arg).into_bytes_with_nul()).collect();
    // EAL permutes the array and keeps pointers into the strings.
    let mut argv: Vec<*mut c_char> =
        strings.iter_mut().map(|arg| arg.as_mut_ptr().cast()).collect();
    argv.push(std::ptr::null_mut());
    let argc = c_int::try_from(argv.len() - 1).unwrap_or(c_int::MAX);
    // SAFETY: `argv` holds `argc` terminated strings and a null, all writable; the strings stay, as
    // this is done once. `STATE` is locked, so no other thread of ours is in here.
    Ok(unsafe { dpdk_sys::uroce_eal_init(argc, argv.as_mut_ptr()) })
}
