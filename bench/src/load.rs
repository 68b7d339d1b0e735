//! Open-loop load: messages at intended times, whatever becomes of those before them.
//!
//! ```text
//!   client                                   server
//!     setting of a session (by the caller)
//!     End ◄────────────────────────────────►  queue pairs are connected
//!     Trial(time) ─────────────────────────►  counters are read, receives posted
//!           ◄─────────────────────────────── Ready
//!     SENDs at their times ═════════════════►  counted
//!     Stop(messages) ──────────────────────►
//!           ◄─────────────────────────────── Counted
//!     … more trials, then Shut
//! ```
//!
//! A message is due at a time that the rate alone decides ([`pace`]). If the generator is late, by
//! its own fault or since the queue is full, the message is sent as soon as it can be, and its
//! latency still counts from the time at which it was due. A system that stands still for a
//! millisecond thus shows in every message of that millisecond: there is no coordinated omission.
//!
//! All services use SEND, so that the receiver counts what has arrived. One completion in
//! [`Setting::every`] is asked for, at places that are drawn anew in each group, so that the sample
//! of latencies has no beat with the batches of the engine.
//!
//! What is lost
//! - A message that was due and not delivered at the end of the trial and a grace of [`GRACE`] of
//!   its time. Over RC it has no completion by then; over UC and UD it has not arrived, by the
//!   server's clock from the first message on. What waits in a queue beyond that is lost too: a
//!   deep queue would otherwise raise every rate by what it holds.
//! - A packet sent again, an RNR NAK, a frame that any drop counter of the two ends has counted
//!   ([`tally`]).
//!
//! The share of loss is the largest of these shares: a lost frame that is sent again counts once.
//!
//! Not here: which rates are tried ([`crate::ndr`]).

mod client;
mod generator;
mod log;
mod pace;
mod server;
mod stages;
mod tally;
mod wire;

pub(crate) use client::Client;
pub(crate) use generator::Generator;
pub(crate) use log::Log;
pub(crate) use server::serve;
pub(crate) use stages::Cycles;

use crate::perf::plan::Service;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tally::Tally;
use wire::End;

/// Grace at the end of a trial, as a share of its time.
pub(crate) const GRACE: f64 = 0.005;
/// Time without a turn of its loop after which a thread was not running, but another program, or
/// another guest of the machine.
pub(crate) const GAP: Duration = Duration::from_micros(200);
/// Payload bytes that may be under way.
const UNDER_WAY: u32 = 1 << 20;
/// Messages that may be under way.
const DEPTHS: (u32, u32) = (4, 128);
/// Messages per completion, unless few are under way.
const EVERY: u32 = 16;

/// Parameters of a session, the same at both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// Transport service.
    pub(crate) service: Service,
    /// Payload bytes of the messages, which are sent in this order again and again.
    pub(crate) messages: Vec<u32>,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// Receive requests that are posted.
    pub(crate) rx_depth: u32,
    /// Seed of the places of completions.
    pub(crate) seed: u64,
}

impl Offer {
    /// Returns the time in which messages have to be delivered, in ns: all that arrives without a
    /// rate.
    fn delivery_ns(&self) -> u64 {
        let time = self.time.as_nanos() as u64;
        if self.rate.is_some() { time + (time as f64 * GRACE) as u64 } else { u64::MAX }
    }
}

impl Setting {
    /// Returns the length of the longest message.
    fn longest(&self) -> u32 {
        self.messages.iter().copied().max().unwrap_or(0)
    }

    /// Returns the number of messages that may be under way.
    pub(crate) fn depth(&self) -> u32 {
        (UNDER_WAY / self.longest().max(1)).clamp(DEPTHS.0, DEPTHS.1)
    }

    /// Returns the number of messages per completion. The queue holds two groups, so that it always
    /// has a message that gives a completion.
    pub(crate) fn every(&self) -> u32 {
        EVERY.min(self.depth() / 2).max(1)
    }
}

/// What a trial offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    /// Messages per second; `None` for as many as there is room for.
    pub(crate) rate: Option<f64>,
    /// Time in which messages become due; 60 s at most.
    pub(crate) time: Duration,
    /// Measure the stages of both lcores, which takes some cycles itself.
    pub(crate) stages: bool,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Messages that were due.
    pub(crate) due: u64,
    /// Messages that were delivered in time, as far as their sender and receiver can tell.
    pub(crate) delivered: u64,
    /// Messages that the server has received, also later.
    pub(crate) received: u64,
    /// Time from the first message to the last completion, in ns.
    pub(crate) elapsed_ns: u64,
    /// What the counters of both ends have counted.
    tally: Tally,
    /// Longest time for which the thread of an end did not run its loop, in ns.
    pub(crate) gap_ns: u64,
    /// Cycles of the stages of client and server, if they were measured.
    pub(crate) stages: [Cycles; 2],
    /// The connection did not survive the trial.
    pub(crate) broken: bool,
}

impl Sample {
    /// Returns the share of loss, 0.0 to 1.0, of messages with this mean number of frames.
    pub(crate) fn loss(&self, frames: f64) -> f64 {
        if self.broken || self.due == 0 {
            return 1.0;
        }
        let messages = self.due as f64;
        let packets = messages * frames;
        let missing = self.due.saturating_sub(self.delivered) as f64 / messages;
        let Tally { again, rnr, dropped } = self.tally;
        let counted = (again as f64 / packets).max(rnr as f64 / messages);
        missing.max(counted).max(dropped as f64 / packets).min(1.0)
    }

    /// Tells whether an end was kept from running, so that a loss says nothing about the stack.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.gap_ns > GAP.as_nanos() as u64
    }

    /// Returns the messages per second that were sent.
    pub(crate) fn sent_rate(&self) -> f64 {
        self.due as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Returns the messages per second that were received; 0 if the connection broke.
    pub(crate) fn rate(&self) -> f64 {
        if self.broken {
            return 0.0;
        }
        self.received as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Messages between the ends of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Word {
    /// Queue pair of an end.
    End(End),
    /// This end is ready for the next step.
    Ready,
    /// A trial follows. Messages are in time for this many ns after the first one. The stages are
    /// measured for a time, or not at all.
    Trial { delivery_ns: u64, stages: Option<Duration> },
    /// The client has sent this number of messages and sends no more.
    Stop { messages: u64 },
    /// What the server has received, in time and in all. Its longest gap is in ns.
    Counted { in_time: u64, received: u64, tally: Tally, gap_ns: u64, stages: Cycles },
    /// The session is over; another with the same setting follows if `again`.
    Shut { again: bool },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_always_holds_a_message_whose_completion_comes() {
        let of = |length| Setting {
            service: Service::Rc,
            messages: vec![length],
            mtu: 4096,
            rx_depth: 512,
            seed: 0,
        };
        for length in [1, 4096, 65536, 1 << 20, 1 << 30] {
            let setting = of(length);
            assert!(2 * setting.every() <= setting.depth(), "{length}");
        }
        assert_eq!((of(8).depth(), of(8).every()), (128, 16));
        assert_eq!((of(65536).depth(), of(1 << 30).depth()), (16, 4));
    }

    #[test]
    fn the_largest_share_counts() {
        let sample = Sample { due: 1000, delivered: 1000, ..Sample::default() };
        assert_eq!(sample.loss(1.0), 0.0);
        assert_eq!(Sample { delivered: 990, ..sample }.loss(1.0), 0.01);
        let again = Tally { again: 40, ..Tally::default() };
        assert_eq!(Sample { tally: again, ..sample }.loss(4.0), 0.01);
        let rnr = Tally { rnr: 5, dropped: 1, ..Tally::default() };
        assert_eq!(Sample { delivered: 999, tally: rnr, ..sample }.loss(1.0), 0.005);
        let dropped = Tally { dropped: 3, ..Tally::default() };
        assert_eq!(Sample { tally: dropped, ..sample }.loss(1.0), 0.003);
        let broken = Sample { broken: true, received: 5000, ..sample };
        assert_eq!((broken.loss(1.0), broken.rate()), (1.0, 0.0));
        assert_eq!(Sample::default().loss(1.0), 1.0, "nothing was due");
    }
}
