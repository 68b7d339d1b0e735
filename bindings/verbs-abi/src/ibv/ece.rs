//! Enhanced connection establishment: vendor-specific options. This library has none.

use std::ffi::c_int;

use uroce::raw::limits::VENDOR_ID;

use crate::abi::{ibv_ece, ibv_qp};
use crate::entry;
use crate::errno::Errno;
use crate::objects::qp;

const NONE: ibv_ece = ibv_ece { vendor_id: VENDOR_ID, options: 0, comp_mask: 0 };

pub(crate) unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, place: *mut ibv_ece) -> c_int {
    entry::code(|| {
        qp::get(qp)?;
        // SAFETY: the program passes NULL or room for the structure.
        unsafe { entry::write(place, NONE) }
    })
}

/// Accepts none of the offered options, and returns an empty set.
pub(crate) unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, place: *mut ibv_ece) -> c_int {
    entry::code(|| {
        qp::get(qp)?;
        // SAFETY: the program passes NULL or a valid structure.
        if unsafe { entry::read(place) }?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `place` was read above, so it points to the program's structure.
        unsafe { entry::write(place, NONE) }
    })
}
