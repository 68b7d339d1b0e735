//! Selective repeat: what both ends of a connection remember so that only lost packets are sent
//! again.
//!
//! ```text
//!   requester                                              responder
//!   [Sent] sent again: what the peer lacks                 [Held] holds what came early
//!      ^                                                      │
//!      └────── selective acknowledgement: expected PSN, ──────┘
//!              and a bitmap of the PSNs held beyond it
//! ```
//!
//! The requests are those of RC; only the acknowledgement, [`OpCode::RC_SELECTIVE_ACKNOWLEDGE`], is
//! uroce's own. A packet that comes early waits outside of the QP until all packets before it have
//! come, and is then handled as if it had come in order. So nothing that RC forbids becomes
//! visible: no byte of a later WRITE before those of an earlier one, no completion out of order.
//!
//! Invariants
//! - Only a QP with [`SelectiveRepeat`] and the attribute `selective_repeat` uses any of this.
//! - PSNs that are outstanding or held span less than [`SPAN`].
//!
//! Not here: the packets that wait, which the caller of [`crate::Qp::handle_packet`] keeps.
//!
//! [`OpCode::RC_SELECTIVE_ACKNOWLEDGE`]: uroce_wire::OpCode::RC_SELECTIVE_ACKNOWLEDGE

mod held;
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "public for fuzz targets"))]
mod psn_set;
mod sent;

pub(super) use held::{Held, Insertion};
#[cfg(feature = "testing")]
pub use psn_set::{PsnSet, SPAN};
pub(super) use sent::{Claim, Sent};

/// The memory that a QP needs for selective repeat: about 6 KB. It is made outside of the lcore and
/// given to the QP by [`crate::Qp::equip`].
#[derive(Debug, Default)]
pub struct SelectiveRepeat {
    pub(crate) sent: Box<Sent>,
    pub(crate) held: Box<Held>,
}
