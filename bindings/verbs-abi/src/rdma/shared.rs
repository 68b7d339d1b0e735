//! State shared by all ids of a device: an open context, which programs see as `id->verbs`, and a
//! protection domain and an XRC domain for ids without their own.
//!
//! Not here: the list of contexts for programs ([`super::devices`]).

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::{
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_pd, ibv_xrcd,
    ibv_xrcd_init_attr,
};
use crate::errno::Errno;
use crate::handle::{Held, Object};
use crate::ibv::context::open;
use crate::ibv::pd::ibv_alloc_pd;
use crate::ibv::xrcd::{close_xrcd, open_xrcd};
use crate::objects::context::{self, Context};
use crate::objects::pd::Pd;
use crate::objects::xrcd::Xrcd;
use crate::runtime::Device;

/// State shared by all ids of a device. It exists for the life of the process.
pub(crate) struct Shared {
    device: &'static Device,
    context: Held<Context>,
    pd: Held<Pd>,
    /// Opened at the first use.
    xrcd: OnceLock<Held<Xrcd>>,
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

    /// The XRC domain.
    ///
    /// # Errors
    ///
    /// Those of `ibv_open_xrcd`.
    pub(crate) fn xrcd(&self) -> Result<*mut ibv_xrcd, Errno> {
        if let Some(xrcd) = self.xrcd.get() {
            return Ok(xrcd.public());
        }
        let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        let mut attr = ibv_xrcd_init_attr { comp_mask, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: the context is open, and `attr` is a local.
        let opened = unsafe { open_xrcd(self.verbs(), &raw mut attr) };
        if opened.is_null() {
            return Err(Errno::last());
        }
        let held = Xrcd::registry().hold(opened)?;
        if self.xrcd.set(held).is_err() {
            // Another thread was faster. Its domain is the one.
            // SAFETY: the domain was just opened, and no other thread has a pointer to it.
            unsafe { close_xrcd(opened) };
        }
        self.xrcd()
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
    let shared: &'static Shared =
        Box::leak(Box::new(Shared { device, context, pd, xrcd: OnceLock::new() }));
    all.push(shared);
    Ok(shared)
}
