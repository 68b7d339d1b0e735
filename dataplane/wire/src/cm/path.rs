//! A path as REQ and LAP describe it, seen from the sender: 44 bytes.

use crate::Gid;
use crate::bytes::{array, be16, be24, put, put24};
use crate::cm::CmTimeout;

/// One path between two ports; "local" is the side of the message's sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmPath {
    /// Sender's LID: [`CmPath::ROCE_LID`] on RoCE, 0 if the path is absent.
    pub local_lid: u16,
    /// Receiver's LID.
    pub remote_lid: u16,
    /// Sender's GID; on RoCE its IP address.
    pub local_gid: Gid,
    /// Receiver's GID; on RoCE its IP address.
    pub remote_gid: Gid,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Highest rate that the sender can receive: a rate code of the verbs, 6 bits.
    pub packet_rate: u8,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits; on RoCE the priority of the VLAN tag.
    pub sl: u8,
    /// The path has no GRH; never true on RoCE.
    pub subnet_local: bool,
    /// Time that the receiver should wait for an acknowledgement on this path.
    pub local_ack_timeout: CmTimeout,
}

/// Order of the fields after the GIDs, which differs between the messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathLayout {
    /// REQ: rate, traffic class, hop limit.
    Req,
    /// LAP: traffic class, hop limit, rate.
    Lap,
}

impl CmPath {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 44;
    /// The value of both LIDs of a path on RoCE. A Linux peer treats an alternate path with another
    /// value as absent.
    pub const ROCE_LID: u16 = 0xffff;

    /// Returns whether there is a path at all. A REQ without an alternate path has zeros in its
    /// place.
    pub fn is_present(&self) -> bool {
        self.local_lid != 0 || self.local_gid != Gid::default()
    }

    pub(super) fn parse(b: &[u8; Self::LEN], layout: PathLayout) -> CmPath {
        let (packet_rate, traffic_class, hop_limit) = match layout {
            PathLayout::Req => (b[39], b[40], b[41]),
            PathLayout::Lap => (b[41], b[39], b[40]),
        };
        CmPath {
            local_lid: be16(b, 0),
            remote_lid: be16(b, 2),
            local_gid: Gid(array(b, 4)),
            remote_gid: Gid(array(b, 20)),
            flow_label: be24(b, 36) >> 4,
            packet_rate: packet_rate & 0x3f,
            traffic_class,
            hop_limit,
            sl: b[42] >> 4,
            subnet_local: b[42] & 8 != 0,
            local_ack_timeout: CmTimeout::from_code(b[43] >> 3),
        }
    }

    pub(super) fn emit(&self, b: &mut [u8; Self::LEN], layout: PathLayout) {
        put(b, 0, self.local_lid.to_be_bytes());
        put(b, 2, self.remote_lid.to_be_bytes());
        put(b, 4, self.local_gid.0);
        put(b, 20, self.remote_gid.0);
        put24(b, 36, self.flow_label << 4);
        let rate = self.packet_rate & 0x3f;
        put(
            b,
            39,
            match layout {
                PathLayout::Req => [rate, self.traffic_class, self.hop_limit],
                PathLayout::Lap => [self.traffic_class, self.hop_limit, rate],
            },
        );
        b[42] = self.sl << 4 | u8::from(self.subnet_local) << 3;
        b[43] = self.local_ack_timeout.code() << 3;
    }
}
