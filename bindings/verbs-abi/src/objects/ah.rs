//! Address handles.

use uroce::AddressHandle;

use super::pd::Pd;
use crate::abi::ibv_ah;
use crate::errno::Errno;
use crate::handle::{Held, fast, object};

/// An address handle.
pub(crate) struct Ah {
    pub(crate) way: AddressHandle,
    pub(crate) pd: Held<Pd>,
}

object!(Ah as ibv_ah, of pd);

/// The value by which a datagram's work request names an address handle.
///
/// # Errors
///
/// EINVAL for NULL and for a destroyed handle.
///
/// # Safety
///
/// `ah` is NULL or a handle of this library, and no thread destroys it during the call.
#[inline]
pub(crate) unsafe fn way_of(ah: *const ibv_ah) -> Result<uroce::raw::Ah, Errno> {
    // SAFETY: the caller passes NULL or one of our handles, which is not destroyed meanwhile.
    unsafe { fast::<Ah>(ah) }.map(|ah| ah.way.raw()).ok_or(Errno::EINVAL)
}
