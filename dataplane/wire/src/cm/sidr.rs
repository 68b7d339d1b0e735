//! SIDR_REQ and SIDR_REP: resolving a service ID to the queue pair that receives its datagrams.

use super::{BODY_LEN, CommId, PrivateData, ServiceId, SidrStatus};
use crate::bytes::{array, be16, be24, be32, be64, put, put24};
use crate::{Pkey, Qkey, Qpn};

/// SIDR_REQ: the sender asks which queue pair serves a service ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidrReq {
    /// The sender's communication ID for the request.
    pub request_id: CommId,
    /// Partition key that the datagrams will have.
    pub pkey: Pkey,
    /// Service ID asked for.
    pub service_id: ServiceId,
    /// Private data for the service provider.
    pub private_data: PrivateData<216>,
}

impl SidrReq {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> SidrReq {
        SidrReq {
            request_id: CommId(be32(b, 0)),
            pkey: Pkey(be16(b, 4)),
            service_id: ServiceId(be64(b, 8)),
            private_data: PrivateData(array(b, 16)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.request_id.0.to_be_bytes());
        put(b, 4, self.pkey.0.to_be_bytes());
        put(b, 6, [0; 2]);
        put(b, 8, self.service_id.0.to_be_bytes());
        put(b, 16, self.private_data.0);
    }
}

/// SIDR_REP: the answer to a SIDR_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// The receiver's communication ID, copied from its request.
    pub request_id: CommId,
    /// Result of the resolution.
    pub status: SidrStatus,
    /// Valid bytes of `info`, 0..=72.
    pub info_len: u8,
    /// The queue pair that serves, if the status is [`SidrStatus::VALID`].
    pub qpn: Qpn,
    /// Service ID that was asked for.
    pub service_id: ServiceId,
    /// Q_Key for datagrams to the queue pair.
    pub qkey: Qkey,
    /// Additional information; its meaning depends on the status.
    pub info: [u8; 72],
    /// Private data of the service provider.
    pub private_data: PrivateData<136>,
}

impl Default for SidrRep {
    fn default() -> SidrRep {
        SidrRep {
            request_id: CommId(0),
            status: SidrStatus::VALID,
            info_len: 0,
            qpn: Qpn::default(),
            service_id: ServiceId(0),
            qkey: Qkey(0),
            info: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}

impl SidrRep {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> SidrRep {
        SidrRep {
            request_id: CommId(be32(b, 0)),
            status: SidrStatus(b[4]),
            info_len: b[5],
            qpn: Qpn::new(be24(b, 8)),
            service_id: ServiceId(be64(b, 12)),
            qkey: Qkey(be32(b, 20)),
            info: array(b, 24),
            private_data: PrivateData(array(b, 96)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.request_id.0.to_be_bytes());
        put(b, 4, [self.status.0, self.info_len, 0, 0]);
        put24(b, 8, self.qpn.value());
        b[11] = 0;
        put(b, 12, self.service_id.0.to_be_bytes());
        put(b, 20, self.qkey.0.to_be_bytes());
        put(b, 24, self.info);
        put(b, 96, self.private_data.0);
    }
}
