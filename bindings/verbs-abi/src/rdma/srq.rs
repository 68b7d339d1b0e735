//! `rdma_create_srq`: shared receive queues of ids.

use std::ffi::c_int;

use crate::abi::{
    IBV_SRQ_INIT_ATTR_PD, ibv_pd, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::ibv::srq;
use crate::objects::id::{self, Id};
use crate::objects::{context, pd};

/// The protection domain for an id's queue: `given`, which must belong to the id's device, or the
/// id's own.
fn domain(id: &Entry<Id>, given: *mut ibv_pd) -> Result<*mut ibv_pd, Errno> {
    let rdma_cm_id { verbs, pd: own, .. } = id.view();
    if verbs.is_null() {
        return Err(Errno::EINVAL);
    }
    if given.is_null() {
        return Ok(own);
    }
    let domain = pd::get(given)?;
    let is_of_it = context::context_of(domain.context.public()) == verbs;
    if is_of_it { Ok(given) } else { Err(Errno::EINVAL) }
}

/// Stores a new queue in the id's public structure.
fn show(id: &Entry<Id>, made: *mut ibv_srq, pd: *mut ibv_pd) -> Result<(), Errno> {
    if made.is_null() {
        return Err(Errno::last());
    }
    id.update(|c| {
        c.srq = made;
        if c.pd.is_null() {
            c.pd = pd;
        }
    });
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        let pd = domain(&id, pd)?;
        if !id.view().srq.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program passes NULL or valid attributes; the domain is looked up.
        show(&id, unsafe { srq::ibv_create_srq(pd, attr) }, pd)
    })
}

pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    entry::minus_one(|| {
        // SAFETY: the program passes NULL or a valid structure.
        let mut init = unsafe { srq::read_ex(attr) }?;
        let given = match init.comp_mask & IBV_SRQ_INIT_ATTR_PD {
            0 => std::ptr::null_mut(),
            _ => init.pd,
        };
        let id = id::get(id)?;
        let pd = domain(&id, given)?;
        if !id.view().srq.is_null() {
            return Err(Errno::EINVAL);
        }
        init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        init.pd = pd;
        // SAFETY: `init` is a local; the device and the domain are looked up.
        show(&id, unsafe { srq::create_srq_ex(id.view().verbs, &raw mut init) }, pd)?;
        // SAFETY: not NULL, as it was read above.
        unsafe { (*attr).attr = init.attr };
        Ok(())
    })
}

/// `rdma_destroy_srq`. Does nothing if the queue is in use.
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        let id = id::find(id)?;
        let queue = id.view().srq;
        if queue.is_null() {
            return Ok(());
        }
        // SAFETY: the queue is looked up.
        match unsafe { srq::ibv_destroy_srq(queue) } {
            0 => {
                id.update(|c| c.srq = std::ptr::null_mut());
                Ok(())
            }
            error => Err(Errno::of(error)),
        }
    });
}
