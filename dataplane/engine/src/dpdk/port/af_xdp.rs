//! net_af_xdp: the size of its frames, and whether they are copied.
//!
//! The driver gives the kernel the mempool itself as the memory of its socket. The kernel takes it
//! in chunks of at most a page, each an mbuf with all that belongs to it, and keeps a headroom of
//! its own in each. A larger mbuf is refused ("Failed to create umem"), and a frame for which a
//! chunk has no room is dropped silently.
//!
//! Not here: frames in several chunks, which the driver does not receive.

use crate::dpdk::port::vdev::value;
use crate::dpdk::port::{By, FRAME_OVERHEAD, Feature};

/// DPDK's name of the driver.
pub(super) const DRIVER: &str = "net_af_xdp";

/// Bytes of a chunk. One cache line less than a page, as DPDK takes an odd number of lines for an
/// element of a mempool, so that elements spread over the memory's channels.
const CHUNK: u16 = 4096 - 64;
/// Bytes of an element beside its data: the mempool's header, the mbuf, the mbuf's headroom.
const ELEMENT_OVERHEAD: u16 = 64 + 128 + 128;
/// Bytes that the kernel keeps before a frame (XDP_PACKET_HEADROOM).
const KERNEL_HEADROOM: u16 = 256;

/// Data bytes of an mbuf for this driver.
pub(super) const ROOM: u16 = CHUNK - ELEMENT_OVERHEAD;
/// Mbufs that each receive queue gives the kernel at the start. Without them it does not start, and
/// logs no reason.
pub(super) const HELD: u16 = 2048;
/// Largest Ethernet payload in bytes: 3434.
pub(super) const MTU_MAX: u16 = ROOM - KERNEL_HEADROOM - FRAME_OVERHEAD;

/// Returns whether a device string names this driver.
pub(super) fn is_af_xdp(device: &str) -> bool {
    device.starts_with(DRIVER)
}

/// Returns the feature that tells whether the NIC reads and writes the frames in the mempool
/// itself. The driver asks the kernel for it, and has frames copied if that is refused, whatever
/// the reason.
pub(super) fn zero_copy(device: &str, is_on: bool) -> Feature {
    let (by, why) = match value(device, "force_copy") {
        _ if is_on => (By::Device, ""),
        Some("1") => (By::Nothing, "copy mode, as force_copy=1 asks for"),
        _ => (By::Nothing, "copy mode, as the interface's driver has no zero-copy or refused it"),
    };
    Feature { name: "AF_XDP zero-copy", by, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_mode_has_a_reason() {
        let why = |device: &str, is_on| zero_copy(device, is_on).why;
        assert_eq!(why("net_af_xdp0,iface=eth0", true), "");
        assert!(why("net_af_xdp0,iface=eth0,force_copy=1", false).contains("force_copy=1"));
        assert!(why("net_af_xdp0,iface=eth0", false).contains("driver has no zero-copy"));
    }
}
