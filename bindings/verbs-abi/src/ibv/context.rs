//! `ibv_context`: opening a device, and the table of operations.
//!
//! An operation that is not implemented is NULL; the headers' inline functions then return
//! EOPNOTSUPP.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};

use super::{
    cq_ex, dm, domain, event, flow, modify, mr, mw, poll, port, post, qp, query, srq, xrcd,
};
use crate::abi::{ibv_context, ibv_context_ops, verbs_context};
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::context::{Context, context_of};
use crate::objects::device;
use crate::runtime::{self, Device};

/// Opens a device. The engine does not start yet.
pub(crate) fn open(device: &'static Device) -> Result<*mut ibv_context, Errno> {
    open_on(device, memfd_create("uroce", MemfdFlags::CLOEXEC)?)
}

/// Opens a device with an existing command file.
///
/// # Errors
///
/// EMFILE or ENFILE if no file descriptor is left.
pub(crate) fn open_on(device: &'static Device, cmd_fd: OwnedFd) -> Result<*mut ibv_context, Errno> {
    event::serve()?;
    let number = cmd_fd.as_raw_fd();
    let value = Context::new(device, cmd_fd)?;
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut public: verbs_context = unsafe { std::mem::zeroed() };
    public.sz = size_of::<verbs_context>();
    set_extended_ops(&mut public);
    public.context.device = device::public_of(device)?;
    public.context.cmd_fd = number;
    public.context.async_fd = value.events.fd();
    public.context.num_comp_vectors = 1;
    // This value tells programs that the structure is the last field of a `verbs_context`.
    public.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    set_ops(&mut public.context.ops);
    let entry = Context::registry().insert(public, value);
    runtime::opened();
    Ok(context_of(entry.public()))
}

/// Fills in the operations of `ibv_context`.
fn set_ops(ops: &mut ibv_context_ops) {
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    ops.bind_mw = Some(post::bind_mw);
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(poll::req_notify_cq);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops.post_srq_recv = Some(post::post_srq_recv);
}

/// Fills in the operations of `verbs_context`.
fn set_extended_ops(context: &mut verbs_context) {
    context.query_port = Some(port::query_port);
    context.query_device_ex = Some(query::query_device_ex);
    context.query_rt_values = Some(query::query_rt_values);
    context.alloc_null_mr = Some(mr::alloc_null_mr);
    context.alloc_dm = Some(dm::alloc_dm);
    context.free_dm = Some(dm::free_dm);
    context.reg_dm_mr = Some(mr::reg_dm_mr);
    context.alloc_td = Some(domain::alloc_td);
    context.dealloc_td = Some(domain::dealloc_td);
    context.alloc_parent_domain = Some(domain::alloc_parent_domain);
    context.create_cq_ex = Some(cq_ex::create_cq_ex);
    context.create_qp_ex = Some(qp::create_qp_ex);
    context.create_srq_ex = Some(srq::create_srq_ex);
    context.get_srq_num = Some(srq::get_srq_num);
    context.open_xrcd = Some(xrcd::open_xrcd);
    context.close_xrcd = Some(xrcd::close_xrcd);
    context.open_qp = Some(xrcd::open_qp);
    context.ibv_create_flow = Some(flow::create_flow);
    context.ibv_destroy_flow = Some(flow::destroy_flow);
    context.modify_qp_rate_limit = Some(modify::modify_qp_rate_limit);
}
