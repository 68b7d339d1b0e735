//! Memory window: a key for peers that is bound and taken back on the data path.

use std::sync::Arc;

use uroce_engine::{MrError, MwType};
use uroce_wire::{Rkey, Va};

use crate::mr::{MemorySlice, RemoteBuffer};
use crate::pd::PdShared;

/// Opens a part of a memory region to peers, under a key of its own and with rights of its own,
/// once a [`SendWr::bind_mw`](crate::SendWr::bind_mw) has completed. Dropping it takes the key its
/// meaning; when that returns nothing reaches memory through it any more.
///
/// The region needs [`AccessFlags::MW_BIND`](crate::AccessFlags::MW_BIND), and stays registered as
/// long as windows are bound to it.
///
/// Each binding has a new key: the low 8 bits count on. A window whose binding did not complete
/// with success is good for nothing any more; drop it.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: Arc<PdShared>,
    kind: MwType,
    remote: RemoteBuffer,
}

impl MemoryWindow {
    pub(crate) fn new(pd: &Arc<PdShared>, kind: MwType) -> Result<MemoryWindow, MrError> {
        let rkey = pd.device.engine().alloc_mw(pd.pd, kind)?;
        let remote = RemoteBuffer { va: Va(0), rkey, len: 0 };
        Ok(MemoryWindow { pd: Arc::clone(pd), kind, remote })
    }

    /// Its type.
    pub fn mw_type(&self) -> MwType {
        self.kind
    }

    /// The key of the last binding that a work request was made for.
    pub fn rkey(&self) -> Rkey {
        self.remote.rkey
    }

    /// What the last binding that a work request was made for opens: to be sent to the peer once
    /// it has completed.
    pub fn remote(&self) -> RemoteBuffer {
        self.remote
    }

    /// Goes on to the next key, for this part of a region; gives the former key and the new one.
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
