//! A node: its QPs, its memory, and the state that all QPs of a world share.

use std::collections::{HashMap, VecDeque};

use fastrand::Rng;
use uroce_wire::{Bth, Encap, Gid, HeaderTemplate, Psn, Qpn, Srqn};

use crate::world::checker::{Checker, Reports};
use crate::world::memory::Regions;
use crate::world::names::{At, Rail};
use uroce_transport::{
    Ah, AsyncEvent, Counter, Cqe, DropReason, Instant, Pd, Qp, QpInit, QpState, RecvWr, Sge, Side,
};

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

/// XRC domain of the targets of every node.
pub const XRCD: u32 = 7;

/// Number of charges of a retry counter that are remembered for the oracle.
pub(crate) const CHARGES_KEPT: usize = 8;

/// An XRC shared receive queue.
#[derive(Debug)]
pub struct NamedQueue {
    /// Number that requests name it by.
    pub srqn: Srqn,
    /// Its XRC domain.
    pub xrcd: u32,
    /// Protection domain of its receives, and of the memory of all requests that name it.
    pub pd: Pd,
    /// Its receives, oldest first.
    pub receives: VecDeque<(RecvWr, Vec<Sge>)>,
}

/// A QP and the state that its node keeps for it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The QP; it is not here while it is being worked on.
    pub(crate) home: Option<Box<Qp>>,
    pub(crate) init: QpInit,
    /// XRC domain of a target.
    pub(crate) xrcd: u32,
    /// Rail that the QP's path uses, derived from its attributes.
    pub(crate) rail: usize,
    /// State of the QP when it was last inspected.
    pub(crate) state_known: QpState,
    /// The peer's QP.
    pub(crate) peer: At,
    pub(crate) connection: usize,
    /// Time of the QP's valid timer event; other timer events are outdated.
    pub(crate) timer_at: Option<Instant>,
    /// A later poll of the QP is on the agenda.
    pub(crate) is_kicked: bool,
    /// Time at which the oldest datagram may leave, if its address handle has a rate.
    pub(crate) departure: Option<Instant>,
    /// Times of the latest charges of the transport retry counter.
    pub(crate) charges: VecDeque<Instant>,
    /// A request was refused for a reason other than its PSN, since this was last inspected.
    pub(crate) has_refused: bool,
    /// Events and counts that the QP has reported since the last input.
    pub(crate) reports: Reports,
    pub(crate) checker: Checker,
    /// Number of migrations, over all times that the QP was in use.
    pub(crate) migrations: u64,
}

impl Slot {
    pub(crate) fn new(qp: Qp, init: QpInit) -> Slot {
        Slot {
            home: Some(Box::new(qp)),
            init,
            xrcd: XRCD,
            rail: 0,
            state_known: QpState::Reset,
            peer: At { node: 0, qp: 0 },
            connection: usize::MAX,
            timer_at: None,
            is_kicked: false,
            departure: None,
            charges: VecDeque::new(),
            has_refused: false,
            reports: Reports::default(),
            checker: Checker::default(),
            migrations: 0,
        }
    }
}

impl Slot {
    /// The QP.
    ///
    /// # Panics
    /// If it is being worked on.
    pub(crate) fn qp(&self) -> &Qp {
        self.home.as_ref().expect("a QP that is not being worked on")
    }

    /// The QP, to be changed.
    ///
    /// # Panics
    /// If it is being worked on.
    pub(crate) fn qp_mut(&mut self) -> &mut Qp {
        self.home.as_mut().expect("a QP that is not being worked on")
    }
}

/// An address handle: destination, rail, headers and rate of its packets.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) to: Gid,
    pub(crate) rail: usize,
    pub(crate) template: HeaderTemplate,
    /// Its rate limit, if it has one.
    pub(crate) pace: Option<Pace>,
}

/// Reserves the time at which a frame of some bytes may leave, from now on.
pub type ReservesTime = dyn Fn(u32, Instant) -> Instant;

/// The rate limit of an address handle, which an engine keeps.
pub(crate) struct Pace(pub(crate) Box<ReservesTime>);

impl core::fmt::Debug for Pace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Pace")
    }
}

/// One machine of the simulated network.
#[derive(Debug)]
pub struct Node {
    /// Addresses of the node, one for each rail.
    pub(crate) rails: Vec<Rail>,
    /// Registered memory of the node.
    pub memory: Regions,
    /// Receives of the shared receive queue, oldest first; QPs created with an SRQ share it.
    pub srq: VecDeque<(RecvWr, Vec<Sge>)>,
    /// XRC shared receive queues.
    pub named: Vec<NamedQueue>,
    /// Multicast groups and the QPs attached to them.
    pub groups: Vec<(Gid, At)>,
    pub(crate) handles: Vec<Handle>,
    /// The lcore does nothing until this time.
    pub(crate) stalled_until: Instant,
    /// Number of frames that wait for the stalled lcore.
    pub(crate) backlog: u32,
    /// There is no packet buffer until this time: nothing is sent, arriving frames are lost.
    pub(crate) starved_until: Instant,
    pub(crate) slots: Vec<Slot>,
    /// Frames that came early, by the slot of their QP and their PSN.
    pub(crate) held: HashMap<(u16, Psn), Vec<u8>>,
    /// Largest number of frames that are held at once.
    pub(crate) most_held: usize,
    pub(crate) counters: [u64; Counter::ALL.len()],
    pub(crate) drops: [u64; DropReason::ALL.len()],
}

impl Node {
    pub(crate) fn new(first: Rail, most_held: usize) -> Node {
        Node {
            rails: vec![first],
            memory: Regions::default(),
            srq: VecDeque::new(),
            named: Vec::new(),
            groups: Vec::new(),
            handles: Vec::new(),
            stalled_until: Instant::ZERO,
            backlog: 0,
            starved_until: Instant::ZERO,
            slots: Vec::new(),
            held: HashMap::new(),
            most_held,
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
    pub(crate) fn rail_of(&self, port: u8, gid: Gid) -> usize {
        let of_port = || self.rails.iter().position(|rail| rail.port == port);
        self.rail_at(port, gid).or_else(of_port).unwrap_or(0)
    }

    /// Creates an XRC shared receive queue. Targets are in the XRC domain [`XRCD`].
    pub fn add_named_queue(&mut self, srqn: Srqn, xrcd: u32, pd: Pd) {
        self.named.push(NamedQueue { srqn, xrcd, pd, receives: VecDeque::new() });
    }

    /// The XRC shared receive queue with this number.
    ///
    /// # Panics
    /// If there is none.
    pub fn named_mut(&mut self, srqn: Srqn) -> &mut NamedQueue {
        self.named.iter_mut().find(|queue| queue.srqn == srqn).expect("a queue of this number")
    }

    /// Number of receives in an XRC shared receive queue.
    pub(crate) fn waiting(&self, srqn: Srqn) -> usize {
        let queue = self.named.iter().find(|queue| queue.srqn == srqn);
        queue.map_or(0, |queue| queue.receives.len())
    }

    /// Creates an address handle for `path`, without a rate limit.
    pub fn create_ah(&mut self, path: Encap) -> Ah {
        self.add_handle(path, None)
    }

    /// Creates an address handle for `path`, with this rate limit.
    pub fn create_paced_ah(&mut self, path: Encap, pace: Box<ReservesTime>) -> Ah {
        self.add_handle(path, Some(Pace(pace)))
    }

    fn add_handle(&mut self, path: Encap, pace: Option<Pace>) -> Ah {
        let rail = self.rails.iter().position(|rail| rail.gid == path.src).unwrap_or(0);
        self.handles.push(Handle { to: path.dst, rail, template: path.template(), pace });
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
    pub(crate) fn find(&self, qpn: Qpn) -> Option<usize> {
        let index = (qpn.value() & 0xff) as usize;
        let qp = self.slots.get(index)?.home.as_ref();
        qp.is_some_and(|qp| qp.qpn() == qpn).then_some(index)
    }
}

/// A frame that leaves a node.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    pub(crate) from: At,
    pub(crate) rail: usize,
    /// Destination address of a datagram; `None` means the sender's peer.
    pub(crate) to: Option<Gid>,
    pub(crate) bth: Bth,
    pub(crate) frame: Vec<u8>,
}

/// State that all QPs of a world share while they work.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) departures: Vec<Departure>,
    pub(crate) completions: Vec<Completed>,
    pub(crate) events: Vec<Happened>,
    /// Buffers of frames for reuse.
    pub(crate) pool: Vec<Vec<u8>>,
    pub(crate) rng: Rng,
    /// Probability that the sink is full.
    pub(crate) full_rate: f64,
    pub(crate) refused: u64,
    /// QPs that are to be polled because another one has changed them.
    pub(crate) woken: Vec<At>,
}
