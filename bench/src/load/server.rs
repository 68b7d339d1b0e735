//! The server: receives and counts messages.

use super::stages;
use super::tally::Tally;
use super::wire::{POLL_BATCH, Parts, Wire, out_of_step, poll};
use super::{Setting, Word};
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node};
use crate::perf::plan::Service;
use crate::pin::Side;
use crate::rendezvous::Link;
use std::time::Duration;
use uroce::{GRH_LEN, RecvWr, WorkCompletion};
use uroce_engine::clock::Clock;

/// Receive requests posted again at once.
const REPOST: u32 = 32;
/// Largest number of polls per turn. Together they take several times the completions that a turn
/// makes.
const POLLS: usize = 8;
/// Time between two looks at the exchange.
const LOOK: Duration = Duration::from_millis(1);
/// Time without a message after which the rest counts as lost, once the client has sent all.
const QUIET: Duration = Duration::from_millis(20);

/// What a trial has brought.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Messages received in time.
    in_time: u64,
    /// Messages received.
    received: u64,
    /// Longest time between two turns, in ns.
    gap_ns: u64,
}

/// Serves a session with this setting, and the connections that follow one that has broken.
pub(crate) fn serve(node: &Node, link: &mut Link, setting: &Setting) -> Result<(), BenchError> {
    while Server::connect(node, link, setting)?.trials(link)? {}
    Ok(())
}

/// A connection as the server.
struct Server<'a> {
    /// Given back first, so that the lcore's own thread serves what the rest asks for on its way
    /// out.
    drive: Drive,
    wire: Wire,
    node: &'a Node,
    setting: &'a Setting,
    clock: Clock,
    /// Receive requests that are posted.
    posted: u32,
}

impl<'a> Server<'a> {
    fn connect(node: &'a Node, link: &mut Link, setting: &'a Setting) -> Result<Self, BenchError> {
        let wire = Wire::connect(node, link, setting)?;
        let drive = node.drive()?;
        link.wake_each_other(Side::Server)?;
        Ok(Self { drive, wire, node, setting, clock: Clock::new(), posted: 0 })
    }

    /// Serves trials. Tells whether another connection follows.
    fn trials(mut self, link: &mut Link) -> Result<bool, BenchError> {
        loop {
            let Self { drive, wire, .. } = &mut self;
            let mut completions = [WorkCompletion::default(); POLL_BATCH];
            let mut late = 0;
            // What arrives between two trials belongs to the one before, and is counted by none.
            let word = link.receive("waiting for the client's next trial", || {
                drive.wait();
                late += poll(&wire.recv_cq, &mut completions).map_or(0, <[_]>::len) as u32;
            })?;
            self.posted = self.posted.saturating_sub(late);
            match word {
                Word::Trial { delivery_ns, stages } => {
                    self.trial(link, delivery_ns, stages.unwrap_or_default())?
                }
                Word::Shut { again } => return Ok(again),
                _ => return Err(out_of_step()),
            }
        }
    }

    /// Serves a trial, and measures the stages for a time in it.
    fn trial(
        &mut self,
        link: &mut Link,
        delivery_ns: u64,
        measured: Duration,
    ) -> Result<(), BenchError> {
        let before = Tally::of(self.node)?;
        self.post(self.setting.rx_depth)?;
        let began = stages::begin(self.node, measured);
        link.send(&Word::Ready)?;
        let Count { in_time, received, gap_ns } = self.count(link, delivery_ns)?;
        let stages = stages::since(self.node, &began);
        let tally = Tally::of(self.node)? - before;
        link.send(&Word::Counted { in_time, received, tally, gap_ns, stages })
    }

    /// Counts messages until the client has stopped and all of its messages are there, or nothing
    /// comes any more.
    fn count(&mut self, link: &mut Link, delivery_ns: u64) -> Result<Count, BenchError> {
        let mut completions = [WorkCompletion::default(); POLL_BATCH];
        let mut counted = Count::default();
        let (mut newest, mut look) = (self.clock.now(), 0);
        // What the client has sent, with the time at which it said so; the first message's time.
        let (mut sent, mut first, mut before) = (None, None, newest);
        loop {
            self.drive.turn();
            let earlier = counted.received;
            for _ in 0..POLLS {
                let count = match poll(&self.wire.recv_cq, &mut completions) {
                    Ok(polled) => polled.len(),
                    // The client's end of the connection breaks too, and makes another one.
                    Err(BenchError::Completion { .. }) => 0,
                    Err(error) => return Err(error),
                };
                counted.received += count as u64;
                self.posted = self.posted.saturating_sub(count as u32);
                if count < POLL_BATCH {
                    break;
                }
            }
            let now = self.clock.now();
            counted.gap_ns = (now - before).max(counted.gap_ns);
            before = now;
            if counted.received > earlier {
                newest = now;
                if now - *first.get_or_insert(now) <= delivery_ns {
                    counted.in_time = counted.received;
                }
            }
            if self.posted + REPOST.min(self.setting.rx_depth.div_ceil(2)) <= self.setting.rx_depth
            {
                self.post(REPOST)?;
            }
            if now >= look {
                look = now + LOOK.as_nanos() as u64;
                if sent.is_none() {
                    sent = match link.try_receive()? {
                        Some(Word::Stop { messages }) => Some((messages, now)),
                        Some(_) => return Err(out_of_step()),
                        None => None,
                    };
                }
            }
            if let Some((messages, at)) = sent {
                let is_quiet = now - newest.max(at) > QUIET.as_nanos() as u64;
                if counted.received >= messages || is_quiet {
                    return Ok(counted);
                }
            }
        }
    }

    /// Posts up to `most` receive requests, as far as there is room.
    fn post(&mut self, most: u32) -> Result<(), BenchError> {
        let room = self.setting.rx_depth - self.posted;
        let head = if self.setting.service == Service::Ud { GRH_LEN } else { 0 };
        let Parts { qp, memory, .. } = self.wire.parts();
        let place = ..head + self.setting.longest() as usize;
        let slice = [memory.slice(place).step("a slice of memory")?];
        let requests = [RecvWr::new(&slice); REPOST as usize];
        let mut left = room.min(most);
        while left > 0 {
            let count = left.min(REPOST);
            qp.post_recvs(&requests[..count as usize]).step("posting receive requests")?;
            left -= count;
        }
        self.posted += room.min(most);
        Ok(())
    }
}
