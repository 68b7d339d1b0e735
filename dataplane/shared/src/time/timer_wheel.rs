//! Timer wheel: one deadline per QP, set and cleared in constant time, without allocation.
//!
//! ```text
//!   slot = deadline / TICK mod SLOTS          slots[slot] ──▶ 17 ◀──▶ 4 ◀──▶ 230
//! ```
//!
//! A hashed wheel: each slot is a list, linked through arrays by QP index, of the deadlines with a
//! tick that falls on it in this round or in a later one. Deadlines of a later round are visited
//! and left.
//!
//! Invariants
//! - An index with a deadline is in the list of its slot; one without is in no list.
//! - A list is in the order of setting, so an index that is set again does not overtake others.
//! - No deadline is reported early, and each one that has passed is reported.
//!
//! Not here: the meaning of a deadline. Its owner may set it too early, and set it again when it is
//! reported.

use uroce_transport::Instant;

/// A tick is 8.192 µs, twice the unit of the local ACK timeout; this is its shift.
const TICK_SHIFT: u32 = 13;
/// Number of slots: one round is 33.6 ms.
const SLOTS: usize = 4096;
/// Deadlines that [`TimerWheel::next`] visits before it gives up.
const LOOKS: u32 = 4096;
/// No index.
const NIL: u32 = u32::MAX;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Bytes per index: its entry.
pub const BYTES_PER_INDEX: usize = size_of::<Entry>();

/// The deadlines of the indices 0 to n − 1.
#[derive(Debug)]
pub struct TimerWheel {
    heads: Box<[u32]>,
    entries: Box<[Entry]>,
    /// The first tick with a slot that may still hold a deadline that has passed.
    tick: u64,
    /// Number of deadlines that are set.
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: u64,
    next: u32,
    /// The entry before it; for a list's first entry, the list's last.
    previous: u32,
    /// The list that the entry is in. A deadline that had passed when it was set is in a later
    /// slot.
    slot: u32,
}

impl TimerWheel {
    /// Makes a wheel without deadlines at time `now`.
    pub fn new(indices: u32, now: Instant) -> TimerWheel {
        let entry = Entry { deadline: NEVER, next: NIL, previous: NIL, slot: 0 };
        TimerWheel {
            heads: vec![NIL; SLOTS].into(),
            entries: vec![entry; indices as usize].into(),
            tick: now.as_nanos() >> TICK_SHIFT,
            len: 0,
        }
    }

    /// Returns the deadline of an index.
    #[inline]
    pub fn get(&self, index: u32) -> Option<Instant> {
        let deadline = self.entries[index as usize].deadline;
        (deadline != NEVER).then(|| Instant::from_nanos(deadline))
    }

    /// Sets the deadline of an index, in place of an earlier one.
    pub fn set(&mut self, index: u32, deadline: Instant) {
        self.clear(index);
        // The last nanosecond of 584 years stands for no deadline.
        let deadline = deadline.as_nanos().min(NEVER - 1);
        // A deadline that has passed goes into the slot at which the next call begins.
        let slot = slot((deadline >> TICK_SHIFT).max(self.tick));
        let first = self.heads[slot];
        let previous = match first {
            NIL => index,
            first => std::mem::replace(&mut self.entries[first as usize].previous, index),
        };
        if first == NIL {
            self.heads[slot] = index;
        } else {
            self.entries[previous as usize].next = index;
        }
        self.entries[index as usize] = Entry { deadline, next: NIL, previous, slot: slot as u32 };
        self.len += 1;
    }

    /// Clears the deadline of an index, if it has one.
    pub fn clear(&mut self, index: u32) {
        let Entry { deadline, next, previous, slot } = self.entries[index as usize];
        if deadline == NEVER {
            return;
        }
        let first = self.heads[slot as usize];
        if next != NIL {
            self.entries[next as usize].previous = previous;
        } else if first != index {
            self.entries[first as usize].previous = previous;
        }
        if first == index {
            self.heads[slot as usize] = next;
        } else {
            self.entries[previous as usize].next = next;
        }
        self.entries[index as usize].deadline = NEVER;
        self.len -= 1;
    }

    /// Clears one deadline that is not after `now` and returns its index; `None` if there is none
    /// left.
    #[inline]
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let end = now.as_nanos() >> TICK_SHIFT;
        if self.len == 0 {
            self.tick = self.tick.max(end);
            return None;
        }
        // One round visits each slot, however much time has passed.
        self.tick = self.tick.max(end.saturating_sub(SLOTS as u64 - 1));
        self.walk(now, end)
    }

    /// Visits the slots from the last one visited up to `end`, until a deadline has passed.
    ///
    /// Its cost grows with the time that has passed, not with the work done. It is a function of
    /// its own so that `deploy/cost` can count it separately.
    #[inline(never)]
    fn walk(&mut self, now: Instant, end: u64) -> Option<u32> {
        loop {
            let mut index = self.heads[slot(self.tick)];
            while index != NIL {
                let entry = self.entries[index as usize];
                if entry.deadline <= now.as_nanos() {
                    self.clear(index);
                    return Some(index);
                }
                index = entry.next;
            }
            if self.tick >= end {
                return None;
            }
            self.tick += 1;
        }
    }

    /// Returns a time before which no deadline comes: the earliest deadline if it is within a
    /// round, else the end of the round or of the part that `LOOKS` deadlines cover. `None` if
    /// none is set.
    #[cold]
    pub fn next(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let (mut looks, end) = (0, self.tick + SLOTS as u64);
        for tick in self.tick..end {
            let mut earliest = NEVER;
            let mut index = self.heads[slot(tick)];
            while index != NIL {
                let entry = self.entries[index as usize];
                // A deadline of a later round is not due; one that had passed when it was set is
                // due.
                if entry.deadline >> TICK_SHIFT <= tick {
                    earliest = earliest.min(entry.deadline);
                }
                index = entry.next;
                looks += 1;
            }
            if earliest != NEVER {
                return Some(Instant::from_nanos(earliest));
            }
            if looks >= LOOKS {
                return Some(Instant::from_nanos((tick + 1) << TICK_SHIFT));
            }
        }
        Some(Instant::from_nanos(end << TICK_SHIFT))
    }
}

#[inline]
fn slot(tick: u64) -> usize {
    tick as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The generator SplitMix64, as in [`crate::fault`].
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % end
        }
    }

    fn expired(wheel: &mut TimerWheel, now: u64) -> Vec<u32> {
        let now = Instant::from_nanos(now);
        let mut all: Vec<_> = std::iter::from_fn(|| wheel.expire(now)).collect();
        all.sort_unstable();
        all
    }

    /// Compares the wheel with a sorted set of (deadline, index), under random operations.
    fn agrees_with_a_sorted_list(seed: u64) {
        const INDICES: u32 = 50;
        let mut random = Random(seed);
        let mut now = random.below(1 << 40);
        let mut wheel = TimerWheel::new(INDICES, Instant::from_nanos(now));
        let mut list: BTreeSet<(u64, u32)> = BTreeSet::new();
        for step in 0..20_000 {
            let index = random.below(u64::from(INDICES)) as u32;
            match random.below(8) {
                0..=3 => {
                    // From the past to several rounds ahead.
                    let span = [1 << 10, 1 << 16, 1 << 24, 1 << 28][random.below(4) as usize];
                    let deadline = (now + random.below(span)).saturating_sub(span / 4);
                    list.retain(|&(_, other)| other != index);
                    list.insert((deadline, index));
                    wheel.set(index, Instant::from_nanos(deadline));
                }
                4 => {
                    list.retain(|&(_, other)| other != index);
                    wheel.clear(index);
                }
                _ => {
                    now += [0, 100, 10_000, 1_000_000, 1 << 27][random.below(5) as usize];
                    let mut due: Vec<_> = list.iter().take_while(|&&(at, _)| at <= now).collect();
                    due.sort_by_key(|&&(_, index)| index);
                    let due: Vec<_> = due.into_iter().map(|&(_, index)| index).collect();
                    assert_eq!(expired(&mut wheel, now), due, "seed {seed}, step {step}");
                    list.retain(|&(at, _)| at > now);
                }
            }
            assert_eq!(wheel.len as usize, list.len(), "seed {seed}, step {step}");
        }
        for &(deadline, index) in &list {
            assert_eq!(wheel.get(index), Some(Instant::from_nanos(deadline)));
        }
    }

    #[test]
    fn agrees_with_a_sorted_list_at_many_seeds() {
        (0..40).for_each(agrees_with_a_sorted_list);
    }

    #[test]
    fn a_deadline_comes_at_its_nanosecond_and_not_before() {
        for deadline in [1, 8191, 8192, 8193, 33_554_432, 1 << 36] {
            let mut wheel = TimerWheel::new(2, Instant::ZERO);
            wheel.set(1, Instant::from_nanos(deadline));
            assert_eq!(expired(&mut wheel, deadline - 1), []);
            assert_eq!(expired(&mut wheel, deadline), [1]);
            assert_eq!(expired(&mut wheel, u64::MAX), []);
        }
    }

    #[test]
    fn deadlines_of_one_tick_come_in_the_order_they_were_set() {
        let mut wheel = TimerWheel::new(6, Instant::ZERO);
        let at = Instant::from_nanos;
        (0..6).for_each(|index| wheel.set(index, at(100 - u64::from(index))));
        // Clears the last one, the first, and one in between; sets one again.
        [5, 0, 3].into_iter().for_each(|index| wheel.clear(index));
        wheel.set(0, at(1));
        wheel.set(1, at(1));
        let order: Vec<_> = std::iter::from_fn(|| wheel.expire(at(1000))).collect();
        assert_eq!(order, [2, 4, 0, 1]);
    }

    #[test]
    fn the_end_of_time_is_never() {
        let mut wheel = TimerWheel::new(1, Instant::ZERO);
        wheel.set(0, Instant::from_nanos(u64::MAX));
        assert_eq!(expired(&mut wheel, u64::MAX - 2), []);
        assert_eq!(expired(&mut wheel, u64::MAX), [0]);
    }

    #[test]
    fn the_next_deadline_is_the_earliest_of_the_round() {
        let mut wheel = TimerWheel::new(4, Instant::ZERO);
        let at = Instant::from_nanos;
        let round = (SLOTS as u64) << TICK_SHIFT;
        assert_eq!(wheel.next(), None);
        // A deadline in the slot of tick 3, one round later.
        wheel.set(0, at(round + (3 << TICK_SHIFT)));
        assert_eq!(wheel.next(), Some(at(round)), "nothing before the round ends");
        wheel.set(1, at((3 << TICK_SHIFT) + 17));
        wheel.set(2, at((3 << TICK_SHIFT) + 5));
        assert_eq!(wheel.next(), Some(at((3 << TICK_SHIFT) + 5)));
        assert_eq!(wheel.expire(at(4 << TICK_SHIFT)), Some(1));
        assert_eq!(wheel.expire(at(4 << TICK_SHIFT)), Some(2));
        assert_eq!(wheel.expire(at(4 << TICK_SHIFT)), None);
        // The deadline has passed already: it is due at once.
        wheel.set(3, at(1));
        assert_eq!(wheel.next(), Some(at(1)));
    }

    #[test]
    fn many_deadlines_of_later_rounds_are_not_all_looked_at() {
        let mut wheel = TimerWheel::new(2 * LOOKS, Instant::ZERO);
        let round = (SLOTS as u64) << TICK_SHIFT;
        (0..2 * LOOKS).for_each(|index| wheel.set(index, Instant::from_nanos(2 * round)));
        assert_eq!(wheel.next(), Some(Instant::from_nanos(1 << TICK_SHIFT)));
    }
}
