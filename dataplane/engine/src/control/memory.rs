//! Memory regions and windows of an engine, which any thread registers and removes.
//!
//! Not here: the table and its keys ([`uroce_shared::memory`]).

#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

use crate::Engine;
use uroce_shared::memory::mr_table::{MrError, MrKeys, MrSpec};
use uroce_shared::memory::mw::MwType;
use uroce_shared::sync::Ordering;
use uroce_transport::{AccessFlags, Pd};
use uroce_wire::{Lkey, Rkey, Va};

impl Engine {
    /// Registers memory.
    ///
    /// # Errors
    /// [`MrError`].
    ///
    /// # Safety
    /// Until [`deregister_mr`](Engine::deregister_mr) has returned or the engine is shut down, the
    /// program puts nothing else in the place of the `len` bytes at `addr`. If it takes them away,
    /// for example by `munmap`, or removes the right to read or write them, the region is closed at
    /// the next access to them ([`Control::next_gone`](crate::Control::next_gone)). This needs
    /// x86-64; on other processors the process ends.
    ///
    /// The engine's threads may read the memory and, with a write right, write it at any time. So
    /// the program keeps no reference that forbids it (no `&mut`, and no `&` if there is a write
    /// right). It reads data that others write only when these writes are known to be done, or by
    /// volatile or atomic accesses. Words that ATOMIC operations use are changed by atomics only.
    /// The memory is not a mempool's.
    pub unsafe fn register_mr(&self, spec: &MrSpec) -> Result<MrKeys, MrError> {
        // SAFETY: the caller guarantees the same of the memory as `register` requires.
        unsafe { self.shared.regions.register(spec) }
    }

    /// Registers other memory, or the same memory for another domain or with other rights, under
    /// the keys of a region. When this returns, nothing accesses the former memory any more.
    ///
    /// # Errors
    /// [`MrError`]; the region is unchanged. [`MrError::Busy`] while memory windows are bound to
    /// it.
    ///
    /// # Safety
    /// The new memory must satisfy the conditions of [`register_mr`](Engine::register_mr).
    pub unsafe fn reregister_mr(&self, lkey: Lkey, spec: &MrSpec) -> Result<(), MrError> {
        // SAFETY: the caller guarantees the same of the memory as `reregister` requires.
        unsafe { self.shared.regions.reregister(lkey, spec) }
    }

    /// Makes a region of that domain without memory: all addresses are in it, reads give zeros, and
    /// writes are discarded. Peers cannot access it.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub fn alloc_null_mr(&self, pd: Pd) -> Result<Lkey, MrError> {
        self.shared.regions.alloc_null(pd)
    }

    /// Removes a region. When this returns, nothing accesses the memory any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`]; [`MrError::Busy`] while memory windows are bound to it.
    pub fn deregister_mr(&self, lkey: Lkey) -> Result<(), MrError> {
        self.shared.regions.deregister(lkey)
    }

    /// Makes a memory window, which takes one of the places for regions. Its key grants nothing
    /// until it is bound.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub fn alloc_mw(&self, pd: Pd, kind: MwType) -> Result<Rkey, MrError> {
        let rkey = self.shared.regions.alloc_mw(pd, kind)?;
        self.shared.windows.fetch_add(1, Ordering::Relaxed);
        Ok(rkey)
    }

    /// Removes a memory window, named by any key that it has had. When this returns, nothing
    /// accesses memory through it any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`].
    pub fn dealloc_mw(&self, rkey: Rkey) -> Result<(), MrError> {
        self.shared.regions.dealloc_mw(rkey)?;
        self.shared.windows.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Registered memory that belongs to this value: words in the host's byte order. Dropping it
/// deregisters it and frees the memory. While memory windows are bound to it, dropping it leaves it
/// registered for good.
#[derive(Debug)]
pub struct OwnedRegion {
    engine: Engine,
    keys: MrKeys,
    words: Box<[AtomicU64]>,
    is_registered: bool,
}

impl Engine {
    /// Registers words, which the region keeps.
    ///
    /// # Errors
    /// [`MrError`].
    pub fn register_words(
        &self,
        pd: Pd,
        words: Box<[AtomicU64]>,
        access: AccessFlags,
    ) -> Result<OwnedRegion, MrError> {
        let addr = words.as_ptr().cast_mut().cast::<u8>();
        let va = Va(addr.expose_provenance() as u64);
        let spec = MrSpec { addr, len: size_of_val(&*words), va, pd, access };
        // SAFETY: the words stay where they are until `OwnedRegion::close` has deregistered them or
        // leaked them; they are atomics, which all threads may read and write at any time.
        let keys = unsafe { self.register_mr(&spec) }?;
        Ok(OwnedRegion { engine: self.clone(), keys, words, is_registered: true })
    }
}

impl OwnedRegion {
    /// Returns the keys.
    pub fn keys(&self) -> MrKeys {
        self.keys
    }

    /// Returns the words, which peers and lcores may change at any time.
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Returns the address of the first byte.
    pub fn va(&self) -> Va {
        Va(self.words.as_ptr().addr() as u64)
    }

    /// Deregisters the memory and frees it.
    ///
    /// # Errors
    /// The unchanged region while memory windows are bound to it.
    pub fn deregister(mut self) -> Result<(), OwnedRegion> {
        if self.engine.deregister_mr(self.keys.lkey) == Err(MrError::Busy) {
            return Err(self);
        }
        self.is_registered = false;
        Ok(())
    }
}

impl Drop for OwnedRegion {
    fn drop(&mut self) {
        let key = self.keys.lkey;
        if self.is_registered && self.engine.deregister_mr(key) == Err(MrError::Busy) {
            // Peers may still use it.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}
