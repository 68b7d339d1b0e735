//! Backlog: how much a bottleneck's queue holds, shared by the lcores that send through the port.
//!
//! The state is the time at which the last accepted frame will have left. What lies between now and
//! then, at the rate, is the length of the queue. So it becomes shorter by itself, and lcores that
//! have only their own frames share the rate exactly, in order of arrival.
//!
//! Invariants
//! - An accepted frame leaves one frame's time after the one before it, or after its arrival if the
//!   queue is empty.
//! - The queue is never longer than it may be, and the rate is never exceeded, except while a
//!   change of the configuration reaches the lcores one after another.

use uroce_shared::sync::{AtomicU64, Ordering};
use uroce_transport::Instant;

/// Fractions of a nanosecond that are counted: a small frame at a high rate takes few nanoseconds.
const PARTS: u64 = 64;

/// The queue of a port's bottleneck, as far as lcores share it.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The time at which the queue is empty, in `PARTS` of a nanosecond.
    ends: AtomicU64,
    /// The longest that the queue has been since the start, in bytes.
    longest: AtomicU64,
}

/// A frame's place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The time at which the frame has left.
    pub(super) leaves: Instant,
    /// Bytes that the queue held before the frame came.
    pub(super) depth: u32,
}

impl Backlog {
    /// Accepts a frame of `bytes` bytes that comes `now` into a queue of at most `queue` bytes that
    /// is served at `rate_mbps`. Returns `None` if there is no room.
    pub(super) fn admit(
        &self,
        bytes: u32,
        now: Instant,
        rate_mbps: u32,
        queue: u32,
    ) -> Option<Place> {
        let (rate, now) = (u64::from(rate_mbps), now.as_nanos() * PARTS);
        // Bits divided by Mb/s are microseconds. Rounded to nearest, so that the errors of many
        // frames cancel out.
        let time = (u64::from(bytes) * 8 * 1000 * PARTS + rate / 2) / rate;
        let depth_at = |ends: u64| ends.saturating_sub(now) * rate / (8 * 1000 * PARTS);
        let fits = |ends: u64| depth_at(ends) + u64::from(bytes) <= u64::from(queue);
        let after = |ends: u64| fits(ends).then(|| ends.max(now) + time);
        let ends = self.ends.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok()?;
        let leaves = (ends.max(now) + time).div_ceil(PARTS);
        // It is less than `queue`, as the frame has found room.
        Some(Place { leaves: Instant::from_nanos(leaves), depth: depth_at(ends) as u32 })
    }

    /// Notes that the queue holds `depth` bytes. Returns by how much this is longer than ever
    /// before.
    pub(super) fn note_depth(&self, depth: u64) -> u64 {
        if self.longest.load(Ordering::Relaxed) >= depth {
            return 0;
        }
        depth.saturating_sub(self.longest.fetch_max(depth, Ordering::Relaxed))
    }

    /// Empties the queue, for one of another rate or length: the time at which it would be empty
    /// means nothing for that.
    pub(crate) fn clear(&self) {
        self.ends.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBPS: u32 = 1000;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    fn at_us(us: u64) -> Instant {
        at(1000 * us)
    }

    #[test]
    fn frames_leave_one_after_another_at_the_rate() {
        let backlog = Backlog::default();
        let admit = |bytes, ns| backlog.admit(bytes, at(ns), GBPS, 10_000);
        // At 1 Gb/s a byte takes 8 ns.
        assert_eq!(admit(1000, 500), Some(Place { leaves: at(8500), depth: 0 }));
        assert_eq!(admit(500, 500), Some(Place { leaves: at(12_500), depth: 1000 }));
        assert_eq!(admit(250, 8500), Some(Place { leaves: at(14_500), depth: 500 }));
        // The queue has been empty since.
        assert_eq!(admit(250, 20_000), Some(Place { leaves: at(22_000), depth: 0 }));
    }

    #[test]
    fn a_frame_without_room_is_refused_and_takes_no_time() {
        let backlog = Backlog::default();
        let admit = |bytes, ns| backlog.admit(bytes, at(ns), GBPS, 3000);
        assert!(admit(3001, 0).is_none(), "longer than the queue");
        assert_eq!(admit(2000, 0).map(|place| place.leaves), Some(at(16_000)));
        assert!(admit(1001, 0).is_none());
        assert_eq!(admit(1000, 0), Some(Place { leaves: at(24_000), depth: 2000 }));
        assert!(admit(1, 0).is_none(), "full");
        assert_eq!(admit(1000, 8000), Some(Place { leaves: at(32_000), depth: 2000 }));
    }

    #[test]
    fn small_frames_at_high_rates_keep_to_the_rate() {
        for rate_mbps in [100, 2500, 10_000, 40_000, 100_000, 400_000] {
            for bytes in [60, 62, 73, 1082, 4154] {
                let backlog = Backlog::default();
                let frames = 10_000;
                let last = (0..frames)
                    .map(|_| backlog.admit(bytes, at(0), rate_mbps, u32::MAX).unwrap())
                    .last()
                    .unwrap();
                let exact = f64::from(bytes) * 8e3 * f64::from(frames) / f64::from(rate_mbps);
                let ratio = last.leaves.as_nanos() as f64 / exact;
                assert!((ratio - 1.0).abs() < 0.007, "{bytes} at {rate_mbps}: {ratio}");
            }
        }
    }

    #[test]
    fn of_twice_the_rate_half_is_accepted_and_the_queue_stays_full() {
        let backlog = Backlog::default();
        // A frame of 1000 bytes takes 8 µs, and one comes every 4 µs.
        let (frames, queue) = (100_000, 50_000);
        let offered = (0..frames).map(|at| backlog.admit(1000, at_us(4 * at), GBPS, queue));
        let places: Vec<Option<Place>> = offered.collect();
        let accepted = places.iter().flatten().count() as u64;
        assert!((frames / 2..frames / 2 + 100).contains(&accepted), "{accepted}");
        // Once full, the queue is short of at most the frame that just did not fit.
        let settled = places.iter().skip(1000).flatten();
        assert!(settled.clone().count() > 0);
        assert!(settled.map(|place| place.depth + 1000).all(|depth| depth > queue - 1000));
        // Each frame leaves one frame's time after the one before it.
        let leaves: Vec<u64> =
            places.iter().flatten().map(|place| place.leaves.as_nanos()).collect();
        assert!(leaves.windows(2).all(|two| two[1] - two[0] == 8000));
    }

    #[test]
    fn threads_share_one_queue() {
        let backlog = Backlog::default();
        let accepts = || backlog.admit(100, at(0), GBPS, 1_000_000).is_some();
        let send = || (0..10_000).filter(|_| accepts()).count();
        let accepted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(send)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(accepted, 10_000, "as many frames of 100 bytes as fit into 10^6 bytes");
    }

    #[test]
    fn the_longest_queue_is_told_once() {
        let backlog = Backlog::default();
        let told = [100, 50, 100, 130].map(|depth| backlog.note_depth(depth));
        assert_eq!(told, [100, 0, 0, 30]);
        backlog.clear();
        assert_eq!(backlog.note_depth(130), 0, "since the start");
    }
}
