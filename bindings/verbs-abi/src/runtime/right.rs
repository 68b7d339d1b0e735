//! The right to frames of any kind, which Linux gives with CAP_NET_RAW.

use rustix::thread::{CapabilitySet, capabilities};

use super::say;
use crate::errno::Errno;

const MISSING: &str = "raw packet queue pairs and flows need CAP_NET_RAW, as in Linux, since they \
    send and see frames of others. Run the program as root, in a container too, or let root give \
    it the capability: setpriv --reuid USER --regid GROUP --init-groups --inh-caps +net_raw \
    --ambient-caps +net_raw uroce-run PROGRAM; in a systemd unit AmbientCapabilities=CAP_NET_RAW. \
    With setcap the loader would ignore uroce's libraries";

/// Checks that the calling thread may send and receive frames of any kind.
///
/// # Errors
///
/// EPERM without the capability.
/// It is a guard rail, as the engine is in this process: the capability in the thread's own user
/// namespace counts, where Linux asks for that of the machine.
//= check W14 — the effective capability of the calling thread
pub(crate) fn check_raw() -> Result<(), Errno> {
    let effective = capabilities(None).map(|sets| sets.effective);
    if effective.is_ok_and(|set| set.contains(CapabilitySet::NET_RAW)) {
        return Ok(());
    }
    say(MISSING);
    Err(Errno::EPERM)
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySets, set_capabilities};

    use super::*;

    #[test] //= check W14 test
    fn the_effective_capability_of_the_thread_counts() {
        // A thread of its own, which ends with the test.
        let thread = std::thread::spawn(|| {
            let sets = capabilities(None).expect("Linux tells");
            let effective = sets.effective - CapabilitySet::NET_RAW;
            set_capabilities(None, CapabilitySets { effective, ..sets }).expect("less is allowed");
            assert_eq!(check_raw(), Err(Errno::EPERM));
            if sets.permitted.contains(CapabilitySet::NET_RAW) {
                let effective = effective | CapabilitySet::NET_RAW;
                set_capabilities(None, CapabilitySets { effective, ..sets }).expect("permitted");
                assert_eq!(check_raw(), Ok(()));
            }
        });
        thread.join().expect("no claim fails");
    }
}
