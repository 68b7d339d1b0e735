//! DETH, the datagram extended transport header: a datagram's sender and its Q_Key.
//!
//! Read first: IBA 9.3.

use crate::bytes::{be24, be32, put, put24};
use crate::{Qkey, Qpn};

/// The datagram extended transport header of UD and RD packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Q_Key; the receiver drops the datagram unless it equals the destination queue pair's Q_Key.
    pub qkey: Qkey,
    /// QPN of the sender, to which an answer can be sent.
    pub src_qpn: Qpn,
}

impl Deth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 8;

    /// Reads the header; byte 4 is reserved.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Deth {
        Deth { qkey: Qkey(be32(b, 0)), src_qpn: Qpn::new(be24(b, 5)) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, self.qkey.0.to_be_bytes());
        b[4] = 0;
        put24(b, 5, self.src_qpn.value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Deth::LEN;

    fn parse(b: &[u8; LEN]) -> Deth {
        Deth::parse(b)
    }

    crate::testing::header_tests! {
        Deth { qkey: Qkey(0x8001_0000), src_qpn: Qpn::new(0x01_2345) },
        bytes: [0x80, 0x01, 0, 0, 0, 0x01, 0x23, 0x45],
        reserved: [0, 0, 0, 0, 0xff, 0, 0, 0]
    }
}
