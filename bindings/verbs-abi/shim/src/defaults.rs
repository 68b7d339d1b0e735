//! Variables that programs read with `getenv` and that get another default here.
//!
//! They are not set in the environment for two reasons. UCX warns of each variable of its own that
//! its release does not read. And the default of Mooncake's depends on the processors that the
//! process has when it asks, which need not be those of `uroce-run`.

use crate::next::Next;
use crate::redirect::has_tree;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;

/// A variable and its default.
struct Preset {
    name: &'static CStr,
    value: &'static CStr,
    /// Whether the program gets the default on this machine.
    applies: fn() -> bool,
}

const PRESETS: [Preset; 2] = [
    // Recent releases of UCX ask the kernel for a route by the interface of the local GID, and take
    // the peer for unreachable without one. uroce's ports have routes of their own.
    Preset { name: c"UCX_IB_ROCE_REACHABILITY_MODE", value: c"all", applies: || true },
    // Each of Mooncake's two workers of a device spins for 100 ms after its last request, without
    // polling its queue, while the caller spins too. Three threads that spin on two processors
    // delay each request by the scheduler's time slices.
    Preset { name: c"MC_WORKERS_PER_CTX", value: c"1", applies: || processors() < 4 },
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

/// The C library's `getenv`.
type Function = unsafe extern "C" fn(*const c_char) -> *mut c_char;

/// It is looked up when the shim is loaded, and not at its first call: the loader's lock is held
/// during a look-up, and programs call `getenv` where they may not wait for it.
static NEXT: Next = Next::new("getenv\0");

/// Called by the loader after the libraries that the shim needs, and before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let _ = NEXT.find();
}

unsafe extern "C" {
    /// The environment: strings `NAME=value`, and a null pointer after the last.
    static environ: *const *mut c_char;
}

/// The value of a variable in the environment, as the C library's `getenv` finds it. Null if it has
/// none.
///
/// # Safety
///
/// `name` is null or a C string. Other threads change the environment only as they may during a
/// call of the C library's `getenv`.
pub(crate) unsafe fn variable(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    let Some(next) = NEXT.known() else {
        // SAFETY: not null, so it is a C string. The loader has not called `at_load` yet, so this
        // is a constructor of a library, or a function that one calls: the program has no thread
        // that changes the environment, unless such a constructor has started it.
        return unsafe { walk(name) };
    };
    // SAFETY: the symbol is the C library's function of this name, which has this parameter.
    let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
    // SAFETY: the name is a C string; the caller is bound by the function's own terms.
    unsafe { next(name) }
}

/// Finds a variable in the environment without the C library.
///
/// # Safety
///
/// `name` is a C string, and no other thread changes the environment.
unsafe fn walk(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: the C library defines the variable, and the caller lets no thread change it.
    let mut at = unsafe { (&raw const environ).read_volatile() };
    while !name.is_empty() && !at.is_null() {
        // SAFETY: the list ends with a null pointer, at which the loop ends.
        let entry = unsafe { at.read_volatile() };
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry is a C string, and a name has no zero.
        if let Some(value) = unsafe { value_of(entry, name) } {
            return value;
        }
        // SAFETY: the entry was not the last.
        at = unsafe { at.add(1) };
    }
    std::ptr::null_mut()
}

/// The value in an entry of the environment, if it is that of the variable.
///
/// # Safety
///
/// `entry` is a C string, and `name` has no zero.
unsafe fn value_of(entry: *mut c_char, name: &[u8]) -> Option<*mut c_char> {
    let byte = |at: usize| {
        // SAFETY: all bytes before this one were equal to bytes of the name, which are not zero, so
        // the string has not ended.
        unsafe { entry.wrapping_add(at).read() }.cast_unsigned()
    };
    let is_it = name.iter().enumerate().all(|(at, of)| byte(at) == *of) && byte(name.len()) == b'=';
    is_it.then(|| entry.wrapping_add(name.len() + 1))
}

/// The value of a variable, or its default in a program that is shown uroce's devices.
///
/// # Safety
///
/// Those of the C library's function: `name` is a C string, and no thread changes the environment
/// in a way that the function does not allow.
#[unsafe(no_mangle)]
unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    // SAFETY: the caller is bound by the terms of the C library's function.
    let value = unsafe { variable(name) };
    if !value.is_null() || name.is_null() {
        return value;
    }
    // SAFETY: not null, so it is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    match PRESETS.iter().find(|preset| preset.name == name) {
        Some(preset) if has_tree() && (preset.applies)() => preset.value.as_ptr().cast_mut(),
        _ => value,
    }
}
