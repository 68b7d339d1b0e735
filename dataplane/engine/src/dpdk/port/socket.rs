//! Finds the sockets that net_af_packet and net_af_xdp open, among the descriptors of this process.
//!
//! These drivers open one socket per queue and do not report them, so they are found as the
//! descriptors that a probe or a start has added. These run one at a time, and the kernel gives the
//! lowest free descriptor first, so the sockets are in the order of the queues.
//!
//! Packet sockets tell when frames arrive ([`super::signal`]), and how many the kernel has dropped
//! because a ring was full. The driver does not read that, so it reports no frame as missed.

use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_domain, xdp_options};
use rustix::net::xdp::XdpOptionsFlags;
use std::os::fd::{BorrowedFd, RawFd};
use uroce_shared::sync::{AtomicU64, Ordering};

/// Returns the descriptors of sockets of a family in ascending order; empty where /proc is not
/// mounted.
pub(super) fn sockets(family: AddressFamily) -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<RawFd> = all.filter(|&fd| is_socket(fd, family)).collect();
    found.sort_unstable();
    found
}

fn is_socket(fd: RawFd, family: AddressFamily) -> bool {
    // SAFETY: `fd` is only used for one `getsockopt`, and not closed; if it was closed meanwhile,
    // that call fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    socket_domain(fd) == Ok(family)
}

/// Returns the descriptors of sockets of a family that are not in `before`, in ascending order.
fn opened_since(before: &[RawFd], family: AddressFamily) -> Vec<RawFd> {
    let mut found = sockets(family);
    found.retain(|fd| !before.contains(fd));
    found
}

/// Returns whether all XDP sockets that are not in `before` are in zero-copy mode: the NIC reads
/// and writes the frames in their memory. `None` if there are none, or the kernel does not tell it.
pub(super) fn is_zero_copy(before: &[RawFd]) -> Option<bool> {
    let of_socket = |fd: RawFd| {
        // SAFETY: `fd` is only used for one `getsockopt`, and not closed; if it was closed
        // meanwhile, that call fails.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Some(xdp_options(fd).ok()?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    };
    let modes = opened_since(before, AddressFamily::XDP).into_iter().map(of_socket);
    modes.reduce(|all, one| Some(all? && one?)).flatten()
}

/// The sockets of a port of net_af_packet, in the order of its queues. None for a port of another
/// driver, and where they could not be told from other sockets.
#[derive(Debug, Default)]
pub(super) struct PacketSockets {
    sockets: Vec<RawFd>,
    /// Frames that the kernel has reported as dropped, since it reports each only once.
    dropped: AtomicU64,
}

impl PacketSockets {
    /// Returns the packet sockets that are not in `before`, if there is exactly one per queue;
    /// otherwise none.
    pub(super) fn opened_since(before: &[RawFd], queues: u16) -> Self {
        let mut sockets = opened_since(before, AddressFamily::PACKET);
        if sockets.len() != usize::from(queues) {
            sockets.clear();
        }
        Self { sockets, dropped: AtomicU64::new(0) }
    }

    /// Returns the socket of queue `index`.
    pub(super) fn of_queue(&self, index: usize) -> Option<RawFd> {
        self.sockets.get(index).copied()
    }

    /// Returns the number of frames that the kernel has dropped since the sockets were opened,
    /// because a ring was full. The device must be open. Not for lcores: this enters the kernel.
    ///
    /// The kernel's own count has 32 bits, and what passes them between two calls is missing.
    pub(super) fn dropped(&self) -> u64 {
        let of_socket = |&fd: &RawFd| {
            // SAFETY: `fd` is only used for one `getsockopt`.
            let count = unsafe { dpdk_sys::uroce_packet_socket_dropped(fd) };
            u64::try_from(count).unwrap_or(0)
        };
        let more: u64 = self.sockets.iter().map(of_socket).sum();
        self.dropped.fetch_add(more, Ordering::Relaxed) + more
    }
}
