//! A device that a program has opened.
//!
//! `verbs_context` precedes `ibv_context` in memory and grows at its front; programs reach its
//! fields by negative offsets.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::fstat;

use super::event::PendingEvent;
use crate::abi::{ibv_context, verbs_context};
use crate::errno::Errno;
use crate::event_queue::EventQueue;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime::Device;

/// An open device.
pub(crate) struct Context {
    pub(crate) device: &'static Device,
    /// A file in place of the kernel's command file. Programs duplicate it and import the device
    /// through it.
    cmd_fd: OwnedFd,
    /// Identifies `cmd_fd`. The objects' numbers are unique per file.
    pub(crate) file: FileId,
    /// Asynchronous events that the program has not taken yet.
    pub(crate) events: EventQueue<PendingEvent>,
}

object!(Context as verbs_context);

impl Context {
    /// An open device with this command file.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE if no file descriptor is left.
    pub(crate) fn new(device: &'static Device, cmd_fd: OwnedFd) -> Result<Context, Errno> {
        let file = FileId::of(&cmd_fd)?;
        Ok(Context { device, cmd_fd, file, events: EventQueue::new()? })
    }

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
