//! An lcore that is about to sleep: whether it may, what wakes it, and when it has to be awake again.
//!
//! Not here: sleeping ([`crate::bed`]); the order of the steps ([`crate::slot`]).

use super::Lcore;
use crate::bed::Bed;
use std::io;
use std::time::Duration;

/// An lcore sleeps no longer: what a foreign peer of a memif link has put beside the bell it did not
/// find armed yet is found then.
const LONGEST: Duration = Duration::from_millis(100);

impl Lcore {
    /// Has the lcore's ports wake its bed once they are [armed](Lcore::arm).
    ///
    /// # Errors
    /// A port cannot: its driver has no interrupt, or the process no descriptor left.
    pub(crate) fn listen(&mut self, bed: &Bed) -> io::Result<()> {
        self.duties.lanes.iter_mut().try_for_each(|lane| lane.queue.listen(bed))
    }

    /// Is nothing waiting that only further turns can move?
    pub(crate) fn is_at_rest(&self) -> bool {
        let duties = &self.duties;
        duties.lanes.iter().all(|lane| lane.is_at_rest())
            && duties.injected.iter().all(|ring| ring.is_empty())
    }

    /// Each port wakes the bed from now on if something comes in. Says whether all can right now.
    pub(crate) fn arm(&self) -> bool {
        self.duties.lanes.iter().all(|lane| lane.queue.arm())
    }

    /// The ports are polled again.
    pub(crate) fn disarm(&self) {
        self.duties.lanes.iter().for_each(|lane| lane.queue.disarm());
    }

    /// How long the lcore may sleep, by the deadlines of its QPs.
    pub(crate) fn time_left(&self) -> Duration {
        let deadline = self.duties.shard.next_deadline();
        deadline.map_or(LONGEST, |deadline| {
            let left = deadline.as_nanos().saturating_sub(self.duties.clock.now());
            LONGEST.min(Duration::from_nanos(left))
        })
    }
}
