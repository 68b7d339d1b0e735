//! Device strings of the virtual drivers, with sizes that fit an MTU.
//!
//! Each function returns the `device` of a [`PortConfig`](super::PortConfig). Numbers that a driver
//! needs in its own units (powers of two, pages, whole frames) are computed from the MTU and the
//! number of frames.
//!
//! Not here: creating devices.

use super::{FRAME_OVERHEAD, af_xdp};
use std::path::Path;
use uroce_wire::Mac;

/// The role of a memif port. The server listens on the socket; the client owns the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemifRole {
    /// Listens; must be allowed to create the socket.
    Server,
    /// Connects, and retries until it can; chooses the number and the sizes of the rings.
    Client,
}

/// Returns the bytes of a buffer for a frame of this MTU, rounded up to 256 for the layout of the
/// shared memory.
fn buffer(mtu: u16) -> u32 {
    (u32::from(mtu) + u32::from(FRAME_OVERHEAD)).next_multiple_of(256)
}

/// Returns a memif port on a socket in the file system, with rings of at least `frames` buffers.
///
/// The client's sizes are used. A whole frame fits into one buffer, which is the driver's fast
/// path.
pub fn memif(index: u16, role: MemifRole, socket: &Path, mtu: u16, frames: u32) -> String {
    let role = match role {
        MemifRole::Server => "server",
        MemifRole::Client => "client",
    };
    // The driver takes the logarithm, at most 14.
    let log2 = frames.clamp(2, 1 << 14).next_power_of_two().ilog2();
    format!(
        "net_memif{index},role={role},socket-abstract=no,socket={},bsize={},rsize={log2}",
        socket.display(),
        buffer(mtu)
    )
}

/// Returns an af_packet port on a kernel interface; its own MTU must be at least `mtu`.
pub fn af_packet(index: u16, netdev: &str, mtu: u16, queue_pairs: u16, frames: u32) -> String {
    // A slot also holds the kernel's header; a block holds whole slots and has 2^n pages.
    let slot = (buffer(mtu) + 256).next_power_of_two();
    let block = slot.max(1 << 16);
    let count = frames.max(1).next_multiple_of(block / slot);
    format!(
        "net_af_packet{index},iface={netdev},qpairs={queue_pairs},\
         blocksz={block},framesz={slot},framecnt={count}"
    )
}

/// Returns a tap port, which creates the kernel interface `netdev`. The driver keeps Ethernet's
/// standard MTU; for a longer one create the tap interface first and use [`af_packet`] on it.
pub fn tap(index: u16, netdev: &str) -> String {
    format!("net_tap{index},iface={netdev}")
}

/// Returns the switch's side of a vhost-user link, which listens on the socket.
pub fn vhost(index: u16, socket: &Path, queue_pairs: u16) -> String {
    format!("net_vhost{index},iface={},queues={queue_pairs}", socket.display())
}

/// Returns the guest's side of a vhost-user link, which connects to the switch's socket.
pub fn virtio_user(
    index: u16,
    socket: &Path,
    queue_pairs: u16,
    queue_size: u16,
    mac: Option<Mac>,
) -> String {
    let mut device = format!(
        "net_virtio_user{index},path={},queues={queue_pairs},queue_size={queue_size}",
        socket.display()
    );
    if let Some(mac) = mac {
        device.push_str(&format!(",mac={mac}"));
    }
    device
}

/// Returns whether a device copies frames into and out of mbufs, so that these may be
/// [apart](crate::dpdk::mbuf::PoolConfig::apart) from EAL's memory. net_memif does, without
/// `zero-copy`.
pub fn copies(device: &str) -> bool {
    device.starts_with("net_memif") && !device.contains("zero-copy")
}

/// Returns the data bytes of an mbuf for a device that takes mbufs of one size only:
/// one of net_af_xdp. `None` for a device that takes any.
pub fn mbuf_room(device: &str) -> Option<u16> {
    af_xdp::is_af_xdp(device).then_some(af_xdp::ROOM)
}

/// Returns the mbufs that a receive queue of a device keeps, regardless of its descriptors: for
/// net_af_xdp those that the kernel has. 0 for a device that keeps none.
pub fn mbufs_held(device: &str) -> u16 {
    if af_xdp::is_af_xdp(device) { af_xdp::HELD } else { 0 }
}

/// Returns the value of `key` in a device string.
pub(super) fn value<'d>(device: &'d str, key: &str) -> Option<&'d str> {
    device.split(',').skip(1).find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memif_buffer_holds_a_whole_frame() {
        let device = memif(3, MemifRole::Client, Path::new("/tmp/m.sock"), 4200, 1000);
        let expected = "net_memif3,role=client,socket-abstract=no,socket=/tmp/m.sock,\
                        bsize=4352,rsize=10";
        assert_eq!(device, expected);
    }

    #[test]
    fn memif_rings_stay_within_the_drivers_limit() {
        let device = memif(0, MemifRole::Server, Path::new("s"), 1500, u32::MAX);
        assert!(device.ends_with("rsize=14"), "{device}");
    }

    #[test]
    fn af_packet_blocks_hold_whole_frames() {
        let device = af_packet(0, "veth0", 4200, 2, 500);
        let expected = "net_af_packet0,iface=veth0,qpairs=2,blocksz=65536,framesz=8192,\
                        framecnt=504";
        assert_eq!(device, expected);
    }

    #[test]
    fn virtio_user_carries_its_address() {
        let device = virtio_user(0, Path::new("/s"), 1, 256, Some(Mac([2, 0, 0, 0, 0, 0x1f])));
        assert!(device.ends_with("queue_size=256,mac=02:00:00:00:00:1f"), "{device}");
    }
}
