//! An lcore that is about to sleep: whether it may, what wakes it, and by when it must be awake
//! again.
//!
//! Not here: sleeping itself ([`uroce_shared::wake::bed`]); the order of the steps
//! ([`uroce_shared::seat`]).

use super::Lcore;
use crate::dpdk::eal::ThreadNumber;
use std::io;
use std::time::Duration;
use uroce_shared::seat::{Drive, Work};
use uroce_shared::wake::bed::Bed;

/// Longest sleep of an lcore. A foreign peer of a memif link may add a frame just as the lcore
/// falls asleep, and not wake it; such a frame is found after this time at the latest.
const LONGEST: Duration = Duration::from_millis(100);

impl Lcore {
    /// Makes the lcore's ports wake its bed once they are [armed](Lcore::arm).
    ///
    /// # Errors
    /// A port's driver has no interrupt, or the process has no descriptor left.
    pub(crate) fn listen(&mut self, bed: &Bed) -> io::Result<()> {
        self.duties.lanes.iter_mut().try_for_each(|lane| lane.queue.listen(bed))
    }
}

impl Drive for Lcore {
    type Number = ThreadNumber;

    #[inline]
    fn turn(&mut self) -> Work {
        self.run_turn()
    }

    #[inline]
    fn turn_as(&mut self, number: &mut ThreadNumber) -> Work {
        let _bearing = number.bear();
        self.run_turn()
    }

    fn is_at_rest(&self) -> bool {
        let duties = &self.duties;
        duties.shard.is_at_rest()
            && duties.lanes.iter().all(|lane| lane.is_at_rest())
            && duties.injected.iter().all(|ring| ring.is_empty())
    }

    fn arm(&mut self) -> bool {
        self.duties.lanes.iter_mut().all(|lane| lane.queue.arm())
    }

    fn disarm(&mut self) {
        self.duties.lanes.iter_mut().for_each(|lane| lane.queue.disarm());
    }

    fn time_left(&self) -> Duration {
        let deadline = self.duties.shard.next_deadline();
        deadline.map_or(LONGEST, |deadline| {
            let left = deadline.as_nanos().saturating_sub(self.duties.clock.now());
            LONGEST.min(Duration::from_nanos(left))
        })
    }
}
