//! Neighbours of a port: ARP, IPv6 neighbour discovery, the answer to `ping`, and reports of the
//! multicast groups that the port is in.
//!
//! A value without I/O, like the transport: frames and the time go in, frames come out through
//! `emit`. One [`Neighbours`] serves one port; packet formats are smoltcp's.
//!
//! Invariants
//! - At most one frame is sent for a frame received, and none in answer to a multicast echo. A query
//!   for groups has one report of each, which are not more often than that however many ask.
//! - What is learned is bounded ([`ASKED_MAX`], [`HINTED_MAX`]) and follows RFC 826 and RFC 4861.
//!   Only the answer to a question of our own makes an address sure. The port's own addresses are
//!   never learned from anybody.
//! - No bytes make it panic.
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

pub use table::{ASKED_MAX, FIRST_INTERVAL, HINTED_MAX, REACHABLE, Resolution, TRIES};

use std::net::IpAddr;

use uroce_transport::Instant;
use uroce_wire::Mac;
use uroce_wire::ethernet::EtherType;

use crate::path::prefix::is_unicast;
use crate::path::route::Routes;
use frame::Link;
use groups::Groups;
use table::Table;

/// Where frames go: each call is one whole frame without check sequence.
pub type Emit<'a> = &'a mut dyn FnMut(&[u8]);

uroce_transport::counted! {
    /// Why a frame had no effect, or not the whole one.
    pub enum Ignored {
        Malformed "slow_malformed" "A length, checksum or field rule is broken."
        WrongVlan "slow_wrong_vlan" "The frame's VLAN is not the port's."
        NotForUs "slow_not_for_us" "The frame or its packet is for somebody else."
        AddressConflict "slow_address_conflict" "Somebody else claims an address of the port's."
        Unsolicited "slow_unsolicited" "An advertisement of a neighbour that nobody asked for."
        Unsupported "slow_unsupported" "A protocol or message that the stack does not speak."
    }
}

/// The neighbour protocols of one port.
#[derive(Debug)]
pub struct Neighbours {
    link: Link,
    routes: Routes,
    table: Table,
    groups: Groups,
    ignored: [u64; Ignored::ALL.len()],
}

impl Neighbours {
    /// The neighbours of a port with this Ethernet address, VLAN and routes.
    pub fn new(mac: Mac, vlan: Option<u16>, routes: Routes) -> Self {
        let link = Link { mac, vlan };
        let (table, groups) = (Table::default(), Groups::default());
        Self { link, routes, table, groups, ignored: [0; Ignored::ALL.len()] }
    }

    /// The port's routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The same, to be changed: what is known of neighbours stays.
    pub fn routes_mut(&mut self) -> &mut Routes {
        &mut self.routes
    }

    /// The port has another Ethernet address from now on.
    pub fn set_mac(&mut self, mac: Mac) {
        self.link.mac = mac;
    }

    /// The port's Ethernet address.
    pub fn mac(&self) -> Mac {
        self.link.mac
    }

    /// The tag of the port's frames.
    pub fn vlan(&self) -> Option<u16> {
        self.link.vlan
    }

    /// Frames ignored so far for this reason.
    pub fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored[reason as usize]
    }

    /// Entries of the table, at most [`ASKED_MAX`] + [`HINTED_MAX`].
    pub fn known(&self) -> usize {
        self.table.len()
    }

    /// Tells the link our addresses (gratuitous ARP, unsolicited advertisement): at the start and
    /// when the link comes up.
    pub fn announce(&self, emit: Emit<'_>) {
        for own in self.routes.own().prefixes() {
            match own.address() {
                IpAddr::V4(own) => emit(&arp::announcement(&self.link, own)),
                IpAddr::V6(own) => emit(&ndp::announcement(&self.link, own)),
            }
        }
    }

    /// The link is down: behind it there may be others with the same addresses when it comes up.
    pub fn link_down(&mut self, now: Instant) {
        self.table.clear(now);
    }

    /// Takes a received frame that is not RoCE.
    ///
    /// # Errors
    ///
    /// Why it had no effect; that is counted.
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
        // The port is promiscuous.
        if ethernet.dst != self.link.mac && !ethernet.dst.is_multicast() {
            return Err(Ignored::NotForUs);
        }
        let from = host_mac(ethernet.src)?;
        match ethernet.ether_type {
            EtherType::ARP => arp::handle(self, now, payload, emit),
            // An IPv4 packet for one host in a frame for many is not answered (RFC 1122).
            EtherType::IPV4 if ethernet.dst == self.link.mac => {
                icmp::handle_v4(self, from, payload, emit)
            }
            EtherType::IPV4 => self.asked_v4(now, payload),
            EtherType::IPV6 => icmp::handle_v6(self, now, from, payload, emit),
            _ => Err(Ignored::Unsupported),
        }
    }

    /// The Ethernet address of the neighbour `ip`, which [`Routes::next_hop`] gave. Questions go
    /// out by [`handle_timeout`](Self::handle_timeout), which is due at once then.
    pub fn resolve(&mut self, now: Instant, ip: IpAddr) -> Resolution {
        self.table.resolve(now, ip)
    }

    /// Asks the questions that are due, and reports groups.
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
                // Without an address of the version nobody can be asked: the tries run out.
                _ => {}
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.table.next_timeout().into_iter().chain(self.groups.next_timeout()).min()
    }

    /// Can `ip` be another host?
    fn is_peer(&self, ip: IpAddr) -> bool {
        is_unicast(ip) && !ip.is_loopback() && !self.routes.is_own(ip)
    }

    /// Can `ip` be another host on the link?
    fn is_neighbour(&self, ip: IpAddr) -> bool {
        self.routes.is_neighbour(ip)
    }
}

/// An address that can be another host's. It may equal ours: behind a tap the kernel has the same
/// one. What comes back of our own frames is told by its IP addresses.
fn host_mac(mac: Mac) -> Result<Mac, Ignored> {
    if mac.is_multicast() || mac == Mac::default() { Err(Ignored::Malformed) } else { Ok(mac) }
}

#[cfg(test)]
mod tests;
