//! MRA and REJ: "wait" and "no".

use super::{
    BODY_LEN, CmTimeout, CommId, MessageMraed, MessageRejected, PrivateData, RejectReason,
};
use crate::bytes::{array, be16, be32, put};

/// MRA: the message has arrived, its answer takes longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_comm_id: CommId,
    /// The receiver's.
    pub remote_comm_id: CommId,
    /// Which message has arrived.
    pub message: MessageMraed,
    /// How long the answer takes at most, counted from this message.
    pub service_timeout: CmTimeout,
    /// For the receiver's consumer.
    pub private_data: PrivateData<222>,
}

impl Mra {
    /// Reads what stands behind the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Mra {
        Mra {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            message: MessageMraed::from_bits(b[8] >> 6),
            service_timeout: CmTimeout::from_code(b[9] >> 3),
            private_data: PrivateData(array(b, 10)),
        }
    }

    /// Writes what stands behind the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        b[8] = (self.message as u8) << 6;
        b[9] = self.service_timeout.code() << 3;
        put(b, 10, self.private_data.0);
    }
}

/// REJ: no connection, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The sender's name for the connection; 0 where it has none.
    pub local_comm_id: CommId,
    /// The receiver's; 0 where it is unknown.
    pub remote_comm_id: CommId,
    /// Which message is refused.
    pub message: MessageRejected,
    /// Valid bytes of `ari`, 0..=72 (7 bits).
    pub ari_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// Additional information, its meaning by reason.
    pub ari: [u8; 72],
    /// From the consumer that refuses.
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
    /// The additional information; what says to be longer than its field is cut.
    pub fn additional_information(&self) -> &[u8] {
        &self.ari[..usize::from(self.ari_len).min(self.ari.len())]
    }

    /// Reads what stands behind the MAD header.
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

    /// Writes what stands behind the MAD header.
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
