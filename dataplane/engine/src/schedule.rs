//! Whose turn it is to send: round robin over the QPs of a port that have something.
//!
//! Invariants
//! - A QP sends at most [`QUANTUM`] packets before the next one's turn, of small ones [`QUANTA`] times
//!   as many; by an address handle with a rate, one: whoever shares the handle is to have as much of
//!   it.
//! - Who finds the port full keeps its place at the front, so a busy port serves all in order; only
//!   connections to the device itself pass it by. Who finds the way back full, which the next turn
//!   empties, goes behind those who send elsewhere.
//! - A turn of the lcore takes at most about [`TURN`] packets for a port, so receiving never waits
//!   long.

mod ahead;

use crate::context::QpContext;
use crate::shard::{Around, Shard};
use crate::slot::Work;
use uroce_transport::{Progress, QpState, QpType};

/// Packets of one QP at a time.
const QUANTUM: u32 = 32;
/// A QP that has sent fewer bytes than this may go on, so often in all. What a QP needs is in no near
/// cache when it is one of many, and fetching it is paid once a turn by either end; the others wait
/// for the bytes, of which this is no more than two large packets have.
const SMALL_TURN: u64 = 8192;
const QUANTA: u32 = 4;
/// Packets of one port in one turn of the lcore.
const TURN: u64 = 256;

impl Shard {
    /// Lets the active QPs of port `port` send. Says whether any had a turn, and whether any of them
    /// got on.
    pub(crate) fn transmit(&mut self, port: usize, around: &mut Around<'_>) -> Work {
        let mut turns = around.lanes[port].active.len();
        let begin = around.lanes[port].taken;
        let mut work = Work::Nothing;
        while turns > 0 && around.lanes[port].taken < begin + TURN {
            turns -= 1;
            let Some(index) = around.lanes[port].active.pop_front() else { break };
            self.look_ahead(&around.lanes[port].active, around.memory);
            let progress = self.visit(index, around);
            let is_blocked = progress == Some(Progress::Blocked);
            work = work.max(if is_blocked { Work::Blocked } else { Work::Done });
            match progress {
                Some(Progress::More) => {
                    around.lanes[port].active.push_back(index);
                    // After those it shares the rate with; its next packet may be due, too.
                    turns += usize::from(self.is_paced(index));
                }
                Some(Progress::Blocked) if around.lanes[port].take_loop_full() => {
                    around.lanes[port].active.push_back(index);
                }
                Some(Progress::Blocked) => {
                    around.lanes[port].active.push_front(index);
                    if around.lanes[port].has_loopers {
                        self.transmit_loopers(port, around);
                    }
                    break;
                }
                Some(Progress::Idle) | None => self.retire(index),
            }
        }
        // Who is refused may have sent something before.
        work.max((around.lanes[port].taken > begin).into())
    }

    /// Sends what was posted and needs no answer, of a QP that is about to go: a program that wants no
    /// completion of its datagrams may destroy the QP as soon as it has posted them. A turn's packets
    /// at most, and what the port has room for.
    #[cold]
    pub(crate) fn send_rest(&mut self, index: u32, around: &mut Around<'_>) {
        let is_answered = |context: &QpContext| context.qp.qp_type() == QpType::Rc;
        if self.get(index).is_none_or(is_answered) {
            return;
        }
        // What was posted just before may not have been answered.
        self.ring(index);
        let Some(port) = self.port_of(index) else { return };
        let end = around.lanes[port].taken + TURN;
        for _ in 0..TURN {
            let progress = self.visit(index, around);
            if progress != Some(Progress::More) || around.lanes[port].taken >= end {
                break;
            }
        }
    }

    /// Did the last packet of the QP's turn go by an address handle that has a rate?
    fn is_paced(&self, index: u32) -> bool {
        self.get(index).is_some_and(|context| context.route.is_paced)
    }

    /// The port is full: connections whose packets never reach it go on, the others keep their
    /// places.
    #[cold]
    fn transmit_loopers(&mut self, port: usize, around: &mut Around<'_>) {
        for _ in 0..around.lanes[port].active.len() {
            let Some(index) = around.lanes[port].active.pop_front() else { break };
            let progress = match self.get(index) {
                Some(context) if context.is_looper() => self.visit(index, around),
                Some(_) => Some(Progress::More),
                None => None,
            };
            match progress {
                Some(Progress::More | Progress::Blocked) => {
                    around.lanes[port].active.push_back(index);
                }
                Some(Progress::Idle) | None => self.retire(index),
            }
        }
        around.lanes[port].take_loop_full();
    }

    /// One QP's turn: takes what was posted, then sends.
    ///
    /// No QP migrates in its own turn: posts and packets sent are no reason to. So it goes back to
    /// the list it was taken from.
    fn visit(&mut self, index: u32, around: &mut Around<'_>) -> Option<Progress> {
        let now = around.now;
        let port = if cfg!(debug_assertions) { self.port_of(index) } else { None };
        let progress = self.input(index, around, |qp, feeds, env| {
            feeds.sq.answer(qp, env);
            if qp.state() == QpState::Err {
                feeds.feed_rq(qp, env);
            }
            if std::mem::take(&mut env.route.is_paced) {
                return qp.poll_transmit(now, 1, env);
            }
            let end = env.lane.taken_bytes + SMALL_TURN;
            for _ in 1..QUANTA {
                let progress = qp.poll_transmit(now, QUANTUM, env);
                let is_long = env.lane.taken_bytes >= end || env.route.is_paced;
                if is_long || progress != Progress::More {
                    return progress;
                }
            }
            qp.poll_transmit(now, QUANTUM, env)
        });
        debug_assert!(port.is_some() && port == self.port_of(index), "a QP that is there stays");
        progress
    }
}
