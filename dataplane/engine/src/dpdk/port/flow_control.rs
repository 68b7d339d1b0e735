//! Flow control of Ethernet links: PAUSE frames (IEEE 802.3, annex 31B), and those of one priority
//! (PFC, IEEE 802.1Q, clause 36).
//!
//! Not here: the priority of sent frames, which is in their VLAN tag.

use super::{PortError, check};

/// The PAUSE frames of a port, as `ethtool --pause` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The port stops sending when it receives one.
    pub rx: bool,
    /// The port sends one when it has no room for received frames.
    pub tx: bool,
}

/// What is set of a port's flow control when the port starts. By default nothing: the device stays
/// as its driver sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowControl {
    /// PAUSE frames, if they are to be set.
    pub pause: Option<Pause>,
    /// The priorities with PFC, one bit for each.
    pub pfc: u8,
}

/// Returns the PAUSE frames of an open port, if its driver tells them.
pub(super) fn pause(id: u16) -> Option<Pause> {
    let (mut rx, mut tx) = (0, 0);
    // SAFETY: both are writable, and the callers keep the port open.
    let code = unsafe { dpdk_sys::uroce_port_pause(id, &mut rx, &mut tx) };
    (code == 0).then_some(Pause { rx: rx != 0, tx: tx != 0 })
}

/// Sets the flow control of a started port.
///
/// # Errors
/// [`PortError::FlowControl`] if the driver has no such frames or refuses them.
pub(super) fn set(id: u16, driver: &str, to: FlowControl) -> Result<(), PortError> {
    let refused = |what| {
        let driver = driver.to_owned();
        move |error: PortError| PortError::FlowControl { what, driver, cause: error.to_string() }
    };
    if let Some(Pause { rx, tx }) = to.pause {
        // SAFETY: the caller owns the port.
        let code = unsafe { dpdk_sys::uroce_port_set_pause(id, rx.into(), tx.into()) };
        check(code, "setting PAUSE frames").map_err(refused("pause"))?;
    }
    for priority in (0..8).filter(|priority| to.pfc >> priority & 1 == 1) {
        // SAFETY: the caller owns the port.
        let code = unsafe { dpdk_sys::uroce_port_set_pfc(id, priority) };
        check(code, "setting priority flow control").map_err(refused("pfc"))?;
    }
    Ok(())
}
