//! The function that would have been called without the shim.

use libc::{c_char, c_int, c_void, ssize_t};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is called first.
pub(crate) struct Next {
    /// With its terminator.
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// `name` ends with a NUL.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function, unless this C library has none of the name. `errno` stays as it is.
    pub(crate) fn find(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            let before = errno();
            let name = self.name.as_ptr().cast::<c_char>();
            // SAFETY: the name is terminated.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
            set_errno(before);
            // Two threads may both look it up, and find the same.
            self.found.store(found, Ordering::Relaxed);
        }
        (!found.is_null()).then_some(found)
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the function has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is this thread's, and readable.
    unsafe { *errno }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the function has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is this thread's, and writable.
    unsafe { *errno = value }
}

/// What a function gives when it fails.
pub(crate) trait Failure {
    /// Says that there is no such function.
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
