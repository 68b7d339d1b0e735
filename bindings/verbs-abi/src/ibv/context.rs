//! `ibv_context`: a device that a program has opened, with the table of what it can do.
//!
//! `verbs_context` stands in front of `ibv_context` and grows upward; programs reach it by negative
//! offsets. An operation that is not there is NULL, and the headers' inline functions say
//! EOPNOTSUPP for it.

use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};

use super::device;
use crate::abi::{ibv_context, ibv_context_ops, verbs_context};
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime::Device;

/// An open device.
pub(crate) struct Context {
    pub(crate) device: &'static Device,
    /// Stands for the kernel's command file; programs duplicate it and import the device by it.
    pub(crate) cmd_fd: OwnedFd,
    /// Readable while an asynchronous event waits.
    pub(crate) async_fd: OwnedFd,
}

object!(Context as verbs_context);

/// Opens a device for a program. Its engine is not started yet.
pub(crate) fn open(device: &'static Device) -> Result<*mut ibv_context, Errno> {
    let cmd_fd = memfd_create("uroce", MemfdFlags::CLOEXEC)?;
    let async_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
    // SAFETY: a C structure of numbers and of pointers that may be NULL.
    let mut public: verbs_context = unsafe { std::mem::zeroed() };
    public.sz = size_of::<verbs_context>();
    set_extended_ops(&mut public);
    public.context.device = device::public_of(device)?;
    public.context.cmd_fd = cmd_fd.as_raw_fd();
    public.context.async_fd = async_fd.as_raw_fd();
    public.context.num_comp_vectors = 1;
    // Tells programs that there is a `verbs_context`.
    public.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    set_ops(&mut public.context.ops);
    let entry = Context::registry().insert(public, Context { device, cmd_fd, async_fd });
    Ok(context_of(entry.public()))
}

/// What programs call through `ibv_context`.
fn set_ops(_ops: &mut ibv_context_ops) {}

/// What programs call through `verbs_context`.
fn set_extended_ops(_context: &mut verbs_context) {}

/// The open device of a program's pointer.
///
/// # Errors
///
/// EINVAL if it is none, or closed.
pub(crate) fn get(context: *const ibv_context) -> Result<Arc<Entry<Context>>, Errno> {
    Context::registry().get(verbs_of(context))
}

/// The same, as a part of another object.
///
/// # Errors
///
/// As [`get`].
pub(crate) fn hold(context: *const ibv_context) -> Result<Held<Context>, Errno> {
    Context::registry().hold(verbs_of(context))
}

/// The structure that the program's pointer points into.
pub(crate) fn verbs_of(context: *const ibv_context) -> *const verbs_context {
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// The pointer that programs have.
pub(crate) fn context_of(verbs: *mut verbs_context) -> *mut ibv_context {
    verbs.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
}
