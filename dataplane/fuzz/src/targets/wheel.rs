//! Z12: the timer wheel compared with a sorted set.

use crate::Input;
use std::collections::BTreeSet;
use uroce_shared::time::timer_wheel::TimerWheel;
use uroce_transport::Instant;

const INDICES: u32 = 12;

pub(super) fn run(input: &mut Input<'_>) {
    // Any time, including the end of time.
    let mut now = input.u64() >> input.below(64);
    let mut wheel = TimerWheel::new(INDICES, Instant::from_nanos(now));
    let mut set: BTreeSet<(u64, u32)> = BTreeSet::new();
    while !input.is_empty() {
        let step = input.u8();
        let index = u32::from(step >> 2) % INDICES;
        match step & 3 {
            0 | 1 => {
                let ahead = u64::from(input.u16()) << input.below(48);
                let deadline = if step & 1 == 0 {
                    now.saturating_add(ahead)
                } else {
                    now.saturating_sub(ahead)
                };
                set.retain(|&(_, other)| other != index);
                // The last nanosecond means never, so such a deadline is one nanosecond earlier.
                set.insert((deadline.min(u64::MAX - 1), index));
                wheel.set(index, Instant::from_nanos(deadline));
            }
            2 => {
                set.retain(|&(_, other)| other != index);
                wheel.clear(index);
            }
            _ => {
                now = now.saturating_add(u64::from(input.u16()) << input.below(48));
                let mut due = BTreeSet::new();
                while let Some(index) = wheel.expire(Instant::from_nanos(now)) {
                    assert!(due.insert(index), "twice");
                }
                input.reach(1, due.len() as u32);
                let expected: BTreeSet<u32> =
                    set.iter().filter(|&&(at, _)| at <= now).map(|&(_, index)| index).collect();
                assert_eq!(due, expected, "at {now}");
                set.retain(|&(at, _)| at > now);
            }
        }
    }
    for index in 0..INDICES {
        let expected = set.iter().find(|&&(_, other)| other == index).map(|&(at, _)| at);
        assert_eq!(wheel.get(index).map(Instant::as_nanos), expected);
    }
    input.reach(2, set.len() as u32);
}
