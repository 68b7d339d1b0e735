//! `ibv_dm`: device memory, which this library allocates in host memory. Programs access it with
//! the copy functions of `ibv_dm`, and through regions registered with `ibv_reg_dm_mr`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::{self, ibv_alloc_dm_attr, ibv_context, ibv_dm};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object, number};
use crate::objects::context::{self, Context};
use crate::objects::dm::{Dm, Memory};

fn add(context: Held<Context>, memory: Arc<Memory>, handle: u32) -> *mut ibv_dm {
    let public = ibv_dm {
        context: context::context_of(context.public()),
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: abi::IBV_DM_MASK_HANDLE,
        handle,
    };
    Dm::registry().insert(public, Dm { memory, context, handle }).public()
}

/// `verbs_context.alloc_dm`. Does not start the engine.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    entry::object(|| {
        let context = context::hold(context)?;
        // SAFETY: the program passes NULL or valid attributes.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let memory = Memory::new(attr.length, attr.log_align_req)?;
        Ok(add(context, Arc::new(memory), number()))
    })
}

/// `verbs_context.free_dm`.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    entry::code(|| Dm::registry().remove(dm).map(drop))
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    len: usize,
) -> c_int {
    entry::code(|| {
        let dm = Dm::registry().get(dm)?;
        let place = dm.memory.words(offset, len)?;
        if from.is_null() && len > 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `place` has `len` bytes inside our memory, which `dm` keeps alive; the program
        // passes `len` readable bytes at `from`.
        unsafe { std::ptr::copy(from.cast::<u8>(), place, len) };
        Ok(())
    })
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    len: usize,
) -> c_int {
    entry::code(|| {
        let dm = Dm::registry().get(dm)?;
        let place = dm.memory.words(offset, len)?;
        if to.is_null() && len > 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `place` has `len` bytes inside our memory, which `dm` keeps alive; the program
        // passes room for `len` bytes at `to`.
        unsafe { std::ptr::copy(place, to.cast::<u8>(), len) };
        Ok(())
    })
}

/// `ibv_import_dm`: makes another `ibv_dm` for the device memory that has the number `handle`. The
/// memory must have been allocated through a context with the same command file.
pub(crate) unsafe extern "C" fn ibv_import_dm(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_dm {
    entry::object(|| {
        let context = context::hold(context)?;
        let all = Dm::registry().all();
        let found = all.iter().find(|dm| dm.handle == handle && dm.context.file == context.file);
        let dm = found.ok_or(Errno::ENOENT)?;
        Ok(add(context, Arc::clone(&dm.memory), handle))
    })
}

pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    entry::nothing(|| Dm::registry().remove(dm).map(drop));
}
