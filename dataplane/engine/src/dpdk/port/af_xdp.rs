//! net_af_xdp: the size of its frames.
//!
//! The driver gives the kernel the mempool itself as the memory of its socket. The kernel takes it
//! in chunks of at most a page, each an mbuf with all that belongs to it, and keeps a headroom of
//! its own in each. A larger mbuf is refused ("Failed to create umem"), and a frame for which a
//! chunk has no room is dropped silently.
//!
//! Not here: frames in several chunks, which the driver does not receive.

use crate::dpdk::port::FRAME_OVERHEAD;

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
