//! `ibv_mw`: memory windows.
//!
//! Each binding changes a window's key. For a window of type 1, `bind_mw` stores the new key in the
//! public structure. For type 2 the program stores it. The program may restore an earlier key after
//! a binding has failed. Work requests use the key in the structure, and the engine checks it.
//!
//! Not here: posting the work requests ([`super::post`]).

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use uroce::raw::BindMw;
use uroce::{Lkey, MwType, Rkey, Va};

use super::mr::{COMMON, rights_in};
use crate::abi::{self, ibv_mw, ibv_mw_bind_info, ibv_pd};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Object, number};
use crate::objects::context;
use crate::objects::mr::Mr;
use crate::objects::mw::Mw;
use crate::objects::pd;
use crate::runtime;

/// `ibv_context.ops.alloc_mw`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    entry::object(|| {
        let held = pd::hold(pd)?;
        let mw_type = match kind {
            abi::IBV_MW_TYPE_1 => MwType::Type1,
            abi::IBV_MW_TYPE_2 => MwType::Type2,
            _ => return Err(Errno::EINVAL),
        };
        let window = held.domain()?.allocate_mw(mw_type)?;
        let public = ibv_mw {
            context: context::context_of(held.context.public()),
            pd,
            rkey: window.rkey().0,
            handle: number(),
            type_: kind,
        };
        Ok(Mw::registry()
            .insert(public, Mw { window: Mutex::new(Some(window)), pd: held })
            .public())
    })
}

/// `ibv_context.ops.dealloc_mw`. Unbinds the window if it is bound.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    entry::code(|| {
        let removed = Mw::registry().remove(mw)?;
        let window = removed.window.lock().unwrap_or_else(PoisonError::into_inner).take();
        runtime::dispose(window);
        Ok(())
    })
}

/// The bits of a window's key that the program chooses. The others identify the window.
const CONSUMER_BITS: u32 = 0xff;

/// The key that a window with key `rkey` gets from a binding that asks for the key `wish`. Only the
/// low byte of `wish` is used.
fn key_of(rkey: u32, wish: u32) -> u32 {
    rkey & !CONSUMER_BITS | wish & CONSUMER_BITS
}

/// The key of a type-1 window's next binding.
fn next_key(rkey: u32) -> u32 {
    key_of(rkey, rkey.wrapping_add(1))
}

/// The key of the next binding of a program's type-1 window.
///
/// # Errors
///
/// EINVAL if it is not a window of this library, or not of type 1.
pub(crate) fn next_key_of_type_1(mw: *const ibv_mw) -> Result<u32, Errno> {
    let window = Mw::registry().get(mw)?;
    // SAFETY: the slot is live. Programs may write to it, but not while they post the window.
    let public = unsafe { window.public().read() };
    if public.type_ == abi::IBV_MW_TYPE_1 { Ok(next_key(public.rkey)) } else { Err(Errno::EINVAL) }
}

/// The work request that binds a window with a new key. The low byte of the key is that of
/// `new_rkey`. A length of 0 unbinds the window.
///
/// # Errors
///
/// EINVAL if the window or region is not one of this library, or for flags that are not rights.
pub(crate) fn binding(
    mw: *const ibv_mw,
    new_rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<BindMw, Errno> {
    let window = Mw::registry().get(mw)?;
    // A window grants no FLUSH here, unlike with Soft-RoCE: see the decision on rights in
    // dataplane/DECISIONS.md.
    if info.mw_access_flags & !COMMON != 0 {
        return Err(Errno::EINVAL);
    }
    let access = rights_in(info.mw_access_flags);
    let lkey = if info.length == 0 {
        0
    } else {
        let region = Mr::registry().get(info.mr)?;
        // SAFETY: the slot is live, and this field never changes.
        unsafe { (*region.public()).lkey }
    };
    // SAFETY: the slot is live. Programs may write to it, but not while they post the window.
    let rkey = unsafe { (*window.public()).rkey };
    Ok(BindMw {
        rkey: Rkey(rkey),
        new_rkey: Rkey(key_of(rkey, new_rkey)),
        lkey: Lkey(lkey),
        va: Va(info.addr),
        len: info.length,
        access,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_counts_in_its_lowest_byte() {
        assert_eq!(next_key(0x1234_5600), 0x1234_5601);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
    }

    #[test]
    fn a_program_chooses_the_low_byte_alone() {
        assert_eq!(key_of(0x1234_5678, 0xffff_ff9a), 0x1234_569a);
    }
}
