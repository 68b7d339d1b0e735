//! Multicast: which QPs are in which group.

use super::{Control, ControlError};
use crate::mcast::{GroupError, Member};
use crate::qp_table::Place;
use uroce_transport::QpType;
use uroce_wire::{Gid, Qpn};

impl Control {
    /// Has a UD QP get a copy of each datagram to a group's address that its port receives; without
    /// effect if it does already. It leaves its groups when it is destroyed.
    ///
    /// # Errors
    /// [`ControlError::UnknownQp`], [`ControlError::Group`].
    pub fn attach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), ControlError> {
        let record = self.record(qpn)?;
        if record.qp_type != QpType::Ud {
            return Err(GroupError::NotDatagram.into());
        }
        let place = Place { index: record.index, owner: usize::from(record.lcore) };
        Ok(self.groups.attach(group, Member { qpn, place })?)
    }

    /// Takes a QP out of a group. It gets nothing to that address any more when this returns.
    ///
    /// # Errors
    /// [`ControlError::UnknownQp`], [`ControlError::Group`].
    pub fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), ControlError> {
        self.record(qpn)?;
        Ok(self.groups.detach(group, qpn)?)
    }
}
