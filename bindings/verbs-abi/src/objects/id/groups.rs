//! Memberships of ids in multicast groups.

use std::net::IpAddr;
use std::sync::Arc;

use super::draft::{Draft, Param, Ud};
use crate::abi::{RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN, ibv_qp};
use crate::acks::Acks;
use crate::objects::qp;

/// The memberships of an id, oldest first.
#[derive(Default)]
pub(crate) struct Groups {
    last: u64,
    members: Vec<Member>,
}

/// A membership of an id in a group.
pub(crate) struct Member {
    pub(crate) number: u64,
    pub(crate) address: IpAddr,
    /// Whether the id receives datagrams of the group, or only sends.
    pub(crate) receives: bool,
    /// Whether the id's queue pair was attached to the group for this membership.
    pub(crate) attached: bool,
    pub(crate) way: Ud,
    /// Counts the membership's event.
    pub(crate) acks: Arc<Acks>,
}

impl Groups {
    /// Adds a membership. Returns the number that identifies it.
    pub(crate) fn add(&mut self, address: IpAddr, receives: bool, way: Ud) -> u64 {
        self.last += 1;
        let (number, acks) = (self.last, Arc::default());
        self.members.push(Member { number, address, receives, attached: false, way, acks });
        number
    }

    /// Removes and returns the oldest membership in a group. `None` if there is none.
    pub(crate) fn remove(&mut self, group: IpAddr) -> Option<Member> {
        let at = self.members.iter().position(|member| member.address == group)?;
        Some(self.members.remove(at))
    }

    /// Whether the queue pair was attached to a group for one of the memberships.
    pub(crate) fn is_attached(&self, group: IpAddr) -> bool {
        self.members.iter().any(|member| member.address == group && member.attached)
    }

    /// Attaches the id's queue pair to a group, when the program takes the event of the membership.
    /// Returns the event. `None` if the membership has ended.
    pub(crate) fn joined(&mut self, number: u64, qp: *const ibv_qp) -> Option<Draft> {
        let member = self.members.iter_mut().find(|member| member.number == number)?;
        let attached = match qp.is_null() || !member.receives {
            true => Ok(false),
            false => qp::get(qp).and_then(|qp| qp.attach(member.way.vector.dgid)).map(|()| true),
        };
        let (event, status) = match attached {
            Ok(attached) => {
                member.attached = attached;
                (RDMA_CM_EVENT_MULTICAST_JOIN, 0)
            }
            Err(error) => (RDMA_CM_EVENT_MULTICAST_ERROR, -error.code()),
        };
        let acks = Some(Arc::clone(&member.acks));
        Some(Draft { status, param: Param::Ud(member.way), acks, ..Draft::plain(event) })
    }
}
