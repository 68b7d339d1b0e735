//! Multicast groups of UD queue pairs: `ibv_attach_mcast`, `ibv_detach_mcast`.
//!
//! Invariant: a queue pair that is in a group is busy.
//!
//! Not here: joining a group by its IP address ([`crate::rdma::mcast`]).

use std::ffi::c_int;
use std::sync::PoisonError;

use uroce::Gid;

use crate::abi::{ibv_gid, ibv_qp};
use crate::entry;
use crate::errno::Errno;
use crate::ibv::qp;

/// Puts a queue pair into a group; without effect if it is in it.
///
/// # Errors
///
/// EINVAL: no UD queue pair, or no group's address.
pub(crate) fn attach(qp: *const ibv_qp, group: Gid) -> Result<(), Errno> {
    let qp = qp::get(qp)?;
    let mut groups = qp.groups.lock().unwrap_or_else(PoisonError::into_inner);
    if !groups.contains(&group) {
        qp.engine()?.attach_multicast(group)?;
        groups.push(group);
    }
    Ok(())
}

/// Takes a queue pair out of a group.
///
/// # Errors
///
/// EINVAL: no queue pair, or not in the group.
pub(crate) fn detach(qp: *const ibv_qp, group: Gid) -> Result<(), Errno> {
    let qp = qp::get(qp)?;
    let mut groups = qp.groups.lock().unwrap_or_else(PoisonError::into_inner);
    let at = groups.iter().position(|its| *its == group).ok_or(Errno::EINVAL)?;
    qp.engine()?.detach_multicast(group)?;
    groups.swap_remove(at);
    Ok(())
}

/// # Safety
///
/// `gid` is NULL or points to a GID.
unsafe fn group(gid: *const ibv_gid) -> Result<Gid, Errno> {
    // SAFETY: by the caller's promise; a GID is bytes, whichever way it is looked at.
    Ok(Gid(unsafe { entry::read(gid.cast::<[u8; 16]>()) }?))
}

/// The LID is of no meaning on RoCE.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: what programs pass is theirs or NULL.
    entry::code(|| attach(qp, unsafe { group(gid) }?))
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: what programs pass is theirs or NULL.
    entry::code(|| detach(qp, unsafe { group(gid) }?))
}
