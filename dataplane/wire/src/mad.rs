//! The common header of management datagrams (MADs) of every class.
//!
//! Read first: IBA 13.
//!
//! A MAD is 256 bytes in a UD SEND to QP 1 with Q_Key [`GSI_QKEY`].
//!
//! Not here: what a class puts after the header. [`crate::cm`] is the only class implemented.

use crate::Qkey;
use crate::bytes::{be16, be32, be64, put};

/// Length of every MAD, in bytes.
pub const MAD_LEN: usize = 256;

/// A whole management datagram.
pub type Mad = [u8; MAD_LEN];

/// Q_Key of QP 1, for both directions.
pub const GSI_QKEY: Qkey = Qkey(0x8001_0000);

/// The common header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MadHeader {
    /// Version of this header's layout: [`MadHeader::BASE_VERSION`].
    pub base_version: u8,
    /// Management class; communication management is [`crate::cm::MGMT_CLASS`].
    pub mgmt_class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Method, its top bit set in responses; communication management has "Send" only.
    pub method: u8,
    /// Status of a response.
    pub status: u16,
    /// Field defined by the class.
    pub class_specific: u16,
    /// Transaction ID; equal in a message, its repetitions and its answers.
    pub transaction_id: u64,
    /// Attribute: the kind of message within the class.
    pub attribute_id: u16,
    /// Field defined by the attribute.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 24;
    /// The only base version of 256-byte MADs.
    pub const BASE_VERSION: u8 = 1;
    /// Method "Send", which implies no answer.
    pub const SEND: u8 = 0x03;

    /// Reads the header; bytes 18 and 19 are reserved.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> MadHeader {
        MadHeader {
            base_version: b[0],
            mgmt_class: b[1],
            class_version: b[2],
            method: b[3],
            status: be16(b, 4),
            class_specific: be16(b, 6),
            transaction_id: be64(b, 8),
            attribute_id: be16(b, 16),
            attribute_modifier: be32(b, 20),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, [self.base_version, self.mgmt_class, self.class_version, self.method]);
        put(b, 4, self.status.to_be_bytes());
        put(b, 6, self.class_specific.to_be_bytes());
        put(b, 8, self.transaction_id.to_be_bytes());
        put(b, 16, self.attribute_id.to_be_bytes());
        put(b, 18, [0; 2]);
        put(b, 20, self.attribute_modifier.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = MadHeader::LEN;

    fn parse(b: &[u8; LEN]) -> MadHeader {
        MadHeader::parse(b)
    }

    crate::testing::header_tests! {
        MadHeader {
            base_version: 1,
            mgmt_class: 7,
            class_version: 2,
            method: 3,
            status: 0x1122,
            class_specific: 0x3344,
            transaction_id: 0x0102_0304_0506_0708,
            attribute_id: 0x0010,
            attribute_modifier: 0x5566_7788,
        },
        bytes: [
            1, 7, 2, 3, 0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x10, 0, 0, 0x55, 0x66,
            0x77, 0x88
        ],
        reserved: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0]
    }
}
