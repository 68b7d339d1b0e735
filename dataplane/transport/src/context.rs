//! State of a QP that all roles read, and the results of one step of a role.

use uroce_wire::{Bth, OpCode, Psn};

use crate::attr::{Attributes, PathMigState};
use crate::cqe::WcStatus;
use crate::env::{Accessor, Path, Pd};
use crate::time::Instant;

/// The part of a QP's state that requester, responder and completer read.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) by: Accessor,
    /// Protection domain of the receives: the SRQ's, if there is one.
    pub(crate) recv_pd: Pd,
    pub(crate) attr: &'a Attributes,
    pub(crate) now: Instant,
}

impl<'a> Context<'a> {
    /// The accessor for memory of receives.
    //= check F5 — memory is checked in the protection domain of the queue that was posted to
    #[inline]
    pub(crate) fn recv_by(&self) -> Accessor {
        Accessor { pd: self.recv_pd, ..self.by }
    }

    /// The path of the connection.
    #[inline]
    pub(crate) fn path(&self) -> Path<'a> {
        Path::Connected(&self.attr.template)
    }

    /// Payload of a full packet, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }

    /// The BTH of a packet to the connected peer.
    #[inline]
    pub(crate) fn bth(&self, opcode: OpCode, psn: Psn, payload_len: u32) -> Bth {
        //= check I1 — without an alternate path MigReq is 1
        //= check I3 — MigReq is 0 while an alternate path is loaded
        let mig_req = self.attr.path_mig_state == PathMigState::Migrated || seeded!(MigReqAlways);
        Bth {
            opcode,
            mig_req: mig_req && !seeded!(MigReqNever),
            pad_count: (payload_len.wrapping_neg() & 3) as u8,
            pkey: self.attr.pkey,
            dest_qpn: self.attr.dest_qpn,
            psn,
            ..Bth::default()
        }
    }
}

/// Result of an attempt to send one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A packet was sent; the length of its frame in bytes.
    Sent(u32),
    /// A WQE that needs no packet was executed.
    Done,
    /// There is nothing to send.
    Idle,
    /// The sink is full.
    Blocked,
    /// The path of the next datagram takes no packet yet because of its rate.
    Paced,
    /// The responder has sent the NAK that ends the connection.
    Refused,
    /// The oldest send WQE failed with this status.
    Failed(WcStatus),
}

// The step fits one register, because there is one for each packet.
const _: () = assert!(size_of::<Step>() == 8);

/// State of the QP after a packet was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The QP is still usable.
    Alive,
    /// The packet came early; the caller is to hold it.
    Held,
    /// A receive WQE has completed with an error, so the QP must go to ERR.
    Failed,
}

/// Number of PSNs that a message of `len` bytes uses: one per packet, at least one.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}
