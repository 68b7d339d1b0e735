//! MRA and REJ: the messages that delay an answer and that refuse a connection.

use super::{
    BODY_LEN, CmTimeout, CommId, MessageMraed, MessageRejected, PrivateData, RejectReason,
};
use crate::bytes::{array, be16, be32, put};

/// MRA: the message named has arrived, and its answer will take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mra {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection.
    pub remote_comm_id: CommId,
    /// The message that has arrived.
    pub message: MessageMraed,
    /// Longest time until the answer, counted from this message.
    pub service_timeout: CmTimeout,
    /// Private data for the receiver's consumer.
    pub private_data: PrivateData<222>,
}

impl Mra {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Mra {
        Mra {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            message: MessageMraed::from_bits(b[8] >> 6),
            service_timeout: CmTimeout::from_code(b[9] >> 3),
            private_data: PrivateData(array(b, 10)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        b[8] = (self.message as u8) << 6;
        b[9] = self.service_timeout.code() << 3;
        put(b, 10, self.private_data.0);
    }
}

/// REJ: the sender refuses or ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The sender's communication ID for the connection; 0 if it has none.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection; 0 if it is unknown.
    pub remote_comm_id: CommId,
    /// The message that is refused.
    pub message: MessageRejected,
    /// Valid bytes of `ari`, 0..=72 (7 bits).
    pub ari_len: u8,
    /// Reason of the refusal.
    pub reason: RejectReason,
    /// Additional reject information; its meaning depends on the reason.
    pub ari: [u8; 72],
    /// Private data of the consumer that refuses.
    pub private_data: PrivateData<148>,
}

impl Default for Rej {
    fn default() -> Rej {
        Rej {
            local_comm_id: CommId(0),
            remote_comm_id: CommId(0),
            message: MessageRejected::Req,
            ari_len: 0,
            reason: RejectReason(0),
            ari: [0; 72],
            private_data: PrivateData::default(),
        }
    }
}

impl Rej {
    /// The valid bytes of `ari`; a length beyond the field is cut to the field.
    pub fn additional_information(&self) -> &[u8] {
        &self.ari[..usize::from(self.ari_len).min(self.ari.len())]
    }

    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Rej {
        Rej {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            message: MessageRejected::from_bits(b[8] >> 6),
            ari_len: b[9] >> 1,
            reason: RejectReason(be16(b, 10)),
            ari: array(b, 12),
            private_data: PrivateData(array(b, 84)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        b[8] = (self.message as u8) << 6;
        b[9] = self.ari_len << 1;
        put(b, 10, self.reason.0.to_be_bytes());
        put(b, 12, self.ari);
        put(b, 84, self.private_data.0);
    }
}
