//! Multicast groups: those that QPs are attached to, and that their ports join.

use std::collections::HashMap;

use uroce_wire::{Gid, Qpn};

use super::Thread;
use super::frames::send;
use crate::call::RequestError;
use crate::path::neighbour::Neighbours;

/// Port that has joined a group for a QP: the QP's port at the time of the attach.
pub(super) type Members = HashMap<(Qpn, Gid), u8>;

impl Thread {
    /// Attaches a QP to a group. Its port reports the group to routers and switches.
    pub(crate) fn attach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), RequestError> {
        let port = self.control.query_qp(qpn)?.attr.port.max(1);
        let neighbours = self.ports.neighbours.get(usize::from(port) - 1);
        if neighbours.is_some_and(Neighbours::is_of_kernel) {
            return Err(RequestError::NoMulticast);
        }
        self.control.attach_multicast(qpn, group)?;
        if self.members.contains_key(&(qpn, group)) {
            return Ok(());
        }
        let now = self.now();
        if let Some(neighbours) = self.ports.neighbours.get_mut(usize::from(port) - 1) {
            neighbours.join(now, group.to_ip());
            self.members.insert((qpn, group), port);
        }
        Ok(())
    }

    /// Detaches a QP from a group. Its port reports the change to routers and switches.
    pub(crate) fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), RequestError> {
        self.control.detach_multicast(qpn, group)?;
        self.leave(qpn, group);
        Ok(())
    }

    /// Detaches a destroyed QP from all its groups.
    pub(super) fn leave_groups(&mut self, qpn: Qpn) {
        let its = |(own, group): &(Qpn, Gid)| (*own == qpn).then_some(*group);
        let groups: Vec<_> = self.members.keys().filter_map(its).collect();
        for group in groups {
            self.leave(qpn, group);
        }
    }

    /// Leaves all groups. Called when the device closes.
    pub(super) fn leave_all_groups(&mut self) {
        let all: Vec<_> = self.members.keys().copied().collect();
        for (qpn, group) in all {
            self.leave(qpn, group);
        }
    }

    fn leave(&mut self, qpn: Qpn, group: Gid) {
        let Some(port) = self.members.remove(&(qpn, group)) else { return };
        let Self { control, counts, ports, .. } = self;
        if let Some(neighbours) = ports.neighbours.get_mut(usize::from(port) - 1) {
            neighbours.leave(group.to_ip(), &mut |bytes| send(control, counts, port, bytes));
        }
    }
}
