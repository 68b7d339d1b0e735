//! Profile: the cycles that the stages of an lcore's turns take, measured on request.
//!
//! A reader asks for a period of measurement. In this period, each turn reads the cycle counter
//! after each stage. At any other time, a turn only compares one number with the time.
//!
//! Invariants
//! - The lcore is the only writer of its counts, which only grow.
//! - A turn that found nothing to do counts as idle as a whole, so that the stages have the cycles
//!   of turns with work only.
//!
//! Not here: the turn itself ([`super`]).

use crate::counters::CounterBlock;
use std::array::from_fn;
use std::sync::Arc;
use std::time::Duration;
use uroce_shared::seat::Work;
use uroce_shared::sync::{AtomicU64, Ordering};
use uroce_shared::time::clock::{Clock, cycles};
use uroce_transport::Instant;

/// A part of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Commands of the control plane.
    Commands,
    /// Frames received and handled: responder and completer.
    Receive,
    /// Timers that have expired.
    Timers,
    /// Doorbells that applications have rung.
    Doorbells,
    /// Packets made and sent: requester and acknowledgements.
    Transmit,
    /// Completion queues notified.
    Completions,
}

impl Stage {
    /// All stages, in the order of a turn.
    pub const ALL: [Stage; 6] = [
        Stage::Commands,
        Stage::Receive,
        Stage::Timers,
        Stage::Doorbells,
        Stage::Transmit,
        Stage::Completions,
    ];

    /// Returns the name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Commands => "commands",
            Stage::Receive => "receive",
            Stage::Timers => "timers",
            Stage::Doorbells => "doorbells",
            Stage::Transmit => "transmit",
            Stage::Completions => "completions",
        }
    }
}

const STAGES: usize = Stage::ALL.len();

/// Totals of a stage over all measured turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageProfile {
    /// Turns in which the stage found something to do.
    pub calls: u64,
    /// Frames that the stage received or sent.
    pub packets: u64,
    /// Cycles that the stage took in turns with work.
    pub cycles: u64,
}

/// Totals of the measured turns of an lcore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LcoreProfile {
    /// Number of turns.
    pub turns: u64,
    /// Turns that found nothing to do.
    pub idle_turns: u64,
    /// Cycles of the turns that found nothing to do.
    pub idle_cycles: u64,
    /// Cycles between turns: the lcore rested, or its driver did something else.
    pub rest_cycles: u64,
    /// The stages, in the order of [`Stage::ALL`].
    pub stages: [StageProfile; STAGES],
}

impl LcoreProfile {
    /// Returns the cycles of the whole measured period, with and without work.
    pub fn cycles(&self) -> u64 {
        let busy: u64 = self.stages.iter().map(|stage| stage.cycles).sum();
        busy + self.idle_cycles + self.rest_cycles
    }

    /// Returns the length of the measured period.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(Clock::new().nanos_of(self.cycles()))
    }

    /// Returns the totals since `earlier`, a former reading of the same lcore.
    pub fn since(&self, earlier: &LcoreProfile) -> LcoreProfile {
        let less = u64::saturating_sub;
        LcoreProfile {
            turns: less(self.turns, earlier.turns),
            idle_turns: less(self.idle_turns, earlier.idle_turns),
            idle_cycles: less(self.idle_cycles, earlier.idle_cycles),
            rest_cycles: less(self.rest_cycles, earlier.rest_cycles),
            stages: from_fn(|at| {
                let (now, then) = (&self.stages[at], &earlier.stages[at]);
                StageProfile {
                    calls: less(now.calls, then.calls),
                    packets: less(now.packets, then.packets),
                    cycles: less(now.cycles, then.cycles),
                }
            }),
        }
    }
}

/// The profile of one lcore, which any thread may read and ask for.
#[derive(Debug)]
pub(crate) struct ProfileBlock {
    /// Time of the clock in nanoseconds until which turns are measured.
    until: AtomicU64,
    /// Reading of the cycle counter when measuring was last begun.
    from: AtomicU64,
    turns: AtomicU64,
    idle_turns: AtomicU64,
    idle_cycles: AtomicU64,
    rest_cycles: AtomicU64,
    stages: [StageBlock; STAGES],
}

#[derive(Debug)]
struct StageBlock {
    calls: AtomicU64,
    packets: AtomicU64,
    cycles: AtomicU64,
}

fn zero() -> AtomicU64 {
    AtomicU64::new(0)
}

/// Adds to a count of which the caller is the only writer.
fn add(count: &AtomicU64, amount: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl ProfileBlock {
    pub(crate) fn new() -> ProfileBlock {
        ProfileBlock {
            until: zero(),
            from: zero(),
            turns: zero(),
            idle_turns: zero(),
            idle_cycles: zero(),
            rest_cycles: zero(),
            stages: from_fn(|_| StageBlock { calls: zero(), packets: zero(), cycles: zero() }),
        }
    }

    /// Has turns measured from now on for `time`, or for longer if that was asked for before.
    pub(crate) fn ask(&self, time: Duration) {
        let now = Clock::new().now();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.until.load(Ordering::Relaxed) < now {
            self.from.store(cycles(), Ordering::Relaxed);
        }
        self.until.fetch_max(now.saturating_add(time), Ordering::Release);
    }

    pub(crate) fn read(&self) -> LcoreProfile {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LcoreProfile {
            turns: get(&self.turns),
            idle_turns: get(&self.idle_turns),
            idle_cycles: get(&self.idle_cycles),
            rest_cycles: get(&self.rest_cycles),
            stages: from_fn(|at| {
                let of = &self.stages[at];
                StageProfile {
                    calls: get(&of.calls),
                    packets: get(&of.packets),
                    cycles: get(&of.cycles),
                }
            }),
        }
    }
}

/// Gets the result of each stage of a turn as soon as the stage has ended.
pub(super) trait Laps {
    /// Called after a stage; `any` tells whether it found something to do, and is returned.
    fn lap<R: Copy + Into<Work>>(&mut self, stage: Stage, any: R) -> R;
}

/// Laps of a turn that is not measured.
pub(super) struct NoLaps;

impl Laps for NoLaps {
    #[inline(always)]
    fn lap<R: Copy + Into<Work>>(&mut self, _: Stage, any: R) -> R {
        any
    }
}

/// The lcore's end of its profile.
#[derive(Debug)]
pub(crate) struct Profile {
    block: Arc<ProfileBlock>,
    counters: Arc<CounterBlock>,
    /// Reading of the cycle counter at the end of the last measured turn.
    last_end: u64,
}

impl Profile {
    pub(crate) fn new(block: Arc<ProfileBlock>, counters: Arc<CounterBlock>) -> Profile {
        Profile { block, counters, last_end: 0 }
    }

    /// Returns whether the turn that begins now is to be measured.
    #[inline]
    pub(super) fn is_asked(&self, now: Instant) -> bool {
        now.as_nanos() < self.block.until.load(Ordering::Acquire)
    }

    /// Begins a measured turn.
    pub(super) fn begin(&self) -> Measured<'_> {
        let begin = cycles();
        let frames = self.counters.frames();
        Measured { profile: self, begin, last: begin, frames, laps: [Lap::default(); STAGES] }
    }

    /// Ends a measured turn and adds it to the profile.
    pub(super) fn end(&mut self, turn: Ended, work: Work) {
        let block = &*self.block;
        let is_first = self.last_end < block.from.load(Ordering::Relaxed);
        if !is_first {
            add(&block.rest_cycles, turn.begin.saturating_sub(self.last_end));
        }
        self.last_end = turn.end;
        add(&block.turns, 1);
        if work == Work::Nothing {
            add(&block.idle_turns, 1);
            add(&block.idle_cycles, turn.end.saturating_sub(turn.begin));
            return;
        }
        for (of, lap) in block.stages.iter().zip(&turn.laps) {
            add(&of.calls, lap.had_work.into());
            add(&of.packets, lap.packets);
            add(&of.cycles, lap.cycles);
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Lap {
    had_work: bool,
    packets: u64,
    cycles: u64,
}

/// A turn that is being measured.
pub(super) struct Measured<'p> {
    profile: &'p Profile,
    begin: u64,
    /// Reading of the cycle counter after the last stage.
    last: u64,
    /// Frames that the lcore had received and sent before the stage.
    frames: (u64, u64),
    laps: [Lap; STAGES],
}

/// A turn that was measured.
pub(super) struct Ended {
    begin: u64,
    end: u64,
    laps: [Lap; STAGES],
}

impl Measured<'_> {
    pub(super) fn ended(self) -> Ended {
        Ended { begin: self.begin, end: self.last, laps: self.laps }
    }
}

impl Laps for Measured<'_> {
    fn lap<R: Copy + Into<Work>>(&mut self, stage: Stage, any: R) -> R {
        let (received, sent) = self.profile.counters.frames();
        let packets = match stage {
            Stage::Receive => received.wrapping_sub(self.frames.0),
            Stage::Transmit => sent.wrapping_sub(self.frames.1),
            _ => 0,
        };
        self.frames = (received, sent);
        let now = cycles();
        let taken = now.saturating_sub(self.last);
        self.last = now;
        self.laps[stage as usize] =
            Lap { had_work: any.into() != Work::Nothing, packets, cycles: taken };
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_with_work_count_by_stage_and_others_as_idle() {
        let (block, counters) = (Arc::new(ProfileBlock::new()), Arc::new(CounterBlock::new()));
        let mut profile = Profile::new(Arc::clone(&block), Arc::clone(&counters));
        let now = || Instant::from_nanos(Clock::new().now());
        assert!(!profile.is_asked(now()));
        block.ask(Duration::from_secs(60));
        assert!(profile.is_asked(now()));
        let mut turn = profile.begin();
        assert!(turn.lap(Stage::Commands, true));
        counters.add(crate::counters::EngineCounter::RxPackets, 3);
        assert_eq!(turn.lap(Stage::Receive, Work::Blocked), Work::Blocked);
        let ended = turn.ended();
        profile.end(ended, Work::Done);
        let mut turn = profile.begin();
        turn.lap(Stage::Commands, false);
        let ended = turn.ended();
        profile.end(ended, Work::Nothing);
        let read = block.read();
        assert_eq!((read.turns, read.idle_turns), (2, 1));
        assert_eq!((read.stages[0].calls, read.stages[1].calls), (1, 1));
        assert_eq!((read.stages[0].packets, read.stages[1].packets), (0, 3));
        assert!(read.idle_cycles > 0 && read.stages[1].cycles > 0 && read.rest_cycles > 0);
        assert!(read.time() > Duration::ZERO);
        assert_eq!(read.since(&read), LcoreProfile::default());
    }

    #[test]
    fn the_time_in_which_nothing_was_asked_is_not_measured() {
        let (block, counters) = (Arc::new(ProfileBlock::new()), Arc::new(CounterBlock::new()));
        let mut profile = Profile::new(Arc::clone(&block), counters);
        for _ in 0..2 {
            block.ask(Duration::from_micros(1));
            let ended = profile.begin().ended();
            profile.end(ended, Work::Nothing);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!((block.read().turns, block.read().rest_cycles), (2, 0));
    }
}
