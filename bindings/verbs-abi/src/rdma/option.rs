//! Options of ids: `rdma_set_option`.

use std::ffi::{c_int, c_void};

use super::id::{self, Stage};
use crate::abi::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;

/// The largest timeout code.
const TIMEOUT_MAX: u8 = 31;

/// The value of an option, if it has the right size.
///
/// # Safety
///
/// If it is not NULL, `value` points to `len` bytes.
unsafe fn value<T: Copy>(value: *const c_void, len: usize) -> Result<T, Errno> {
    if len != size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by the caller's promise.
    unsafe { entry::read(value.cast::<T>()) }
}

/// # Safety
///
/// As [`value`].
unsafe fn set(
    id: *const rdma_cm_id,
    level: c_int,
    option: c_int,
    place: *const c_void,
    len: usize,
) -> Result<(), Errno> {
    let id = id::get(id)?;
    let mut state = id.state();
    // Numbers of options are small.
    let (level, option) = (level.cast_unsigned(), option.cast_unsigned());
    // SAFETY: by the caller's promise.
    let byte = || unsafe { value::<u8>(place, len) };
    // SAFETY: as above.
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
        // On RoCE paths are found, not given.
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
    // SAFETY: what programs pass is theirs or NULL.
    entry::minus_one(|| unsafe { set(id, level, optname, optval, optlen) })
}
