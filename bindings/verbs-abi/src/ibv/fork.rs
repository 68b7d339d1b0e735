//! `fork`: the CPU copies all data, so copy-on-write pages of a child do no harm, and no
//! preparation is needed.

use std::ffi::{c_int, c_uint, c_void};

use crate::abi;

pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_uint {
    abi::IBV_FORK_UNNEEDED
}

pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _len: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _len: usize) -> c_int {
    0
}
