//! A world of two nodes and one connection, for directed tests.
//!
//! There are no random faults. Faults are [`Rule`]s; all packets are recorded; packets that no peer
//! would send are [`Crafted`].

pub(crate) mod sweep;

mod content;
mod datagrams;
mod packets;
mod paths;
mod terms;
mod work;

use core::time::Duration;

use uroce_wire::{Encap, Mac, Psn, Qpn, Srqn, udp_source_port};

use crate::faults::rules::Rule;
use crate::world::memory::Mr;
use crate::world::names::At;
use crate::world::node::{Completed, Happened, Node, XRCD};
use crate::world::{Step, World};
use uroce_transport::{
    AccessFlags, Ah, AsyncEvent, Counter, Cqe, DropReason, Pd, Qp, QpChange, QpState, QpType, Rdd,
    RtrAttr, RtsAttr, Side,
};

pub use packets::{Crafted, Seen};
pub use terms::{Half, Rails, Terms};

/// Value of the bytes that remote regions are filled with.
const FILL: u8 = 0xa5;

/// Protection domain of both ends.
const PD: Pd = Pd(1);

/// Protection domain of an XRC target, in which it has no memory.
const NO_PD: Pd = Pd(99);

/// RD domain of the EECs and RD QPs of a pair.
pub const RDD: Rdd = Rdd(12);

/// The XRC shared receive queue of each node that receives of an XRC target are posted to.
pub const SRQN: Srqn = Srqn::new(0x55_0001);

/// Number of steps after which [`Pair::run`] gives up.
const STEPS_MAX: u32 = 3_000_000;

/// Two connected QPs, ends 0 and 1, and their memory.
#[derive(Debug)]
pub struct Pair {
    /// The world, for operations that have no short form here.
    pub world: World,
    terms: Terms,
    ends: [At; 2],
    local: [Mr; 2],
    remote: [Mr; 2],
    handles: [Ah; 2],
    next_wr_id: u64,
    completed: Vec<Completed>,
    happened: Vec<Happened>,
}

impl Pair {
    /// A pair with both ends in RTS, with default terms.
    pub fn rts() -> Pair {
        Pair::with(|_| ())
    }

    /// A pair with both ends in RTS, with terms changed by `change`.
    pub fn with(change: impl FnOnce(&mut Terms)) -> Pair {
        let mut pair = Pair::reset(change);
        pair.bring_to(0, QpState::Rts);
        pair.bring_to(1, QpState::Rts);
        pair
    }

    /// A pair with both ends in RESET, with terms changed by `change`.
    pub fn reset(change: impl FnOnce(&mut Terms)) -> Pair {
        let mut terms = Terms::default();
        change(&mut terms);
        let mut world = World::new(terms.settings);
        if terms.is_recorded {
            world.start_record(100_000);
        }
        if terms.is_tapped {
            world.start_tap();
        }
        let ends = [0, 1].map(|end: u8| {
            let node = world.add_node(terms.gid(end, 0), Mac([2, 0, 0, 0, 0, end + 1]));
            if let Some(rail) = terms.second_rail(end) {
                world.add_rail(node, rail);
            }
            world.node_mut(node).add_named_queue(SRQN, XRCD, PD);
            let pd = terms.pd(node);
            let at = world.add_qp(node, 0x1111 + u32::from(end) * 0x2222, pd, &terms.init(node));
            world.set_port_mtu(at, terms.mtu);
            at
        });
        world.join(ends[0], ends[1]);
        let mut add = |end: usize, base, bytes| {
            let memory = &mut world.node_mut(end as u16).memory;
            let access = AccessFlags::all() | AccessFlags::FLUSH_PERSISTENT;
            memory.register(PD, access, base, 77 + end as u32, bytes)
        };
        let pattern = |end: usize| {
            (0..terms.region)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ end as u8)
                .collect()
        };
        let local = [0, 1].map(|end| add(end, 0x10_0000, pattern(end)));
        let remote =
            [0, 1].map(|end| add(end, 0x7000_0000_0000, vec![FILL; terms.region as usize]));
        let (completed, happened) = (Vec::new(), Vec::new());
        let handles = [Ah(0); 2];
        let mut pair =
            Pair { world, terms, ends, local, remote, handles, next_wr_id: 1, completed, happened };
        for end in [0, 1] {
            let path = pair.path(end);
            pair.handles[end] = pair.world.node_mut(end as u16).create_ah(path);
        }
        pair
    }

    /// Adds another connection between the nodes with the same terms, both ends in RTS.
    pub fn another(&mut self) -> [At; 2] {
        let ats = [0, 1].map(|node: u16| {
            let tag = 0x4000 + self.world.node(node).slots.len() as u32;
            self.world.add_qp(node, tag, self.terms.pd(node), &self.terms.init(node))
        });
        self.world.join(ats[0], ats[1]);
        let qpns = ats.map(|at| self.world.qp(at).qpn());
        for end in [0, 1] {
            for mut change in self.changes(end) {
                change.dest_qpn = change.dest_qpn.map(|_| qpns[1 - end]);
                self.world.modify(ats[end], &change).expect("a legal change");
            }
        }
        ats
    }

    /// Takes an end from an earlier state to INIT, RTR or RTS.
    ///
    /// # Panics
    /// If the end does not reach `state`.
    pub fn bring_to(&mut self, end: usize, state: QpState) {
        for change in self.changes(end) {
            let now = self.qp(end).state() as u8;
            let to = change.state.expect("each change goes somewhere") as u8;
            if now < to && to <= state as u8 {
                self.world.modify(self.ends[end], &change).expect("a legal change");
            }
        }
        assert_eq!(self.qp(end).state(), state);
    }

    /// The changes of an end from RESET to INIT, to RTR and to RTS, by the terms.
    pub fn changes(&self, end: usize) -> [QpChange; 3] {
        let (me, peer) = (&self.terms.half[end], &self.terms.half[1 - end]);
        let qp_type = self.terms.type_of(end);
        if qp_type.is_datagram() {
            let [init, rtr, rts] = QpChange::datagram_steps(1, me.qkey, me.sq_psn);
            // QP 1 belongs to its port.
            let port = init.port.filter(|_| qp_type == QpType::Ud);
            return [QpChange { port, ..init }, rtr, rts];
        }
        let rtr = RtrAttr {
            path_mtu: self.terms.mtu,
            dest_qpn: self.qpn(1 - end),
            rq_psn: peer.sq_psn,
            max_dest_rd_atomic: me.max_dest_rd_atomic,
            min_rnr_timer: me.min_rnr_timer,
        };
        let rts = RtsAttr {
            sq_psn: me.sq_psn,
            timeout: me.timeout,
            retry_cnt: me.retry_cnt,
            rnr_retry: me.rnr_retry,
            max_rd_atomic: me.max_rd_atomic,
        };
        [
            QpChange {
                access: (qp_type != QpType::Eec).then_some(me.access),
                ..QpChange::to_init(1)
            },
            QpChange {
                path: Some(self.path(end).into()),
                selective_repeat: self.terms.selective_repeat.then_some(true),
                udp_source_ports: (self.terms.udp_source_ports > 1)
                    .then_some(self.terms.udp_source_ports),
                keepalive_ms: (qp_type == QpType::Rc).then_some(me.keepalive_ms),
                ..QpChange::to_rtr(qp_type, &rtr)
            },
            QpChange::to_rts(qp_type, &rts),
        ]
    }

    /// The path from an end to the other on the first rail.
    pub fn path(&self, end: usize) -> Encap {
        self.path_on(end, 0)
    }

    /// The path from an end to the other on rail `rail`.
    ///
    /// # Panics
    /// If the pair has no such rail.
    pub fn path_on(&self, end: usize, rail: usize) -> Encap {
        let [me, peer] = [end, 1 - end].map(|end| self.node(end).rail(rail));
        Encap {
            src_mac: me.mac,
            dst_mac: peer.mac,
            src: me.gid,
            dst: peer.gid,
            hop_limit: 64,
            src_port: udp_source_port(0, self.qpn(end), self.qpn(1 - end)),
            ..Encap::default()
        }
    }

    /// Identifier of an end's QP in the world.
    pub fn at(&self, end: usize) -> At {
        self.ends[end]
    }

    /// QP of an end.
    pub fn qp(&self, end: usize) -> &Qp {
        self.world.qp(self.ends[end])
    }

    /// QPN of an end.
    pub fn qpn(&self, end: usize) -> Qpn {
        self.qp(end).qpn()
    }

    /// Node of an end.
    pub fn node(&self, end: usize) -> &Node {
        self.world.node(end as u16)
    }

    /// PSN of the `index`-th packet that an end sends, counted from 0.
    pub fn psn(&self, end: usize, index: u32) -> Psn {
        self.terms.half[end].sq_psn.plus(index)
    }

    /// Runs the world until nothing more happens.
    ///
    /// # Panics
    /// If it does not come to rest within a bounded number of steps.
    pub fn run(&mut self) -> &mut Pair {
        for _ in 0..STEPS_MAX {
            if self.world.step() == Step::Idle {
                self.world.take_completions(&mut self.completed);
                return self;
            }
        }
        panic!("no end of it: {:#?}", self.trace(40));
    }

    /// Runs the world for a span of virtual time.
    pub fn run_for(&mut self, span: Duration) -> &mut Pair {
        let end = self.world.now() + span;
        while self.world.next_due().is_some_and(|due| due <= end) {
            self.world.step();
        }
        self.world.jump_to(end);
        self.world.take_completions(&mut self.completed);
        self
    }

    /// Runs the world until `is_enough`.
    ///
    /// # Panics
    /// If the world comes to rest before that.
    pub fn run_until(&mut self, is_enough: impl Fn(&Pair) -> bool) -> &mut Pair {
        while !is_enough(self) {
            assert_ne!(self.world.step(), Step::Idle, "{:#?}", self.trace(40));
        }
        self.world.take_completions(&mut self.completed);
        self
    }

    /// Takes the completions of a queue of an end.
    pub fn take(&mut self, end: usize, side: Side) -> Vec<Cqe> {
        self.take_at(self.ends[end], side)
    }

    /// Takes the completions of a queue of any QP.
    pub fn take_at(&mut self, at: At, side: Side) -> Vec<Cqe> {
        self.world.take_completions(&mut self.completed);
        let taken = self.completed.extract_if(.., |one| one.at == at && one.side == side);
        taken.map(|one| one.cqe).collect()
    }

    /// Takes the events of an end.
    pub fn take_events(&mut self, end: usize) -> Vec<AsyncEvent> {
        self.take_events_at(self.ends[end])
    }

    /// Takes the events of any QP.
    pub fn take_events_at(&mut self, at: At) -> Vec<AsyncEvent> {
        self.world.take_events(&mut self.happened);
        self.happened.extract_if(.., |one| one.at == at).map(|one| one.event).collect()
    }

    /// Adds a fault rule.
    pub fn rule(&mut self, rule: Rule) -> &mut Pair {
        self.world.add_rule(rule);
        self
    }

    /// Value of a counter of an end's node.
    pub fn count(&self, end: usize, counter: Counter) -> u64 {
        self.node(end).counter(counter)
    }

    /// Number of frames that an end's node dropped for `reason`.
    pub fn drops(&self, end: usize, reason: DropReason) -> u64 {
        self.node(end).drops(reason)
    }

    /// The newest `count` lines of the trace.
    pub fn trace(&self, count: usize) -> Vec<String> {
        self.world.record().map(|record| record.tail(count)).unwrap_or_default()
    }
}
