//! Multicast groups of UD queue pairs: `ibv_attach_mcast`, `ibv_detach_mcast`.
//!
//! Invariant: a queue pair in a group cannot be destroyed (EBUSY).
//!
//! Not here: joining a group by its IP address ([`crate::rdma::mcast`]).

use std::ffi::c_int;
use std::sync::PoisonError;

use uroce::Gid;

use crate::abi::{ibv_gid, ibv_qp};
use crate::entry;
use crate::errno::Errno;
use crate::ibv::qp;

/// Attaches a queue pair to a group. No effect if it is attached already.
///
/// # Errors
///
/// EINVAL if it is not a UD queue pair, or the address is not that of a group.
pub(crate) fn attach(qp: *const ibv_qp, group: Gid) -> Result<(), Errno> {
    let qp = qp::get(qp)?;
    let mut groups = qp.groups.lock().unwrap_or_else(PoisonError::into_inner);
    if !groups.contains(&group) {
        qp.engine()?.attach_multicast(group)?;
        groups.push(group);
    }
    Ok(())
}

/// Detaches a queue pair from a group.
///
/// # Errors
///
/// EINVAL if it is not a queue pair of this library, or is not attached to the group.
pub(crate) fn detach(qp: *const ibv_qp, group: Gid) -> Result<(), Errno> {
    let qp = qp::get(qp)?;
    let mut groups = qp.groups.lock().unwrap_or_else(PoisonError::into_inner);
    let at = groups.iter().position(|its| *its == group).ok_or(Errno::EINVAL)?;
    qp.engine()?.detach_multicast(group)?;
    groups.swap_remove(at);
    Ok(())
}

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
    entry::code(|| attach(qp, unsafe { group(gid) }?))
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: the program passes NULL or a valid structure.
    entry::code(|| detach(qp, unsafe { group(gid) }?))
}
