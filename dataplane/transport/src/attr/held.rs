//! The attributes as a QP stores them: small, and each value once.
//!
//! Invariants
//! - The header template that packets are built from is also the source of the path that Query QP
//!   returns.
//! - The alternate path and, after a migration, the former path use the same storage.
//!
//! A QP occupies about 470 bytes of its own and an engine may have a million, so fields are packed.

use uroce_wire::{Encap, Gid, HeaderTemplate, Mac, PathMtu, Pkey, Psn, Qkey, Qpn, Vlan};

use super::{AccessFlags, AltPath, AttrMask, PathAttr, PathMigState, QpAttr, QpChange};
use crate::qp::state::QpState;
use crate::rate::StaticRate;

/// The ECN bits of a traffic class.
const ECN: u8 = 0b11;
/// ECN bits of a sender that is ECN-capable: ECT(0).
const ECT_0: u8 = 0b10;

/// Value of a timer or retry count that Modify QP has not given yet.
const NOT_GIVEN: u8 = u8::MAX;

/// A QP's attributes; see [`QpAttr`] for their meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// Everything before BTH.
    pub(crate) template: HeaderTemplate,
    /// Flow label of the path, stored because the headers of IPv4 have none; and the ECN bits that
    /// the user has set, because the headers may have others.
    flow_label: Label,
    pub(crate) rate: StaticRate,
    pub(crate) port: u8,
    pub(crate) pkey: Pkey,
    pub(crate) path_mig_state: PathMigState,
    other: PackedPath,
    pub(crate) state: QpState,
    pub(crate) access: AccessFlags,
    pub(crate) path_mtu: PathMtu,
    pub(crate) dest_qpn: Qpn,
    pub(crate) rq_psn: Psn,
    pub(crate) sq_psn: Psn,
    pub(crate) qkey: Qkey,
    pub(crate) rate_limit: u32,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) en_sqd_async_notify: bool,
    pub(crate) selective_repeat: bool,
    pub(crate) udp_source_ports: u8,
    /// Packets are sent with ECT(0), for an algorithm that needs it.
    pub(crate) uses_ecn: bool,
    /// Congestion control slows the QP down.
    pub(crate) is_slowed: bool,
}

const _: () = assert!(size_of::<Attributes>() == 168);

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes {
            template: Encap::default().template(),
            flow_label: Label::default(),
            rate: StaticRate::MAX,
            port: 1,
            pkey: Pkey::DEFAULT,
            path_mig_state: PathMigState::Migrated,
            other: PackedPath::default(),
            state: QpState::Reset,
            access: AccessFlags::empty(),
            path_mtu: PathMtu::B1024,
            dest_qpn: Qpn::default(),
            rq_psn: Psn::default(),
            sq_psn: Psn::default(),
            qkey: Qkey(0),
            rate_limit: 0,
            max_dest_rd_atomic: 0,
            max_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: NOT_GIVEN,
            retry_cnt: NOT_GIVEN,
            rnr_retry: NOT_GIVEN,
            en_sqd_async_notify: false,
            selective_repeat: false,
            udp_source_ports: 1,
            uses_ecn: false,
            is_slowed: false,
        }
    }
}

impl Attributes {
    /// The attributes of a new QP, which sends with ECT(0) if it `uses_ecn`.
    pub(crate) fn new(uses_ecn: bool) -> Attributes {
        Attributes { uses_ecn, ..Attributes::default() }
    }

    /// The attributes given so far, of those that may be given before they are needed.
    pub(crate) fn given(&self) -> AttrMask {
        let mut mask = AttrMask::empty();
        mask.set(AttrMask::TIMEOUT, self.timeout != NOT_GIVEN);
        mask.set(AttrMask::RETRY_CNT, self.retry_cnt != NOT_GIVEN);
        mask.set(AttrMask::RNR_RETRY, self.rnr_retry != NOT_GIVEN);
        mask
    }

    /// Returns whether the path or the QP itself has a rate limit, or congestion slows it down.
    #[inline]
    pub(crate) fn is_rate_limited(&self) -> bool {
        self.is_slowed || self.rate_limit > 0 || self.rate.mbps().is_some()
    }

    /// Returns whether an alternate path is loaded to which the QP has not migrated.
    pub(crate) fn has_alternate(&self) -> bool {
        self.other.label.kind() == Kind::Alternate
    }

    /// The path in use, with port, P_Key and timeout.
    fn primary(&self) -> AltPath {
        let sent = self.template.encap();
        let traffic_class = sent.traffic_class & !ECN | self.flow_label.ecn();
        let encap = Encap { flow_label: self.flow_label.value(), traffic_class, ..sent };
        let path = PathAttr { encap, rate: self.rate };
        AltPath { path, port: self.port, pkey: self.pkey, timeout: self.timeout }
    }

    /// The alternate path that is loaded, or the former path that the QP has left.
    pub(crate) fn other(&self) -> Option<&PackedPath> {
        (self.other.label.kind() != Kind::None).then_some(&self.other)
    }

    /// Makes the alternate path the path in use and stores the former path in its place. Returns
    /// the local ACK timeout code of the former path.
    pub(crate) fn swap_paths(&mut self) -> u8 {
        let former = self.primary();
        let next = self.other.unpack();
        self.set_path(&next.path);
        (self.port, self.pkey, self.timeout) = (next.port, next.pkey, next.timeout);
        self.keep_of_former(&former);
        self.other = PackedPath::pack(&former, Kind::Former);
        // If the former path never had a timeout, use that of the new path.
        if former.timeout == NOT_GIVEN { next.timeout } else { former.timeout }
    }

    /// Keeps of the former path what a planted bug forgets to exchange.
    #[inline]
    fn keep_of_former(&mut self, former: &AltPath) {
        if seeded!(FormerAddresses) {
            self.set_path(&former.path);
        }
        if seeded!(FormerPort) {
            self.port = former.port;
        }
        if seeded!(FormerPkey) {
            self.pkey = former.pkey;
        }
        if seeded!(FormerTimeout) {
            self.timeout = former.timeout;
        }
    }

    /// Gives the alternate path, if one is loaded, the P_Key, rate and timeout of the path in use.
    pub(crate) fn tune_alternate(&mut self) {
        if self.has_alternate() {
            let PackedPath { pkey, rate, timeout, .. } = &mut self.other;
            (*pkey, *rate, *timeout) = (self.pkey, self.rate, self.timeout);
        }
    }

    fn set_path(&mut self, path: &PathAttr) {
        let Encap { traffic_class, flow_label, .. } = path.encap;
        //= check K9 — ECT(0) replaces the ECN bits on the wire only
        let sent = if self.uses_ecn { traffic_class & !ECN | ECT_0 } else { traffic_class };
        self.template = Encap { traffic_class: sent, ..path.encap }.template();
        self.flow_label = Label::new(flow_label, Kind::None).with_ecn(traffic_class);
        self.rate = path.rate;
    }

    /// All attributes, as Query QP returns them.
    //= check H9 — Query QP returns what was set
    pub(crate) fn query(&self) -> QpAttr {
        let known = |value: u8| if value == NOT_GIVEN { 0 } else { value };
        let alternate = || {
            let other = self.other.unpack();
            AltPath { timeout: known(other.timeout), ..other }
        };
        QpAttr {
            state: self.state,
            pkey: self.pkey,
            port: self.port,
            access: self.access,
            path: self.primary().path,
            alt_path: self.has_alternate().then(alternate),
            path_mig_state: self.path_mig_state,
            rate_limit: self.rate_limit,
            path_mtu: self.path_mtu,
            dest_qpn: self.dest_qpn,
            rq_psn: self.rq_psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            sq_psn: self.sq_psn,
            timeout: known(self.timeout),
            retry_cnt: known(self.retry_cnt),
            rnr_retry: known(self.rnr_retry),
            max_rd_atomic: self.max_rd_atomic,
            qkey: self.qkey,
            en_sqd_async_notify: self.en_sqd_async_notify,
            selective_repeat: self.selective_repeat,
            udp_source_ports: self.udp_source_ports,
            // The service of the QP has it.
            keepalive_ms: 0,
        }
    }

    /// Writes the attributes that `change` gives. Does not touch the states.
    //= check H7 — all at once: no packet is sent or checked between two attributes
    pub(crate) fn apply(&mut self, change: &QpChange) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        if let Some(path) = &change.path {
            self.set_path(path);
        }
        if let Some(alternate) = &change.alt_path {
            self.other = PackedPath::pack(alternate, Kind::Alternate);
        }
        set(&mut self.access, change.access);
        set(&mut self.pkey, change.pkey);
        set(&mut self.port, change.port);
        set(&mut self.rate_limit, change.rate_limit);
        set(&mut self.path_mtu, change.path_mtu);
        set(&mut self.dest_qpn, change.dest_qpn);
        set(&mut self.rq_psn, change.rq_psn);
        set(&mut self.max_dest_rd_atomic, change.max_dest_rd_atomic);
        if !(seeded!(StaleRnrTimer) && self.state == QpState::Rts) {
            set(&mut self.min_rnr_timer, change.min_rnr_timer);
        }
        set(&mut self.sq_psn, change.sq_psn);
        set(&mut self.timeout, change.timeout);
        set(&mut self.retry_cnt, change.retry_cnt);
        set(&mut self.rnr_retry, change.rnr_retry);
        set(&mut self.max_rd_atomic, change.max_rd_atomic);
        set(&mut self.qkey, change.qkey);
        set(&mut self.en_sqd_async_notify, change.en_sqd_async_notify);
        set(&mut self.selective_repeat, change.selective_repeat);
        set(&mut self.udp_source_ports, change.udp_source_ports);
    }
}

/// The use of a [`PackedPath`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    None,
    /// Loaded, to be migrated to.
    Alternate,
    /// Left by a migration.
    Former,
}

/// A flow label of 20 bits, the [`Kind`] of its path in the two bits above, and the ECN bits of its
/// traffic class in the highest two.
#[derive(Clone, Copy, Default, Debug)]
struct Label([u8; 3]);

impl Label {
    fn new(flow_label: u32, kind: Kind) -> Label {
        let [_, bytes @ ..] = (flow_label & 0x000f_ffff | (kind as u32) << 20).to_be_bytes();
        Label(bytes)
    }

    /// The label with the ECN bits of this traffic class.
    fn with_ecn(self, traffic_class: u8) -> Label {
        let [high, rest @ ..] = self.0;
        let [middle, low] = rest;
        Label([high & 0x3f | traffic_class << 6, middle, low])
    }

    /// The ECN bits, in the place that they have in a traffic class.
    fn ecn(self) -> u8 {
        self.0[0] >> 6
    }

    fn value(self) -> u32 {
        let [high, middle, low] = self.0;
        u32::from_be_bytes([0, high & 0xf, middle, low])
    }

    fn kind(self) -> Kind {
        match self.0[0] >> 4 & 3 {
            0 => Kind::None,
            1 => Kind::Alternate,
            _ => Kind::Former,
        }
    }
}

/// A path that is not in use, stored without padding.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PackedPath {
    src: Gid,
    dst: Gid,
    src_mac: Mac,
    dst_mac: Mac,
    src_port: u16,
    pkey: Pkey,
    /// PCP and VID of the 802.1Q tag; [`UNTAGGED`](PackedPath::UNTAGGED) if there is none.
    tag: u16,
    label: Label,
    traffic_class: u8,
    hop_limit: u8,
    rate: StaticRate,
    port: u8,
    timeout: u8,
}

impl PackedPath {
    /// The drop-eligible bit, which no tag sent has set.
    const UNTAGGED: u16 = 1 << 12;

    fn pack(path: &AltPath, kind: Kind) -> PackedPath {
        let PathAttr { encap, rate } = path.path;
        let tag = encap.vlan.map(|vlan| u16::from(vlan.pcp) << 13 | vlan.vid & 0x0fff);
        PackedPath {
            src: encap.src,
            dst: encap.dst,
            src_mac: encap.src_mac,
            dst_mac: encap.dst_mac,
            src_port: encap.src_port,
            pkey: path.pkey,
            tag: tag.unwrap_or(PackedPath::UNTAGGED),
            label: Label::new(encap.flow_label, kind),
            traffic_class: encap.traffic_class,
            hop_limit: encap.hop_limit,
            rate,
            port: path.port,
            timeout: path.timeout,
        }
    }

    fn unpack(&self) -> AltPath {
        let vlan = (self.tag != PackedPath::UNTAGGED)
            .then_some(Vlan { vid: self.tag & 0x0fff, pcp: (self.tag >> 13) as u8 });
        let encap = Encap {
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            vlan,
            src: self.src,
            dst: self.dst,
            traffic_class: self.traffic_class,
            flow_label: self.label.value(),
            hop_limit: self.hop_limit,
            src_port: self.src_port,
        };
        let path = PathAttr { encap, rate: self.rate };
        AltPath { path, port: self.port, pkey: self.pkey, timeout: self.timeout }
    }

    /// Returns whether a packet with these addresses, received at this port, came by this path.
    pub(crate) fn leads_back(&self, src: Gid, dst: Gid, port: u8) -> bool {
        src == self.dst && dst == self.src && port == self.port
    }

    pub(crate) fn pkey(&self) -> Pkey {
        self.pkey
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(host: u8, vlan: Option<Vlan>) -> AltPath {
        let encap = Encap {
            src_mac: Mac([2, 0, 0, 0, 0, host]),
            dst_mac: Mac([2, 0, 0, 0, 1, host]),
            vlan,
            src: Gid::from(core::net::Ipv4Addr::new(10, 0, 0, host)),
            dst: Gid::from(core::net::Ipv4Addr::new(10, 0, 1, host)),
            traffic_class: 0x68,
            flow_label: 0xa_bcde,
            hop_limit: 3,
            src_port: 0xc000 + u16::from(host),
        };
        let path = PathAttr { encap, rate: StaticRate::from_mbps(25_000).unwrap() };
        AltPath { path, port: host, pkey: Pkey(0x8000 + u16::from(host)), timeout: host }
    }

    #[test] //= check I7 test
    fn a_path_leads_back_with_both_addresses_and_the_port_only() {
        let path = path(3, None);
        let (packed, Encap { src, dst, .. }) =
            (PackedPath::pack(&path, Kind::Alternate), path.path.encap);
        assert!(packed.leads_back(dst, src, 3));
        let other = Gid::from(core::net::Ipv4Addr::new(10, 0, 2, 3));
        assert!(!packed.leads_back(other, src, 3));
        assert!(!packed.leads_back(dst, other, 3));
        assert!(!packed.leads_back(src, dst, 3));
        assert!(!packed.leads_back(dst, src, 4));
    }

    #[test] //= check H9 test
    fn packed_paths_lose_nothing() {
        let tags = [None, Some(Vlan { vid: 0, pcp: 0 }), Some(Vlan { vid: 4095, pcp: 7 })];
        for (host, vlan) in (1..).zip(tags) {
            let path = path(host, vlan);
            assert_eq!(PackedPath::pack(&path, Kind::Alternate).unpack(), path);
            let mut attr = Attributes::default();
            attr.set_path(&path.path);
            assert_eq!(attr.query().path, path.path);
        }
    }

    #[test] //= check I4 test
    fn paths_swapped_twice_are_as_they_were() {
        let (first, second) = (path(1, None), path(2, Some(Vlan { vid: 7, pcp: 1 })));
        let mut attr = Attributes::default();
        let change = QpChange {
            path: Some(first.path),
            port: Some(first.port),
            pkey: Some(first.pkey),
            timeout: Some(first.timeout),
            alt_path: Some(second),
            ..QpChange::default()
        };
        attr.apply(&change);
        assert_eq!(attr.swap_paths(), first.timeout);
        assert_eq!(attr.primary(), second);
        assert_eq!(attr.query().alt_path, None, "what was left is no alternate path");
        assert_eq!(attr.other().unwrap().unpack(), first);
        attr.swap_paths();
        assert_eq!(attr.primary(), first);
    }

    #[test]
    fn an_alternate_path_that_is_tuned_has_what_is_given_later_and_no_timeout_before() {
        let mut attr = Attributes::default();
        attr.tune_alternate();
        assert!(attr.other().is_none());
        attr.apply(&QpChange { alt_path: Some(path(2, None)), ..QpChange::default() });
        attr.tune_alternate();
        assert_eq!(attr.query().alt_path.unwrap().timeout, 0);
        let rate = StaticRate::from_mbps(10_000).unwrap();
        attr.rate = rate;
        let change = QpChange { timeout: Some(14), pkey: Some(Pkey(7)), ..QpChange::default() };
        // A migration before the timeout is given leaves it to be given.
        let mut early = attr;
        early.swap_paths();
        assert!(!early.given().contains(AttrMask::TIMEOUT));
        attr.apply(&change);
        attr.tune_alternate();
        let alternate = attr.query().alt_path.unwrap();
        assert_eq!((alternate.timeout, alternate.pkey, alternate.path.rate), (14, Pkey(7), rate));
        assert_eq!(alternate.path.encap, path(2, None).path.encap);
        attr.swap_paths();
        assert_eq!((attr.timeout, attr.pkey), (14, Pkey(7)));
        attr.tune_alternate();
        assert_eq!(attr.query().alt_path, None, "the path that was left is no alternate path");
    }
}
