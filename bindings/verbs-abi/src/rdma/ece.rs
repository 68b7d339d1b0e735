//! Enhanced connection establishment: vendor-specific options that peers negotiate.
//!
//! Queue pairs of this library have none. So a program cannot set any, options of a peer are
//! ignored, and the answer to the peer has none.

use std::ffi::{c_int, c_void};

use super::connect::reject_for;
use crate::abi::{ibv_ece, rdma_cm_id};
use crate::entry;
use crate::errno::Errno;
use crate::objects::id;

/// No vendor and no options.
const NONE: ibv_ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };

pub(crate) unsafe extern "C" fn rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    entry::minus_one(|| {
        id::get(id)?;
        // SAFETY: the program passes NULL or a valid structure.
        let ece = unsafe { entry::read(ece) }?;
        match ece {
            ibv_ece { comp_mask: 1.., .. } => Err(Errno::EINVAL),
            ibv_ece { vendor_id: 0, options: 0, .. } => Ok(()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}

pub(crate) unsafe extern "C" fn rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    entry::minus_one(|| {
        id::get(id)?;
        // SAFETY: the program passes NULL or a valid structure.
        unsafe { entry::write(ece, NONE) }
    })
}

/// `rdma_reject_ece`: rejects a request like `rdma_reject`, with the vendor's options as the
/// reason.
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the program passes NULL or `private_data_len` bytes.
    entry::minus_one(|| unsafe {
        reject_for(id, uroce::cm::RejectReason::VENDOR_OPTION, private_data, private_data_len)
    })
}
