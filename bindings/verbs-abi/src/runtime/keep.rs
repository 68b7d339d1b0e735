//! Devices that stay usable when their program gives up privileges, or its view of the system.
//!
//! A program may open a device as root, become another user, change its root directory, and make its
//! first object then: with the kernel's devices the open file is enough. The engine, which starts at the
//! first object, needs what is out of reach by then: the run directory, files of the system, sockets. So
//! it starts before such a call, if the program has opened something and has privileges to lose. The path
//! shim tells of the call; a program that runs without it is told what to do.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{CapabilitySet, capabilities};

use super::{Device, devices, shim};

/// The effective user, plus 1, when a device or an event channel was first opened, in this process or in
/// one that it was forked from; 0 before.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// The program has opened a device or an event channel.
pub(crate) fn opened() {
    let first =
        OPENER.compare_exchange(0, user().wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() {
        shim::before_drop(start);
    }
}

/// Whether the process is another user than when it opened what it has.
pub(super) fn has_changed_user() -> bool {
    let opener = OPENER.load(Ordering::Relaxed);
    opener != 0 && opener != user().wrapping_add(1)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Starts what would not start any more.
extern "C" fn start() {
    let _ = std::panic::catch_unwind(|| {
        if !has_privileges() || super::is_orphaned() {
            return;
        }
        for device in devices().unwrap_or_default() {
            // The reason why one does not start is on stderr.
            let _ = Device::context(device);
        }
    });
}

fn has_privileges() -> bool {
    let effective = capabilities(None).map(|sets| sets.effective);
    rustix::process::geteuid().is_root() || effective.is_ok_and(|set| set != CapabilitySet::empty())
}
