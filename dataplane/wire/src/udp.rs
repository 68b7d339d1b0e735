//! UDP. RoCEv2 goes to port 4791; the source port only spreads flows over paths.
//!
//! The checksum is sent as 0 and not examined: the invariant CRC covers more, and covers it with
//! the checksum field masked, so that whatever the field holds is acceptable.

use crate::Qpn;
use crate::bytes::{be16, put};

/// The UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes of header and what follows it.
    pub len: u16,
    /// Checksum; 0 is none.
    pub checksum: u16,
}

impl Udp {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    /// UDP's number in the IP header.
    pub const PROTOCOL: u8 = 17;
    /// Destination port of every RoCEv2 packet.
    pub const ROCE_PORT: u16 = 4791;

    /// Reads the header; every bit pattern is one.
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
/// A flow label other than 0 is folded as libibverbs documents it, so that a user who sets one
/// gets the path he expects. Without one, the ports of many queue pairs between two hosts
/// scatter, and both directions of a connection share theirs.
pub const fn udp_source_port(flow_label: u32, src_qpn: Qpn, dst_qpn: Qpn) -> u16 {
    /// 2^32 divided by the golden ratio: consecutive sums land far apart.
    const SCATTER: u32 = 0x9e37_79b9;
    //= check E17 — the port is a function of the flow label, or of the two queue pairs.
    let hash = match flow_label & 0xf_ffff {
        0 => src_qpn.value().wrapping_add(dst_qpn.value()).wrapping_mul(SCATTER) >> 18,
        label => label & 0x3fff ^ label >> 14,
    };
    0xc000 | hash as u16
}
