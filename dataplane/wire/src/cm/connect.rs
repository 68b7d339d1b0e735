//! REQ, REP and RTU: the three messages of a connection set-up.

use super::path::PathLayout;
use super::{
    BODY_LEN, CaGuid, CmPath, CmTimeout, CommId, Failover, PrivateData, ServiceId, TransportService,
};
use crate::bytes::{array, be16, be24, be32, be64, put, put24};
use crate::{PathMtu, Pkey, Psn, Qkey, Qpn};

/// REQ: the active side asks for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Req {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// Service that the sender asks for.
    pub service_id: ServiceId,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: CaGuid,
    /// Q_Key; used by reliable datagrams only.
    pub local_qkey: Qkey,
    /// QPN of the sender's queue pair.
    pub local_qpn: Qpn,
    /// READs and ATOMICs that the sender can answer at a time.
    pub responder_resources: u8,
    /// The sender's end-to-end context, 24 bits; used by reliable datagrams only.
    pub local_eecn: u32,
    /// READs and ATOMICs that the sender would like to have outstanding at a time.
    pub initiator_depth: u8,
    /// The receiver's end-to-end context, 24 bits, if [`rdc_exists`](Req::rdc_exists); used by
    /// reliable datagrams only.
    pub remote_eecn: u32,
    /// Time within which the receiver should answer.
    pub remote_cm_response_timeout: CmTimeout,
    /// Transport service of the connection.
    pub transport_service: TransportService,
    /// The sender puts credits into its acknowledgements.
    pub end_to_end_flow_control: bool,
    /// PSN of the first packet that the receiver is to send.
    pub starting_psn: Psn,
    /// Longest time that the sender takes for its own answers.
    pub local_cm_response_timeout: CmTimeout,
    /// Transport retries that the receiver is to make, 0..=7.
    pub retry_count: u8,
    /// Partition key of the connection.
    pub pkey: Pkey,
    /// Path MTU as a code, 4 bits; see [`Req::path_mtu`].
    pub path_mtu_code: u8,
    /// The reliable datagram channel exists already; used by reliable datagrams only.
    pub rdc_exists: bool,
    /// RNR retries that the receiver is to make, 0..=7; 7 means without limit.
    pub rnr_retry_count: u8,
    /// Repetitions of a CM message, at each side, 0..=15.
    pub max_cm_retries: u8,
    /// The sender's queue pair receives from a shared receive queue.
    pub srq: bool,
    /// Extended transport, 3 bits; meaningful with [`TransportService::Extended`].
    pub extended_transport_type: u8,
    /// The primary path.
    pub primary: CmPath,
    /// The alternate path, if [`CmPath::is_present`].
    pub alternate: CmPath,
    /// Private data for the listener.
    pub private_data: PrivateData<92>,
}

impl Req {
    /// [`extended_transport_type`](Req::extended_transport_type) of XRC.
    pub const EXTENDED_XRC: u8 = 1;

    /// Returns whether the sender asks for an XRC connection, of which it is the initiator.
    pub fn is_xrc(&self) -> bool {
        self.transport_service == TransportService::Extended
            && self.extended_transport_type == Self::EXTENDED_XRC
    }

    /// Returns whether the sender asks for reliable datagrams.
    pub fn is_rd(&self) -> bool {
        self.transport_service == TransportService::Rd
    }

    /// The path MTU; [`None`] if the code stands for no size.
    pub fn path_mtu(&self) -> Option<PathMtu> {
        PathMtu::from_code(self.path_mtu_code)
    }

    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Req {
        Req {
            local_comm_id: CommId(be32(b, 0)),
            service_id: ServiceId(be64(b, 8)),
            local_ca_guid: CaGuid(be64(b, 16)),
            local_qkey: Qkey(be32(b, 28)),
            local_qpn: Qpn::new(be24(b, 32)),
            responder_resources: b[35],
            local_eecn: be24(b, 36),
            initiator_depth: b[39],
            remote_eecn: be24(b, 40),
            remote_cm_response_timeout: CmTimeout::from_code(b[43] >> 3),
            transport_service: TransportService::from_bits(b[43] >> 1),
            end_to_end_flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(be24(b, 44)),
            local_cm_response_timeout: CmTimeout::from_code(b[47] >> 3),
            retry_count: b[47] & 7,
            pkey: Pkey(be16(b, 48)),
            path_mtu_code: b[50] >> 4,
            rdc_exists: b[50] & 8 != 0,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            extended_transport_type: b[51] & 7,
            primary: CmPath::parse(&array(b, 52), PathLayout::Req),
            alternate: CmPath::parse(&array(b, 96), PathLayout::Req),
            private_data: PrivateData(array(b, 140)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        *b = [0; BODY_LEN];
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 8, self.service_id.0.to_be_bytes());
        put(b, 16, self.local_ca_guid.0.to_be_bytes());
        put(b, 28, self.local_qkey.0.to_be_bytes());
        put24(b, 32, self.local_qpn.value());
        b[35] = self.responder_resources;
        put24(b, 36, self.local_eecn);
        b[39] = self.initiator_depth;
        put24(b, 40, self.remote_eecn);
        b[43] = self.remote_cm_response_timeout.code() << 3
            | (self.transport_service as u8) << 1
            | u8::from(self.end_to_end_flow_control);
        put24(b, 44, self.starting_psn.value());
        b[47] = self.local_cm_response_timeout.code() << 3 | self.retry_count & 7;
        put(b, 48, self.pkey.0.to_be_bytes());
        b[50] = self.path_mtu_code << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry_count & 7;
        b[51] =
            self.max_cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_transport_type & 7;
        let mut path = [0; CmPath::LEN];
        self.primary.emit(&mut path, PathLayout::Req);
        put(b, 52, path);
        self.alternate.emit(&mut path, PathLayout::Req);
        put(b, 96, path);
        put(b, 140, self.private_data.0);
    }
}

/// REP: the passive side accepts the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rep {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID, copied from its REQ.
    pub remote_comm_id: CommId,
    /// Q_Key; used by reliable datagrams only.
    pub local_qkey: Qkey,
    /// QPN of the sender's queue pair.
    pub local_qpn: Qpn,
    /// The sender's end-to-end context, 24 bits, of reliable datagrams. XRC has the target's QPN
    /// here.
    pub local_eecn: u32,
    /// PSN of the first packet that the receiver is to send.
    pub starting_psn: Psn,
    /// READs and ATOMICs that the sender can answer at a time.
    pub responder_resources: u8,
    /// READs and ATOMICs that the sender would like to have outstanding at a time.
    pub initiator_depth: u8,
    /// Time that the sender's adapter adds before it acknowledges a packet.
    pub target_ack_delay: CmTimeout,
    /// Result of the REQ's alternate path.
    pub failover: Failover,
    /// The sender puts credits into its acknowledgements.
    pub end_to_end_flow_control: bool,
    /// RNR retries that the receiver is to make, 0..=7; 7 means without limit.
    pub rnr_retry_count: u8,
    /// The sender's queue pair receives from a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: CaGuid,
    /// Private data for the active side's consumer.
    pub private_data: PrivateData<196>,
}

impl Rep {
    /// The QPN of the sender's queue pair, in the answer to a REQ that asks for XRC (`is_xrc`) or
    /// for another service.
    pub fn qpn(&self, is_xrc: bool) -> Qpn {
        if is_xrc { Qpn::new(self.local_eecn) } else { self.local_qpn }
    }

    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Rep {
        Rep {
            local_comm_id: CommId(be32(b, 0)),
            remote_comm_id: CommId(be32(b, 4)),
            local_qkey: Qkey(be32(b, 8)),
            local_qpn: Qpn::new(be24(b, 12)),
            local_eecn: be24(b, 16),
            starting_psn: Psn::new(be24(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: CmTimeout::from_code(b[26] >> 3),
            failover: Failover::from_bits(b[26] >> 1),
            end_to_end_flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            local_ca_guid: CaGuid(be64(b, 28)),
            private_data: PrivateData(array(b, 36)),
        }
    }

    /// Writes the bytes after the MAD header.
    pub fn emit(&self, b: &mut [u8; BODY_LEN]) {
        *b = [0; BODY_LEN];
        put(b, 0, self.local_comm_id.0.to_be_bytes());
        put(b, 4, self.remote_comm_id.0.to_be_bytes());
        put(b, 8, self.local_qkey.0.to_be_bytes());
        put24(b, 12, self.local_qpn.value());
        put24(b, 16, self.local_eecn);
        put24(b, 20, self.starting_psn.value());
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay.code() << 3
            | (self.failover as u8) << 1
            | u8::from(self.end_to_end_flow_control);
        b[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(b, 28, self.local_ca_guid.0.to_be_bytes());
        put(b, 36, self.private_data.0);
    }
}

/// RTU: the active side is ready to use the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtu {
    /// The sender's communication ID for the connection.
    pub local_comm_id: CommId,
    /// The receiver's communication ID for the connection.
    pub remote_comm_id: CommId,
    /// Private data for the passive side's consumer.
    pub private_data: PrivateData<224>,
}

impl Rtu {
    /// Reads the bytes after the MAD header.
    pub fn parse(b: &[u8; BODY_LEN]) -> Rtu {
        Rtu {
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
