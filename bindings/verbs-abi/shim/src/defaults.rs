//! Variables that programs read with `getenv` and that get another default here.
//!
//! Setting them in the environment would make releases of UCX warn that do not know them, as UCX
//! warns of each variable of its own that it does not read.

use crate::next::Next;
use crate::redirect::has_tree;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;

/// A variable and its default.
struct Default {
    name: &'static CStr,
    value: &'static CStr,
    /// Whether the program gets the default on this machine.
    applies: fn() -> bool,
}

const DEFAULTS: [Default; 2] = [
    // Recent releases of UCX ask the kernel for a route by the interface of the local GID, and take
    // the peer for unreachable without one. uroce's ports have routes of their own.
    Default { name: c"UCX_IB_ROCE_REACHABILITY_MODE", value: c"all", applies: || true },
    // Each of Mooncake's two workers of a device spins for 100 ms after its last request, without
    // polling its queue, while the caller spins too. Three threads that spin on two processors
    // delay each request by the scheduler's time slices.
    Default { name: c"MC_WORKERS_PER_CTX", value: c"1", applies: || processors() < 4 },
];

/// Number of processors that the calling thread may run on. Many if it is not known.
fn processors() -> c_int {
    // SAFETY: a set of processors is a set of bits, all zeros too.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: `set` has room for the size given.
    let known = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    // SAFETY: `set` is a set of processors.
    if known == 0 { unsafe { libc::CPU_COUNT(&set) } } else { c_int::MAX }
}

/// The value of a variable in the environment, by the C library. Null if it has none.
///
/// # Safety
///
/// `name` is a C string.
pub(crate) unsafe fn variable(name: *const c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char) -> *mut c_char;
    static NEXT: Next = Next::new("getenv\0");
    let Some(next) = NEXT.find() else { return std::ptr::null_mut() };
    // SAFETY: the symbol is the C library's function of this name, which has these parameters.
    let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
    // SAFETY: the caller passes a C string.
    unsafe { next(name) }
}

/// The value of a variable, or its default in a program that is shown uroce's devices.
///
/// # Safety
///
/// `name` is a C string, as the C library's function requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller passes a C string.
    let value = unsafe { variable(name) };
    if !value.is_null() || name.is_null() {
        return value;
    }
    // SAFETY: not null, so it is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    match DEFAULTS.iter().find(|default| default.name == name) {
        Some(default) if has_tree() && (default.applies)() => default.value.as_ptr().cast_mut(),
        _ => value,
    }
}
