//! Multicast groups of UD queue pairs: `ibv_attach_mcast`, `ibv_detach_mcast`.
//!
//! Invariant: a queue pair in a group cannot be destroyed (EBUSY).
//!
//! Not here: joining a group by its IP address ([`crate::rdma::mcast`]).

use std::ffi::c_int;

use uroce::Gid;

use crate::abi::{ibv_gid, ibv_qp};
use crate::entry;
use crate::errno::Errno;
use crate::objects::qp;

/// Reads a GID.
///
/// # Safety
///
/// `gid` is NULL or points to a GID.
unsafe fn group(gid: *const ibv_gid) -> Result<Gid, Errno> {
    // SAFETY: `gid` is NULL or points to a GID, which is 16 bytes.
    Ok(Gid(unsafe { entry::read(gid.cast::<[u8; 16]>()) }?))
}

/// `ibv_attach_mcast`. The LID has no meaning on RoCE.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program passes NULL or a valid structure.
    entry::code(|| qp::get(qp)?.attach(unsafe { group(gid) }?))
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program passes NULL or a valid structure.
    entry::code(|| qp::get(qp)?.detach(unsafe { group(gid) }?))
}
