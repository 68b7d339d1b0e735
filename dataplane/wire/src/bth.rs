//! BTH, the base transport header: the first 12 bytes of every RoCEv2 packet after UDP.
//!
//! Read first: IBA 9.2; Annex A17 for FECN and BECN.
//!
//! ```text
//!  0        1                 2        4                 5         8               9       12
//!  | opcode | SE M pad2 TVer4 | P_Key  | FECN BECN resv6 | dest QP | AckReq resv7  |  PSN  |
//! ```
//!
//! Reserved bits are sent as zero and not examined; the transport version must be 0.

use crate::bytes::{be16, be24, put, put24};
use crate::{OpCode, ParseError, Pkey, Psn, Qpn};

/// The base transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bth {
    /// Opcode: what the packet does and which headers follow.
    pub opcode: OpCode,
    /// Solicited event: the sender requests a completion notification at the receiver.
    pub solicited: bool,
    /// Migration request bit, MigReq: true if the sender is in Migrated, false in ReArm and Armed.
    pub mig_req: bool,
    /// Zero bytes after the payload, 0..=3.
    pub pad_count: u8,
    /// Partition key of the sender.
    pub pkey: Pkey,
    /// Forward congestion notification, set by a switch on the way to the receiver. Not covered by
    /// the invariant CRC.
    pub fecn: bool,
    /// Backward congestion notification, set by the receiver on a packet to the sender. Not covered
    /// by the invariant CRC.
    pub becn: bool,
    /// Number of the destination queue pair.
    pub dest_qpn: Qpn,
    /// The requester requests an acknowledgement of this packet.
    pub ack_req: bool,
    /// Packet sequence number of this packet.
    pub psn: Psn,
}

impl Bth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 12;

    /// Reads the header.
    ///
    /// # Errors
    /// [`ParseError::TransportVersion`] if the version is not 0. Any opcode is accepted.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Bth, ParseError> {
        //= check E8 — another transport version means another layout: no other field is read.
        if b[1] & 0x0f != 0 {
            return Err(ParseError::TransportVersion);
        }
        Ok(Bth {
            opcode: OpCode(b[0]),
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad_count: b[1] >> 4 & 0x3,
            pkey: Pkey(be16(b, 2)),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qpn: Qpn::new(be24(b, 5)),
            ack_req: b[8] & 0x80 != 0,
            psn: Psn::new(be24(b, 9)),
        })
    }

    /// Writes the header, with the low two bits of `pad_count`.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = self.opcode.0;
        b[1] =
            (self.solicited as u8) << 7 | (self.mig_req as u8) << 6 | (self.pad_count & 0x3) << 4;
        put(b, 2, self.pkey.0.to_be_bytes());
        b[4] = (self.fecn as u8) << 7 | (self.becn as u8) << 6;
        put24(b, 5, self.dest_qpn.value());
        b[8] = (self.ack_req as u8) << 7;
        put24(b, 9, self.psn.value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Bth::LEN;

    /// Parses any bytes: clears the version first, because these tests treat it as reserved.
    fn parse(b: &[u8; LEN]) -> Bth {
        let mut b = *b;
        b[1] &= 0xf0;
        Bth::parse(&b).expect("version 0")
    }

    crate::testing::header_tests! {
        Bth {
            opcode: OpCode::RC_RDMA_WRITE_ONLY,
            solicited: true,
            mig_req: false,
            pad_count: 3,
            pkey: Pkey(0x8123),
            fecn: false,
            becn: true,
            dest_qpn: Qpn::new(0x45_6789),
            ack_req: true,
            psn: Psn::new(0xab_cdef),
        },
        bytes: [0x0a, 0xb0, 0x81, 0x23, 0x40, 0x45, 0x67, 0x89, 0x80, 0xab, 0xcd, 0xef],
        reserved: [0, 0x0f, 0, 0, 0x3f, 0, 0, 0, 0x7f, 0, 0, 0]
    }

    #[test]
    fn each_flag_is_its_own_bit() {
        type Set = fn(&mut Bth);
        let flags: [(Set, usize, u8); 6] = [
            (|bth| bth.solicited = true, 1, 0x80),
            (|bth| bth.mig_req = true, 1, 0x40),
            (|bth| bth.pad_count = 1, 1, 0x10),
            (|bth| bth.fecn = true, 4, 0x80),
            (|bth| bth.becn = true, 4, 0x40),
            (|bth| bth.ack_req = true, 8, 0x80),
        ];
        let zero = Bth { pkey: Pkey(0), ..Bth::default() };
        for (set, at, bit) in flags {
            let mut bth = zero;
            set(&mut bth);
            let (mut bytes, mut expected) = ([0xff; LEN], [0; LEN]);
            bth.emit(&mut bytes);
            expected[at] = bit;
            assert_eq!(bytes, expected);
        }
    }

    #[test] //= check E8 test
    fn every_transport_version_but_zero_is_refused() {
        for version in 1..=15 {
            let bytes = [0x04, 0x40 | version, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0];
            assert_eq!(Bth::parse(&bytes), Err(ParseError::TransportVersion));
        }
    }

    #[test]
    fn a_pad_count_out_of_range_cannot_reach_its_neighbours() {
        let mut bytes = [0; LEN];
        Bth { pad_count: 0xff, ..Bth::default() }.emit(&mut bytes);
        assert_eq!(bytes[1], 0x30);
    }
}
