//! Imports: opening a device, domain or region of the same process by number.
//!
//! A context's command file identifies the objects that were made in the context. A program that
//! duplicates the file's descriptor can open the device again through it and name these objects.
//! A process that receives only the descriptor does not have the memory of the objects. It has no
//! context with that command file, so `ibv_import_device` fails there with EINVAL.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use super::context::open_on;
use crate::abi::{ibv_context, ibv_mr, ibv_pd};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::context::{self, Context, FileId};
use crate::objects::mr::Mr;
use crate::objects::pd::{self, Pd};

/// `ibv_import_device`. Takes ownership of the descriptor only if its checks pass. If opening the
/// device fails after that, the descriptor is closed.
pub(crate) unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    entry::object(|| {
        if cmd_fd < 0 {
            return Err(Errno::EBADF);
        }
        // SAFETY: if the number is not a descriptor, only the next call fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(cmd_fd) };
        let file = FileId::of(borrowed)?;
        let all = Context::registry().all();
        let found = all.iter().find(|context| context.file == file).ok_or(Errno::EINVAL)?;
        // A context's own descriptor already has an owner.
        if all.iter().any(|context| context.is_cmd_fd(cmd_fd)) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: by the interface the new context owns the descriptor from now on.
        open_on(found.device, unsafe { OwnedFd::from_raw_fd(cmd_fd) })
    })
}

pub(crate) unsafe extern "C" fn ibv_import_pd(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_pd {
    entry::object(|| {
        let context = context::hold(context)?;
        let all = Pd::registry().all();
        let found = all.iter().find(|pd| pd.is_number(handle, context.file));
        let found = found.ok_or(Errno::ENOENT)?;
        Pd::alias(pd::hold(found.public())?, context, None)
    })
}

/// `ibv_unimport_pd`. Objects made with the domain stay usable and keep it alive.
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    entry::nothing(|| {
        if pd::get(pd)?.is_alias() {
            Pd::registry().forget(pd).map(drop)
        } else {
            Err(Errno::EINVAL)
        }
    });
}

pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    entry::object(|| {
        let pd = pd::get(pd)?;
        let all = Mr::registry().all();
        let found = all.iter().find(|mr| mr.is_number(handle, pd.context.file));
        found.ok_or(Errno::ENOENT)?.import(&pd)
    })
}

pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    entry::nothing(|| {
        let is_import = |mr: &Mr| if mr.is_import() { Ok(()) } else { Err(Errno::EINVAL) };
        Mr::registry().remove_if(mr, is_import).map(drop)
    });
}
