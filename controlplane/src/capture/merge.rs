//! Frames of several lcores and ports, in the order of their times.

use std::time::Duration;

use uroce_engine::clock::Clock;
use uroce_engine::{TapFrame, TapReader};

/// Frames that are younger wait for older ones of other lcores: longer than most turns.
const SETTLED: Duration = Duration::from_micros(200);

/// One lcore's frames of one port.
struct Lane {
    /// Number of the port at the device, from 1.
    port: u8,
    tap: TapReader,
    next: TapFrame,
    has_next: bool,
}

impl Lane {
    /// Returns the time of the next frame, if there is one.
    fn peek(&mut self) -> Option<Duration> {
        if !self.has_next {
            self.has_next = self.tap.read(&mut self.next);
        }
        self.has_next.then_some(self.next.time)
    }
}

/// The frames of all lanes.
pub(crate) struct Merged {
    lanes: Vec<Lane>,
    clock: Clock,
}

impl Merged {
    /// Merges these taps, each with the number of its port.
    pub(crate) fn new(taps: impl IntoIterator<Item = (u8, TapReader)>) -> Merged {
        let lane = |(port, tap)| Lane { port, tap, next: TapFrame::default(), has_next: false };
        Merged { lanes: taps.into_iter().map(lane).collect(), clock: Clock::new() }
    }

    /// Gives at most `room` frames to `each`, with the numbers of their ports. At the end, when no
    /// more frames come, none waits for older ones. Returns how many frames there were.
    pub(crate) fn take(
        &mut self,
        room: u64,
        is_ending: bool,
        mut each: impl FnMut(u8, &TapFrame),
    ) -> u64 {
        let now = self.now();
        let is_alone = self.lanes.len() == 1;
        let settled = if is_ending || is_alone { now } else { now.saturating_sub(SETTLED) };
        let mut taken = 0;
        while taken < room {
            let lanes = self.lanes.iter_mut();
            let first = lanes.filter_map(|lane| Some((lane.peek()?, lane))).min_by_key(|of| of.0);
            let Some((time, lane)) = first else { break };
            if time > settled && !is_alone {
                break;
            }
            each(lane.port, &lane.next);
            lane.has_next = false;
            taken += 1;
        }
        taken
    }

    /// Returns the number of frames that found a ring full.
    pub(crate) fn missed(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.tap.missed()).sum()
    }

    /// Tells the lcores to copy no more frames.
    pub(crate) fn close(&self) {
        self.lanes.iter().for_each(|lane| lane.tap.close());
    }

    /// Returns the time by the engine's clock.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }
}
