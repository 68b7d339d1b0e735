//! Finds the packet sockets that net_af_packet opens, among the descriptors of this process.
//!
//! The driver opens one socket per queue and does not report them, so they are found as the
//! descriptors that a probe has added. Probes run one at a time, and the kernel gives the lowest
//! free descriptor first, so the sockets are in the order of the queues.

use rustix::net::{AddressFamily, sockopt::socket_domain};
use std::os::fd::{BorrowedFd, RawFd};

/// Returns the descriptors of packet sockets in ascending order; empty where /proc is not mounted.
pub(super) fn packet_sockets() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<RawFd> = all.filter(|&fd| is_packet_socket(fd)).collect();
    found.sort_unstable();
    found
}

fn is_packet_socket(fd: RawFd) -> bool {
    // SAFETY: `fd` is only used for one `getsockopt`, and not closed; if it was closed meanwhile,
    // that call fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    socket_domain(fd) == Ok(AddressFamily::PACKET)
}

/// Returns the packet sockets that are not in `before`, if there is exactly one per queue;
/// otherwise none.
pub(super) fn opened_since(before: &[RawFd], queues: u16) -> Vec<RawFd> {
    let mut new = packet_sockets();
    new.retain(|fd| !before.contains(fd));
    if new.len() != usize::from(queues) {
        new.clear();
    }
    new
}
