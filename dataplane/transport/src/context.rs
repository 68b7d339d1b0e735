//! What every role may know of its QP, and how it tells of one step.

use uroce_wire::{Bth, OpCode, Psn};

use crate::attr::{Attributes, PathMigState};
use crate::cqe::WcStatus;
use crate::env::{Accessor, Path, Pd};
use crate::time::Instant;

/// What every role may know of its QP.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) by: Accessor,
    /// The protection domain of the receives: the SRQ's, if there is one.
    pub(crate) recv_pd: Pd,
    pub(crate) attr: &'a Attributes,
    pub(crate) now: Instant,
}

impl<'a> Context<'a> {
    /// On whose behalf receives are filled.
    //= check F5 — in the domain of the queue that they were posted to
    #[inline]
    pub(crate) fn recv_by(&self) -> Accessor {
        Accessor { pd: self.recv_pd, ..self.by }
    }

    /// The connection's way.
    #[inline]
    pub(crate) fn path(&self) -> Path<'a> {
        Path::Connected(&self.attr.template)
    }

    /// The payload of a full packet, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        self.attr.path_mtu.bytes()
    }

    /// The base header of a packet to the connected peer.
    #[inline]
    pub(crate) fn bth(&self, opcode: OpCode, psn: Psn, payload_len: u32) -> Bth {
        //= check I1 — without an alternate path MigReq is 1
        //= check I3 — 0 as long as one is prepared
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

/// What became of an attempt to send one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A packet went out in a frame of so many bytes.
    Sent(u32),
    /// A WQE that needs no packet was carried out.
    Done,
    /// There is nothing to send.
    Idle,
    /// The sink is full.
    Blocked,
    /// The way of the next datagram takes none yet.
    Paced,
    /// The responder has sent the NAK that ends the connection.
    Refused,
    /// The oldest send WQE cannot go on.
    Failed(WcStatus),
}

// One register: there is a step for each packet.
const _: () = assert!(size_of::<Step>() == 8);

/// What became of the QP when a packet was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It goes on.
    Alive,
    /// A receive WQE has completed with an error; the QP goes to ERR.
    Failed,
}

/// PSNs that a message of `len` bytes takes: one a packet, at least one.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}
