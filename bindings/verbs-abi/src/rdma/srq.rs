//! `rdma_create_srq`: shared receive queues of ids.

use std::ffi::c_int;

use super::qp::{destroy_queues, queue};
use super::shared;
use crate::abi::{
    IBV_QPT_XRC_RECV, IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQT_XRC, ibv_pd, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex,
    rdma_cm_id,
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

/// Creates a queue of any type in this protection domain. An XRC queue gets the XRC domain of all
/// ids, and a completion queue of the id's own, where the program gives none.
fn create_ex(
    id: &Entry<Id>,
    init: &mut ibv_srq_init_attr_ex,
    pd: *mut ibv_pd,
) -> Result<(), Errno> {
    init.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    init.pd = pd;
    let is_xrc = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0 && init.srq_type == IBV_SRQT_XRC;
    let lacks = |bit| is_xrc && init.comp_mask & bit == 0;
    let (lacks_domain, lacks_cq) = (lacks(IBV_SRQ_INIT_ATTR_XRCD), lacks(IBV_SRQ_INIT_ATTR_CQ));
    if lacks_domain {
        let device = id.state().device.ok_or(Errno::EINVAL)?;
        init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        init.xrcd = shared::of(device)?.xrcd()?;
    }
    let makes_cq = lacks_cq && id.view().recv_cq.is_null();
    if makes_cq {
        let (channel, cq) = queue(id, init.attr.max_wr)?;
        id.update(|c| (c.recv_cq_channel, c.recv_cq) = (channel, cq));
    }
    if lacks_cq {
        init.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        init.cq = id.view().recv_cq;
    }
    // SAFETY: `init` is valid; the device and the domains are looked up.
    let made = unsafe { srq::create_srq_ex(id.view().verbs, init) };
    show(id, made, pd).inspect_err(|_| {
        if makes_cq {
            destroy_queues(id, false, true);
        }
    })
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
        if id.view().qp_type == IBV_QPT_XRC_RECV {
            // SAFETY: the program passes NULL or valid attributes.
            let ibv_srq_init_attr { srq_context, attr: given } = unsafe { entry::read(attr) }?;
            // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
            let mut init: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
            (init.srq_context, init.attr) = (srq_context, given);
            (init.comp_mask, init.srq_type) = (IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_XRC);
            create_ex(&id, &mut init, pd)?;
            // SAFETY: not NULL, as it was read above.
            unsafe { (*attr).attr = init.attr };
            return Ok(());
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
        create_ex(&id, &mut init, pd)?;
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
                // An XRC queue has kept the completion queue that was made for it.
                if id.qp().is_null() {
                    destroy_queues(&id, false, true);
                }
                Ok(())
            }
            error => Err(Errno::of(error)),
        }
    });
}
