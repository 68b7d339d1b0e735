//! Shared receive queues of ids.

use std::ffi::c_int;

use super::id;
use crate::abi::{
    IBV_SRQ_INIT_ATTR_PD, ibv_pd, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::ibv::{pd, srq};

/// The protection domain that an id's queues are of: the given one, which is of the id's device, or
/// the id's own.
fn domain(id: *mut rdma_cm_id, given: *mut ibv_pd) -> Result<*mut ibv_pd, Errno> {
    id::get(id)?;
    // SAFETY: an id that is live, so a slot; the program may have written any pointer.
    let (verbs, own) = unsafe { ((*id).verbs, (*id).pd) };
    if verbs.is_null() {
        return Err(Errno::EINVAL);
    }
    if given.is_null() {
        return Ok(own);
    }
    let domain = pd::get(given)?;
    let is_of_it = crate::ibv::context::context_of(domain.context.public()) == verbs;
    if is_of_it { Ok(given) } else { Err(Errno::EINVAL) }
}

/// Has the id show a queue that was just made of it.
fn show(id: *mut rdma_cm_id, made: *mut ibv_srq, pd: *mut ibv_pd) -> Result<(), Errno> {
    if made.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: an id that is live, so a slot.
    unsafe {
        (*id).srq = made;
        if (*id).pd.is_null() {
            (*id).pd = pd;
        }
    }
    Ok(())
}

fn has_one(id: *mut rdma_cm_id) -> bool {
    // SAFETY: an id that is live, so a slot.
    unsafe { !(*id).srq.is_null() }
}

pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    entry::minus_one(|| {
        let pd = domain(id, pd)?;
        if has_one(id) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: what programs pass is checked there.
        show(id, unsafe { srq::ibv_create_srq(pd, attr) }, pd)
    })
}

pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    entry::minus_one(|| {
        // SAFETY: what programs pass is theirs or NULL.
        let mut init = unsafe { entry::read(attr) }?;
        let given = match init.comp_mask & IBV_SRQ_INIT_ATTR_PD {
            0 => std::ptr::null_mut(),
            _ => init.pd,
        };
        let pd = domain(id, given)?;
        if has_one(id) {
            return Err(Errno::EINVAL);
        }
        init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        init.pd = pd;
        // SAFETY: the id is live; the attributes are ours.
        show(id, unsafe { srq::create_srq_ex((*id).verbs, &raw mut init) }, pd)?;
        // What it has got.
        // SAFETY: not NULL, as was seen above.
        unsafe { entry::write(&raw mut (*attr).attr, init.attr) }
    })
}

/// Leaves a queue that is in use.
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        id::get(id)?;
        if !has_one(id) {
            return Ok(());
        }
        // SAFETY: an id that is live, so a slot; the queue is checked there.
        match unsafe { srq::ibv_destroy_srq((*id).srq) } {
            0 => {
                // SAFETY: as above.
                unsafe { (*id).srq = std::ptr::null_mut() };
                Ok(())
            }
            error => Err(Errno::of(error)),
        }
    });
}
