//! Variables that programs read with `getenv` and that get another default here.
//!
//! Setting them in the environment would make releases of UCX warn that do not know them, as UCX
//! warns of each variable of its own that it does not read.

use crate::redirect::has_tree;
use libc::{c_char, c_int};
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

unsafe extern "C" {
    /// The environment: strings `NAME=value`, and a null pointer after the last.
    static environ: *const *mut c_char;
}

/// The value of a variable in the environment, as the C library's `getenv` finds it. Null if it has
/// none. The C library's own function is not looked up for this: the loader's lock is held during a
/// look-up, and programs call `getenv` where they may not wait for it.
///
/// # Safety
///
/// `name` is null or a C string, and no other thread changes the environment.
pub(crate) unsafe fn variable(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: not null, so it is a C string.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_the_value_that_the_environment_has() {
        // SAFETY: the test runner runs each test in a process of its own.
        unsafe { std::env::set_var("UROCE_SHIM_TEST", "a=b") };
        let value = |name: &CStr| {
            // SAFETY: it is a C string, and no other thread changes the environment.
            let found = unsafe { variable(name.as_ptr()) };
            // SAFETY: not null, so it is a value in the environment.
            (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_bytes().to_vec())
        };
        assert_eq!(value(c"UROCE_SHIM_TEST").unwrap(), b"a=b");
        for other in [c"UROCE_SHIM", c"UROCE_SHIM_TEST_", c"", c"UROCE_SHIM_NONE"] {
            assert_eq!(value(other), None, "{other:?}");
        }
        // SAFETY: a null pointer is allowed.
        assert!(unsafe { variable(std::ptr::null()) }.is_null());
    }
}
