//! The headers before BTH (Ethernet, IP, UDP), built once per path.
//!
//! Two packets of a path differ in these headers only by the lengths and the IPv4 checksum. A
//! [`HeaderTemplate`] holds the rest; a packet costs one copy and three two-byte stores.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::{array, be16, put};
use crate::ethernet::{EtherType, Ethernet, Vlan};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::Ipv6;
use crate::udp::Udp;
use crate::{Gid, Mac};

/// The addressing of one direction of a path: the values of a packet's Ethernet, IP and UDP
/// headers.
///
/// Packets are IPv4 if both GIDs are v4-mapped, otherwise IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encap {
    /// MAC address of our port.
    pub src_mac: Mac,
    /// MAC address of the next hop; [`Mac::LOOPBACK`] if `dst` is an address of our own.
    pub dst_mac: Mac,
    /// 802.1Q tag.
    pub vlan: Option<Vlan>,
    /// Our address.
    pub src: Gid,
    /// The peer's address.
    pub dst: Gid,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; not on the wire with IPv4.
    pub flow_label: u32,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// UDP source port, see [`crate::udp_source_port`].
    pub src_port: u16,
}

impl Encap {
    /// Returns whether the path leads back to this node, so that its packets never reach a link.
    /// False for a path that is not set yet, which has no destination address.
    pub fn is_loopback(&self) -> bool {
        self.dst_mac == Mac::LOOPBACK && self.dst != Gid::default()
    }

    /// The headers with their length fields still zero.
    pub fn template(&self) -> HeaderTemplate {
        let mut bytes = [0; HeaderTemplate::MAX_LEN];
        let ips = self.src.to_ipv4().zip(self.dst.to_ipv4());
        let ether_type = if ips.is_some() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ethernet =
            Ethernet { dst: self.dst_mac, src: self.src_mac, vlan: self.vlan, ether_type };
        let l3 = ethernet.emit(&mut bytes);

        let udp = match ips {
            Some((src, dst)) => {
                let header = Ipv4 {
                    traffic_class: self.traffic_class,
                    total_len: 0,
                    ttl: self.hop_limit,
                    protocol: Udp::PROTOCOL,
                    src,
                    dst,
                };
                header.emit(chunk(&mut bytes, l3));
                l3 + Ipv4::LEN
            }
            None => {
                let header = Ipv6 {
                    traffic_class: self.traffic_class,
                    flow_label: self.flow_label,
                    payload_len: 0,
                    next_header: Udp::PROTOCOL,
                    hop_limit: self.hop_limit,
                    src: Ipv6Addr::from_octets(self.src.0),
                    dst: Ipv6Addr::from_octets(self.dst.0),
                };
                header.emit(chunk(&mut bytes, l3));
                l3 + Ipv6::LEN
            }
        };
        let header = Udp { src_port: self.src_port, dst_port: Udp::ROCE_PORT, len: 0, checksum: 0 };
        header.emit(chunk(&mut bytes, udp));
        HeaderTemplate { bytes, len: (udp + Udp::LEN) as u8, l3_offset: l3 as u8 }
    }
}

/// The `N` bytes of the template at `at`. `MAX_LEN` holds the largest headers, so they exist.
fn chunk<const N: usize>(bytes: &mut [u8; HeaderTemplate::MAX_LEN], at: usize) -> &mut [u8; N] {
    bytes[at..].first_chunk_mut().expect("a template holds the largest headers")
}

/// Prebuilt headers before BTH. Lengths are zero; the IPv4 checksum is that of length zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// The headers, beginning with the destination MAC; zero after `len`.
    pub bytes: [u8; HeaderTemplate::MAX_LEN],
    /// Bytes in use: 42, 46, 62 or 66.
    pub len: u8,
    /// Offset of the IP header: 14 or 18.
    pub l3_offset: u8,
}

impl HeaderTemplate {
    /// Length of the longest headers: tagged Ethernet, IPv6 and UDP.
    pub const MAX_LEN: usize = Ethernet::TAGGED_LEN + Ipv6::LEN + Udp::LEN;

    /// Writes the headers of a packet to the front of `out` and returns their length, `self.len`.
    ///
    /// `transport_len` counts BTH to the end of the invariant CRC and must leave room in a
    /// 16-bit IP length.
    ///
    /// # Panics
    /// If `out` is shorter than `self.len`.
    #[inline]
    pub fn emit(&self, out: &mut [u8], transport_len: usize) -> usize {
        let (len, l3) = (self.len as usize, self.l3_offset as usize);
        debug_assert!(transport_len <= u16::MAX as usize - Ipv4::LEN - Udp::LEN);
        // Each of the four sizes is copied by a few moves instead of a call.
        match len {
            42 => copy::<42>(&self.bytes, out),
            46 => copy::<46>(&self.bytes, out),
            62 => copy::<62>(&self.bytes, out),
            _ => copy::<66>(&self.bytes, out),
        }

        let udp = len - Udp::LEN;
        let udp_len = (Udp::LEN + transport_len) as u16;
        put(out, udp + 4, udp_len.to_be_bytes());
        if udp - l3 == Ipv4::LEN {
            let total_len = Ipv4::LEN as u16 + udp_len;
            let checksum = ipv4::checksum_with(be16(&self.bytes, l3 + 10), total_len);
            put(out, l3 + 2, total_len.to_be_bytes());
            put(out, l3 + 10, checksum.to_be_bytes());
        } else {
            put(out, l3 + 4, udp_len.to_be_bytes());
        }
        len
    }

    /// The headers with the UDP source port of `index`, 0 to 2^14 − 1: a different one for each
    /// index, and for 0 the template's own.
    #[must_use]
    pub fn with_port(&self, index: u16) -> HeaderTemplate {
        let udp = usize::from(self.len) - Udp::LEN;
        let mut other = *self;
        put(&mut other.bytes, udp, (be16(&self.bytes, udp) ^ index & 0x3fff).to_be_bytes());
        other
    }

    /// The path that this template was made from. The flow label of an IPv4 path is lost and reads
    /// as 0.
    pub fn encap(&self) -> Encap {
        let (l3, udp) = (usize::from(self.l3_offset), usize::from(self.len) - Udp::LEN);
        let vlan = (l3 == Ethernet::TAGGED_LEN).then(|| {
            let tci = be16(&self.bytes, l3 - 4);
            Vlan { vid: tci & 0x0fff, pcp: (tci >> 13) as u8 }
        });
        let (src, dst) = self.gids();
        let (traffic_class, flow_label, hop_limit) = match self.is_ipv4() {
            true => (self.bytes[l3 + 1], 0, self.bytes[l3 + 8]),
            false => {
                let word = u32::from_be_bytes(array(&self.bytes, l3));
                ((word >> 20) as u8, word & 0x000f_ffff, self.bytes[l3 + 7])
            }
        };
        Encap {
            src_mac: Mac(array(&self.bytes, 6)),
            dst_mac: Mac(array(&self.bytes, 0)),
            vlan,
            src,
            dst,
            traffic_class,
            flow_label,
            hop_limit,
            src_port: be16(&self.bytes, udp),
        }
    }

    /// Returns the Ethernet address of the next hop.
    #[inline]
    pub fn dst_mac(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = self.bytes;
        Mac([a, b, c, d, e, f])
    }

    /// Returns whether the path leads back to this node, so that its packets never reach a link.
    #[inline]
    pub fn is_loopback(&self) -> bool {
        self.bytes.starts_with(&Mac::LOOPBACK.0)
    }

    /// Returns whether a packet from `src` to `dst` travels this path in the opposite direction.
    #[inline]
    pub fn leads_back(&self, src: Gid, dst: Gid) -> bool {
        // Called for every received packet: each of the four sizes is a few compares.
        match self.len {
            42 => self.are_ipv4::<{ Ethernet::LEN + 12 }>(dst, src),
            46 => self.are_ipv4::<{ Ethernet::TAGGED_LEN + 12 }>(dst, src),
            62 => self.are_ipv6::<{ Ethernet::LEN + 8 }>(dst, src),
            _ => self.are_ipv6::<{ Ethernet::TAGGED_LEN + 8 }>(dst, src),
        }
    }

    /// Returns whether the two IPv4 addresses at `AT` are `first` and `second`.
    #[inline(always)]
    fn are_ipv4<const AT: usize>(&self, first: Gid, second: Gid) -> bool {
        let mapped = |at: usize| {
            let [a, b, c, d] = array(&self.bytes, at);
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
        };
        first.0 == mapped(AT) && second.0 == mapped(AT + 4)
    }

    /// Returns whether the two IPv6 addresses at `AT` are `first` and `second`.
    #[inline(always)]
    fn are_ipv6<const AT: usize>(&self, first: Gid, second: Gid) -> bool {
        first.0 == array(&self.bytes, AT) && second.0 == array(&self.bytes, AT + 16)
    }

    /// Source and destination address as GIDs.
    fn gids(&self) -> (Gid, Gid) {
        let l3 = usize::from(self.l3_offset);
        if self.is_ipv4() {
            let ip = |at| Gid::from(Ipv4Addr::from_octets(array(&self.bytes, at)));
            (ip(l3 + 12), ip(l3 + 16))
        } else {
            (Gid(array(&self.bytes, l3 + 8)), Gid(array(&self.bytes, l3 + 24)))
        }
    }

    #[inline]
    fn is_ipv4(&self) -> bool {
        self.len - self.l3_offset == (Ipv4::LEN + Udp::LEN) as u8
    }
}

/// Copies the first `N` bytes of a template to the front of `to`.
#[inline(always)]
fn copy<const N: usize>(from: &[u8; HeaderTemplate::MAX_LEN], to: &mut [u8]) {
    let (from, to) = (from.first_chunk::<N>(), to.first_chunk_mut::<N>());
    *to.expect("room for the headers") = *from.expect("a template holds the largest headers");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::testing::{encap, encaps};

    #[test]
    fn the_four_shapes_have_their_lengths() {
        let lens = encaps().map(|encap| {
            let template = encap.template();
            (template.len, template.l3_offset)
        });
        assert_eq!(lens, [(42, 14), (46, 18), (62, 14), (66, 18)]);
    }

    #[test]
    fn every_length_is_patched_as_if_written_whole() {
        let encap = encap(true, false);
        let template = encap.template();
        for transport_len in 16..=9000 {
            let mut out = [0; 42];
            template.emit(&mut out, transport_len);
            let ip = Ipv4 {
                traffic_class: encap.traffic_class,
                total_len: (28 + transport_len) as u16,
                ttl: encap.hop_limit,
                protocol: 17,
                src: encap.src.to_ipv4().unwrap(),
                dst: encap.dst.to_ipv4().unwrap(),
            };
            assert_eq!(Ipv4::parse(out[14..34].first_chunk().unwrap()), Ok(ip));
            assert_eq!(be16(&out, 38) as usize, 8 + transport_len);
            assert_eq!(be16(&out, 40), 0, "UDP checksum");
        }
    }

    #[test]
    fn a_template_is_read_back_as_the_path_it_was_made_of() {
        for encap in encaps() {
            let template = encap.template();
            let mut out = [0; 66 + 16];
            let len = template.emit(&mut out, 16);
            let Ok(Frame::Roce(datagram)) = Frame::parse(&out[..len + 16]) else {
                panic!("{encap:?}");
            };
            let read = Encap {
                src_mac: datagram.src_mac,
                dst_mac: datagram.dst_mac,
                vlan: datagram.vlan,
                src: datagram.src,
                dst: datagram.dst,
                traffic_class: datagram.traffic_class,
                flow_label: encap.flow_label,
                hop_limit: datagram.hop_limit,
                src_port: datagram.src_port,
            };
            assert_eq!(read, encap);
            if datagram.l3[0] >> 4 == 6 {
                let ip = Ipv6::parse(datagram.l3.first_chunk().unwrap()).unwrap();
                assert_eq!(ip.flow_label, encap.flow_label);
            }
        }
    }

    #[test]
    fn a_template_gives_its_path_back_and_knows_its_way_back() {
        for encap in encaps() {
            let template = encap.template();
            let is_ipv4 = encap.src.to_ipv4().is_some();
            let flow_label = if is_ipv4 { 0 } else { encap.flow_label };
            assert_eq!(template.encap(), Encap { flow_label, ..encap });
            assert!(template.leads_back(encap.dst, encap.src));
            assert!(!template.leads_back(encap.src, encap.dst));
            let mut other = encap.dst;
            other.0[15] ^= 1;
            assert!(!template.leads_back(other, encap.src));
        }
    }

    #[test]
    fn another_port_changes_nothing_else() {
        for encap in encaps() {
            let template = encap.template();
            assert_eq!(template.with_port(0), template);
            for index in 1..16 {
                let path = template.with_port(index).encap();
                assert_eq!(path.src_port, encap.src_port ^ index);
                assert_eq!(Encap { src_port: encap.src_port, ..path }, template.encap());
            }
        }
    }

    #[test]
    fn a_path_to_ones_own_address_is_told_by_its_next_hop() {
        for encap in encaps() {
            assert!(!encap.is_loopback() && !encap.template().is_loopback());
            let own = Encap { dst_mac: Mac::LOOPBACK, ..encap };
            assert!(own.is_loopback() && own.template().is_loopback());
            assert!(own.template().encap().is_loopback(), "read back, it still is");
        }
        assert!(!Encap::default().is_loopback(), "no path");
    }

    #[test]
    fn only_two_v4_mapped_addresses_make_ipv4() {
        let (v4, v6) = (encap(true, false), encap(false, false));
        let mixed = Encap { src: v4.src, ..v6 };
        assert_eq!(mixed.template().len, 62);
        assert_eq!(mixed.template().bytes[12..14], EtherType::IPV6.0.to_be_bytes());
    }
}
