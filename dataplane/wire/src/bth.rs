//! BTH, the base transport header: the first 12 bytes of every RoCEv2 packet after UDP.
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
    /// What the packet is and which headers follow.
    pub opcode: OpCode,
    /// Solicited event: the sender asks for a notification at the receiver.
    pub solicited: bool,
    /// Migration state of the sender: true in Migrated, false in ReArm and Armed.
    pub mig_req: bool,
    /// Zero bytes after the payload, 0..=3.
    pub pad_count: u8,
    /// The sender's partition.
    pub pkey: Pkey,
    /// A switch marked congestion towards the receiver. Not covered by the invariant CRC.
    pub fecn: bool,
    /// The receiver reports congestion back to the sender. Not covered by the invariant CRC.
    pub becn: bool,
    /// The queue pair addressed.
    pub dest_qpn: Qpn,
    /// The requester asks for an acknowledgement of this packet.
    pub ack_req: bool,
    /// This packet's place in the sequence.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the header.
    ///
    /// # Errors
    /// [`ParseError::TransportVersion`] if the version is not 0. Any opcode is accepted.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Bth, ParseError> {
        //= check E8 — another transport version means another layout: nothing else is read.
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

    /// Writes the header; of `pad_count` the low two bits.
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
