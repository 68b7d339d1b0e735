//! CPU of each thread.
//!
//! Each end has one busy thread with its own CPU: the server the first, the client the last of
//! those that the process may use. Two processes on one machine then do not share a CPU either.

use crate::cli::CpuList;
use std::sync::OnceLock;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Waits for a client.
    Server,
    /// Connects to the server and reports.
    Client,
}

/// Returns the CPUs that this process may use, in ascending order. They are read at the first call,
/// before any thread is pinned.
pub(crate) fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(allowed)
}

/// Returns the CPUs that the calling thread may use now.
fn allowed() -> Vec<usize> {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    ids.into_iter().map(|core| core.id).collect()
}

/// Returns the CPU of a side's lcore: the given one, else the first or the last; `None` for no
/// pinning.
///
/// `given` has one CPU, or two (server's, client's) if both ends are in this process.
pub(crate) fn cpu_of(side: Side, given: Option<&CpuList>, allowed: &[usize]) -> Option<usize> {
    match (given, side) {
        (Some(CpuList::None), _) => None,
        (Some(CpuList::Cpus(cpus)), Side::Server) => cpus.first().copied(),
        (Some(CpuList::Cpus(cpus)), Side::Client) => cpus.last().copied(),
        (None, Side::Server) => allowed.first().copied(),
        (None, Side::Client) => allowed.last().copied(),
    }
}

/// Pins the calling thread; false if the kernel refuses.
pub(crate) fn pin(cpu: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_are_kept_apart() {
        assert_eq!(cpu_of(Side::Server, None, &[2, 3, 7]), Some(2));
        assert_eq!(cpu_of(Side::Client, None, &[2, 3, 7]), Some(7));
    }

    #[test]
    fn what_is_given_counts() {
        let two = CpuList::Cpus(vec![4, 5]);
        assert_eq!(cpu_of(Side::Server, Some(&two), &[0]), Some(4));
        assert_eq!(cpu_of(Side::Client, Some(&two), &[0]), Some(5));
        assert_eq!(cpu_of(Side::Client, Some(&CpuList::None), &[0]), None);
    }

    #[test]
    fn a_thread_is_pinned_where_it_was_said() {
        let cpu = *cpus().last().expect("there is a CPU");
        std::thread::spawn(move || {
            assert!(pin(cpu));
            assert_eq!(allowed(), [cpu]);
        })
        .join()
        .expect("pinned");
    }
}
