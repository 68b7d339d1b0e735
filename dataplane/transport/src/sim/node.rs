//! A node: its QPs, its memory, and the state that all QPs of a world share.

use std::collections::VecDeque;

use fastrand::Rng;
use uroce_wire::{Bth, Encap, Gid, HeaderTemplate, Qpn};

use super::memory::Regions;
use super::oversight::{Oversight, Said};
use super::rails::Rail;
use crate::{
    Ah, AsyncEvent, Counter, Cqe, DropReason, Instant, Qp, QpInit, QpState, RecvWr, Sge, Side,
};

/// Identifies a QP of a world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct At {
    /// Number of the node.
    pub node: u16,
    /// Number of the QP in the node; not its QPN.
    pub qp: u16,
}

/// A completion, with its QP and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completed {
    /// QP that completed a request.
    pub at: At,
    /// Time of the completion.
    pub when: Instant,
    /// Queue that the request was posted to.
    pub side: Side,
    /// The completion queue entry.
    pub cqe: Cqe,
}

/// An asynchronous event, with its QP and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// QP that the event belongs to.
    pub at: At,
    /// Time of the event.
    pub when: Instant,
    /// The event.
    pub event: AsyncEvent,
}

/// Number of charges of a retry counter that are remembered for the oracle.
pub(super) const CHARGES_KEPT: usize = 8;

/// A QP and the state that its node keeps for it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) qp: Qp,
    pub(super) init: QpInit,
    /// Rail that the QP's path uses, derived from its attributes.
    pub(super) rail: usize,
    /// State of the QP when it was last inspected.
    pub(super) state_known: QpState,
    /// The peer's QP.
    pub(super) peer: At,
    pub(super) connection: usize,
    /// Time of the QP's valid timer event; other timer events are outdated.
    pub(super) timer_at: Option<Instant>,
    /// A later poll of the QP is on the agenda.
    pub(super) is_kicked: bool,
    /// Times of the latest charges of the transport retry counter.
    pub(super) charges: VecDeque<Instant>,
    /// A request was refused for a reason other than its PSN, since this was last inspected.
    pub(super) has_refused: bool,
    /// Events and counts that the QP has reported since the last input.
    pub(super) said: Said,
    pub(super) oversight: Oversight,
    /// Number of migrations, over all times that the QP was in use.
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

/// An address handle: destination, rail, and headers of its packets.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) to: Gid,
    pub(super) rail: usize,
    pub(super) template: HeaderTemplate,
}

/// One machine of the simulated network.
#[derive(Debug)]
pub struct Node {
    /// Addresses of the node, one for each rail.
    pub(super) rails: Vec<Rail>,
    /// Registered memory of the node.
    pub memory: Regions,
    /// Receives of the shared receive queue, oldest first; QPs created with an SRQ share it.
    pub srq: VecDeque<(RecvWr, Vec<Sge>)>,
    /// Multicast groups and the QPs attached to them.
    pub groups: Vec<(Gid, At)>,
    pub(super) handles: Vec<Handle>,
    /// The lcore does nothing until this time.
    pub(super) stalled_until: Instant,
    /// Number of frames that wait for the stalled lcore.
    pub(super) backlog: u32,
    /// There is no packet buffer until this time: nothing is sent, arriving frames are lost.
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

    /// The node's address on rail `rail`, counted from 0.
    ///
    /// # Panics
    /// If the node has fewer rails.
    pub fn rail(&self, rail: usize) -> Rail {
        self.rails[rail]
    }

    /// The rail with this port and address, if there is one.
    pub fn rail_at(&self, port: u8, gid: Gid) -> Option<usize> {
        self.rails.iter().position(|rail| (rail.port, rail.gid) == (port, gid))
    }

    /// The rail of a port and a source address; otherwise the first rail of the port, or rail 0.
    pub(super) fn rail_of(&self, port: u8, gid: Gid) -> usize {
        let of_port = || self.rails.iter().position(|rail| rail.port == port);
        self.rail_at(port, gid).or_else(of_port).unwrap_or(0)
    }

    /// Creates an address handle for `path`.
    pub fn create_ah(&mut self, path: Encap) -> Ah {
        let rail = self.rails.iter().position(|rail| rail.gid == path.src).unwrap_or(0);
        self.handles.push(Handle { to: path.dst, rail, template: path.template() });
        Ah(self.handles.len() as u32 - 1)
    }

    /// Value of `counter`, summed over the node's QPs.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Number of received frames dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Index of the QP with number `qpn`. The low byte of a QPN is the index.
    pub(super) fn find(&self, qpn: Qpn) -> Option<usize> {
        let index = (qpn.value() & 0xff) as usize;
        self.slots.get(index).is_some_and(|slot| slot.qp.qpn() == qpn).then_some(index)
    }
}

/// A frame that leaves a node.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    pub(super) from: At,
    pub(super) rail: usize,
    /// Destination address of a datagram; `None` means the sender's peer.
    pub(super) to: Option<Gid>,
    pub(super) bth: Bth,
    pub(super) frame: Vec<u8>,
}

/// State that all QPs of a world share while they work.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) departures: Vec<Departure>,
    pub(super) completions: Vec<Completed>,
    pub(super) events: Vec<Happened>,
    /// Buffers of frames for reuse.
    pub(super) pool: Vec<Vec<u8>>,
    pub(super) rng: Rng,
    /// Probability that the sink is full.
    pub(super) full_rate: f64,
    pub(super) refused: u64,
}
