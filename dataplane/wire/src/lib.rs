//! RoCEv2 packets on the wire: bytes to typed headers and back.
//!
//! Read first: IBA 5 (packet format) and 9.2 to 9.3 (transport headers); Annex A17 for what RoCEv2
//! changes.
//!
//! ```text
//!  Ethernet [802.1Q]   IPv4 | IPv6   UDP        BTH   extended headers   payload  pad  ICRC
//!  14 [+4]             20   | 40     8 → 4791   12    0..=40             ≤ MTU    0–3  4
//!  └─ ethernet ───────┴ ipv4, ipv6 ─┴ udp ─────┴ bth ┴ reth, aeth, … ────┘
//!  └─ encap (built once per path) ─────────────┘     └ which, says opcode ┘
//!  └─ frame ───────────────────────────────────┴─ packet ────────────────────────┴─ icrc
//! ```
//!
//! Inbound: [`Frame::parse`] finds a [`Datagram`], [`Datagram::packet`] verifies the invariant
//! CRC and parses the [`Packet`]. Outbound: [`Encap::template`] once per path, then for each
//! packet [`HeaderTemplate::emit`], [`emit_headers`], the payload and its pad, and [`seal`].
//!
//! Invariants
//! - No function panics on bytes from the wire, whatever they are, and none reads past the lengths
//!   that IP and UDP state.
//! - `parse(emit(x)) = x` for every header value with all fields in range; reserved bits are sent
//!   as zero.
//! - No allocation, no I/O, no clock, no unsafe code; payload is borrowed, never copied.
//! - One table, [`opcode`], holds everything that the crate has about an opcode.
//!
//! Not here: the check that a packet is *expected* (PSN, opcode order, path MTU, keys). That check
//! needs a queue pair and is in `uroce-transport`.

#![cfg_attr(not(test), no_std)] // No `alloc` either: nothing here can allocate.
#![forbid(unsafe_code)]

mod bytes;
mod checksum;
#[cfg(test)]
mod testing;

pub mod ethernet;
pub mod ipv4;
pub mod ipv6;
pub mod udp;

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod deth;
pub mod ext;
pub mod feth;
pub mod ieth;
pub mod immdt;
pub mod opcode;
pub mod rdeth;
pub mod reth;
pub mod xrceth;

pub mod cm;
pub mod mad;

pub mod gid;
pub mod keys;
pub mod mac;
pub mod mtu;
pub mod psn;
pub mod qpn;

pub mod ecn;
pub mod encap;
pub mod error;
pub mod flow;
pub mod frame;
pub mod icrc;
pub mod packet;
mod pretty;

pub use aeth::{Aeth, NakCode, Syndrome, credit_code, credits};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use checksum::{fill_checksums, make_checksums};
pub use deth::Deth;
pub use ecn::{Ecn, mark_ce};
pub use encap::{Encap, HeaderTemplate};
pub use error::ParseError;
pub use ethernet::{EtherType, Vlan};
pub use ext::{ExtHeaders, Header};
pub use feth::{Feth, Placement, Selectivity};
pub use frame::{Datagram, Frame, Other};
pub use gid::Gid;
pub use icrc::{ICRC_LEN, Icrc, IcrcField, OuterSums, icrc, seal};
pub use ieth::Ieth;
pub use immdt::ImmDt;
pub use keys::{Lkey, Pkey, Qkey, Rkey, Va};
pub use mac::{Mac, MacSyntaxError};
pub use mtu::PathMtu;
pub use opcode::{OpCode, OpCodeRange, OpInfo, Operation, PayloadRule, Position, Service};
pub use packet::{Packet, emit_headers, headers_len};
pub use psn::{Msn, Psn};
pub use qpn::Qpn;
pub use rdeth::Rdeth;
pub use reth::Reth;
pub use udp::udp_source_port;
pub use xrceth::{Srqn, Xrceth};
