//! LAP and APR: loading an alternate path for an established connection.
//!
//! Read first: IBA 12 for the messages, 17.2.8 for path migration.

use super::path::PathLayout;
use super::{AprStatus, BODY_LEN, CmPath, CmTimeout, CommId, PrivateData};
use crate::Qpn;
use crate::bytes::{array, be24, be32, put, put24};

/// LAP: the sender asks the receiver to load this alternate path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lap {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection.
    pub remote_comm_id: CommId,
    /// QPN of the receiver's queue pair. Reliable datagrams have the receiver's end-to-end context
    /// here.
    pub remote_qpn: Qpn,
    /// Time within which the receiver should answer.
    pub remote_cm_response_timeout: CmTimeout,
    /// The alternate path; its packet rate is the highest that the sender can receive.
    pub alternate: CmPath,
    /// Private data for the receiver's consumer.
    pub private_data: PrivateData<168>,
}

impl Lap {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Lap {
        Lap {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            remote_qpn: Qpn::new(be24(b, 12)),
            remote_cm_response_timeout: CmTimeout::from_code(b[15] >> 3),
            alternate: CmPath::parse(&array(b, 20), PathLayout::Lap),
            private_data: PrivateData(array(b, 64)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        *b = [0; BODY_LEN];
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        put24(b, 12, self.remote_qpn.value());
        b[15] = self.remote_cm_response_timeout.code() << 3;
        let mut path = [0; CmPath::LEN];
        self.alternate.emit(&mut path, PathLayout::Lap);
        put(b, 20, path);
        put(b, 64, self.private_data.0);
    }
}

/// APR: the answer to a LAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apr {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection.
    pub remote_comm_id: CommId,
    /// Valid bytes of `info`, 0..=72.
    pub info_len: u8,
    /// Result of the LAP.
    pub status: AprStatus,
    /// Additional information; its meaning depends on the status.
    pub info: [u8; 72],
    /// Private data of the consumer that answers.
    pub private_data: PrivateData<148>,
}

impl Default for Apr {
    fn default() -> Apr {
        Apr {
            local_comm_id: CommId(0),
            remote_comm_id: CommId(0),
            info_len: 0,
            status: AprStatus::LOADED,
            info: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}

impl Apr {
    /// The valid bytes of `info`; a length beyond the field is cut to the field.
    pub fn additional_information(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(self.info.len())]
    }

    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Apr {
        Apr {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            info_len: b[8],
            status: AprStatus(b[9]),
            info: array(b, 12),
            private_data: PrivateData(array(b, 84)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        put(b, 8, [self.info_len, self.status.0, 0, 0]);
        put(b, 12, self.info);
        put(b, 84, self.private_data.0);
    }
}
