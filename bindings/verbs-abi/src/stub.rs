//! Functions for exported symbols that are not implemented. Each reports this in the convention of
//! its return type.
//!
//! They do not look at their arguments, so they may stand for functions with any. The error is
//! EOPNOTSUPP, as from a device that lacks the feature.

use std::ffi::{c_int, c_void};

use crate::errno::Errno;

/// For functions that return an error number.
pub(crate) extern "C" fn code() -> c_int {
    Errno::EOPNOTSUPP.set();
    Errno::EOPNOTSUPP.code()
}

/// For functions that return -1 and set `errno`.
pub(crate) extern "C" fn minus_one() -> c_int {
    Errno::EOPNOTSUPP.set();
    -1
}

/// For functions that return a pointer.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno::EOPNOTSUPP.set();
    std::ptr::null_mut()
}

/// For functions without a result.
pub(crate) extern "C" fn nothing() {}

/// For functions for which doing nothing is correct.
pub(crate) extern "C" fn zero() -> u64 {
    0
}
