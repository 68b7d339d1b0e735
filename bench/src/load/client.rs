//! The client: posts messages when they are due, and takes their completions.

use super::generator::Generator;
use super::stages;
use super::tally::Tally;
use super::wire::{POLL_BATCH, Parts, Wire, out_of_step, poll, request};
use super::{Offer, Sample, Setting, Word};
use crate::error::{BenchError, Step};
use crate::node::{Drive, Node};
use crate::perf::measure::Latency;
use crate::pin::Side;
use crate::rendezvous::{Link, pause};
use std::time::Duration;
use uroce::WorkCompletion;
use uroce_engine::clock::Clock;

/// Longest time for the messages that are under way when a trial ends.
const DRAIN: Duration = Duration::from_secs(3);

/// A session as the client.
pub(crate) struct Client<'a> {
    /// `None` only while a connection is made anew: the former one is given back before.
    live: Option<Live>,
    /// The connection has broken, and is made anew before the next trial.
    is_broken: bool,
    node: &'a Node,
    link: &'a mut Link,
    setting: Setting,
    clock: Clock,
}

/// The connection and this thread's hold on the lcore. The hold is given back first, so that the
/// lcore's own thread serves what the rest asks for on its way out.
struct Live {
    drive: Drive,
    wire: Wire,
}

impl Live {
    fn open(node: &Node, link: &mut Link, setting: &Setting) -> Result<Self, BenchError> {
        let wire = Wire::connect(node, link, setting)?;
        let drive = node.drive()?;
        link.wake_each_other(Side::Client)?;
        Ok(Self { drive, wire })
    }
}

/// What a trial has sent.
struct Sent {
    /// Messages that were due.
    due: u64,
    /// Messages posted.
    posted: u64,
    /// Messages completed in time.
    in_time: u64,
    elapsed_ns: u64,
    gap_ns: u64,
}

impl<'a> Client<'a> {
    /// Connects with a server that has been given the same setting.
    pub(crate) fn open(
        node: &'a Node,
        link: &'a mut Link,
        setting: Setting,
    ) -> Result<Self, BenchError> {
        let live = Some(Live::open(node, link, &setting)?);
        Ok(Self { live, is_broken: false, node, link, setting, clock: Clock::new() })
    }

    /// Makes a trial. Latencies are recorded in `latency`, from the times at which messages were
    /// due; a message that could not be posted before the end counts with the time that it has
    /// waited by then. A connection that breaks is made anew before the next trial.
    pub(crate) fn trial(
        &mut self,
        offer: &Offer,
        latency: Option<&mut Latency>,
    ) -> Result<Sample, BenchError> {
        if self.is_broken {
            self.link.send(&Word::Shut { again: true })?;
            self.live = None;
            self.live = Some(Live::open(self.node, self.link, &self.setting)?);
            self.is_broken = false;
        }
        let before = Tally::of(self.node)?;
        let measured = offer.stages.then_some(offer.time);
        self.link.send(&Word::Trial { delivery_ns: offer.delivery_ns(), stages: measured })?;
        match self.hear("waiting for the server to get ready")? {
            Word::Ready => (),
            _ => return Err(out_of_step()),
        }
        let began = stages::begin(self.node, measured.unwrap_or_default());
        let sent = match self.send(offer, latency) {
            Ok(sent) => Some(sent),
            Err(BenchError::Completion { .. } | BenchError::TimedOut { .. }) => None,
            Err(error) => return Err(error),
        };
        let ours = stages::since(self.node, &began);
        let messages = sent.as_ref().map_or(0, |sent| sent.posted);
        self.link.send(&Word::Stop { messages })?;
        let counted = self.hear("waiting for the server's count")?;
        let Word::Counted { in_time: arrived, received, tally, gap_ns, stages } = counted else {
            return Err(out_of_step());
        };
        let tally = tally + (Tally::of(self.node)? - before);
        let stages = [ours, stages];
        let Some(Sent { due, in_time, elapsed_ns, gap_ns: our_gap, .. }) = sent else {
            self.is_broken = true;
            return Ok(Sample { received, tally, gap_ns, broken: true, ..Sample::default() });
        };
        let delivered = in_time.min(arrived);
        let gap_ns = gap_ns.max(our_gap);
        let broken = false;
        Ok(Sample { due, delivered, received, elapsed_ns, tally, gap_ns, stages, broken })
    }

    /// Ends the session at both ends.
    pub(crate) fn close(self) -> Result<(), BenchError> {
        self.link.send(&Word::Shut { again: false })
    }

    fn hear(&mut self, waiting: &'static str) -> Result<Word, BenchError> {
        let Self { live, link, .. } = self;
        link.receive(waiting, || match live {
            Some(live) => live.drive.wait(),
            None => pause(),
        })
    }

    fn send(&mut self, offer: &Offer, latency: Option<&mut Latency>) -> Result<Sent, BenchError> {
        let (setting, clock) = (&self.setting, self.clock);
        let Some(Live { drive, wire }) = &mut self.live else { return Err(out_of_step()) };
        let Parts { qp, memory, send_cq, way, .. } = wire.parts();
        let slice = |length: &u32| Ok([memory.slice(..*length as usize).step("a slice")?]);
        let locals = setting.messages.iter().map(slice).collect::<Result<Vec<_>, BenchError>>()?;
        let mut generator = Generator::new(setting, offer, latency);
        let delivery = offer.delivery_ns();
        let time = offer.time.as_nanos() as u64;
        let end = if offer.rate.is_some() { delivery } else { time };
        let patience = end + DRAIN.as_nanos() as u64;
        let mut completions = [WorkCompletion::default(); POLL_BATCH];
        let mut in_time = 0;
        let (start, mut before, mut gap_ns) = (clock.now(), 0, 0);
        loop {
            let now = clock.now() - start;
            gap_ns = (now - before).max(gap_ns);
            before = now;
            if now > end {
                generator.end();
            }
            let numbers = generator.due(now);
            if !numbers.is_empty() {
                let requests = numbers.map(|number| {
                    let local = &locals[(number % locals.len() as u64) as usize];
                    let request = request(way, local).id(number);
                    if generator.asks(number) { request.signaled() } else { request }
                });
                qp.post_sends(requests).step("posting")?;
            }
            drive.turn();
            let polled = poll(send_cq, &mut completions)?;
            if !polled.is_empty() {
                let elapsed_ns = clock.now() - start;
                generator.take(polled, elapsed_ns);
                if elapsed_ns <= delivery {
                    in_time = generator.done();
                }
                if generator.is_over() {
                    let (due, posted) = generator.close(elapsed_ns);
                    return Ok(Sent { due, posted, in_time, elapsed_ns, gap_ns });
                }
            }
            if now > patience {
                let waiting = "waiting for completions after a trial";
                return Err(BenchError::TimedOut { waiting, limit: DRAIN });
            }
        }
    }
}
