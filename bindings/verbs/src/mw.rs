//! Memory window: an R_Key that is bound and invalidated on the data path.

use std::sync::Arc;

use uroce_engine::{MrError, MwType};
use uroce_wire::{Rkey, Va};

use crate::core::PdShared;
use crate::mr::{MemorySlice, RemoteBuffer};
use crate::pd::ProtectionDomain;

/// Gives peers access to a part of a memory region, with an R_Key and access rights of its own,
/// after a [`SendWr::bind_mw`](crate::SendWr::bind_mw) has completed. Dropping the window
/// invalidates its key; when that returns, no access through it is possible any more.
///
/// The region needs [`AccessFlags::MW_BIND`](crate::AccessFlags::MW_BIND), and stays registered as
/// long as windows are bound to it.
///
/// Each binding has a new key, with the low 8 bits incremented. After a binding that did not
/// complete with success the window cannot be used any more and should be dropped.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: Arc<PdShared>,
    kind: MwType,
    remote: RemoteBuffer,
}

impl ProtectionDomain {
    /// Creates a memory window, which is not bound yet.
    ///
    /// # Errors
    ///
    /// [`MrError::TableFull`] if the device has its maximum of regions and windows.
    pub fn allocate_mw(&self, kind: MwType) -> Result<MemoryWindow, MrError> {
        let pd = Arc::clone(self.shared());
        let rkey = pd.device.engine().alloc_mw(pd.pd, kind)?;
        Ok(MemoryWindow { pd, kind, remote: RemoteBuffer { va: Va(0), rkey, len: 0 } })
    }
}

impl MemoryWindow {
    /// The window's type, 1 or 2.
    pub fn mw_type(&self) -> MwType {
        self.kind
    }

    /// The R_Key of the last binding for which a work request was made.
    pub fn rkey(&self) -> Rkey {
        self.remote.rkey
    }

    /// The buffer of the last binding for which a work request was made. It can be sent to the peer
    /// when the request has completed.
    pub fn remote(&self) -> RemoteBuffer {
        self.remote
    }

    /// Moves to the next key for this part of a region. Returns the former key and the new one.
    pub(crate) fn advance(&mut self, slice: Option<&MemorySlice<'_>>) -> (Rkey, Rkey) {
        const LOW: u32 = 0xff;
        let former = self.remote.rkey;
        let rkey = Rkey(former.0 & !LOW | former.0.wrapping_add(1) & LOW);
        let (va, len) = slice.map_or((Va(0), 0), |slice| (slice.va(), slice.len() as u64));
        self.remote = RemoteBuffer { va, rkey, len };
        (former, rkey)
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let gone = self.pd.device.engine().dealloc_mw(self.remote.rkey);
        debug_assert_eq!(gone, Ok(()), "only this drop removes the window");
    }
}
