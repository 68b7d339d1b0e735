//! Functions that have no body: each says that it is not there, in the way of its kind.
//!
//! They may stand for a function of any arguments: they look at none. Their error is EOPNOTSUPP, as a
//! device's that lacks what the function is for.

use std::ffi::{c_int, c_void};

use crate::errno::Errno;

/// Of those that give an error number.
pub(crate) extern "C" fn code() -> c_int {
    Errno::EOPNOTSUPP.set();
    Errno::EOPNOTSUPP.code()
}

/// Of those that give -1 and set `errno`.
pub(crate) extern "C" fn minus_one() -> c_int {
    Errno::EOPNOTSUPP.set();
    -1
}

/// Of those that give a pointer.
pub(crate) extern "C" fn null() -> *mut c_void {
    Errno::EOPNOTSUPP.set();
    std::ptr::null_mut()
}

/// Of those that give nothing.
pub(crate) extern "C" fn nothing() {}

/// Of those for which nothing to do is the right thing.
pub(crate) extern "C" fn zero() -> u64 {
    0
}
