//! Multicast: attaches QPs to groups and detaches them.

use super::{Control, ControlError};
use uroce_shared::table::mcast::{GroupError, Member};
use uroce_shared::table::qp_table::Place;
use uroce_transport::QpType;
use uroce_wire::{Gid, Qpn};

impl Control {
    /// Attaches a UD QP to a group: it gets a copy of each datagram to the group's address that its
    /// port receives. Has no effect if the QP is attached already. A destroyed QP leaves its
    /// groups.
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

    /// Detaches a QP from a group. When this returns, the QP gets no more datagrams to that
    /// address.
    ///
    /// # Errors
    /// [`ControlError::UnknownQp`], [`ControlError::Group`].
    pub fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), ControlError> {
        self.record(qpn)?;
        Ok(self.groups.detach(group, qpn)?)
    }
}
