//! Calls with which a program gives up privileges or changes its root directory or namespaces.
//!
//! A kernel device stays usable after such a call, because its file is open. uroce's engine starts
//! at the program's first object, which may come later. So uroce's library registers a function
//! that runs before each of these calls. The effect, result and `errno` of a call are those of the
//! C library.

use crate::next::{Failure, Next, errno, set_errno};
use libc::{c_char, c_int, c_void, gid_t, size_t, uid_t};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The registered function. Null if there is none.
static CALL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Registers a function that is called before each call that gives up privileges. uroce's library
/// registers it when the program opens a device.
#[unsafe(no_mangle)]
extern "C" fn uroce_shim_before_drop(call: extern "C" fn()) {
    CALL.store(call as *mut c_void, Ordering::Release);
}

fn call() {
    let call = CALL.load(Ordering::Acquire);
    if call.is_null() {
        return;
    }
    // SAFETY: `CALL` is null or was set to a function of this type by `uroce_shim_before_drop`.
    let call = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(call) };
    let before = errno();
    call();
    set_errno(before);
}

/// Defines functions of the C library. Each calls the registered function, then the next function
/// of the same name in the loader's search order.
macro_rules! announce {
    ($( fn $name:ident($($argument:ident: $type:ty),*) -> c_int; )*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            let Some(next) = NEXT.find() else { return c_int::fail() };
            // SAFETY: the symbol is the C library's function of this name, which has these
            // parameters.
            let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
            call();
            // SAFETY: the arguments are passed on unchanged.
            unsafe { next($($argument),*) }
        }
    )* };
}

announce! {
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn capset(header: *mut c_void, sets: *const c_void) -> c_int;
    fn chroot(root: *const c_char) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(namespace: c_int, kind: c_int) -> c_int;
}
