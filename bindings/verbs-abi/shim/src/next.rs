//! Looks up the function that would be called without the shim.

use libc::{c_char, c_int, c_void, ssize_t};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library. It is looked up at its first call.
pub(crate) struct Next {
    /// The function's name, with a terminating zero.
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// `name` must end with a NUL.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The address of the function, if [`find`](Next::find) has found it.
    pub(crate) fn known(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }

    /// The address of the function. `None` if the C library does not have it. `errno` does not
    /// change.
    pub(crate) fn find(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            let before = errno();
            let name = self.name.as_ptr().cast::<c_char>();
            // SAFETY: `name` is terminated, as `new` requires.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
            set_errno(before);
            // Two threads may look it up at once; they get the same result.
            self.found.store(found, Ordering::Relaxed);
        }
        (!found.is_null()).then_some(found)
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: `__errno_location` has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is to the calling thread's `errno`, which is readable.
    unsafe { *errno }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: `__errno_location` has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is to the calling thread's `errno`, which is writable.
    unsafe { *errno = value }
}

/// The result of a function that fails.
pub(crate) trait Failure {
    /// Sets `errno` to ENOSYS and returns the result that means failure.
    fn fail() -> Self;
}

impl Failure for c_int {
    fn fail() -> Self {
        set_errno(libc::ENOSYS);
        -1
    }
}

impl Failure for ssize_t {
    fn fail() -> Self {
        set_errno(libc::ENOSYS);
        -1
    }
}

impl<T> Failure for *mut T {
    fn fail() -> Self {
        set_errno(libc::ENOSYS);
        std::ptr::null_mut()
    }
}
