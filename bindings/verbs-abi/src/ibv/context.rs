//! `ibv_context`: a device that a program has opened, with its table of operations.
//!
//! `verbs_context` precedes `ibv_context` in memory and grows at its front; programs reach its
//! fields by negative offsets. An operation that is not implemented is NULL; the headers' inline
//! functions then return EOPNOTSUPP.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, fstat, memfd_create};

use super::{cq_ex, device, dm, domain, event, modify, mr, mw, poll, port, post, qp, query, srq};
use crate::abi::{ibv_context, ibv_context_ops, verbs_context};
use crate::errno::Errno;
use crate::event_queue::EventQueue;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime::{self, Device};

/// An open device.
pub(crate) struct Context {
    pub(crate) device: &'static Device,
    /// A file in place of the kernel's command file. Programs duplicate it and import the device
    /// through it.
    cmd_fd: OwnedFd,
    /// Identifies `cmd_fd`. The objects' numbers are unique per file.
    pub(crate) file: FileId,
    /// Asynchronous events that the program has not taken yet.
    pub(crate) events: EventQueue<event::Happening>,
}

object!(Context as verbs_context);

impl Context {
    /// Whether `fd` is the command file of this context.
    pub(crate) fn is_cmd_fd(&self, fd: RawFd) -> bool {
        self.cmd_fd.as_raw_fd() == fd
    }
}

/// Identifies the file that a descriptor refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file of a descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if `fd` is not a descriptor.
    pub(crate) fn of(fd: impl AsFd) -> Result<FileId, Errno> {
        let stat = fstat(fd)?;
        Ok(FileId { device: stat.st_dev, inode: stat.st_ino })
    }
}

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
    let file = FileId::of(&cmd_fd)?;
    event::serve()?;
    let events = EventQueue::new()?;
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut public: verbs_context = unsafe { std::mem::zeroed() };
    public.sz = size_of::<verbs_context>();
    set_extended_ops(&mut public);
    public.context.device = device::public_of(device)?;
    public.context.cmd_fd = cmd_fd.as_raw_fd();
    public.context.async_fd = events.fd();
    public.context.num_comp_vectors = 1;
    // This value tells programs that a `verbs_context` precedes the structure.
    public.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    set_ops(&mut public.context.ops);
    let value = Context { device, cmd_fd, file, events };
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
    context.modify_qp_rate_limit = Some(modify::modify_qp_rate_limit);
}

/// The open device that a program's pointer refers to.
///
/// # Errors
///
/// EINVAL if it is not an open device of this library.
pub(crate) fn get(context: *const ibv_context) -> Result<Arc<Entry<Context>>, Errno> {
    Context::registry().get(verbs_of(context))
}

/// The open device that a program's pointer refers to, kept busy while the result exists.
///
/// # Errors
///
/// EINVAL if it is not an open device of this library.
pub(crate) fn hold(context: *const ibv_context) -> Result<Held<Context>, Errno> {
    Context::registry().hold(verbs_of(context))
}

/// The `verbs_context` that contains this `ibv_context`.
pub(crate) fn verbs_of(context: *const ibv_context) -> *const verbs_context {
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// The `ibv_context` in this structure, which is the program's pointer.
pub(crate) fn context_of(verbs: *mut verbs_context) -> *mut ibv_context {
    verbs.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
}
