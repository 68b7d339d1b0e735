//! Whose turn it is to send: round robin over the QPs of a port that have something.
//!
//! Invariants
//! - A QP sends at most [`QUANTUM`] packets before the next one's turn.
//! - Who finds the port full keeps its place at the front, so a busy port serves all in order; only
//!   connections to the device itself pass it by. Who finds the way back full, which the next turn
//!   empties, goes behind those who send elsewhere.
//! - A turn of the lcore takes at most about [`TURN`] packets for a port, so receiving never waits
//!   long.

use crate::context::QpContext;
use crate::shard::{Around, Shard};
use uroce_transport::{Progress, QpState, QpType};

/// Packets of one QP at a time.
const QUANTUM: u32 = 32;
/// Packets of one port in one turn of the lcore.
const TURN: u64 = 256;

impl Shard {
    /// Lets the active QPs of port `port` send. Says whether any had a turn.
    pub(crate) fn transmit(&mut self, port: usize, around: &mut Around<'_>) -> bool {
        let turns = around.lanes[port].active.len();
        let end = around.lanes[port].taken + TURN;
        for _ in 0..turns {
            if around.lanes[port].taken >= end {
                break;
            }
            let Some(index) = around.lanes[port].active.pop_front() else { break };
            let progress = self.visit(index, around);
            if self.port_of(index) != Some(port) {
                // It has migrated, and stands where it is to go on, or is gone.
                continue;
            }
            match progress {
                Some(Progress::More) => around.lanes[port].active.push_back(index),
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
        turns > 0
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
        for _ in 0..TURN / u64::from(QUANTUM) {
            if self.visit(index, around) != Some(Progress::More) {
                break;
            }
        }
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
            if self.port_of(index) != Some(port) {
                continue;
            }
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
    fn visit(&mut self, index: u32, around: &mut Around<'_>) -> Option<Progress> {
        let now = around.now;
        self.input(index, around, |qp, feeds, env| {
            feeds.sq.answer(qp, env);
            if qp.state() == QpState::Err {
                feeds.feed_rq(qp, env);
            }
            qp.poll_transmit(now, QUANTUM, env)
        })
    }
}
