//! DREQ and DREP: the end of a connection.

use super::{BODY_LEN, CommId, PrivateData};
use crate::Qpn;
use crate::bytes::{array, be24, be32, put, put24};

/// DREQ: the sender ends the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dreq {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection.
    pub remote_comm_id: CommId,
    /// QPN of the receiver's queue pair. Reliable datagrams have the receiver's end-to-end context
    /// here.
    pub remote_qpn: Qpn,
    /// Private data for the receiver's consumer.
    pub private_data: PrivateData<220>,
}

impl Dreq {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Dreq {
        Dreq {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            remote_qpn: Qpn::new(be24(b, 8)),
            private_data: PrivateData(array(b, 12)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        put24(b, 8, self.remote_qpn.value());
        b[11] = 0;
        put(b, 12, self.private_data.0);
    }
}

/// DREP: the answer to a DREQ; the sender has ended the connection too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drep {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection.
    pub remote_comm_id: CommId,
    /// Private data for the receiver's consumer.
    pub private_data: PrivateData<224>,
}

impl Drep {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Drep {
        Drep {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            private_data: PrivateData(array(b, 8)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        put(b, 8, self.private_data.0);
    }
}
