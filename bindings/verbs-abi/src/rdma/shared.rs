//! What ids of a device have in common: an open context, which programs find in `id->verbs`, and
//! the protection domain of those that bring none.
//!
//! Not here: the list of them for programs (`rdma_get_devices`).

use std::sync::{Mutex, PoisonError};

use crate::abi::{ibv_context, ibv_pd};
use crate::errno::Errno;
use crate::handle::{Held, Object};
use crate::ibv::context::{self, Context};
use crate::ibv::pd::{Pd, ibv_alloc_pd};
use crate::runtime::Device;

/// What ids of a device have in common. It stays for the life of the process.
pub(crate) struct Shared {
    device: &'static Device,
    context: Held<Context>,
    pd: Held<Pd>,
}

impl Shared {
    /// The open device.
    pub(crate) fn verbs(&self) -> *mut ibv_context {
        context::context_of(self.context.public())
    }

    /// The protection domain.
    pub(crate) fn pd(&self) -> *mut ibv_pd {
        self.pd.public()
    }
}

/// That of a device; made when it is first asked for.
///
/// # Errors
///
/// The process has no descriptor left.
pub(crate) fn of(device: &'static Device) -> Result<&'static Shared, Errno> {
    static ALL: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = all.iter().find(|shared| std::ptr::eq(shared.device, device)) {
        return Ok(shared);
    }
    let context = context::hold(context::open(device)?)?;
    // SAFETY: an open device of ours.
    let pd = unsafe { ibv_alloc_pd(context::context_of(context.public())) };
    let pd = Pd::registry().hold(pd)?;
    let shared: &'static Shared = Box::leak(Box::new(Shared { device, context, pd }));
    all.push(shared);
    Ok(shared)
}
