//! Memory regions.
//!
//! Invariant: a region is deregistered once; imports of it share its state.

use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uroce::raw::Registration;

use super::context::FileId;
use super::dm::Dm;
use super::pd::Pd;
use crate::abi::{ibv_mr, ibv_pd};
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, Part, object};
use crate::runtime;

/// A memory region.
pub(crate) struct Mr {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) kind: Kind,
    /// Number of the region within the file of its context. Imports have it too.
    pub(crate) handle: u32,
}

/// The state that all handles of a region share.
pub(crate) struct State {
    /// `None` after the region was deregistered through any of its handles.
    pub(crate) registration: Option<Registration>,
    pub(crate) pd: Held<Pd>,
    pub(crate) addr: usize,
    pub(crate) len: usize,
    /// The virtual address by which work requests name the first byte.
    pub(crate) iova: u64,
    pub(crate) access: c_uint,
}

/// The kind of a handle.
pub(crate) enum Kind {
    Memory,
    Dm {
        memory: Held<Dm>,
    },
    /// A region without memory.
    Null,
    /// An imported handle of an existing region.
    Import,
}

object!(Mr as ibv_mr, of state, kind);

/// Releases the domain once the region is deregistered through any of its handles.
impl Part for Arc<Mutex<State>> {
    fn let_go(&self) {
        let state = self.lock().unwrap_or_else(PoisonError::into_inner);
        if state.registration.is_none() {
            state.pd.let_go();
        }
    }
}

impl Part for Kind {
    fn let_go(&self) {
        if let Kind::Dm { memory } = self {
            memory.let_go();
        }
    }
}

impl Mr {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the original handle of the region with this number in a file.
    pub(crate) fn is_number(&self, handle: u32, file: FileId) -> bool {
        !self.is_import() && self.handle == handle && self.lock().pd.context.file == file
    }

    /// Whether this is an imported handle.
    pub(crate) fn is_import(&self) -> bool {
        matches!(self.kind, Kind::Import)
    }

    /// Makes another handle of the region, in a domain of the same device.
    pub(crate) fn import(&self, pd: &Entry<Pd>) -> Result<*mut ibv_mr, Errno> {
        let (key, len) = {
            let state = self.lock();
            (state.registration.as_ref().ok_or(Errno::ENOENT)?.lkey().0, state.len)
        };
        // The state is unlocked before the registry is used, because deregistering locks the
        // registry first.
        let place = std::ptr::null_mut();
        let public = public(pd.public(), self.handle, (place, len), (key, key));
        let (state, handle) = (Arc::clone(&self.state), self.handle);
        let mr = Mr { state, kind: Kind::Import, handle };
        Ok(Mr::registry().insert(public, mr).public())
    }

    /// Deregisters the region, unless that was done through another handle. EBUSY while a window is
    /// bound to it.
    pub(crate) fn deregister(&self) -> Result<(), Errno> {
        let mut state = self.lock();
        let Some(registration) = state.registration.take() else { return Ok(()) };
        if runtime::usable().is_err() {
            runtime::dispose(registration);
            return Ok(());
        }
        registration.deregister().map_err(|bound| {
            state.registration = Some(bound);
            Errno::EBUSY
        })
    }
}

/// The public structure of a region.
pub(crate) fn public(
    pd: *mut ibv_pd,
    handle: u32,
    (addr, length): (*mut c_void, usize),
    (lkey, rkey): (u32, u32),
) -> ibv_mr {
    // SAFETY: callers hold the domain, so its slot is live; this field never changes.
    let context = unsafe { (*pd).context };
    ibv_mr { context, pd, addr, length, handle, lkey, rkey }
}
