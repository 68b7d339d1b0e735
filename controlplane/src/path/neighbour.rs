//! Neighbour protocols of a port: ARP, IPv6 neighbour discovery, the answer to `ping`, and reports
//! of multicast groups.
//!
//! A [`Neighbours`] serves one port and does no I/O: received frames and the time go in, frames to
//! be sent come out through `emit`. Packet formats are smoltcp's.
//!
//! Invariants
//! - At most one frame is sent in answer to a received one, and none in answer to a multicast echo.
//!   A query for multicast groups causes one report of each group, however many queries arrive
//!   meanwhile.
//! - The table is bounded ([`ASKED_MAX`], [`HINTED_MAX`]) and follows RFC 826 and RFC 4861. Only
//!   the answer to a request of our own confirms an address. The port's own addresses are never
//!   learned.
//! - No input causes a panic.
//!
//! Not here: detection of duplicate addresses before an address is used (a conflict is counted),
//! reports of solicited-node groups (a snooping switch must flood link-scope groups), ICMP errors,
//! router discovery, fragments.

mod arp;
mod frame;
mod groups;
mod icmp;
mod ndp;
mod table;

pub(crate) use table::NoRoom;
pub use table::{
    ASKED_MAX, FIRST_INTERVAL, FIXED_MAX, HINTED_MAX, REACHABLE, Reach, Resolution, TRIES,
};

use std::collections::BTreeMap;
use std::net::IpAddr;

use uroce_transport::Instant;
use uroce_wire::Mac;
use uroce_wire::ethernet::{EtherType, Vlan};

use crate::path::prefix::is_unicast;
use crate::path::route::Routes;
use frame::Link;
use groups::Groups;
use table::Table;

/// Takes frames to be sent. Each call has one whole frame without its check sequence.
pub type Emit<'a> = &'a mut dyn FnMut(&[u8]);

uroce_transport::counted! {
    /// Reason for which a received frame had no effect, or only part of it.
    pub enum Ignored {
        Malformed "slow_malformed" "A length, checksum or field rule is broken."
        WrongVlan "slow_wrong_vlan" "The frame's VLAN is not the port's."
        NotForUs "slow_not_for_us" "The frame or its packet is for another host."
        AddressConflict "slow_address_conflict" "Another host claims an address of the port."
        Unsolicited "slow_unsolicited" "An advertisement without an address of an unknown host."
        Unsupported "slow_unsupported" "A protocol or message that is not supported."
    }
}

/// The neighbour protocols of one port.
#[derive(Debug)]
pub struct Neighbours {
    link: Link,
    routes: Routes,
    table: Table,
    groups: Groups,
    /// The Ethernet address that stands for an IP address, where the kernel finds neighbours.
    of_kernel: Option<fn(IpAddr) -> Mac>,
    /// The priority of packets by their DSCP, in place of their service level.
    dscp_prio: BTreeMap<u8, u8>,
    ignored: [u64; Ignored::ALL.len()],
}

impl Neighbours {
    /// Creates the state of a port with this Ethernet address, VLAN and routes.
    pub fn new(mac: Mac, vlan: Option<u16>, routes: Routes) -> Self {
        let link = Link { mac, vlan };
        let (table, groups) = (Table::default(), Groups::default());
        let ignored = [0; Ignored::ALL.len()];
        let dscp_prio = BTreeMap::new();
        Self { link, routes, table, groups, of_kernel: None, dscp_prio, ignored }
    }

    /// Sets the priorities (0 to 7) of packets with some DSCPs (0 to 63).
    pub fn with_dscp_prio(mut self, dscp_prio: BTreeMap<u8, u8>) -> Self {
        self.dscp_prio = dscp_prio;
        self
    }

    /// Creates the state of a port behind which the kernel finds routes and neighbours. Frames to
    /// an IP address have the Ethernet address that `mac_of` gives.
    pub fn of_kernel(mac: Mac, routes: Routes, mac_of: fn(IpAddr) -> Mac) -> Self {
        let of_kernel = Some(mac_of);
        Self { of_kernel, ..Self::new(mac, None, routes.of_kernel()) }
    }

    /// Tells whether the kernel finds routes and neighbours.
    pub fn is_of_kernel(&self) -> bool {
        self.of_kernel.is_some()
    }

    /// Returns the port's addresses and routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the port's addresses and routes for modification. The neighbour table is unchanged.
    pub fn routes_mut(&mut self) -> &mut Routes {
        &mut self.routes
    }

    /// Sets the port's Ethernet address.
    pub fn set_mac(&mut self, mac: Mac) {
        self.link.mac = mac;
    }

    /// Returns the port's Ethernet address.
    pub fn mac(&self) -> Mac {
        self.link.mac
    }

    /// Returns the VLAN ID of the port's frames; `None` if they are untagged.
    pub fn vlan(&self) -> Option<u16> {
        self.link.vlan
    }

    /// Returns the VLAN tag of packets with this traffic class and service level; `None` if the
    /// port's frames are untagged.
    pub fn tag(&self, traffic_class: u8, service_level: u8) -> Option<Vlan> {
        let pcp = *self.dscp_prio.get(&(traffic_class >> 2)).unwrap_or(&service_level);
        self.link.vlan.map(|vid| Vlan { vid, pcp })
    }

    /// Returns the number of frames ignored for `reason`.
    pub fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored[reason as usize]
    }

    /// Returns the number of table entries, at most [`ASKED_MAX`] + [`HINTED_MAX`].
    pub fn known(&self) -> usize {
        self.table.len()
    }

    /// Returns all table entries: IP address, Ethernet address if known, and state.
    pub fn entries(&self, now: Instant) -> impl Iterator<Item = (IpAddr, Option<Mac>, Reach)> + '_ {
        self.table.entries(now)
    }

    /// Fixes the Ethernet address of a neighbour.
    ///
    /// # Errors
    ///
    /// [`NoRoom`]; nothing has changed then.
    pub(crate) fn fix(&mut self, now: Instant, ip: IpAddr, mac: Mac) -> Result<(), NoRoom> {
        self.table.fix(now, ip, mac)
    }

    /// Forgets a neighbour, fixed or not. Returns false if it is not known, or being requested.
    pub(crate) fn remove(&mut self, ip: IpAddr) -> bool {
        self.table.remove(ip)
    }

    /// Announces the port's addresses (gratuitous ARP, unsolicited advertisement). Called at the
    /// start and when the link comes up.
    pub fn announce(&self, emit: Emit<'_>) {
        if self.is_of_kernel() {
            return;
        }
        for own in self.routes.own().prefixes() {
            match own.address() {
                IpAddr::V4(own) => emit(&arp::announcement(&self.link, own)),
                IpAddr::V6(own) => emit(&ndp::announcement(&self.link, own)),
            }
        }
    }

    /// Forgets all Ethernet addresses. Called when the link goes down: other hosts may have the
    /// same IP addresses when it comes up.
    pub fn link_down(&mut self, now: Instant) {
        self.table.clear(now);
    }

    /// Returns the Ethernet address that `ip` was last known to have.
    pub fn last_known(&self, ip: IpAddr) -> Option<Mac> {
        self.of_kernel.map(|mac_of| mac_of(ip)).or_else(|| self.table.mac(ip))
    }

    /// Forgets the IP addresses of the station with the Ethernet address `mac`, which has gone.
    pub fn station_gone(&mut self, mac: Mac) {
        self.table.forget(mac);
    }

    /// Handles a received frame that is not RoCE.
    ///
    /// # Errors
    ///
    /// The reason for which the frame had no effect. It is counted.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        frame: &[u8],
        emit: Emit<'_>,
    ) -> Result<(), Ignored> {
        let result = self.dispatch(now, frame, emit);
        if let Err(reason) = result {
            self.ignored[reason as usize] += 1;
        }
        result
    }

    fn dispatch(&mut self, now: Instant, frame: &[u8], emit: Emit<'_>) -> Result<(), Ignored> {
        let (ethernet, payload) = frame::parse(frame).map_err(|_| Ignored::Malformed)?;
        if !self.link.is_on_vlan(ethernet.vlan) {
            return Err(Ignored::WrongVlan);
        }
        // The port is in promiscuous mode.
        if ethernet.dst != self.link.mac && !ethernet.dst.is_multicast() {
            return Err(Ignored::NotForUs);
        }
        let from = host_mac(ethernet.src)?;
        match ethernet.ether_type {
            EtherType::ARP => arp::handle(self, now, payload, emit),
            // An IPv4 packet for one host in a broadcast or multicast frame is not answered (RFC
            // 1122).
            EtherType::IPV4 if ethernet.dst == self.link.mac => {
                icmp::handle_v4(self, from, payload, emit)
            }
            EtherType::IPV4 => self.asked_v4(now, payload),
            EtherType::IPV6 => icmp::handle_v6(self, now, from, payload, emit),
            _ => Err(Ignored::Unsupported),
        }
    }

    /// Returns the Ethernet address of neighbour `ip`, which [`Routes::next_hop`] returned.
    /// Requests are sent by [`handle_timeout`](Self::handle_timeout), which is then due at once.
    pub fn resolve(&mut self, now: Instant, ip: IpAddr) -> Resolution {
        match self.of_kernel {
            Some(mac_of) => Resolution::Ready(mac_of(ip)),
            None => self.table.resolve(now, ip),
        }
    }

    /// Sends the requests and group reports that are due.
    pub fn handle_timeout(&mut self, now: Instant, emit: Emit<'_>) {
        self.report_groups(now, &mut *emit);
        for question in self.table.questions(now) {
            let source = self.routes.source_for(question.ip);
            match (source, question.ip) {
                (Some(IpAddr::V4(source)), IpAddr::V4(target)) => {
                    emit(&arp::question(&self.link, source, target, question.mac));
                }
                (Some(IpAddr::V6(source)), IpAddr::V6(target)) => {
                    emit(&ndp::question(&self.link, source, target, question.mac));
                }
                // Without a source address of the IP version no request can be sent; the tries run
                // out.
                _ => {}
            }
        }
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.table.next_timeout().into_iter().chain(self.groups.next_timeout()).min()
    }

    /// Tells whether `ip` can be another host.
    fn is_peer(&self, ip: IpAddr) -> bool {
        is_unicast(ip) && !ip.is_loopback() && !self.routes.is_own(ip)
    }

    /// Tells whether `ip` can be another host on the link.
    fn is_neighbour(&self, ip: IpAddr) -> bool {
        self.routes.is_neighbour(ip)
    }
}

/// Checks that an Ethernet address can be another host's. It may equal the port's own: behind a
/// tap, the kernel has the same one. Our own frames that come back are recognized by their IP
/// addresses.
pub(crate) fn host_mac(mac: Mac) -> Result<Mac, Ignored> {
    if mac.is_multicast() || mac == Mac::default() { Err(Ignored::Malformed) } else { Ok(mac) }
}

#[cfg(test)]
mod tests;
