//! Paths: from a peer's GID to the headers in front of every packet of a QP.
//!
//! ```text
//!   AddressVector ── route ──> next hop ── neighbour ──> MAC ──> Encap ──> engine's template
//! ```
//!
//! Invariants
//! - A path is built on an address that its neighbour confirmed in the last
//!   [`REACHABLE`](neighbour::REACHABLE) time.
//! - Source and destination are of one IP version, and neither is the other.
//!
//! Not here: alternate paths. A path is resolved when Modify QP sets it; a neighbour that moves to
//! another Ethernet address later is found again by a new Modify QP.

pub mod neighbour;
pub mod route;
