//! Devices of ports: reset, removal from the machine, and replacement, while no lcore has their
//! queues.
//!
//! ```text
//!   detach_port: lcores give their queue pairs back, the link is down
//!     ├─▶ reset_port: the device is reset, and the lcores get new queue pairs
//!     └─▶ remove_port: the device is closed for good
//!           └─▶ attach_port: another device takes its place
//! ```
//!
//! Frames for a port that is detached are lost, as those for a link that is down.

use super::{Control, ControlError};
use crate::lcore::Fatal;
use crate::lcore::command::{GiveQueuePair, TakeQueuePair};
use crate::port::{Port, PortError};
use std::sync::Arc;

/// The reason why a device was not reset, removed or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such port, or an lcore did not answer.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The port's device is no NIC.
    #[error("port {0} is no NIC: there is no hardware to be reset, removed or replaced")]
    NoHardware(u8),
    /// The device was removed, a thread still has one of its queue pairs, or the driver failed.
    /// After a failed reset the device is stopped and can be reset again.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl Control {
    /// Takes a port, counted from 1, from the lcores. Its link is down from now on.
    ///
    /// # Errors
    /// [`DeviceError::NoHardware`]; [`DeviceError::Port`] if the device was removed;
    /// [`DeviceError::Control`] if there is no such port. Nothing has changed then.
    ///
    /// [`DeviceError::Control`] also if an lcore does not answer. The link then stays down, because
    /// that lcore may still give its queue pair back. The port can be detached again.
    pub fn detach_port(&mut self, port: u8) -> Result<(), DeviceError> {
        let device = self.binding(port)?.port.resettable();
        device.ok_or(DeviceError::NoHardware(port))?.begin_away()?;
        let at = usize::from(port) - 1;
        let mut outcome = Ok(());
        for lcore in 0..self.lcores.len() {
            let taken = self.call(lcore, TakeQueuePair { port: at });
            outcome = outcome.and(taken.map(drop));
        }
        Ok(outcome?)
    }

    /// Resets the device of a detached port (counted from 1), configures it as before, and gives
    /// queue pairs to the lcores again. The link comes up once the NIC has a link to its peer.
    ///
    /// # Errors
    /// [`DeviceError::Port`] if the driver fails: the port stays detached, and may be reset again.
    pub fn reset_port(&mut self, port: u8) -> Result<(), DeviceError> {
        let device = self.binding(port)?.port.resettable();
        device.ok_or(DeviceError::NoHardware(port))?.reset()?;
        self.give_queue_pairs(port);
        Ok(())
    }

    /// Opens the NIC that `devargs` names in place of a port's device that was removed (port
    /// counted from 1). The port keeps its Ethernet address, MTU, descriptors and number of queue
    /// pairs. This is possible after the RDMA device's fatal event, too.
    ///
    /// # Errors
    /// [`DeviceError::Port`] if the port's device was not removed, or the new one cannot be
    /// opened, has fewer queue pairs, or is no NIC; nothing has changed then.
    pub fn attach_port(&mut self, port: u8, devargs: &str) -> Result<(), DeviceError> {
        let removed = self.binding(port)?.port.resettable();
        let opened = removed.ok_or(DeviceError::NoHardware(port))?.successor(devargs)?;
        let replaced = &mut self.ports[usize::from(port) - 1].port;
        replaced.replace(opened);
        replaced.set_waker(Some(Arc::clone(&self.exits.waker)));
        self.give_queue_pairs(port);
        Ok(())
    }

    /// Gives the queue pairs of a device that was started to the lcores, and lets its link be up.
    fn give_queue_pairs(&mut self, port: u8) {
        let at = usize::from(port) - 1;
        let pairs = usize::from(self.ports[at].port.queue_pairs()).min(self.lcores.len());
        for lcore in 0..pairs {
            // The device was started, so none is taken. An lcore that has died sends nothing more.
            if let Ok(pair) = self.ports[at].port.queue_pair(lcore as u16) {
                drop(self.call(lcore, GiveQueuePair { port: at, pair }));
            }
        }
        if let Some(device) = self.ports[at].port.resettable() {
            device.end_away();
        }
        self.steering.begin(at, &self.ports[at].port);
    }

    /// Closes the device of a detached port (counted from 1) for good. Returns whether all ports
    /// are now removed. If so, the application has been sent the RDMA device's fatal event.
    ///
    /// # Errors
    /// [`DeviceError::Port`] if it is not detached, or was removed before.
    pub fn remove_port(&mut self, port: u8) -> Result<bool, DeviceError> {
        let device = self.binding(port)?.port.resettable();
        device.ok_or(DeviceError::NoHardware(port))?.remove()?;
        let is_last = self.ports.iter().all(|binding| binding.port.is_removed());
        if is_last {
            self.fatal.iter().for_each(Fatal::raise);
        }
        Ok(is_last)
    }

    /// Returns a port, counted from 1, with a device that the machine has begun to remove since the
    /// last call; `None` when there is no other. The caller detaches and removes the port. The
    /// machine waits for that.
    pub fn next_removal(&mut self) -> Option<u8> {
        // An RDMA device has at most 255 ports.
        let mut ports = self.ports.iter().zip(1..);
        let is_gone = |port: &Port| {
            port.resettable().is_some_and(|device| device.take_gone() && !device.is_removed())
        };
        ports.find_map(|(binding, number)| is_gone(&binding.port).then_some(number))
    }
}
