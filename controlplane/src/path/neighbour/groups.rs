//! Membership reports of a port's multicast groups, for routers and snooping switches.
//!
//! Read first: RFC 2236 (IGMPv2), RFC 3810 (MLDv2).
//!
//! A group is reported twice when it gets its first member, once per query, and is left when it
//! loses its last member. A querier of IGMPv3 accepts version 2.
//!
//! Not here: reports of the link's own groups (all nodes, solicited nodes), which switches flood;
//! suppression of reports after those of other hosts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IgmpPacket, IgmpRepr, IgmpVersion, IpProtocol,
    Ipv4Packet, Ipv6Packet, Ipv6Repr, MldAddressRecordRepr, MldRecordType, MldRepr,
};
use uroce_transport::Instant;
use uroce_wire::ethernet::EtherType;
use uroce_wire::{Gid, Mac};

use super::frame::Link;
use super::icmp::multicast_mac;
use super::{Emit, Ignored, Neighbours};
use crate::path::prefix::is_link_local;

/// Reports of a new group: two, because one may be lost.
const REPORTS: u8 = 2;
/// Time between the reports of a new group.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Upper bound of the response time in a query.
const RESPONSE_MAX: Duration = Duration::from_secs(10);
/// Queries and reports are not routed.
const HOP_LIMIT: u8 = 1;
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// IPv4 Router Alert option: routers inspect the packet.
const ROUTER_ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
/// IPv6 Router Alert option, in a header of hop-by-hop options before ICMPv6.
const ROUTER_ALERT_V6: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
const IPV4_LEN: usize = 20 + ROUTER_ALERT_V4.len();
/// Length of an MLDv1 query. An MLDv2 query is longer.
const MLD_V1_LEN: usize = 24;

/// Multicast groups of a port, with their reports.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<IpAddr, Group>,
}

#[derive(Debug)]
struct Group {
    members: u32,
    /// Reports still to be sent.
    reports: u8,
    due: Instant,
    /// The reports due are those of a join or of a link that came up, not the answer to a query.
    is_news: bool,
}

impl Groups {
    /// Returns the time of the next report.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.groups.values().filter(|group| group.reports > 0);
        waiting.map(|group| group.due).min()
    }

    /// Handles a query for one group, or for all groups if `asked` is the unspecified address. A
    /// report is due within the given time, at a time that differs from group to group.
    fn ask(&mut self, now: Instant, asked: IpAddr, within: Duration) {
        let within = within.min(RESPONSE_MAX);
        let of_version = |ip: &IpAddr| ip.is_ipv4() == asked.is_ipv4();
        let all = self.groups.iter_mut().filter(|(ip, _)| of_version(ip));
        for (ip, group) in all.filter(|(ip, _)| asked.is_unspecified() || **ip == asked) {
            let due = now + within.mul_f64(spread(now, *ip));
            if group.reports == 0 || due < group.due {
                group.due = due;
            }
            group.reports = group.reports.max(1);
        }
    }
}

/// Returns a number from 0 to 1, derived from both arguments.
fn spread(now: Instant, ip: IpAddr) -> f64 {
    let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = Gid::from(ip).0.into_iter().chain(now.as_nanos().to_ne_bytes());
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325, mix);
    f64::from((sum >> 32) as u32) / f64::from(u32::MAX)
}

/// Tells whether a group is reported. The all-hosts groups and groups of interface scope are not.
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => v4.is_multicast() && v4 != ALL_HOSTS,
        IpAddr::V6(v6) => {
            v6.is_multicast() && v6.octets()[1] & 0xf > 1 && v6 != super::ndp::ALL_NODES
        }
    }
}

impl Neighbours {
    /// Adds a member to a multicast group. The first member's report is sent by
    /// [`handle_timeout`](Self::handle_timeout), which is then due at once.
    pub fn join(&mut self, now: Instant, group: IpAddr) {
        if is_reported(group) {
            let new = Group { members: 0, reports: REPORTS, due: now, is_news: true };
            self.groups.groups.entry(group).or_insert(new).members += 1;
        }
    }

    /// Removes a member from a multicast group.
    pub fn leave(&mut self, group: IpAddr, emit: Emit<'_>) {
        let groups = &mut self.groups.groups;
        let Some(known) = groups.get_mut(&group) else { return };
        known.members -= 1;
        if known.members == 0 {
            groups.remove(&group);
            match group {
                IpAddr::V4(ip) => {
                    let leave = IgmpRepr::LeaveGroup { group_addr: ip };
                    emit(&self.igmp(ALL_ROUTERS, &leave));
                }
                IpAddr::V6(ip) => emit(&self.mld(MldRecordType::ChangeToInclude, ip)),
            }
        }
    }

    /// Reports all groups again as new ones. Called when the link comes up, because other routers
    /// and switches may be behind it.
    pub fn renew_groups(&mut self, now: Instant) {
        for group in self.groups.groups.values_mut() {
            (group.reports, group.due, group.is_news) = (REPORTS, now, true);
        }
    }

    pub(super) fn report_groups(&mut self, now: Instant, emit: Emit<'_>) {
        let mut due = Vec::new();
        for (ip, group) in &mut self.groups.groups {
            if group.reports > 0 && group.due <= now {
                group.reports -= 1;
                group.due = now + REPORT_INTERVAL;
                due.push((*ip, group.is_news));
                group.is_news &= group.reports > 0;
            }
        }
        for (ip, is_news) in due {
            match ip {
                IpAddr::V4(ip) => {
                    let version = IgmpVersion::Version2;
                    emit(&self.igmp(ip, &IgmpRepr::MembershipReport { group_addr: ip, version }));
                }
                IpAddr::V6(ip) if is_news => emit(&self.mld(MldRecordType::ChangeToExclude, ip)),
                IpAddr::V6(ip) => emit(&self.mld(MldRecordType::ModeIsExclude, ip)),
            }
        }
    }

    /// Handles an IPv4 packet in a broadcast or multicast frame. Only an IGMP query has an effect.
    pub(super) fn asked_v4(&mut self, now: Instant, payload: &[u8]) -> Result<(), Ignored> {
        let packet = Ipv4Packet::new_checked(payload).map_err(|_| Ignored::Malformed)?;
        if packet.next_header() != IpProtocol::Igmp || !packet.dst_addr().is_multicast() {
            return Err(Ignored::NotForUs);
        }
        let igmp = IgmpPacket::new_checked(packet.payload()).map_err(|_| Ignored::Malformed)?;
        //= RFC2236 2.1 to 2.3 — a query has a right checksum and a TTL of 1
        let is_whole = packet.verify_checksum() && igmp.verify_checksum();
        if !is_whole || packet.hop_limit() != HOP_LIMIT {
            return Err(Ignored::Malformed);
        }
        match IgmpRepr::parse(&igmp).map_err(|_| Ignored::Unsupported)? {
            IgmpRepr::MembershipQuery { max_resp_time, group_addr, version } => {
                let within = match version {
                    IgmpVersion::Version1 => RESPONSE_MAX,
                    IgmpVersion::Version2 => Duration::from_millis(max_resp_time.total_millis()),
                };
                self.groups.ask(now, group_addr.into(), within);
                Ok(())
            }
            _ => Err(Ignored::NotForUs),
        }
    }

    /// Handles an IPv6 packet with hop-by-hop options. Only an MLD query to a group has an effect.
    pub(super) fn asked_v6(
        &mut self,
        now: Instant,
        ip: &Ipv6Repr,
        payload: &[u8],
    ) -> Result<(), Ignored> {
        if !ip.dst_addr.is_multicast() {
            return Err(Ignored::NotForUs);
        }
        let (next, len) = match payload {
            [next, len, ..] => (IpProtocol::from(*next), 8 * (usize::from(*len) + 1)),
            _ => return Err(Ignored::Malformed),
        };
        let message = payload.get(len..).ok_or(Ignored::Malformed)?;
        if next != IpProtocol::Icmpv6 {
            return Err(Ignored::Unsupported);
        }
        let icmp = Icmpv6Packet::new_unchecked(message);
        let is_query = message.len() >= MLD_V1_LEN && icmp.msg_type() == Icmpv6Message::MldQuery;
        if !is_query {
            return Err(Ignored::Unsupported);
        }
        //= RFC3810 5.1.14, 6.2 — from a link-local address, one hop
        let is_near = is_link_local(ip.src_addr.into()) && ip.hop_limit == HOP_LIMIT;
        if !is_near || !icmp.verify_checksum(&ip.src_addr, &ip.dst_addr) {
            return Err(Ignored::Malformed);
        }
        let [_, _, _, _, high, low, _, _, group @ ..] = message else {
            return Err(Ignored::Malformed);
        };
        let group = group.first_chunk::<16>().ok_or(Ignored::Malformed)?;
        let within = mld_delay(u16::from_be_bytes([*high, *low]));
        self.groups.ask(now, Ipv6Addr::from(*group).into(), within);
        Ok(())
    }

    fn igmp(&self, to: Ipv4Addr, igmp: &IgmpRepr) -> Vec<u8> {
        let own = self.routes.own().prefixes().find_map(|own| match own.address() {
            IpAddr::V4(own) => Some(own),
            IpAddr::V6(_) => None,
        });
        let [_, b, c, d] = to.octets();
        let mac = Mac([1, 0, 0x5e, b & 0x7f, c, d]);
        let len = IPV4_LEN + igmp.buffer_len();
        self.link.frame(mac, EtherType::IPV4, len, |payload| {
            let mut packet = Ipv4Packet::new_unchecked(payload);
            packet.set_version(4);
            packet.set_header_len(IPV4_LEN as u8);
            packet.set_total_len(len as u16);
            packet.set_dont_frag(true);
            packet.set_hop_limit(HOP_LIMIT);
            packet.set_next_header(IpProtocol::Igmp);
            packet.set_src_addr(own.unwrap_or(Ipv4Addr::UNSPECIFIED));
            packet.set_dst_addr(to);
            igmp.emit(&mut IgmpPacket::new_unchecked(packet.payload_mut()));
            let bytes = packet.into_inner();
            bytes[IPV4_LEN - ROUTER_ALERT_V4.len()..IPV4_LEN].copy_from_slice(&ROUTER_ALERT_V4);
            Ipv4Packet::new_unchecked(bytes).fill_checksum();
        })
    }

    fn mld(&self, record_type: MldRecordType, group: Ipv6Addr) -> Vec<u8> {
        let link_local = |own: IpAddr| match own {
            IpAddr::V6(own) if is_link_local(own.into()) => Some(own),
            _ => None,
        };
        //= RFC3810 5.2.13 — from a link-local address; without one from ::, for switches
        let own = self.routes.own().prefixes().find_map(|own| link_local(own.address()));
        let own = own.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let records = [MldAddressRecordRepr::new(record_type, group)];
        mld_report(&self.link, own, &records)
    }
}

fn mld_report(link: &Link, own: Ipv6Addr, records: &[MldAddressRecordRepr<'_>]) -> Vec<u8> {
    let checks = ChecksumCapabilities::default();
    let icmp = Icmpv6Repr::Mld(MldRepr::ReportRecordReprs(records));
    let records_len: usize = records.iter().map(|record| record.buffer_len()).sum();
    let payload_len = ROUTER_ALERT_V6.len() + icmp.buffer_len() + records_len;
    let ip = Ipv6Repr {
        src_addr: own,
        dst_addr: MLD_ROUTERS,
        next_header: IpProtocol::HopByHop,
        payload_len,
        hop_limit: HOP_LIMIT,
    };
    let len = ip.buffer_len() + payload_len;
    link.frame(multicast_mac(MLD_ROUTERS), EtherType::IPV6, len, |payload| {
        let mut packet = Ipv6Packet::new_unchecked(payload);
        ip.emit(&mut packet);
        let (options, message) = packet.payload_mut().split_at_mut(ROUTER_ALERT_V6.len());
        options.copy_from_slice(&ROUTER_ALERT_V6);
        icmp.emit(&own, &MLD_ROUTERS, &mut Icmpv6Packet::new_unchecked(message), &checks);
    })
}

/// Decodes MLD's maximum response code: milliseconds, and above 32767 a floating-point number.
fn mld_delay(code: u16) -> Duration {
    let millis = match code {
        0..0x8000 => u64::from(code),
        _ => u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
    };
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests;
