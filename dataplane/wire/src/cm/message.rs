//! A whole CM message: MAD header and body.

use core::fmt;

use super::{
    Apr, BODY_LEN, CLASS_VERSION, CommId, Drep, Dreq, Lap, MGMT_CLASS, Mra, Rej, Rep, Req, Rtu,
    SidrRep, SidrReq,
};
use crate::mad::{MAD_LEN, Mad, MadHeader};

/// Attribute ID of a MAD of this class: the kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Attribute {
    /// Request for communication.
    Req = 0x10,
    /// Message receipt acknowledgement.
    Mra = 0x11,
    /// Reject.
    Rej = 0x12,
    /// Reply to a request.
    Rep = 0x13,
    /// Ready to use.
    Rtu = 0x14,
    /// Disconnection request.
    Dreq = 0x15,
    /// Disconnection reply.
    Drep = 0x16,
    /// Service ID resolution request.
    SidrReq = 0x17,
    /// Service ID resolution response.
    SidrRep = 0x18,
    /// Load alternate path.
    Lap = 0x19,
    /// Alternate path response.
    Apr = 0x1a,
}

impl Attribute {
    /// All attributes, by number.
    pub const ALL: [Attribute; 11] = [
        Attribute::Req,
        Attribute::Mra,
        Attribute::Rej,
        Attribute::Rep,
        Attribute::Rtu,
        Attribute::Dreq,
        Attribute::Drep,
        Attribute::SidrReq,
        Attribute::SidrRep,
        Attribute::Lap,
        Attribute::Apr,
    ];

    /// The attribute of an ID; [`None`] for an ID that the class does not have.
    pub fn from_id(id: u16) -> Option<Attribute> {
        Attribute::ALL.into_iter().find(|attribute| *attribute as u16 == id)
    }
}

/// Why a MAD is not a message of communication management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmParseError {
    /// The MAD does not have 256 bytes.
    Length,
    /// The base version is not 1.
    BaseVersion,
    /// The MAD belongs to another management class.
    Class,
    /// The class version is not supported. A REQ or SIDR_REQ must then be answered with a message
    /// that says so.
    ClassVersion,
    /// The method is not "Send".
    Method,
    /// The class has no such attribute.
    Attribute,
}

/// One message of communication management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nothing here can allocate")]
#[allow(missing_docs, reason = "each is the name of its message")]
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
    Lap(Lap),
    Apr(Apr),
}

impl Message {
    /// Reads a MAD: its header and the message. The body is not judged: any body is valid.
    ///
    /// # Errors
    /// The first fault of the header, in the order of [`CmParseError`].
    pub fn parse(mad: &[u8]) -> Result<(MadHeader, Message), CmParseError> {
        let mad: &Mad = mad.try_into().map_err(|_| CmParseError::Length)?;
        let (header, body) = Self::split(mad);
        let header = MadHeader::parse(header);
        let attribute = check(&header)?;
        Ok((header, Self::parse_body(attribute, body)))
    }

    fn split(mad: &Mad) -> (&[u8; MadHeader::LEN], &[u8; BODY_LEN]) {
        match (mad.first_chunk(), mad.last_chunk()) {
            (Some(header), Some(body)) => (header, body),
            _ => (&[0; MadHeader::LEN], &[0; BODY_LEN]), // Unreachable: 256 = 24 + 232.
        }
    }

    fn parse_body(attribute: Attribute, b: &[u8; BODY_LEN]) -> Message {
        match attribute {
            Attribute::Req => Message::Req(Req::parse(b)),
            Attribute::Mra => Message::Mra(Mra::parse(b)),
            Attribute::Rej => Message::Rej(Rej::parse(b)),
            Attribute::Rep => Message::Rep(Rep::parse(b)),
            Attribute::Rtu => Message::Rtu(Rtu::parse(b)),
            Attribute::Dreq => Message::Dreq(Dreq::parse(b)),
            Attribute::Drep => Message::Drep(Drep::parse(b)),
            Attribute::SidrReq => Message::SidrReq(SidrReq::parse(b)),
            Attribute::SidrRep => Message::SidrRep(SidrRep::parse(b)),
            Attribute::Lap => Message::Lap(Lap::parse(b)),
            Attribute::Apr => Message::Apr(Apr::parse(b)),
        }
    }

    /// Builds a whole MAD with transaction ID `transaction_id`.
    pub fn emit(&self, transaction_id: u64) -> Mad {
        let header = MadHeader {
            base_version: MadHeader::BASE_VERSION,
            mgmt_class: MGMT_CLASS,
            class_version: CLASS_VERSION,
            method: MadHeader::SEND,
            transaction_id,
            attribute_id: self.attribute() as u16,
            ..MadHeader::default()
        };
        let (mut head, mut body) = ([0; MadHeader::LEN], [0; BODY_LEN]);
        header.emit(&mut head);
        match self {
            Message::Req(message) => message.emit(&mut body),
            Message::Mra(message) => message.emit(&mut body),
            Message::Rej(message) => message.emit(&mut body),
            Message::Rep(message) => message.emit(&mut body),
            Message::Rtu(message) => message.emit(&mut body),
            Message::Dreq(message) => message.emit(&mut body),
            Message::Drep(message) => message.emit(&mut body),
            Message::SidrReq(message) => message.emit(&mut body),
            Message::SidrRep(message) => message.emit(&mut body),
            Message::Lap(message) => message.emit(&mut body),
            Message::Apr(message) => message.emit(&mut body),
        }
        let mut mad = [0; MAD_LEN];
        mad[..MadHeader::LEN].copy_from_slice(&head);
        mad[MadHeader::LEN..].copy_from_slice(&body);
        mad
    }

    /// The kind of this message.
    pub fn attribute(&self) -> Attribute {
        match self {
            Message::Req(_) => Attribute::Req,
            Message::Mra(_) => Attribute::Mra,
            Message::Rej(_) => Attribute::Rej,
            Message::Rep(_) => Attribute::Rep,
            Message::Rtu(_) => Attribute::Rtu,
            Message::Dreq(_) => Attribute::Dreq,
            Message::Drep(_) => Attribute::Drep,
            Message::SidrReq(_) => Attribute::SidrReq,
            Message::SidrRep(_) => Attribute::SidrRep,
            Message::Lap(_) => Attribute::Lap,
            Message::Apr(_) => Attribute::Apr,
        }
    }

    /// The sender's communication ID; [`None`] for a SIDR_REP, which carries none.
    pub fn local_comm_id(&self) -> Option<CommId> {
        Some(match self {
            Message::Req(message) => message.local_comm_id,
            Message::Mra(message) => message.local_comm_id,
            Message::Rej(message) => message.local_comm_id,
            Message::Rep(message) => message.local_comm_id,
            Message::Rtu(message) => message.local_comm_id,
            Message::Dreq(message) => message.local_comm_id,
            Message::Drep(message) => message.local_comm_id,
            Message::SidrReq(message) => message.request_id,
            Message::SidrRep(_) => return None,
            Message::Lap(message) => message.local_comm_id,
            Message::Apr(message) => message.local_comm_id,
        })
    }

    /// The receiver's communication ID; [`None`] for REQ and SIDR_REQ, which are sent before it is
    /// known.
    pub fn remote_comm_id(&self) -> Option<CommId> {
        Some(match self {
            Message::Req(_) | Message::SidrReq(_) => return None,
            Message::Mra(message) => message.remote_comm_id,
            Message::Rej(message) => message.remote_comm_id,
            Message::Rep(message) => message.remote_comm_id,
            Message::Rtu(message) => message.remote_comm_id,
            Message::Dreq(message) => message.remote_comm_id,
            Message::Drep(message) => message.remote_comm_id,
            Message::SidrRep(message) => message.request_id,
            Message::Lap(message) => message.remote_comm_id,
            Message::Apr(message) => message.remote_comm_id,
        })
    }
}

//= check J11 — a MAD of another base version, class, version, method or attribute is no message.
fn check(header: &MadHeader) -> Result<Attribute, CmParseError> {
    if header.base_version != MadHeader::BASE_VERSION {
        Err(CmParseError::BaseVersion)
    } else if header.mgmt_class != MGMT_CLASS {
        Err(CmParseError::Class)
    } else if header.class_version != CLASS_VERSION {
        Err(CmParseError::ClassVersion)
    } else if header.method != MadHeader::SEND {
        Err(CmParseError::Method)
    } else {
        Attribute::from_id(header.attribute_id).ok_or(CmParseError::Attribute)
    }
}

impl fmt::Display for CmParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CmParseError::Length => "a MAD has 256 bytes",
            CmParseError::BaseVersion => "unknown MAD base version",
            CmParseError::Class => "not the communication management class",
            CmParseError::ClassVersion => "unsupported class version",
            CmParseError::Method => "not the method Send",
            CmParseError::Attribute => "unknown attribute",
        })
    }
}

impl core::error::Error for CmParseError {}
