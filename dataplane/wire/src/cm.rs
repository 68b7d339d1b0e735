//! Messages of communication management (CM): management class 0x07, sent to QP 1.
//!
//! Read first: IBA 12; Annex A11 for the address header of RDMA-CM.
//!
//! ```text
//!   active                      passive          message               private data, bytes
//!     │ ── REQ ──────────────────▶ │             REQ, LAP              92, 168
//!     │ ◀───────────── MRA, REP ── │             MRA, REJ, APR         222, 148, 148
//!     │ ── RTU ──────────────────▶ │             REP, RTU              196, 224
//!     │ ◀─ SENDs, WRITEs, … ─────▶ │             DREQ, DREP            220, 224
//!     │ ── LAP ──▶  ◀── APR ────── │             SIDR_REQ, SIDR_REP    216, 136
//!     │ ── DREQ ─▶  ◀── DREP ───── │
//! ```
//!
//! [`Message::parse`] reads a whole MAD, [`Message::emit`] writes one.
//!
//! Invariants
//! - The length of private data is exactly what its message has room for. Shorter data is padded
//!   with zeros when it is made ([`PrivateData::new`]); longer data cannot be made.
//! - `parse(emit(x)) = x` for every message with all fields in range. Fields out of range lose
//!   their high bits; reserved bits are sent as zero and not examined.
//!
//! Not here: when each message is expected and how often it is repeated; that is in `uroce-cm`.

mod codes;
mod connect;
mod disconnect;
mod ip;
mod message;
mod migrate;
mod path;
mod private;
mod refuse;
mod sidr;

#[cfg(test)]
mod tests;

pub use codes::{
    AprStatus, CaGuid, CmTimeout, CommId, Failover, MessageMraed, MessageRejected, RejectReason,
    ServiceId, SidrStatus, TransportService,
};
pub use connect::{Rep, Req, Rtu};
pub use disconnect::{Drep, Dreq};
pub use ip::{IpHeader, IpHeaderError};
pub use message::{Attribute, CmParseError, Message};
pub use migrate::{Apr, Lap};
pub use path::CmPath;
pub use private::{PrivateData, TooLong};
pub use refuse::{Mra, Rej};
pub use sidr::{SidrRep, SidrReq};

/// Management class number of communication management.
pub const MGMT_CLASS: u8 = 0x07;
/// Version of the management class.
pub const CLASS_VERSION: u8 = 2;
/// Length of a message's body, the bytes after the MAD header.
pub const BODY_LEN: usize = crate::mad::MAD_LEN - crate::mad::MadHeader::LEN;
