//! `rdma_set_option`: options of ids.

use std::ffi::{c_int, c_void};

use crate::abi::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::objects::id::{self, Stage};

/// Largest code of an ACK timeout.
const TIMEOUT_MAX: u8 = 31;

/// Reads the value of an option. EINVAL if it does not have the option's size.
///
/// # Safety
///
/// `value` is NULL or points to `len` bytes.
unsafe fn value<T: Copy>(value: *const c_void, len: usize) -> Result<T, Errno> {
    if len != size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `value` is NULL or points to `size_of::<T>()` bytes.
    unsafe { entry::read(value.cast::<T>()) }
}

/// Sets an option of an id.
///
/// # Safety
///
/// `place` is NULL or points to `len` bytes.
unsafe fn set(
    id: *const rdma_cm_id,
    level: c_int,
    option: c_int,
    place: *const c_void,
    len: usize,
) -> Result<(), Errno> {
    let id = id::get(id)?;
    let mut state = id.state();
    // Numbers of options are small and not negative.
    let (level, option) = (level.cast_unsigned(), option.cast_unsigned());
    // SAFETY: `place` is NULL or points to `len` bytes.
    let byte = || unsafe { value::<u8>(place, len) };
    // SAFETY: `place` is NULL or points to `len` bytes.
    let flag = || unsafe { value::<c_int>(place, len) }.map(|flag| flag != 0);
    match (level, option) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => state.options.tos = Some(byte()?),
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            let timeout = byte()?;
            if timeout > TIMEOUT_MAX {
                return Err(Errno::EINVAL);
            }
            state.options.ack_timeout = Some(timeout);
        }
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY) => {
            let flag = flag()?;
            if state.stage != Stage::Idle {
                return Err(Errno::EINVAL);
            }
            match option {
                RDMA_OPTION_ID_REUSEADDR => state.options.reuse = flag,
                _ => state.options.one_version = Some(flag),
            }
        }
        // On RoCE paths are resolved, and a program cannot set them.
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::ENOSYS),
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    // SAFETY: the program passes NULL or `optlen` bytes.
    entry::minus_one(|| unsafe { set(id, level, optname, optval, optlen) })
}
