//! Communication management messages: how two ends agree on a connection, class 0x07 over QP 1.
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
//! - Private data has the length its message has room for, exactly: shorter data is padded with
//!   zeros when it is made ([`PrivateData::new`]), longer data cannot be made.
//! - `parse(emit(x)) = x` for every message whose fields are in range; fields out of range lose
//!   their high bits, reserved bits are sent as zero and not examined.
//!
//! Not here: which message is expected when, and how often it is repeated: `uroce-cm`'s.

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

/// Management class of communication management.
pub const MGMT_CLASS: u8 = 0x07;
/// Version of the class.
pub const CLASS_VERSION: u8 = 2;
/// Bytes behind the MAD header.
pub const BODY_LEN: usize = crate::mad::MAD_LEN - crate::mad::MadHeader::LEN;
