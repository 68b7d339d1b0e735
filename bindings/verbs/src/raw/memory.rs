//! Memory regions without a view of their bytes.

#![allow(unsafe_code)]

use std::sync::Arc;

use uroce_engine::{Engine, MrError, MrSpec};
use uroce_transport::AccessFlags;
use uroce_wire::{Lkey, Va};

use crate::ProtectionDomain;
use crate::pd::PdShared;

/// Memory of the caller's, to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// First byte.
    pub addr: *mut u8,
    /// Bytes.
    pub len: usize,
    /// The address by which work requests and peers name the first byte.
    pub va: Va,
    /// What may be done with it.
    pub access: AccessFlags,
}

impl Memory {
    fn spec(&self, pd: &PdShared) -> MrSpec {
        let &Memory { addr, len, va, access } = self;
        MrSpec { addr, len, va, pd: pd.pd, access }
    }
}

/// Whether each page of the memory can be had, for writing if `writes`: the kernel gives those that it
/// has not given yet. No byte is changed, whatever else writes to the memory.
///
/// Elsewhere than on x86-64 all pages are taken to be there.
///
/// # Safety
///
/// What is mapped of the `len` bytes at `addr` may be read, and written if `writes`.
pub unsafe fn is_there(addr: *mut u8, len: usize, writes: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Engine::is_there(addr, len, writes) }
}

/// Registered memory, by its key: that for peers is the same number. Dropping it deregisters it,
/// unless memory windows are bound to it: then it stays registered for ever.
#[derive(Debug)]
pub struct Registration {
    pd: Arc<PdShared>,
    lkey: Lkey,
}

impl ProtectionDomain {
    /// Registers memory under a name of its own.
    ///
    /// # Errors
    ///
    /// See [`MrError`].
    ///
    /// # Safety
    ///
    /// As [`register`](ProtectionDomain::register).
    pub unsafe fn register_raw(&self, memory: &Memory) -> Result<Registration, MrError> {
        let pd = Arc::clone(self.shared());
        let spec = memory.spec(&pd);
        Engine::guard_memory();
        // SAFETY: the caller's promise, which lasts until the registration is dropped.
        let keys = unsafe { pd.device.engine().register_mr(&spec) }?;
        Ok(Registration { pd, lkey: keys.lkey })
    }

    /// A region without memory: all addresses are in it, reads find zeros, and what is written is
    /// discarded. Peers cannot reach it.
    ///
    /// # Errors
    ///
    /// [`MrError::TableFull`].
    pub fn register_nothing(&self) -> Result<Registration, MrError> {
        let pd = Arc::clone(self.shared());
        let lkey = pd.device.engine().alloc_null_mr(pd.pd)?;
        Ok(Registration { pd, lkey })
    }
}

impl Registration {
    /// The key.
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// Has the key stand for other memory, or the same with other rights or in another domain of the
    /// device. When this returns nothing touches the former memory any more.
    ///
    /// # Errors
    ///
    /// See [`MrError`]; nothing has changed then. [`MrError::UnknownKey`] also for a domain of
    /// another device.
    ///
    /// # Safety
    ///
    /// As [`register`](ProtectionDomain::register), for the new memory.
    pub unsafe fn change(&mut self, pd: &ProtectionDomain, memory: &Memory) -> Result<(), MrError> {
        let pd = Arc::clone(pd.shared());
        if !Arc::ptr_eq(&pd.device, &self.pd.device) {
            return Err(MrError::UnknownKey);
        }
        Engine::guard_memory();
        // SAFETY: the caller's promise, which lasts until the registration is dropped.
        unsafe { pd.device.engine().reregister_mr(self.lkey, &memory.spec(&pd)) }?;
        self.pd = pd;
        Ok(())
    }

    /// Deregisters it, as dropping does, unless memory windows are bound to it.
    ///
    /// # Errors
    ///
    /// The registration, as it was: windows are bound to it.
    pub fn deregister(self) -> Result<(), Registration> {
        match self.pd.device.engine().deregister_mr(self.lkey) {
            Err(MrError::Busy) => Err(self),
            gone => {
                debug_assert_eq!(gone, Ok(()), "only this value removes the key");
                let mut registration = std::mem::ManuallyDrop::new(self);
                // SAFETY: `registration` is not dropped and this field not used any more.
                unsafe { std::ptr::drop_in_place(&raw mut registration.pd) };
                Ok(())
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let gone = self.pd.device.engine().deregister_mr(self.lkey);
        debug_assert!(
            matches!(gone, Ok(()) | Err(MrError::Busy)),
            "only this removes it: {gone:?}"
        );
    }
}
