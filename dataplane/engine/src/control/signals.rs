//! The handler of SIGSEGV and SIGBUS: an access to registered memory that is gone continues at its
//! landing; everything else is passed to the handler that was installed before.
//!
//! ```text
//!   fault ─▶ ours[n] ─┬─ a guarded access ─▶ continues at its landing
//!                     └─ anything else ────▶ the handler that ours[n] replaced
//! ```
//!
//! A program, or the runtime of its language, may install its own handler over ours, and may or may
//! not pass on faults that it does not handle. So [`install`] checks now and then whether one of
//! ours is installed; if not, it installs another one, and the program's is its predecessor. Each
//! of ours keeps its own predecessor: a program that has saved one of ours and calls it gets the
//! behaviour that it expects.
//!
//! Invariants
//! - A fault reaches each handler of ours once. If a program's handler passes it back, it goes on
//!   to an older one, and at last to the system's default.
//! - The handler allocates nothing, takes no lock, and uses no thread-local variable. It runs on
//!   the thread's alternate stack, if the thread has one.
//! - The options of a program's handler apply when ours calls it: mask, SA_SIGINFO, SA_NODEFER,
//!   SA_RESETHAND. SIG_DFL ends the process at the faulting instruction.
//!
//! A signal that is blocked when an access faults ends the process, so threads that turn lcores
//! unblock both signals ([`unblock`]).

#![allow(unsafe_code)]

use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::PoisonError;
use uroce_shared::copy::guarded;
use uroce_shared::sync::{AtomicBool, Mutex, Ordering};

/// The signals that are handled.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// How many times a handler of ours can be installed over a different handler.
const TIMES: usize = 8;

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Our handlers: all behave alike, each with its own predecessor.
const OURS: [Handler; TIMES] = [
    handle::<0>,
    handle::<1>,
    handle::<2>,
    handle::<3>,
    handle::<4>,
    handle::<5>,
    handle::<6>,
    handle::<7>,
];

/// For each signal, the handlers that ours have replaced.
static FORMER: [[Former; TIMES]; SIGNALS.len()] =
    [const { [const { Former::new() }; TIMES] }; SIGNALS.len()];

/// How many entries of each row are in use. The lock is held to change a row or the process's
/// handlers.
static USED: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);

/// A handler that one of ours has replaced.
struct Former {
    action: UnsafeCell<MaybeUninit<sigaction>>,
    /// Whether a handler with SA_RESETHAND, which is called once, has been called.
    is_spent: AtomicBool,
}

// SAFETY: the action is written under the lock of `USED`, before the handler of ours that reads it
// is installed, and never while that handler is installed.
unsafe impl Sync for Former {}

impl Former {
    const fn new() -> Former {
        Former { action: UnsafeCell::new(MaybeUninit::uninit()), is_spent: AtomicBool::new(false) }
    }

    /// Sets the replaced handler.
    ///
    /// # Safety
    /// The lock of `USED` is held, and the handler of ours that reads this entry is not installed.
    unsafe fn put(&self, action: sigaction) {
        // SAFETY: the handler that reads this entry is not installed, so there is no reader.
        unsafe { (*self.action.get()).write(action) };
        self.is_spent.store(false, Ordering::Relaxed);
    }

    /// Returns the replaced handler.
    ///
    /// # Safety
    /// [`put`](Former::put) has been called.
    unsafe fn action(&self) -> &sigaction {
        // SAFETY: an entry is written only while the handler that reads it is not installed, under
        // the lock.
        let action = unsafe { &*self.action.get() };
        // SAFETY: `put` has initialized it, as the caller guarantees.
        unsafe { action.assume_init_ref() }
    }
}

impl crate::Engine {
    /// Returns whether each page of the memory can be had, for writing if `writes`. The kernel
    /// provides pages that are not there yet. No byte changes, even if other threads write to the
    /// memory.
    ///
    /// On other processors than x86-64 this always returns true.
    ///
    /// # Safety
    /// The mapped part of the `len` bytes at `addr` may be read, and written if `writes`.
    pub unsafe fn is_there(addr: *mut u8, len: usize, writes: bool) -> bool {
        install();
        // SAFETY: the caller allows to read the memory, and to write it if `writes`.
        unsafe { guarded::touch(addr, len, writes) }.is_ok()
    }

    /// Installs the handler of SIGSEGV and SIGBUS that accesses to registered memory need, also
    /// over a handler that the program has installed since. Returns whether it is installed in
    /// front of all others.
    pub fn guard_memory() -> bool {
        install()
    }
}

/// Installs a handler of ours in front of all others, for each signal. Returns false if that is not
/// possible: the program has installed more than `TIMES` different handlers over ours.
pub(crate) fn install() -> bool {
    guarded::prepare();
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stands = true;
    for (row, signal) in SIGNALS.into_iter().enumerate() {
        stands &= install_for(signal, &FORMER[row], &mut used[row]);
    }
    stands
}

/// Installs a handler of ours for one signal. Returns false if that is not possible.
fn install_for(signal: c_int, row: &[Former; TIMES], used: &mut usize) -> bool {
    let Some(now) = exchange(signal, None) else { return false };
    if is_ours(&now) {
        return true;
    }
    // If this handler was replaced before, its entry is used again.
    // SAFETY: `put` was called for all entries below `used`.
    let knows = |former: &Former| unsafe { former.action() }.sa_sigaction == now.sa_sigaction;
    let known = row[..*used].iter().rposition(knows);
    let at = known.unwrap_or(*used);
    let Some(former) = row.get(at) else { return false };
    // SAFETY: the lock is held, and the installed handler is none of ours. If a program calls a
    // saved handler of ours, the entry is either unused or keeps the same handler.
    unsafe { former.put(now) };
    *used = (*used).max(at + 1);
    let mut ours = now;
    ours.sa_sigaction = OURS[at] as usize;
    // Keep whether interrupted system calls are restarted.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | now.sa_flags & libc::SA_RESTART;
    ours.sa_mask = set_of(&[]);
    exchange(signal, Some(&ours)).is_some()
}

/// Installs an action, if one is given, and returns the one before.
fn exchange(signal: c_int, new: Option<&sigaction>) -> Option<sigaction> {
    let mut old = MaybeUninit::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or an action with a handler that lives as long as this program or
    // library, which is never unloaded; `old` has room for one action.
    let result = unsafe { libc::sigaction(signal, new, old.as_mut_ptr()) };
    // SAFETY: the call succeeded, so it has filled `old`.
    (result == 0).then(|| unsafe { old.assume_init() })
}

fn is_ours(action: &sigaction) -> bool {
    OURS.iter().any(|ours| *ours as usize == action.sa_sigaction)
}

/// Unblocks both signals for the calling thread: a fault cannot be delivered later.
pub(crate) fn unblock() {
    mask(libc::SIG_UNBLOCK, &set_of(&SIGNALS));
}

fn set_of(signals: &[c_int]) -> sigset_t {
    // SAFETY: all zeros is the empty set of signals.
    let mut set = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: `set` is an initialized set of this function, and `signal` a valid number.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// Changes the calling thread's signal mask. In a handler, the change lasts until the handler
/// returns.
fn mask(how: c_int, set: &sigset_t) {
    // SAFETY: `set` is an initialized set, and the old mask is not requested.
    unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) };
}

/// Our handler number `N`.
extern "C" fn handle<const N: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel, or a handler that passes the signal on with three arguments, gives a
    // valid pointer.
    let info = unsafe { &mut *info };
    // SAFETY: with SA_SIGINFO the third argument is a pointer to the thread's `ucontext_t`.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let is_fault = is_fault(signal, info.si_code);
    if is_fault && land(context) {
        return;
    }
    pass_on(N, signal, info, context, is_fault);
}

/// Returns whether an instruction of this thread has caused the signal; it would cause it again.
fn is_fault(signal: c_int, code: c_int) -> bool {
    /// `BUS_MCEERR_AO`: memory has an error, but no access to it was made.
    const MEMORY_IS_BROKEN: c_int = 5;
    // Signals that processes and timers send have codes up to 0.
    code > 0 && !(signal == libc::SIGBUS && code == MEMORY_IS_BROKEN)
}

/// Continues an access to registered memory at its landing. Returns false if it is no such access.
#[cfg(target_arch = "x86_64")]
fn land(context: &mut libc::ucontext_t) -> bool {
    let ip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let landing = guarded::landing(*ip as usize);
    if let Some(landing) = landing {
        *ip = landing as i64;
    }
    landing.is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn land(_: &mut libc::ucontext_t) -> bool {
    false
}

/// Calls the handler that number `number` of ours has replaced. If that passes the signal back, one
/// of ours is called again; bits in `uc_link` tell which entries were already used. The kernel sets
/// `uc_link` to 0 and does not read it.
#[cold]
fn pass_on(
    number: usize,
    signal: c_int,
    info: &mut siginfo_t,
    context: &mut libc::ucontext_t,
    is_fault: bool,
) {
    let row = &FORMER[SIGNALS.iter().position(|&one| one == signal).unwrap_or(0)];
    let before = context.uc_link.addr();
    // Any other value comes from a program, in a context of its own.
    let seen = if before < 1 << TIMES { before } else { 0 };
    // The number itself, or the next older one that was not used.
    let Some(at) = (0..=number).rev().find(|at| seen & 1 << at == 0) else {
        return end(signal, is_fault);
    };
    context.uc_link = ptr::without_provenance_mut(seen | 1 << at);
    // SAFETY: `put` was called for all entries up to the number of an installed handler.
    let action = unsafe { row[at].action() };
    call(action, &row[at].is_spent, signal, info, context, is_fault);
    context.uc_link = ptr::without_provenance_mut(before);
}

/// Does what `action` asks for.
fn call(
    action: &sigaction,
    is_spent: &AtomicBool,
    signal: c_int,
    info: &mut siginfo_t,
    context: &mut libc::ucontext_t,
    is_fault: bool,
) {
    let has = |flag| action.sa_flags & flag != 0;
    let once = has(libc::SA_RESETHAND);
    match action.sa_sigaction {
        libc::SIG_IGN if !is_fault => return,
        // A fault cannot be ignored.
        libc::SIG_DFL | libc::SIG_IGN => return end(signal, is_fault),
        _ if once && is_spent.swap(true, Ordering::Relaxed) => return end(signal, is_fault),
        _ => {}
    }
    mask(libc::SIG_BLOCK, &action.sa_mask);
    // SAFETY: `sa_mask` is an initialized set, and `signal` a valid number.
    let is_masked = unsafe { libc::sigismember(&raw const action.sa_mask, signal) } == 1;
    if has(libc::SA_NODEFER) && !is_masked {
        mask(libc::SIG_UNBLOCK, &set_of(&[signal]));
    }
    if has(libc::SA_SIGINFO) {
        // SAFETY: SA_SIGINFO is set, so the handler takes three arguments.
        let handler: Handler = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal, info, ptr::from_mut(context).cast());
    } else {
        // SAFETY: SA_SIGINFO is not set, so the handler takes one argument.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal);
    }
}

/// Applies the system's default: the instruction is executed again and ends the process, or, if it
/// was no fault, the signal is raised again.
fn end(signal: c_int, is_fault: bool) {
    // SAFETY: an action of all zeros is SIG_DFL without flags and mask.
    let system: sigaction = unsafe { std::mem::zeroed() };
    let _ = exchange(signal, Some(&system));
    if !is_fault {
        // SAFETY: `signal` is a valid number; it is delivered when this handler returns, which
        // unblocks it.
        unsafe { libc::raise(signal) };
    }
}

#[cfg(test)]
mod tests;
