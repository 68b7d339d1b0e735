//! Registered memory that programs take away: what lcores find of it is told, once for each region,
//! and what lets them find it is kept in place.

use std::io::Write;
use std::time::Duration;

use uroce_engine::{Engine, GoneRegion};
use uroce_transport::Instant;

use super::Thread;

/// Between two looks at the process's signal handlers.
const LOOK: Duration = Duration::from_secs(1);

impl Thread {
    /// Tells of regions whose memory is gone. Says whether there was one.
    pub(super) fn tell_gone(&mut self) -> bool {
        let mut any = false;
        while let Some(region) = self.control.next_gone() {
            // Who has closed stderr wants to know nothing.
            let _ = writeln!(std::io::stderr(), "{}", words(&region));
            any = true;
        }
        any
    }

    /// Now and then, while the thread is awake: a handler that the program has put over ours since has
    /// ours before it again.
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
