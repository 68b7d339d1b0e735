//! The packet sockets of this process, to find those that net_af_packet opens.
//!
//! The driver keeps one socket a queue and tells of none; they are what a probe has added. Probes come
//! one at a time, and descriptors are given lowest first, so theirs are in the queues' order.

use rustix::net::{AddressFamily, sockopt::socket_domain};
use std::os::fd::{BorrowedFd, RawFd};

/// The descriptors of packet sockets, in order; none where /proc is not mounted.
pub(super) fn packet_sockets() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<RawFd> = all.filter(|&fd| is_packet_socket(fd)).collect();
    found.sort_unstable();
    found
}

fn is_packet_socket(fd: RawFd) -> bool {
    // SAFETY: the descriptor is only asked for its kind; if it has been closed since, that fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    socket_domain(fd) == Ok(AddressFamily::PACKET)
}

/// What a probe has opened, if that is one socket for each of `queues`.
pub(super) fn opened_since(before: &[RawFd], queues: u16) -> Vec<RawFd> {
    let mut new = packet_sockets();
    new.retain(|fd| !before.contains(fd));
    if new.len() != usize::from(queues) {
        new.clear();
    }
    new
}
