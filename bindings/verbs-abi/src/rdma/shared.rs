//! State shared by all ids of a device: an open context, which programs see as `id->verbs`, and a
//! protection domain for ids without their own.
//!
//! Not here: the list of contexts for programs ([`super::devices`]).

use std::sync::{Mutex, PoisonError};

use crate::abi::{ibv_context, ibv_pd};
use crate::errno::Errno;
use crate::handle::{Held, Object};
use crate::ibv::context::open;
use crate::ibv::pd::ibv_alloc_pd;
use crate::objects::context::{self, Context};
use crate::objects::pd::Pd;
use crate::runtime::Device;

/// State shared by all ids of a device. It exists for the life of the process.
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

/// The shared state of a device. Made at the first call.
///
/// # Errors
///
/// EMFILE or ENFILE if no file descriptor is left.
pub(crate) fn of(device: &'static Device) -> Result<&'static Shared, Errno> {
    static ALL: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = all.iter().find(|shared| std::ptr::eq(shared.device, device)) {
        return Ok(shared);
    }
    let context = context::hold(open(device)?)?;
    // SAFETY: `context` is an open device of this library.
    let pd = unsafe { ibv_alloc_pd(context::context_of(context.public())) };
    let pd = Pd::registry().hold(pd)?;
    let shared: &'static Shared = Box::leak(Box::new(Shared { device, context, pd }));
    all.push(shared);
    Ok(shared)
}
