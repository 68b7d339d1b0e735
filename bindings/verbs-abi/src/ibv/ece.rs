//! Enhanced connection establishment: options of a vendor's own, of which there are none here.

use std::ffi::c_int;

use super::qp;
use super::query::VENDOR_ID;
use crate::abi::{ibv_ece, ibv_qp};
use crate::entry;
use crate::errno::Errno;

const NONE: ibv_ece = ibv_ece { vendor_id: VENDOR_ID, options: 0, comp_mask: 0 };

pub(crate) unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, place: *mut ibv_ece) -> c_int {
    entry::code(|| {
        qp::get(qp)?;
        // SAFETY: the program's room for the structure.
        unsafe { entry::write(place, NONE) }
    })
}

/// Takes none of the options that are offered, and says so.
pub(crate) unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, place: *mut ibv_ece) -> c_int {
    entry::code(|| {
        qp::get(qp)?;
        // SAFETY: the program's structure, if it is not NULL.
        if unsafe { entry::read(place) }?.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above.
        unsafe { entry::write(place, NONE) }
    })
}
