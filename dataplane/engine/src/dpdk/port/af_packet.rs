//! net_af_packet: what DPDK's driver changes at the kernel's interface, and what it leaves undone.
//!
//! A packet socket needs CAP_NET_RAW. When a port starts, the driver also sets the interface's own
//! Ethernet address again and switches promiscuous mode off. The kernel requires CAP_NET_ADMIN for
//! both, and the driver fails without it. uroce needs neither, and the second may undo an
//! administrator's setting. So the driver starts on a thread where these calls succeed without
//! effect. Frames to other addresses, above all to multicast groups, are requested by a socket, and
//! the request ends when that socket is closed.
//!
//! The driver's rings have frames of 2048 bytes unless its arguments set another size, and it drops
//! longer frames silently. [`fit`] chooses a size that fits the port.
//!
//! Not here: the interface's own MTU, which limits what it carries.

use super::PortError;
use super::vdev::value;
use crate::dpdk::eal::c_string;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::thread;

/// DPDK's name of the driver.
pub(super) const DRIVER: &str = "net_af_packet";

/// Bytes of a ring slot beside the Ethernet payload: the kernel's header and address with their
/// alignment (66 bytes), Ethernet header and VLAN tag.
const SLOT_OVERHEAD: u32 = 66 + 14 + 4;
/// The size of a long slot is a multiple of `SLOT_STEP` bytes, and a block has `SLOTS_A_BLOCK` such
/// slots, so that a block is whole pages.
const SLOT_STEP: u32 = 1024;
const SLOTS_A_BLOCK: u32 = 4;
/// The driver's defaults: bytes of a slot, bytes of a block, number of slots.
const DRIVER_SLOT: u32 = 2048;
const DRIVER_BLOCK: u32 = 4096;
const DRIVER_SLOTS: u32 = 512;
/// Largest number of bytes of a ring of long slots. The driver locks two rings into memory, and a
/// user's limit is usually 8 MiB.
const RING_MAX: u32 = 3 << 20;

/// Returns whether a device string names this driver.
pub(super) fn is_af_packet(device: &str) -> bool {
    device.starts_with(DRIVER)
}

/// Returns the number of queues, each with a socket, that the driver makes for a device string.
pub(super) fn queues(device: &str) -> u16 {
    value(device, "qpairs").and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// Returns the device string with arguments for rings with slots for the frames of a port of this
/// MTU. Other drivers' strings are returned unchanged, and so are values that are not numbers,
/// which the driver refuses.
///
/// # Errors
///
/// [`PortError::Slots`] if the string asks for shorter slots, or for blocks that are not a multiple
/// of the slot: the driver expects slots one after the other, but the kernel starts anew in each
/// block.
pub(super) fn fit(device: &str, mtu: u16) -> Result<String, PortError> {
    let mut fitted = device.to_owned();
    let number = |key: &str| value(device, key).map(str::parse::<u32>).transpose();
    let (true, Ok(slot), Ok(block)) = (is_af_packet(device), number("framesz"), number("blocksz"))
    else {
        return Ok(fitted);
    };
    let refuse = |remedy: String| {
        let device = device.split(',').next().unwrap_or_default().to_owned();
        Err(PortError::Slots { device, mtu, remedy })
    };
    let needed = u32::from(mtu) + SLOT_OVERHEAD;
    let long = needed.next_multiple_of(SLOT_STEP);
    if slot.is_some_and(|slot| slot < needed) {
        return refuse(format!("give framesz={long} or more, or leave framesz out"));
    }
    let slot = slot.unwrap_or(if needed <= DRIVER_SLOT { DRIVER_SLOT } else { long });
    let is_long = slot > DRIVER_SLOT;
    let full = if is_long { SLOTS_A_BLOCK * slot } else { DRIVER_BLOCK };
    let block = block.unwrap_or(full);
    if !block.is_multiple_of(slot) {
        return refuse(format!("give blocksz={full}, or another multiple of framesz={slot}"));
    }
    let slots = if is_long { DRIVER_SLOTS.min(RING_MAX / slot) } else { DRIVER_SLOTS };
    let slots = slots.next_multiple_of(block / slot);
    for (key, value, default) in [
        ("framesz", slot, DRIVER_SLOT),
        ("blocksz", block, DRIVER_BLOCK),
        ("framecnt", slots, DRIVER_SLOTS),
    ] {
        if value != default && super::vdev::value(device, key).is_none() {
            fitted.push_str(&format!(",{key}={value}"));
        }
    }
    Ok(fitted)
}

/// Starts a configured port of this driver. Returns 0 or a negative errno.
pub(super) fn start(id: u16) -> c_int {
    let start = move || {
        // Where the kernel has no system-call filters, the process needs CAP_NET_ADMIN.
        // SAFETY: the filter affects the calling thread only, which ends after the next call.
        unsafe { dpdk_sys::uroce_thread_spare_interfaces() };
        // SAFETY: the port is configured, and the caller, which owns it, waits for this thread.
        unsafe { dpdk_sys::uroce_port_start(id) }
    };
    let thread = thread::Builder::new().name("uroce-af-packet".into()).spawn(start);
    match thread.map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) => -rustix::io::Errno::IO.raw_os_error(),
        Err(error) => -error.raw_os_error().unwrap_or(rustix::io::Errno::AGAIN.raw_os_error()),
    }
}

/// Makes the interface behind the device receive frames for other addresses as long as the result
/// is open. `None` for other drivers' devices, and where the kernel refuses: then only frames for
/// the interface's own address arrive.
pub(super) fn listen(device: &str) -> Option<OwnedFd> {
    let name = value(device, "iface").filter(|_| is_af_packet(device))?;
    let name = c_string(name);
    // SAFETY: `name` is a NUL-terminated string.
    let fd = unsafe { dpdk_sys::uroce_interface_listen(name.as_ptr()) };
    // SAFETY: the call has just opened `fd`, and nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_hold_the_frames_of_the_ports_mtu() {
        let fitted = |device: &str, mtu| fit(device, mtu).unwrap();
        let plain = "net_af_packet0,iface=eth0";
        assert_eq!(fitted(plain, 1500), plain);
        let long = "net_af_packet0,iface=eth0,framesz=5120,blocksz=20480";
        assert_eq!(fitted(plain, 4200), long);
        let jumbo = "net_af_packet0,iface=eth0,framesz=9216,blocksz=36864,framecnt=344";
        assert_eq!(fitted(plain, 9000), jumbo);
        // Arguments that are given and fit are kept; a missing block size is a multiple of the
        // slot.
        let given = "net_af_packet0,iface=e,blocksz=65536,framesz=8192,framecnt=504";
        assert_eq!(fitted(given, 4200), given);
        let block = "net_af_packet1,framesz=8192,blocksz=32768,framecnt=384";
        assert_eq!(fitted("net_af_packet1,framesz=8192", 4200), block);
        assert_eq!(fitted("net_memif0,bsize=2048", 4200), "net_memif0,bsize=2048");
    }

    #[test]
    fn rings_that_do_not_hold_them_are_refused_with_the_argument_to_give() {
        let said = |device: &str| fit(device, 4200).unwrap_err().to_string();
        let short = said("net_af_packet0,iface=eth0,framesz=2048");
        assert!(short.contains("MTU 4200") && short.contains("framesz=5120"), "{short}");
        let uneven = said("net_af_packet0,iface=eth0,framesz=5120,blocksz=65536");
        assert!(uneven.contains("blocksz=20480"), "{uneven}");
        assert!(said("net_af_packet0,blocksz=4096").contains("blocksz=20480"));
        assert!(fit("net_af_packet0,framesz=many", 4200).is_ok());
        assert!(said("net_af_packet0,framesz=0").contains("framesz=5120"));
    }
}
