//! The handler of SIGSEGV and SIGBUS: lets an access to registered memory that is gone go on where it
//! is to, and passes everything else on to the handler that was there before.
//!
//! ```text
//!   fault ─▶ ours[n] ─┬─ an access of ours ─▶ goes on at its landing
//!                     └─ anything else ────▶ what stood there when ours[n] was put there
//! ```
//!
//! A program, or the runtime of its language, may put its own handler over ours, which then may or may
//! not pass on what it does not know. So it is looked now and then whether one of ours is in place
//! ([`install`]), and if not another one is put there, whose predecessor is the program's. Each of ours
//! has the predecessor of its own time: what the program has saved of ours leads to what it expects.
//!
//! Invariants
//! - A fault comes to each handler of ours once: where a program's passes it back, it goes on to an
//!   older one, in the end to the system's.
//! - The handler allocates nothing, takes no lock, and has no thread-local variable. It runs on the
//!   thread's alternate stack, if the thread has one.
//! - What a program asked for with its own handler holds when ours calls it: mask, SA_SIGINFO,
//!   SA_NODEFER, SA_RESETHAND. SIG_DFL ends the process at the instruction that is at fault.
//!
//! A signal that is blocked when an access faults ends the process, so threads that turn lcores have
//! both unblocked ([`unblock`]).

#![allow(unsafe_code)]

use crate::guarded;
use crate::sync::{AtomicBool, Mutex, Ordering};
use libc::{c_int, c_void, sigaction, siginfo_t, sigset_t};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::PoisonError;

/// What is caught.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// So often a handler of ours can be put over another than before.
const TIMES: usize = 8;

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Those of ours, which do the same, each for its place.
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

/// What stood there before a handler of ours, for each signal.
static FORMER: [[Former; TIMES]; SIGNALS.len()] =
    [const { [const { Former::new() }; TIMES] }; SIGNALS.len()];

/// How many of each row are in use. Who changes rows or the process's handlers holds the lock.
static USED: Mutex<[usize; SIGNALS.len()]> = Mutex::new([0; SIGNALS.len()]);

/// A handler that ours stands before.
struct Former {
    action: UnsafeCell<MaybeUninit<sigaction>>,
    /// It was to be called once, and has been (SA_RESETHAND).
    is_spent: AtomicBool,
}

// SAFETY: the action is written under the lock of `USED`, before the handler of ours that reads it is
// put in its place; it is not written while that is in place.
unsafe impl Sync for Former {}

impl Former {
    const fn new() -> Former {
        Former { action: UnsafeCell::new(MaybeUninit::uninit()), is_spent: AtomicBool::new(false) }
    }

    /// # Safety
    /// The lock of `USED` is held, and the handler of this place is not in place.
    unsafe fn put(&self, action: sigaction) {
        // SAFETY: by the promise nothing reads it now.
        unsafe { (*self.action.get()).write(action) };
        self.is_spent.store(false, Ordering::Relaxed);
    }

    /// # Safety
    /// `put` has been called.
    unsafe fn action(&self) -> &sigaction {
        // SAFETY: nothing writes it now, as the type says.
        let action = unsafe { &*self.action.get() };
        // SAFETY: written before anything asks, the caller's promise.
        unsafe { action.assume_init_ref() }
    }
}

impl crate::Engine {
    /// Whether each page of the memory can be had, for writing if `writes`: the kernel gives those that
    /// it has not given yet. No byte is changed, whatever else writes to the memory.
    ///
    /// Elsewhere than on x86-64 all pages are taken to be there.
    ///
    /// # Safety
    /// What is mapped of the `len` bytes at `addr` may be read, and written if `writes`.
    pub unsafe fn is_there(addr: *mut u8, len: usize, writes: bool) -> bool {
        install();
        // SAFETY: the caller's promise.
        unsafe { guarded::touch(addr, len, writes) }.is_ok()
    }

    /// Puts the handler of SIGSEGV and SIGBUS that accesses to registered memory need before one that
    /// the program has put over it since. Says whether it stands before all others.
    pub fn guard_memory() -> bool {
        install()
    }
}

/// Sees to it that a handler of ours stands before all others, for each signal. Says whether one
/// does: not if programs have put so many different ones over ours that there is none left.
pub(crate) fn install() -> bool {
    guarded::prepare();
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stands = true;
    for (row, signal) in SIGNALS.into_iter().enumerate() {
        stands &= install_for(signal, &FORMER[row], &mut used[row]);
    }
    stands
}

/// The same for one signal.
fn install_for(signal: c_int, row: &[Former; TIMES], used: &mut usize) -> bool {
    let Some(now) = exchange(signal, None) else { return false };
    if is_ours(&now) {
        return true;
    }
    // One that has stood before the very same handler does so again.
    // SAFETY: places below `used` have been put.
    let knows = |former: &Former| unsafe { former.action() }.sa_sigaction == now.sa_sigaction;
    let known = row[..*used].iter().rposition(knows);
    let at = known.unwrap_or(*used);
    let Some(former) = row.get(at) else { return false };
    // SAFETY: the lock is held; what is in place is none of ours, and what a program has saved of ours
    // leads to a handler that is the same.
    unsafe { former.put(now) };
    *used = (*used).max(at + 1);
    let mut ours = now;
    ours.sa_sigaction = OURS[at] as usize;
    // Interrupted calls go on or not as before.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | now.sa_flags & libc::SA_RESTART;
    ours.sa_mask = set_of(&[]);
    exchange(signal, Some(&ours)).is_some()
}

/// Puts an action in its place, if one is given; gives what was there.
fn exchange(signal: c_int, new: Option<&sigaction>) -> Option<sigaction> {
    let mut old = MaybeUninit::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: an action whose handler lives as long as the program or library, which is never
    // unloaded, or none; and room for one.
    let result = unsafe { libc::sigaction(signal, new, old.as_mut_ptr()) };
    // SAFETY: filled in by a call that succeeded.
    (result == 0).then(|| unsafe { old.assume_init() })
}

fn is_ours(action: &sigaction) -> bool {
    OURS.iter().any(|ours| *ours as usize == action.sa_sigaction)
}

/// Lets the calling thread have both signals: what they are about cannot wait.
pub(crate) fn unblock() {
    mask(libc::SIG_UNBLOCK, &set_of(&SIGNALS));
}

fn set_of(signals: &[c_int]) -> sigset_t {
    // SAFETY: zeros are the set of no signals.
    let mut set = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: a set of this frame's, and a signal's number.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// Changes which signals the calling thread has blocked. A handler may; it lasts until its end.
fn mask(how: c_int, set: &sigset_t) {
    // SAFETY: a set, and nothing that the former one is to be written to.
    unsafe { libc::pthread_sigmask(how, set, ptr::null_mut()) };
}

/// Ours, put there as number `N`.
extern "C" fn handle<const N: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, or a handler's that calls this one in its place as the flags of the action
    // demand, which are those of a handler with three arguments.
    let info = unsafe { &mut *info };
    // SAFETY: the same.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let is_fault = is_fault(signal, info.si_code);
    if is_fault && land(context) {
        return;
    }
    pass_on(N, signal, info, context, is_fault);
}

/// Is it what an instruction of this thread has done? It does so again then.
fn is_fault(signal: c_int, code: c_int) -> bool {
    /// `BUS_MCEERR_AO`: memory is broken, though nobody has touched it.
    const MEMORY_IS_BROKEN: c_int = 5;
    // What processes and timers send has codes up to 0.
    code > 0 && !(signal == libc::SIGBUS && code == MEMORY_IS_BROKEN)
}

/// Lets an access to registered memory go on where it is to.
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

/// Has the handler that stood there before number `number` see to it. One that passes it on comes
/// back to one of ours, which is told from the first time by `uc_link`: the kernel gives 0 there, and
/// takes nothing from it.
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
    // Any other value is a program's, in a context of its own.
    let seen = if before < 1 << TIMES { before } else { 0 };
    // The number itself, or the next older one.
    let Some(at) = (0..=number).rev().find(|at| seen & 1 << at == 0) else {
        return end(signal, is_fault);
    };
    context.uc_link = ptr::without_provenance_mut(seen | 1 << at);
    // SAFETY: handlers of ours up to this number are in place or have been.
    let action = unsafe { row[at].action() };
    call(action, &row[at].is_spent, signal, info, context, is_fault);
    context.uc_link = ptr::without_provenance_mut(before);
}

/// Does what `action` says.
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
        // What an instruction does cannot be ignored.
        libc::SIG_DFL | libc::SIG_IGN => return end(signal, is_fault),
        _ if once && is_spent.swap(true, Ordering::Relaxed) => return end(signal, is_fault),
        _ => {}
    }
    mask(libc::SIG_BLOCK, &action.sa_mask);
    // SAFETY: a set, and a signal's number.
    let is_masked = unsafe { libc::sigismember(&raw const action.sa_mask, signal) } == 1;
    if has(libc::SA_NODEFER) && !is_masked {
        mask(libc::SIG_UNBLOCK, &set_of(&[signal]));
    }
    if has(libc::SA_SIGINFO) {
        // SAFETY: a handler of three arguments, as the flags say.
        let handler: Handler = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal, info, ptr::from_mut(context).cast());
    } else {
        // SAFETY: a handler of one argument, as the flags say.
        let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal);
    }
}

/// The system's handler: the instruction is done again and ends the process, or the signal is sent
/// again if it was no instruction's.
fn end(signal: c_int, is_fault: bool) {
    // SAFETY: an action of zeros is the system's handler, without flags and mask.
    let system: sigaction = unsafe { std::mem::zeroed() };
    let _ = exchange(signal, Some(&system));
    if !is_fault {
        // SAFETY: a signal's number; it comes when this handler returns, which unblocks it.
        unsafe { libc::raise(signal) };
    }
}

#[cfg(test)]
mod tests;
