//! Endpoints: ids that one call sets up completely, with the calls that a program would make
//! itself.
//!
//! An active endpoint has a resolved route and a queue pair. A passive endpoint keeps the
//! attributes for the queue pairs of its requests. Calls on both wait for their results.

use std::ffi::c_int;

use super::event;
use super::id::{create, destroy as destroy_id};
use super::listen::rdma_bind_addr;
use super::qp::{rdma_create_qp, rdma_destroy_qp};
use super::resolve::{rdma_resolve_addr, rdma_resolve_route};
use super::srq::rdma_destroy_srq;
use crate::abi::{
    RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST, ibv_pd, ibv_qp_init_attr, rdma_addrinfo,
    rdma_cm_event, rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::id::channel::Channel;
use crate::objects::id::{self, Passive, Stage, release_event};

/// Timeout of address resolution in milliseconds.
const TIMEOUT: c_int = 2000;

/// Converts the result of a C call, with its `errno`.
fn check(result: c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// Sets up the new id: a passive one is bound and keeps its attributes, an active one gets a route
/// and, unless `qp` is NULL, a queue pair.
///
/// # Safety
///
/// The addresses in `info`, `pd` and `qp` are NULL or valid.
unsafe fn set_up(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    let qp_type = info.ai_qp_type.cast_unsigned();
    if info.ai_qp_type != 0 {
        // SAFETY: the id was just made, and no other thread has a pointer to it.
        unsafe { (*id).qp_type = qp_type };
    }
    if info.ai_flags.cast_unsigned() & RAI_PASSIVE != 0 {
        // SAFETY: the caller passes NULL or a valid address.
        check(unsafe { rdma_bind_addr(id, info.ai_src_addr) })?;
        let id = id::get(id)?;
        if !pd.is_null() {
            id.update(|c| c.pd = pd);
        }
        if !qp.is_null() {
            // SAFETY: not NULL, so it points to valid attributes.
            let attr = ibv_qp_init_attr { qp_type, ..unsafe { entry::read(qp) }? };
            id.state().passive = Some(Passive(attr));
        }
        return Ok(());
    }
    // SAFETY: the caller passes NULL or valid addresses.
    check(unsafe { rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, TIMEOUT) })?;
    // SAFETY: `id` is a live id.
    check(unsafe { rdma_resolve_route(id, TIMEOUT) })?;
    if qp.is_null() {
        return Ok(());
    }
    // SAFETY: not NULL, so it points to valid attributes.
    let attr = ibv_qp_init_attr { qp_type, ..unsafe { entry::read(qp) }? };
    // SAFETY: not NULL, so it points to valid attributes.
    unsafe { entry::write(qp, attr) }?;
    // SAFETY: `id` is a live id; the other arguments are checked by the call.
    check(unsafe { rdma_create_qp(id, pd, qp) })
}

pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    entry::minus_one(|| {
        if id.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program passes NULL or a valid structure.
        let info = unsafe { entry::read(res) }?;
        if info.ai_route_len != 0 || info.ai_connect_len != 0 {
            // Only InfiniBand's addresses have routes and connection data.
            return Err(Errno::EOPNOTSUPP);
        }
        let (channel, context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let made = create(channel, context, info.ai_port_space.cast_unsigned())?.c();
        // SAFETY: the program passes a result of `rdma_getaddrinfo`, which has valid addresses.
        let done = unsafe { set_up(made, &info, pd, qp_init_attr) };
        done.inspect_err(|_| destroy(made))?;
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(id, made) }
    })
}

/// Destroys an id with its queue pair and shared receive queue.
fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the call accepts any pointer, and does nothing without a queue pair.
    unsafe { rdma_destroy_qp(id) };
    // SAFETY: the call accepts any pointer, and does nothing without a shared receive queue.
    unsafe { rdma_destroy_srq(id) };
    let _ = destroy_id(id);
}

pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        id::find(id)?;
        destroy(id);
        Ok(())
    });
}

fn get_request(listen: *const rdma_cm_id) -> Result<*mut rdma_cm_id, Errno> {
    let listener = id::get(listen)?;
    let (channel, passive) = {
        let state = listener.state();
        if !state.is_sync || state.stage != Stage::Listening {
            return Err(Errno::EINVAL);
        }
        (Channel::registry().get(state.channel()?.public())?, state.passive)
    };
    release_event(&listener);
    let event = event::next(&channel)?;
    // SAFETY: the event was just made, and no other thread has a pointer to it.
    let rdma_cm_event { event: kind, status, id, .. } = unsafe { event.read() };
    if status != 0 || kind != RDMA_CM_EVENT_CONNECT_REQUEST {
        // An error is shown at the listener's id, where its calls leave their events.
        listener.update(|c| c.event = event);
        return Err(if status == 0 { Errno::EINVAL } else { Errno::of(status.abs()) });
    }
    // The event is acknowledged when the program answers the request.
    id::get(id)?.update(|c| c.event = event);
    if let Some(Passive(mut qp)) = passive {
        // SAFETY: `id` is a live id and `qp` a local; the rest is checked by the call.
        let made = check(unsafe { rdma_create_qp(id, listener.view().pd, &raw mut qp) });
        made.inspect_err(|_| destroy(id))?;
    }
    Ok(id)
}

pub(crate) unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    entry::minus_one(|| {
        if id.is_null() {
            return Err(Errno::EINVAL);
        }
        let request = get_request(listen)?;
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(id, request) }
    })
}
