//! net_af_packet: what DPDK's driver does to the interface of the kernel's, and what it leaves undone.
//!
//! A packet socket needs CAP_NET_RAW. When a port starts, the driver also writes the interface's own
//! Ethernet address back and switches promiscuity off, for which the kernel asks CAP_NET_ADMIN, and
//! gives up without it. Neither changes anything that uroce needs, and the second may undo what an
//! administrator has set. So the driver starts on a thread where such calls succeed without effect, and
//! frames to other addresses, those of multicast groups above all, are asked for by a socket that takes
//! its wish along when it is closed.
//!
//! The driver's rings have frames of 2048 bytes unless its arguments say otherwise; what is longer it
//! drops without a word. [`fit`] makes them fit the port.
//!
//! Not here: the interface's own MTU, which is the limit of what it carries.

use super::PortError;
use crate::eal::c_string;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::thread;

/// DPDK's name of the driver.
pub(super) const DRIVER: &str = "net_af_packet";

/// What a frame's slot in a ring has beside the Ethernet payload: the kernel's header and address with
/// their alignment (66 bytes), Ethernet header and VLAN tag.
const SLOT_OVERHEAD: u32 = 66 + 14 + 4;
/// What slots of long frames are a multiple of, and how many a block has then: whole pages.
const SLOT_STEP: u32 = 1024;
const SLOTS_A_BLOCK: u32 = 4;
/// Bytes of a slot, of a block and number of slots where the arguments do not tell.
const DRIVER_SLOT: u32 = 2048;
const DRIVER_BLOCK: u32 = 4096;
const DRIVER_SLOTS: u32 = 512;
/// Most bytes of a ring of long frames. The driver locks two into memory, of which a user may usually
/// lock 8 MiB.
const RING_MAX: u32 = 3 << 20;

/// Whether the device string is one of this driver's.
pub(super) fn is_af_packet(device: &str) -> bool {
    device.starts_with(DRIVER)
}

/// A value of a device string.
fn value<'d>(device: &'d str, key: &str) -> Option<&'d str> {
    device.split(',').skip(1).find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
}

/// The device string with rings whose frames hold those of a port of this MTU. Other drivers' strings
/// stay as they are, and so does what is no number, which the driver refuses.
///
/// # Errors
///
/// [`PortError::Slots`] if it asks for shorter ones, or for blocks that are not full of them: the driver
/// looks for them one behind the other, the kernel begins anew in each block.
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
        if value != default && self::value(device, key).is_none() {
            fitted.push_str(&format!(",{key}={value}"));
        }
    }
    Ok(fitted)
}

/// Starts a configured port of this driver's.
pub(super) fn start(id: u16) -> c_int {
    let start = move || {
        // Where the kernel has no filters for system calls, CAP_NET_ADMIN has to do.
        // SAFETY: the thread is this function's, and ends with the next call.
        unsafe { dpdk_sys::uroce_thread_spare_interfaces() };
        // SAFETY: the port is the caller's, which waits, and configured.
        unsafe { dpdk_sys::uroce_port_start(id) }
    };
    let thread = thread::Builder::new().name("uroce-af-packet".into()).spawn(start);
    match thread.map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) => -rustix::io::Errno::IO.raw_os_error(),
        Err(error) => -error.raw_os_error().unwrap_or(rustix::io::Errno::AGAIN.raw_os_error()),
    }
}

/// Has the interface behind the device receive what is addressed to others, as long as the result
/// exists. `None` for other drivers' devices, and where the kernel refuses: then what is the
/// interface's own arrives.
pub(super) fn listen(device: &str) -> Option<OwnedFd> {
    let name = value(device, "iface").filter(|_| is_af_packet(device))?;
    let name = c_string(name);
    // SAFETY: the name is terminated.
    let fd = unsafe { dpdk_sys::uroce_interface_listen(name.as_ptr()) };
    // SAFETY: a descriptor that the call has just opened for this caller.
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
        // What is given and fits is left alone; a block that is missing holds it.
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
