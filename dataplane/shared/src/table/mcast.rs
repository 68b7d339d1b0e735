//! Multicast groups: the UD QPs that get a copy of a datagram to a group's address.
//!
//! Read first: IBA 10.5; RFC 1112 and RFC 2464 for the Ethernet addresses.
//!
//! The control plane keeps the groups and publishes all of them anew with each change; lcores look
//! a group up by its address.
//!
//! Invariants
//! - Lcores see one whole state of all groups; it never changes while they read it.
//! - A QP is in a group at most once, and in none after it is destroyed.
//!
//! Not here: copying datagrams (the engine's `rx`); announcing membership to routers and switches
//! by IGMP and MLD (the control plane does that).

use crate::table::published::Published;
use crate::table::qp_table::Place;
use crate::table::qsbr::{InTurn, Turns};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use uroce_wire::{Gid, Mac, Qpn};

/// Largest number of QPs of one group.
pub const MAX_GROUP_QPS: usize = 256;
/// Largest number of groups of an engine.
pub const MAX_GROUPS: usize = 1024;

/// The reason why a QP was not attached to a group, or not detached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The address is not a multicast address.
    #[error("{0} is not a multicast address")]
    NotMulticast(Gid),
    /// Only UD QPs can be in a group.
    #[error("only UD queue pairs can be in a group")]
    NotDatagram,
    /// The group has [`MAX_GROUP_QPS`] QPs, or the engine [`MAX_GROUPS`] groups.
    #[error("the group has {MAX_GROUP_QPS} queue pairs, or there are {MAX_GROUPS} groups")]
    Full,
    /// The QP is not in the group.
    #[error("the queue pair is not in the group")]
    NotAttached,
}

/// A QP in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The QP's number.
    pub qpn: Qpn,
    /// Its lcore and slot.
    pub place: Place,
}

/// Returns the Ethernet address of a group: RFC 1112 for IPv4, RFC 2464 for IPv6. `None` if the
/// address is not multicast.
pub fn multicast_mac(group: Gid) -> Option<Mac> {
    match group.to_ip() {
        IpAddr::V4(ip) if ip.is_multicast() => {
            let [_, b, c, d] = ip.octets();
            Some(Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        }
        IpAddr::V6(ip) if ip.is_multicast() => {
            let [.., a, b, c, d] = ip.octets();
            Some(Mac([0x33, 0x33, a, b, c, d]))
        }
        _ => None,
    }
}

type Groups = Vec<(Gid, Vec<Member>)>;

/// The groups as lcores see them.
#[derive(Debug)]
pub struct GroupTable {
    /// One place with all groups, in the order of their addresses.
    groups: Published<Groups>,
}

impl GroupTable {
    /// Makes a table without groups, read in these turns.
    pub fn new(turns: Arc<Turns>) -> GroupTable {
        GroupTable { groups: Published::new(1, turns) }
    }

    /// Returns the QPs of a group; those of one lcore are next to each other.
    #[inline]
    pub fn find<'t>(&'t self, group: Gid, turn: &'t InTurn<'_>) -> Option<&'t [Member]> {
        let groups = self.groups.get(0, turn)?;
        let at = groups.binary_search_by_key(&group, |(gid, _)| *gid).ok()?;
        Some(&groups[at].1)
    }
}

/// The control plane's groups.
#[derive(Debug)]
pub struct GroupBook {
    table: Arc<GroupTable>,
    groups: BTreeMap<Gid, Vec<Member>>,
}

impl GroupBook {
    /// Makes the book of a table that has no groups.
    pub fn new(table: Arc<GroupTable>) -> GroupBook {
        GroupBook { table, groups: BTreeMap::new() }
    }

    /// Attaches a QP to a group; has no effect if it is attached already.
    pub fn attach(&mut self, group: Gid, member: Member) -> Result<(), GroupError> {
        if multicast_mac(group).is_none() {
            return Err(GroupError::NotMulticast(group));
        }
        if !self.groups.contains_key(&group) && self.groups.len() >= MAX_GROUPS {
            return Err(GroupError::Full);
        }
        let members = self.groups.entry(group).or_default();
        if members.contains(&member) {
            return Ok(());
        }
        if members.len() >= MAX_GROUP_QPS {
            return Err(GroupError::Full);
        }
        members.push(member);
        members.sort_by_key(|member| member.place.owner);
        self.publish();
        Ok(())
    }

    /// Detaches a QP from a group.
    pub fn detach(&mut self, group: Gid, qpn: Qpn) -> Result<(), GroupError> {
        let members = self.groups.get_mut(&group).ok_or(GroupError::NotAttached)?;
        let at = members.iter().position(|member| member.qpn == qpn);
        members.remove(at.ok_or(GroupError::NotAttached)?);
        if members.is_empty() {
            self.groups.remove(&group);
        }
        self.publish();
        Ok(())
    }

    /// Detaches a QP from all groups.
    pub fn forget(&mut self, qpn: Qpn) {
        let all =
            |groups: &BTreeMap<Gid, Vec<Member>>| groups.values().map(Vec::len).sum::<usize>();
        let before = all(&self.groups);
        self.groups.retain(|_, members| {
            members.retain(|member| member.qpn != qpn);
            !members.is_empty()
        });
        if all(&self.groups) != before {
            self.publish();
        }
    }

    fn publish(&self) {
        let groups = self.groups.iter().map(|(gid, members)| (*gid, members.clone())).collect();
        drop(self.table.groups.replace(0, Some(Box::new(groups))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn member(qpn: u32, owner: usize) -> Member {
        Member { qpn: Qpn::new(qpn), place: Place { index: qpn, owner } }
    }

    #[test]
    fn groups_have_the_ethernet_addresses_of_their_version() {
        let mac = |text| multicast_mac(gid(text)).map(|mac| mac.to_string());
        // The upper bit of the second byte is not used.
        assert_eq!(mac("239.129.2.3").as_deref(), Some("01:00:5e:01:02:03"));
        assert_eq!(mac("ff0e::1:0203:0405").as_deref(), Some("33:33:02:03:04:05"));
        assert_eq!(mac("192.0.2.1"), None);
        assert_eq!(mac("2001:db8::1"), None);
    }

    #[test]
    fn a_qp_is_found_in_its_groups_until_it_is_detached_or_gone() {
        let turns = Arc::new(Turns::new(1));
        let table = Arc::new(GroupTable::new(Arc::clone(&turns)));
        let mut book = GroupBook::new(Arc::clone(&table));
        let (a, b) = (gid("239.1.1.1"), gid("ff0e::1"));
        let qpns = |group| {
            let turn = turns.enter(0);
            let members = table.find(group, &turn)?;
            Some(members.iter().map(|member| member.qpn.value()).collect::<Vec<_>>())
        };
        assert_eq!(qpns(a), None);
        book.attach(a, member(5, 1)).unwrap();
        book.attach(a, member(6, 0)).unwrap();
        book.attach(a, member(5, 1)).unwrap();
        book.attach(b, member(5, 1)).unwrap();
        assert_eq!(qpns(a), Some(vec![6, 5]), "by lcore, each once");
        assert_eq!(qpns(b), Some(vec![5]));
        assert_eq!(book.detach(b, Qpn::new(6)), Err(GroupError::NotAttached));
        book.detach(a, Qpn::new(6)).unwrap();
        assert_eq!(qpns(a), Some(vec![5]));
        book.forget(Qpn::new(5));
        assert_eq!((qpns(a), qpns(b)), (None, None));
        let unicast = gid("192.0.2.1");
        assert_eq!(book.attach(unicast, member(5, 1)), Err(GroupError::NotMulticast(unicast)));
    }

    #[test]
    fn groups_are_bounded() {
        let table = Arc::new(GroupTable::new(Arc::new(Turns::new(1))));
        let mut book = GroupBook::new(table);
        for qpn in 0..MAX_GROUP_QPS as u32 {
            book.attach(gid("239.0.0.0"), member(qpn, 0)).unwrap();
        }
        assert_eq!(book.attach(gid("239.0.0.0"), member(9999, 0)), Err(GroupError::Full));
        for group in 1..MAX_GROUPS as u32 {
            let ip = std::net::Ipv4Addr::from(0xef00_0000 + group);
            book.attach(ip.into(), member(1, 0)).unwrap();
        }
        assert_eq!(book.attach(gid("239.255.0.0"), member(1, 0)), Err(GroupError::Full));
    }
}
