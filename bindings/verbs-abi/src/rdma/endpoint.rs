//! Endpoints: ids with all that they need at once, by the calls that a program would make itself.
//!
//! An active endpoint has resolved its route and has its queue pair; a passive one keeps what queue
//! pairs of its requests are made with. Both wait for their results.

use std::ffi::c_int;

use super::channel::Channel;
use super::event;
use super::id::{self, Stage, release_event};
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

/// How long an address may take, in milliseconds.
const TIMEOUT: c_int = 2000;

/// What queue pairs of a passive endpoint's requests are made with.
#[derive(Clone, Copy)]
pub(crate) struct Passive(ibv_qp_init_attr);

// SAFETY: the pointers are the program's; they are only handed on to the call that checks them.
unsafe impl Send for Passive {}

/// A call's result.
fn check(result: c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// # Safety
///
/// Addresses in `info` are the program's or NULL, and so are `pd` and `qp`.
unsafe fn set_up(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    qp: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    let qp_type = info.ai_qp_type.cast_unsigned();
    if info.ai_qp_type != 0 {
        // SAFETY: an id that was just made, which nobody else knows.
        unsafe { (*id).qp_type = qp_type };
    }
    if info.ai_flags.cast_unsigned() & RAI_PASSIVE != 0 {
        // SAFETY: by the caller's promise.
        check(unsafe { rdma_bind_addr(id, info.ai_src_addr) })?;
        let id = id::get(id)?;
        if !pd.is_null() {
            id.update(|c| c.pd = pd);
        }
        if !qp.is_null() {
            // SAFETY: not NULL, so by the caller's promise.
            let attr = ibv_qp_init_attr { qp_type, ..unsafe { entry::read(qp) }? };
            id.state().passive = Some(Passive(attr));
        }
        return Ok(());
    }
    // SAFETY: by the caller's promise.
    check(unsafe { rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, TIMEOUT) })?;
    // SAFETY: an id, of which this is asked.
    check(unsafe { rdma_resolve_route(id, TIMEOUT) })?;
    if qp.is_null() {
        return Ok(());
    }
    // SAFETY: not NULL, so the program's attributes.
    let attr = ibv_qp_init_attr { qp_type, ..unsafe { entry::read(qp) }? };
    // SAFETY: as above.
    unsafe { entry::write(qp, attr) }?;
    // SAFETY: an id; the rest is checked there.
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
        // SAFETY: what programs pass is theirs or NULL.
        let info = unsafe { entry::read(res) }?;
        if info.ai_route_len != 0 || info.ai_connect_len != 0 {
            // Only InfiniBand's routes and addresses have them.
            return Err(Errno::EOPNOTSUPP);
        }
        let (channel, context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let made = id::create(channel, context, info.ai_port_space.cast_unsigned())?.c();
        // SAFETY: the addresses are those of the program's result.
        let done = unsafe { set_up(made, &info, pd, qp_init_attr) };
        done.inspect_err(|_| destroy(made))?;
        // SAFETY: not NULL, so the caller's place for a pointer.
        unsafe { entry::write(id, made) }
    })
}

/// Ends an id with all that it has.
fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: takes any pointer, and does nothing where there is nothing.
    unsafe { rdma_destroy_qp(id) };
    // SAFETY: as above.
    unsafe { rdma_destroy_srq(id) };
    let _ = id::destroy(id);
}

pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        id::get(id)?;
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
    // SAFETY: an event that was just made, which nobody else knows.
    let rdma_cm_event { event: kind, status, id, .. } = unsafe { event.read() };
    if status != 0 || kind != RDMA_CM_EVENT_CONNECT_REQUEST {
        // It is shown where the results of the listener's calls are.
        listener.update(|c| c.event = event);
        return Err(if status == 0 { Errno::EINVAL } else { Errno::of(status.abs()) });
    }
    // It is acknowledged when the request is answered.
    id::get(id)?.update(|c| c.event = event);
    if let Some(Passive(mut qp)) = passive {
        // SAFETY: an id and attributes; the rest is checked there.
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
        // SAFETY: not NULL, so the caller's place for a pointer.
        unsafe { entry::write(id, request) }
    })
}
