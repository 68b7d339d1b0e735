//! Keeps devices usable after the program has given up privileges or changed its root directory.
//!
//! A program may open a device as root, change its user or root directory, and only then make its
//! first object. With a kernel device this works, because the open file is enough. Our engine
//! starts at the first object and needs the run directory, system files and sockets, which may be
//! out of reach by then. So the engine starts before such a call if the program has opened a device
//! or an event channel and has privileges to lose. The path shim reports the call. Without the shim
//! the engine's start fails, and its message says what to do.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{CapabilitySet, capabilities};

use super::{Device, devices, shim};

/// The effective user plus 1 at the first opening of a device or event channel, in this process or
/// in an ancestor that forked it. 0 before that.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// Called when the program opens a device or an event channel.
pub(crate) fn opened() {
    let first =
        OPENER.compare_exchange(0, user().wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() {
        shim::before_drop(start);
    }
}

/// Whether the effective user has changed since the first opening.
pub(super) fn has_changed_user() -> bool {
    let opener = OPENER.load(Ordering::Relaxed);
    opener != 0 && opener != user().wrapping_add(1)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Starts the engine of every device. The path shim calls it before the program gives up
/// privileges.
extern "C" fn start() {
    let _ = std::panic::catch_unwind(|| {
        if !has_privileges() || super::is_orphaned() {
            return;
        }
        for device in devices().unwrap_or_default() {
            // A failed start has already printed its reason.
            let _ = Device::context(device);
        }
    });
}

fn has_privileges() -> bool {
    let effective = capabilities(None).map(|sets| sets.effective);
    rustix::process::geteuid().is_root() || effective.is_ok_and(|set| set != CapabilitySet::empty())
}
