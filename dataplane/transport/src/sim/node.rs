//! A node: its QPs, its memory, and what all QPs of a world share.

use std::collections::VecDeque;

use fastrand::Rng;
use uroce_wire::{Bth, Encap, Gid, HeaderTemplate, Qpn};

use super::memory::Regions;
use super::oversight::{Oversight, Said};
use super::rails::Rail;
use crate::{
    Ah, AsyncEvent, Counter, Cqe, DropReason, Instant, Qp, QpInit, QpState, RecvWr, Sge, Side,
};

/// Where a QP is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct At {
    /// Number of the node.
    pub node: u16,
    /// Number of the QP in the node; not its QPN.
    pub qp: u16,
}

/// A completion, and where and when it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// The QP.
    pub at: At,
    /// The time.
    pub when: Instant,
    /// The queue.
    pub side: Side,
    /// The entry.
    pub cqe: Cqe,
}

/// An event, and where and when it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// The QP.
    pub at: At,
    /// The time.
    pub when: Instant,
    /// What happened.
    pub event: AsyncEvent,
}

/// Charges against a retry counter that are remembered for the oracle.
pub(super) const CHARGES_KEPT: usize = 8;

/// A QP and what its node keeps for it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) qp: Qp,
    pub(super) init: QpInit,
    /// What is derived of its path: headers, and the rail they go by.
    pub(super) rail: usize,
    /// Its state when it was looked at last.
    pub(super) state_known: QpState,
    /// The peer, and number of the connection.
    pub(super) peer: At,
    pub(super) connection: usize,
    /// When the timer event that counts is due.
    pub(super) timer_at: Option<Instant>,
    /// A later look at the QP is on the agenda.
    pub(super) is_kicked: bool,
    /// The newest times that something was charged to the transport retry counter.
    pub(super) charges: VecDeque<Instant>,
    /// A request was refused for another reason than its PSN, and nobody has looked yet.
    pub(super) has_refused: bool,
    /// What it has said since the last input.
    pub(super) said: Said,
    pub(super) oversight: Oversight,
    /// Migrations in all its lives.
    pub(super) migrations: u64,
}

impl Slot {
    pub(super) fn new(qp: Qp, init: QpInit) -> Slot {
        Slot {
            qp,
            init,
            rail: 0,
            state_known: QpState::Reset,
            peer: At { node: 0, qp: 0 },
            connection: usize::MAX,
            timer_at: None,
            is_kicked: false,
            charges: VecDeque::new(),
            has_refused: false,
            said: Said::default(),
            oversight: Oversight::default(),
            migrations: 0,
        }
    }
}

/// An address handle: where its packets go, and what stands in front of them.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) to: Gid,
    pub(super) rail: usize,
    pub(super) template: HeaderTemplate,
}

/// One machine.
#[derive(Debug)]
pub struct Node {
    /// Its addresses, one for each way to another node.
    pub(super) rails: Vec<Rail>,
    /// Its registered memory.
    pub memory: Regions,
    /// Receives of the shared receive queue, oldest first; QPs created with an SRQ share it.
    pub srq: VecDeque<(RecvWr, Vec<Sge>)>,
    /// Multicast groups and the QPs attached to them.
    pub groups: Vec<(Gid, At)>,
    pub(super) handles: Vec<Handle>,
    /// The lcore does nothing until then.
    pub(super) stalled_until: Instant,
    /// Frames that wait for the stalled lcore.
    pub(super) backlog: u32,
    /// There is no packet buffer until then: nothing is sent, what arrives is lost.
    pub(super) starved_until: Instant,
    pub(super) slots: Vec<Slot>,
    pub(super) counters: [u64; Counter::ALL.len()],
    pub(super) drops: [u64; DropReason::ALL.len()],
}

impl Node {
    pub(super) fn new(first: Rail) -> Node {
        Node {
            rails: vec![first],
            memory: Regions::default(),
            srq: VecDeque::new(),
            groups: Vec::new(),
            handles: Vec::new(),
            stalled_until: Instant::ZERO,
            backlog: 0,
            starved_until: Instant::ZERO,
            slots: Vec::new(),
            counters: [0; Counter::ALL.len()],
            drops: [0; DropReason::ALL.len()],
        }
    }

    /// One of the node's addresses, counted from 0.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn rail(&self, rail: usize) -> Rail {
        self.rails[rail]
    }

    /// The rail that has this port and this address, if one has.
    pub fn rail_at(&self, port: u8, gid: Gid) -> Option<usize> {
        self.rails.iter().position(|rail| (rail.port, rail.gid) == (port, gid))
    }

    /// The rail that a port and a source address stand for; a port alone has its first one.
    pub(super) fn rail_of(&self, port: u8, gid: Gid) -> usize {
        let of_port = || self.rails.iter().position(|rail| rail.port == port);
        self.rail_at(port, gid).or_else(of_port).unwrap_or(0)
    }

    /// Makes an address handle.
    pub fn create_ah(&mut self, path: Encap) -> Ah {
        let rail = self.rails.iter().position(|rail| rail.gid == path.src).unwrap_or(0);
        self.handles.push(Handle { to: path.dst, rail, template: path.template() });
        Ah(self.handles.len() as u32 - 1)
    }

    /// How often `counter` was counted by the node's QPs.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// How many received frames were dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// The QP with this number. QPNs carry the slot in their low byte.
    pub(super) fn find(&self, qpn: Qpn) -> Option<usize> {
        let index = (qpn.value() & 0xff) as usize;
        self.slots.get(index).is_some_and(|slot| slot.qp.qpn() == qpn).then_some(index)
    }
}

/// A frame on its way out of a node.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    pub(super) from: At,
    pub(super) rail: usize,
    /// Where it goes, if it does not go to the sender's peer.
    pub(super) to: Option<Gid>,
    pub(super) bth: Bth,
    pub(super) frame: Vec<u8>,
}

/// What all QPs of the world share while they work.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) departures: Vec<Departure>,
    pub(super) completions: Vec<Completed>,
    pub(super) events: Vec<Happened>,
    /// Frames no longer in use.
    pub(super) pool: Vec<Vec<u8>>,
    pub(super) rng: Rng,
    /// Chance that the sink is full.
    pub(super) full_rate: f64,
    pub(super) refused: u64,
}
