//! A device that no lcore polls: while the control plane has all its queue pairs, it can be reset,
//! or closed for good and succeeded by another one.
//!
//! Invariants
//! - A device is reset or closed under the lock of its queue pairs, and only if none is taken. So
//!   no thread is in a burst of it.
//!
//! Not here: how lcores give their queue pairs back ([`crate::control`]).

use super::{Ethdev, PortConfig, PortError, config, link};
use crate::dpdk::eal::lock;
use uroce_shared::sync::Ordering;

/// Drivers of virtual devices that can be stopped, configured and started again. Others have
/// another end that would notice.
const RESTARTABLE: &[&str] = &["net_null"];

impl Ethdev {
    /// Returns whether the device can be reset and removed: it is a NIC, or one of the virtual
    /// devices that have no other end.
    pub(crate) fn can_be_reset(&self) -> bool {
        let capabilities = &self.device.capabilities;
        capabilities.is_pci() || RESTARTABLE.contains(&capabilities.driver.as_str())
    }

    /// Takes the link down, because the lcores are to give their queue pairs back.
    ///
    /// # Errors
    /// [`PortError::Removed`].
    pub(crate) fn begin_away(&self) -> Result<(), PortError> {
        self.device.check_idle(&[])?;
        self.device.is_away.store(true, Ordering::Release);
        link::tell(self.device.id);
        Ok(())
    }

    /// Lets the link come up again, as the lcores have queue pairs.
    pub(crate) fn end_away(&self) {
        self.device.is_away.store(false, Ordering::Release);
        link::tell(self.device.id);
    }

    /// Resets the device and starts it again as it was configured. Its counters begin again if the
    /// driver has it so.
    ///
    /// # Errors
    /// [`PortError::InUse`] if a queue pair is taken, [`PortError::Removed`]; nothing has changed
    /// then. [`PortError::Step`] if DPDK or the driver failed; then the device is stopped, and may
    /// be reset again.
    pub(crate) fn reset(&self) -> Result<(), PortError> {
        let device = &self.device;
        let taken = lock(&device.taken);
        device.check_idle(&taken)?;
        let pairs = taken.len() as u16;
        config::restart(device.id, &device.config, &device.capabilities, pairs, &device.pool)
    }

    /// Closes the device for good, as when its machine loses it.
    ///
    /// # Errors
    /// [`PortError::InUse`] if a queue pair is taken, [`PortError::Removed`].
    pub(crate) fn remove(&self) -> Result<(), PortError> {
        let device = &self.device;
        let taken = lock(&device.taken);
        device.check_idle(&taken)?;
        // `true`: detach the device from its bus, even if EAL had probed it before this port was
        // opened. The machine's removal waits for that.
        device.close(&mut lock(&device.eal.open_ports), true);
        device.is_removed.store(true, Ordering::Release);
        Ok(())
    }

    /// Opens the NIC that `devargs` names in place of this device, which is closed for good. The
    /// NIC gets this device's Ethernet address, MTU, descriptors, mempool and number of queue
    /// pairs. If an administrator has taken this device's link down, the new link is down, too.
    ///
    /// # Errors
    /// [`PortError::AlreadyOpen`] if this device is not closed; [`PortError::QueuePairs`] if the
    /// new one has fewer; [`PortError::NoNic`]; those of [`Ethdev::open`]. Nothing is left open.
    pub(crate) fn successor(&self, devargs: &str) -> Result<Ethdev, PortError> {
        let device = &self.device;
        if !device.is_removed() {
            return Err(PortError::AlreadyOpen { device: device.capabilities.name.clone() });
        }
        let queue_pairs = self.queue_pairs();
        let same = device.config.clone();
        let mac = Some(device.mac);
        let config = PortConfig { device: devargs.to_owned(), queue_pairs, mac, ..same };
        let opened = Ethdev::open(device.eal, &config, &device.pool)?;
        let max = opened.queue_pairs();
        if max < queue_pairs {
            return Err(PortError::QueuePairs { asked: queue_pairs, max });
        }
        if !opened.can_be_reset() {
            return Err(PortError::NoNic { device: opened.device.capabilities.name.clone() });
        }
        // The lcores sleep on what the queue pairs of this device had.
        lock(&opened.device.sleepers).clone_from(&lock(&device.sleepers));
        opened.set_link(!device.is_down.load(Ordering::Acquire));
        Ok(opened)
    }

    /// Returns whether the machine has begun to remove the device since the last call.
    pub(crate) fn take_gone(&self) -> bool {
        self.device.watch.take_gone()
    }

    /// Returns whether the device is closed for good.
    pub(crate) fn is_removed(&self) -> bool {
        self.device.is_removed()
    }
}

impl super::Device {
    /// Checks that the device is open and none of these queue pairs is taken.
    fn check_idle(&self, taken: &[bool]) -> Result<(), PortError> {
        let device = || self.capabilities.name.clone();
        match taken.contains(&true) {
            _ if self.is_removed() => Err(PortError::Removed { device: device() }),
            true => Err(PortError::InUse { device: device() }),
            false => Ok(()),
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Acquire)
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}
