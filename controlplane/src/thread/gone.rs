//! Registered memory that the program has unmapped. Each memory region in which an lcore finds such
//! memory is reported once on stderr. The signal handler by which lcores find it is kept in place.

use std::io::Write;
use std::time::Duration;

use uroce_engine::{Engine, GoneRegion};
use uroce_transport::Instant;

use super::Thread;

/// Interval between checks of the process's signal handlers.
const LOOK: Duration = Duration::from_secs(1);

impl Thread {
    /// Reports on stderr the regions that have lost memory. Returns whether there were any.
    pub(super) fn tell_gone(&mut self) -> bool {
        let mut any = false;
        while let Some(region) = self.control.next_gone() {
            // An error means that stderr is closed.
            let _ = writeln!(std::io::stderr(), "{}", words(&region));
            any = true;
        }
        any
    }

    /// Puts our signal handler in front again if the program has installed another one. Called on
    /// each turn of the thread; acts at most once per [`LOOK`].
    pub(super) fn guard_memory(&mut self, now: Instant) {
        if now >= self.guard_due {
            Engine::guard_memory();
            self.guard_due = now + LOOK;
        }
    }
}

fn words(region: &GoneRegion) -> String {
    let GoneRegion { lkey, addr, len } = region;
    format!(
        "uroce: memory region {:#010x} ({len} bytes at {addr:#x}) is closed: some of its memory was \
         unmapped, protected or cut off before the region was deregistered",
        lkey.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::Lkey;

    #[test]
    fn a_region_is_named_by_its_key_its_place_and_its_length() {
        let region = GoneRegion { lkey: Lkey(0xab12), addr: 0x7f00_0000, len: 8192 };
        let words = words(&region);
        assert!(words.starts_with("uroce: memory region 0x0000ab12 (8192 bytes at 0x7f000000)"));
        assert!(!words.contains('\n'));
    }
}
