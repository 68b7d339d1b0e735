//! Registration of memory that this crate does not read or write itself.

#![allow(unsafe_code)]

use std::sync::Arc;

use uroce_engine::{Engine, MrError, MrSpec};
use uroce_transport::AccessFlags;
use uroce_wire::{Lkey, Va};

use crate::ProtectionDomain;
use crate::core::PdShared;

/// Memory of the caller, to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Address of the first byte in this process.
    pub addr: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// Virtual address of the first byte in work requests and for peers.
    pub va: Va,
    /// Access rights.
    pub access: AccessFlags,
}

impl Memory {
    fn spec(&self, pd: &PdShared) -> MrSpec {
        let &Memory { addr, len, va, access } = self;
        MrSpec { addr, len, va, pd: pd.pd, access }
    }
}

/// Whether all pages of the memory are available, for writing if `writes` is set. Pages that the
/// kernel has not allocated yet are allocated. No byte changes, even if other threads write to the
/// memory.
///
/// Only implemented on x86-64; elsewhere it returns true.
///
/// # Safety
///
/// Mapped pages within the `len` bytes at `addr` may be read, and written if `writes` is set.
pub unsafe fn is_there(addr: *mut u8, len: usize, writes: bool) -> bool {
    // SAFETY: the caller permits these accesses.
    unsafe { Engine::is_there(addr, len, writes) }
}

/// Registered memory. Its L_Key and R_Key are the same number. Dropping it deregisters it; if
/// memory windows are bound to it, it stays registered for ever instead.
#[derive(Debug)]
pub struct Registration {
    pd: Arc<PdShared>,
    lkey: Lkey,
}

impl ProtectionDomain {
    /// Registers memory under a virtual address that the caller chooses.
    ///
    /// # Errors
    ///
    /// See [`MrError`].
    ///
    /// # Safety
    ///
    /// The memory must fulfil the conditions of [`register`](ProtectionDomain::register).
    pub unsafe fn register_raw(&self, memory: &Memory) -> Result<Registration, MrError> {
        let pd = Arc::clone(self.shared());
        let spec = memory.spec(&pd);
        Engine::guard_memory();
        // SAFETY: the caller keeps the memory valid until the registration is dropped, which
        // deregisters it.
        let keys = unsafe { pd.device.engine().register_mr(&spec) }?;
        Ok(Registration { pd, lkey: keys.lkey })
    }

    /// Creates a region without memory. It contains all addresses: reads give zeros, and writes are
    /// discarded. Peers cannot access it.
    ///
    /// # Errors
    ///
    /// [`MrError::TableFull`] if the device has its maximum of regions and windows.
    pub fn register_nothing(&self) -> Result<Registration, MrError> {
        let pd = Arc::clone(self.shared());
        let lkey = pd.device.engine().alloc_null_mr(pd.pd)?;
        Ok(Registration { pd, lkey })
    }
}

impl Registration {
    /// The L_Key.
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// Changes the memory, the access rights or the protection domain behind the key. When this
    /// returns nothing accesses the former memory any more.
    ///
    /// # Errors
    ///
    /// See [`MrError`]; nothing has changed. [`MrError::UnknownKey`] if `pd` belongs to another
    /// device.
    ///
    /// # Safety
    ///
    /// The new memory must fulfil the conditions of [`register`](ProtectionDomain::register).
    pub unsafe fn change(&mut self, pd: &ProtectionDomain, memory: &Memory) -> Result<(), MrError> {
        let pd = Arc::clone(pd.shared());
        if !Arc::ptr_eq(&pd.device, &self.pd.device) {
            return Err(MrError::UnknownKey);
        }
        Engine::guard_memory();
        // SAFETY: the caller keeps the new memory valid until the registration is dropped, which
        // deregisters it.
        unsafe { pd.device.engine().reregister_mr(self.lkey, &memory.spec(&pd)) }?;
        self.pd = pd;
        Ok(())
    }

    /// Deregisters the memory like dropping the registration, but fails if memory windows are bound
    /// to it.
    ///
    /// # Errors
    ///
    /// The unchanged registration, if windows are bound to it.
    pub fn deregister(self) -> Result<(), Registration> {
        match self.pd.device.engine().deregister_mr(self.lkey) {
            Err(MrError::Busy) => Err(self),
            gone => {
                debug_assert_eq!(gone, Ok(()), "only this value removes the key");
                let mut registration = std::mem::ManuallyDrop::new(self);
                // SAFETY: `registration` is `ManuallyDrop`, so `pd` is dropped only here, and it is
                // not used afterwards.
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
