//! Enhanced connection establishment: options of a vendor's hardware, which peers agree on.
//!
//! Our queue pairs have none. So none can be asked for, a peer's are not heeded, and it is told so by
//! an answer without any.

use std::ffi::{c_int, c_void};

use super::connect::reject_for;
use super::id;
use crate::abi::{ibv_ece, rdma_cm_id};
use crate::entry;
use crate::errno::Errno;

/// No vendor, no options.
const NONE: ibv_ece = ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };

pub(crate) unsafe extern "C" fn rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    entry::minus_one(|| {
        id::get(id)?;
        // SAFETY: what programs pass is theirs or NULL.
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
        // SAFETY: what programs pass is theirs or NULL.
        unsafe { entry::write(ece, NONE) }
    })
}

/// As `rdma_reject`, but the peer hears that its vendor's options are the reason.
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: what programs pass is theirs or NULL.
    entry::minus_one(|| unsafe {
        reject_for(id, uroce::cm::RejectReason::VENDOR_OPTION, private_data, private_data_len)
    })
}
