//! UDP as RoCEv2 uses it: to port 4791; the source port only spreads flows over paths.
//!
//! Read first: RFC 768; IBA Annex A17.
//!
//! The checksum is sent as 0 and not examined. The invariant CRC covers more than it would, and
//! masks the checksum field, so any value is acceptable.

use crate::Qpn;
use crate::bytes::{be16, put};

/// The UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of the header and everything after it.
    pub len: u16,
    /// Checksum; 0 means none.
    pub checksum: u16,
}

impl Udp {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 8;
    /// Protocol number of UDP in the IP header.
    pub const PROTOCOL: u8 = 17;
    /// Destination port of every RoCEv2 packet.
    pub const ROCE_PORT: u16 = 4791;

    /// Reads the header; every bit pattern is valid.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Udp {
        Udp { src_port: be16(b, 0), dst_port: be16(b, 2), len: be16(b, 4), checksum: be16(b, 6) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, self.src_port.to_be_bytes());
        put(b, 2, self.dst_port.to_be_bytes());
        put(b, 4, self.len.to_be_bytes());
        put(b, 6, self.checksum.to_be_bytes());
    }
}

/// The UDP source port of a flow, 0xC000..=0xFFFF.
///
/// A flow label other than 0 is folded as libibverbs documents it, so that a program that sets a
/// label gets the port it computes. With label 0 the port is a hash of both QPNs: the ports of
/// different queue pairs are scattered, and both directions of a connection use the same port.
pub const fn udp_source_port(flow_label: u32, src_qpn: Qpn, dst_qpn: Qpn) -> u16 {
    /// 2^32 divided by the golden ratio: products of consecutive numbers are far apart.
    const SCATTER: u32 = 0x9e37_79b9;
    //= check E17 — the port is a function of the flow label, or of the two queue pairs.
    let hash = match flow_label & 0xf_ffff {
        0 => src_qpn.value().wrapping_add(dst_qpn.value()).wrapping_mul(SCATTER) >> 18,
        label => label & 0x3fff ^ label >> 14,
    };
    0xc000 | hash as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Udp::LEN;

    fn parse(b: &[u8; LEN]) -> Udp {
        Udp::parse(b)
    }

    crate::testing::header_tests! {
        Udp { src_port: 0xc123, dst_port: 4791, len: 0x0456, checksum: 0x789a },
        bytes: [0xc1, 0x23, 0x12, 0xb7, 0x04, 0x56, 0x78, 0x9a],
        reserved: [0; LEN]
    }

    #[test] //= check E17 test
    fn a_flow_label_is_folded_into_the_dynamic_ports() {
        for label in 1..=0xf_ffff_u32 {
            let port = udp_source_port(label, Qpn::new(1), Qpn::new(2));
            assert_eq!(port, (label & 0x3fff ^ label >> 14) as u16 | 0xc000);
        }
        // The label has 20 bits; higher bits are ignored.
        let port = |label| udp_source_port(label, Qpn::new(1), Qpn::new(2));
        assert_eq!(port(0xabc0_0005), port(5));
    }

    #[test] //= check E17 test
    fn without_a_label_the_queue_pairs_choose_and_scatter() {
        let port = |a, b| udp_source_port(0, Qpn::new(a), Qpn::new(b));
        assert_eq!(port(17, 99), port(99, 17));
        let ports: std::collections::HashSet<u16> = (0..1000).map(|n| port(n, n)).collect();
        assert!(ports.len() > 950, "{} of 1000", ports.len());
        assert!(ports.iter().all(|port| *port >= 0xc000));
    }
}
