//! Memory windows of a node: keys that grant access to a part of a region and can be invalidated.
//!
//! Read first: IBA 10 (memory windows).
//!
//! A window's key consists of a mark, the window's index, and eight bits that the consumer chooses.

use uroce_wire::{Qpn, Rkey};

use crate::world::memory::Regions;
use uroce_transport::{AccessFlags, AccessKind, Accessor, BindMw, Key, MemoryFault, Pd, Region};

/// Type of a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowType {
    /// Type 1: usable by every QP of its domain; may be bound again, and is unbound by a length of
    /// 0.
    One,
    /// Type 2B: usable by the QP that bound it, until it is invalidated.
    Two,
}

/// Bit that is set in the keys of windows and in no key of a region.
pub(crate) const WINDOW_MARK: u32 = 1 << 31;

/// Number of bits of a key that the consumer chooses.
const VARIANT_BITS: u32 = 8;

#[derive(Debug)]
pub(crate) struct Window {
    key: Rkey,
    kind: WindowType,
    pd: Pd,
    bound: Option<Bound>,
}

/// Binding of a window.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// The bind request; `lkey` names the region.
    bind: BindMw,
    qpn: Qpn,
}

impl Regions {
    /// Allocates a window that is not bound yet.
    pub fn allocate_window(&mut self, pd: Pd, kind: WindowType) -> Rkey {
        let key = Rkey(WINDOW_MARK | (self.windows.len() as u32) << VARIANT_BITS);
        self.windows.push(Window { key, kind, pd, bound: None });
        key
    }

    /// Binds a window; see [`uroce_transport::Memory::bind`].
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    pub(crate) fn bind_window(&mut self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        let index = self.window(bind.rkey)?;
        let Window { kind, pd, bound, .. } = self.windows[index];
        if pd != by.pd {
            return Err(MemoryFault::WrongPd);
        }
        if (bind.rkey.0 ^ bind.new_rkey.0) >> VARIANT_BITS != 0 {
            return Err(MemoryFault::UnknownKey);
        }
        let unbinds = bind.len == 0;
        match kind {
            WindowType::Two if bound.is_some() => return Err(MemoryFault::WindowBound),
            WindowType::Two if unbinds => return Err(MemoryFault::OutOfRange),
            _ => {}
        }
        if !unbinds {
            self.check_bind(by, bind)?;
        }
        let bound = (!unbinds).then_some(Bound { bind: *bind, qpn: by.qpn });
        self.windows[index] = Window { key: bind.new_rkey, kind, pd, bound };
        Ok(())
    }

    /// Checks that the region may be bound, in this range and with this access.
    fn check_bind(&self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let mut needed = AccessFlags::MW_BIND;
        needed.set(AccessFlags::LOCAL_WRITE, bind.access.intersects(writes));
        self.find_region(bind.lkey.0, by.pd, needed, bind.va, bind.len).map(|_| ())
    }

    /// Invalidates a window's key; see [`uroce_transport::Memory::invalidate`].
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    pub(crate) fn invalidate_window(
        &mut self,
        by: Accessor,
        rkey: Rkey,
    ) -> Result<(), MemoryFault> {
        let index = self.window(rkey)?;
        let window = &mut self.windows[index];
        match (window.kind, window.bound) {
            _ if window.pd != by.pd => Err(MemoryFault::WrongPd),
            (WindowType::One, _) => Err(MemoryFault::NotAWindow),
            (WindowType::Two, None) => Err(MemoryFault::UnknownKey),
            (WindowType::Two, Some(bound)) if bound.qpn != by.qpn => Err(MemoryFault::WrongQp),
            (WindowType::Two, Some(_)) => {
                window.bound = None;
                Ok(())
            }
        }
    }

    /// The L_Key of the region behind a window's key, if the window grants this access to this QP.
    pub(crate) fn through_window(
        &self,
        by: Accessor,
        region: Region,
        access: AccessKind,
    ) -> Result<u32, MemoryFault> {
        let Key::Remote(rkey) = region.key else { return Err(MemoryFault::UnknownKey) };
        let window = &self.windows[self.window(rkey)?];
        let Bound { bind, qpn } = window.bound.ok_or(MemoryFault::UnknownKey)?;
        let right = match access {
            AccessKind::Read => AccessFlags::REMOTE_READ,
            AccessKind::Write => AccessFlags::REMOTE_WRITE,
            AccessKind::Atomic => AccessFlags::REMOTE_ATOMIC,
        };
        if window.pd != by.pd {
            return Err(MemoryFault::WrongPd);
        }
        if window.kind == WindowType::Two && qpn != by.qpn {
            return Err(MemoryFault::WrongQp);
        }
        if !bind.access.contains(right) {
            return Err(MemoryFault::NotGranted);
        }
        let offset = region.va.0.wrapping_sub(bind.va.0);
        if offset > bind.len || u64::from(region.len) > bind.len - offset {
            return Err(MemoryFault::OutOfRange);
        }
        Ok(bind.lkey.0)
    }

    fn window(&self, rkey: Rkey) -> Result<usize, MemoryFault> {
        let index = ((rkey.0 & !WINDOW_MARK) >> VARIANT_BITS) as usize;
        match self.windows.get(index) {
            Some(window) if window.key == rkey => Ok(index),
            _ => Err(MemoryFault::UnknownKey),
        }
    }
}
