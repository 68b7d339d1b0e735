//! Schedule: the QPs of a port that have something to send take turns, round robin. So do its EECs,
//! in a schedule of their own ([`crate::qp::rd`]).
//!
//! Invariants
//! - A QP sends at most [`QUANTUM`] packets before the next one's turn, and up to [`QUANTA`] times
//!   as many small ones. With a rate-limited address handle it sends one, so that QPs that share
//!   the handle get equal shares.
//! - A QP that finds the port full keeps its place at the front, so a busy port serves all in
//!   order; only connections to the device itself overtake it. A QP that finds the loop-back batch
//!   full goes to the back, behind QPs that send elsewhere; the next turn empties that batch.
//! - A turn of the lcore sends at most about [`TURN`] packets through a port, so that receiving
//!   does not wait long.

mod ahead;

use crate::qp::context::QpContext;
use crate::qp::env::{QpEnv, TurnContext};
use crate::qp::shard::Shard;
use std::collections::VecDeque;
use uroce_shared::seat::Work;
use uroce_transport::{Instant, Progress, Qp, QpState};

/// Largest number of packets that one QP sends at a time.
const QUANTUM: u32 = 32;
/// A QP that has sent fewer bytes than this in its turn may continue, up to `QUANTA` quanta in all.
/// With many QPs, the state of a QP is in no near cache, and both hosts fetch it once per turn. The
/// other QPs wait only for these bytes, which are as many as those of two large packets.
const SMALL_TURN: u64 = 8192;
/// Largest number of quanta, of [`QUANTUM`] packets each, that a QP with small packets sends in its
/// turn.
const QUANTA: u32 = 4;
/// Packets after which a port sends no more in one turn of the lcore.
pub(super) const TURN: u64 = 256;

/// The QPs, or EECs, of one port that may have something to send.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The slots of the QPs that may have something to send, in the order of their turns.
    pub(super) active: VecDeque<u32>,
    /// Whether a connection of this port has, or had, its other end in this device.
    pub(super) has_loopers: bool,
}

impl Schedule {
    /// Makes an empty schedule with room for `max_qps` QPs.
    pub(super) fn new(max_qps: u32) -> Schedule {
        Schedule { active: VecDeque::with_capacity(max_qps as usize), has_loopers: false }
    }

    /// Removes a QP.
    pub(super) fn remove(&mut self, index: u32) {
        self.active.retain(|&active| active != index);
    }
}

impl Shard {
    /// Lets the active QPs of port `port` send. Returns whether any had a turn, and whether any
    /// made progress.
    pub(crate) fn transmit(&mut self, port: usize, turn: &mut TurnContext<'_>) -> Work {
        let mut turns = self.schedules[port].active.len();
        let begin = turn.lanes[port].taken();
        let mut work = Work::Nothing;
        while turns > 0 && turn.lanes[port].taken() < begin + TURN {
            turns -= 1;
            let Some(index) = self.schedules[port].active.pop_front() else { break };
            self.look_ahead(&self.schedules[port].active, turn.memory);
            let progress = self.visit(index, turn);
            let is_blocked = progress == Some(Progress::Blocked);
            work = work.max(if is_blocked { Work::Blocked } else { Work::Done });
            match progress {
                Some(Progress::More) => {
                    self.schedules[port].active.push_back(index);
                    // The QP goes behind those that share its rate; its next packet may be due in
                    // this turn.
                    turns += usize::from(self.is_paced(index));
                }
                Some(Progress::Blocked) if turn.lanes[port].take_was_refused_alone() => {
                    self.schedules[port].active.push_back(index);
                }
                Some(Progress::Blocked) => {
                    self.schedules[port].active.push_front(index);
                    if self.schedules[port].has_loopers {
                        self.transmit_loopers(port, port, turn);
                    }
                    break;
                }
                Some(Progress::Idle) | None => self.retire(index),
            }
        }
        // A QP that is blocked now may have sent something before.
        work.max((turn.lanes[port].taken() > begin).into())
    }

    /// Sends the posted packets of a QP that is about to be destroyed, unless its service is
    /// reliable: a program that requests no completions of its datagrams may destroy the QP right
    /// after posting them. Sends at most a turn's packets, and what the port has room for.
    #[cold]
    pub(crate) fn send_rest(&mut self, index: u32, turn: &mut TurnContext<'_>) {
        let is_answered = |context: &QpContext| context.qp.qp_type().is_reliable();
        if self.get(index).is_none_or(is_answered) {
            return;
        }
        // The doorbell of the last posts may not have been answered.
        self.ring(index);
        let Some(port) = self.port_of(index) else { return };
        let end = turn.lanes[port].taken() + TURN;
        for _ in 0..TURN {
            let progress = self.visit(index, turn);
            if progress != Some(Progress::More) || turn.lanes[port].taken() >= end {
                break;
            }
        }
    }

    /// Returns whether the last packet of the QP's turn used a rate-limited address handle.
    fn is_paced(&self, index: u32) -> bool {
        self.get(index).is_some_and(|context| context.path.is_paced)
    }

    /// Called when the port is full: connections to the device itself in the schedule at place `at`
    /// continue, since their packets do not go to the port. All QPs keep their order.
    #[cold]
    pub(super) fn transmit_loopers(&mut self, at: usize, port: usize, turn: &mut TurnContext<'_>) {
        for _ in 0..self.schedules[at].active.len() {
            let Some(index) = self.schedules[at].active.pop_front() else { break };
            let progress = match self.get(index) {
                Some(context) if !context.is_looper() => Some(Progress::More),
                Some(context) if context.is_rd() => self.visit_rd(index, turn),
                Some(_) => self.visit(index, turn),
                None => None,
            };
            match progress {
                Some(Progress::More | Progress::Blocked) => {
                    self.schedules[at].active.push_back(index);
                }
                Some(Progress::Idle) | None => self.retire(index),
            }
        }
        turn.lanes[port].looped.take_was_full();
    }

    /// Gives one QP its turn: takes what was posted, then sends.
    ///
    /// A QP never migrates in its own turn: neither posts nor sent packets cause that. So it
    /// returns to the list that it was taken from.
    fn visit(&mut self, index: u32, turn: &mut TurnContext<'_>) -> Option<Progress> {
        let now = turn.now;
        let port = if cfg!(debug_assertions) { self.port_of(index) } else { None };
        let progress = self.input(index, turn, |qp, feeds, env| {
            feeds.sq.answer(qp, env);
            if qp.state() == QpState::Err {
                feeds.pull_receives(qp, env);
            }
            let (packets, bytes) = (env.lane.taken(), env.lane.taken_bytes());
            let progress = send_quanta(qp, now, env);
            env.path.traffic.tx_packets += env.lane.taken() - packets;
            env.path.traffic.tx_bytes += env.lane.taken_bytes() - bytes;
            progress
        });
        debug_assert!(port.is_some() && port == self.port_of(index), "a QP that is there stays");
        progress
    }
}

/// Lets a QP send up to [`QUANTA`] quanta if its packets are small, else one.
#[inline(always)]
fn send_quanta(qp: &mut Qp, now: Instant, env: &mut QpEnv<'_>) -> Progress {
    if std::mem::take(&mut env.path.is_paced) {
        return qp.poll_transmit(now, 1, env);
    }
    let end = env.lane.taken_bytes() + SMALL_TURN;
    for _ in 1..QUANTA {
        let progress = qp.poll_transmit(now, QUANTUM, env);
        let is_long = env.lane.taken_bytes() >= end || env.path.is_paced;
        if is_long || progress != Progress::More {
            return progress;
        }
    }
    qp.poll_transmit(now, QUANTUM, env)
}
