//! Reports of ports: wake the control plane when a port's link may have gone up or down, or when
//! its device is removed from the machine.
//!
//! ```text
//!   driver's interrupt ─┐
//!   memif's link thread ┼──▶ tell(port) ──▶ moved + waker ──▶ Control::next_link_change
//!   other end of a ring ┘
//!   bus: device removed ─────▶ tell_gone(port) ──▶ gone + waker ──▶ Control::next_removal
//! ```
//!
//! Invariants
//! - A report finds its port's watch under the lock that [`unwatch`] takes. A report that found it
//!   before may still set a flag of that watch; it never reaches a later port of the same number.
//!
//! Not here: the control plane's reaction.

use crate::dpdk::eal::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use uroce_shared::sync::{AtomicBool, Ordering};
use uroce_shared::wake::waker::Waker;

/// The state of a port's reports: which have come, and the waker to use.
#[derive(Debug, Default)]
pub(super) struct Watch {
    moved: AtomicBool,
    gone: AtomicBool,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl Watch {
    /// Sets the waker for later reports.
    pub(super) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        *lock(&self.waker) = waker;
    }

    /// Makes a report.
    fn tell(&self, report: &AtomicBool) {
        // Pairs with `take_moved` and `take_gone`.
        report.store(true, Ordering::Release);
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake();
        }
    }

    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    pub(super) fn take_moved(&self) -> bool {
        self.has_moved() && self.moved.swap(false, Ordering::AcqRel)
    }

    /// Returns whether the device was reported as removed since the last call.
    pub(super) fn take_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed) && self.gone.swap(false, Ordering::AcqRel)
    }
}

/// The open ports by DPDK's number, which is all that a driver's interrupt gives.
static WATCHES: Mutex<BTreeMap<u16, Arc<Watch>>> = Mutex::new(BTreeMap::new());

/// Called when a port was opened: makes its watch.
pub(super) fn watch(id: u16) -> Arc<Watch> {
    let watch = Arc::new(Watch::default());
    lock(&WATCHES).insert(id, Arc::clone(&watch));
    watch
}

/// Called before a port is closed.
pub(super) fn unwatch(id: u16) {
    lock(&WATCHES).remove(&id);
}

/// Reports that the link of a port may have changed.
pub(super) fn tell(id: u16) {
    if let Some(watch) = watch_of(id) {
        watch.tell(&watch.moved);
    }
}

fn watch_of(id: u16) -> Option<Arc<Watch>> {
    lock(&WATCHES).get(&id).cloned()
}

/// Called by the shim on EAL's interrupt thread.
pub(super) extern "C" fn on_interrupt(id: u16) {
    tell(id);
}

/// Called by the shim on EAL's interrupt thread, perhaps more than once: the device of a port is
/// being removed from the machine.
pub(super) extern "C" fn on_removal(id: u16) {
    if let Some(watch) = watch_of(id) {
        watch.tell(&watch.gone);
    }
}

/// The cable between the two ends of a ring pair: cut while either end is taken down.
#[derive(Debug, Default)]
pub(super) struct Cable {
    cut: [AtomicBool; 2],
    ends: Mutex<[Option<u16>; 2]>,
}

impl Cable {
    /// Called when the port of that number becomes end 0 or 1.
    pub(super) fn join(&self, end: usize, id: u16) {
        lock(&self.ends)[end] = Some(id);
    }

    /// Called when that end is no port any more.
    pub(super) fn leave(&self, end: usize) {
        lock(&self.ends)[end] = None;
    }

    /// Takes one end down, or up again.
    pub(super) fn set(&self, end: usize, up: bool) {
        self.cut[end].store(!up, Ordering::Release);
        let ends = *lock(&self.ends);
        ends.into_iter().flatten().for_each(tell);
    }

    pub(super) fn is_whole(&self) -> bool {
        self.cut.iter().all(|cut| !cut.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_tells_until_it_is_closed() {
        // A number that no DPDK port has.
        const PORT: u16 = u16::MAX;
        let watch = watch(PORT);
        assert!(!watch.take_moved());
        on_interrupt(PORT);
        on_interrupt(PORT - 1);
        assert!(watch.has_moved() && !watch.take_gone());
        assert!(watch.take_moved() && !watch.take_moved());
        on_removal(PORT);
        assert!(watch.take_gone() && !watch.take_gone());
        unwatch(PORT);
        on_interrupt(PORT);
        on_removal(PORT);
        assert!(!watch.has_moved() && !watch.take_gone());
    }

    #[test]
    fn a_cable_cut_at_both_ends_is_mended_at_both() {
        let cable = Cable::default();
        assert!(cable.is_whole());
        cable.set(0, false);
        cable.set(1, false);
        cable.set(0, true);
        assert!(!cable.is_whole());
        cable.set(1, true);
        assert!(cable.is_whole());
    }
}
