//! Timer wheel: one deadline per QP, set and cleared in constant time, without allocation.
//!
//! ```text
//!   slot = deadline / TICK mod SLOTS          slots[slot] ──▶ 17 ◀──▶ 4 ◀──▶ 230
//! ```
//!
//! A hashed wheel: each slot is a list, linked through arrays by QP index, of the deadlines with a
//! tick that falls on it within a round from now. Later deadlines, such as those of keepalives, are
//! in one list for each round, and go to their slots when the round begins. So a far deadline is
//! not visited in each round.
//!
//! Invariants
//! - An index with a deadline is in one list; one without is in no list.
//! - The lists of rounds have no deadline of the present round.
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
/// Number of rounds with lists of their own, 34 s. Later deadlines share lists with these.
const FAR: usize = 1024;
/// No index.
const NIL: u32 = u32::MAX;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// Bytes per index: its entry.
pub const BYTES_PER_INDEX: usize = size_of::<Entry>();

/// The deadlines of the indices 0 to n − 1.
#[derive(Debug)]
pub struct TimerWheel {
    /// The first entries of the slots' lists, then of the rounds' lists.
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
            heads: vec![NIL; SLOTS + FAR].into(),
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
        let tick = (deadline >> TICK_SHIFT).max(self.tick);
        let is_near = tick - self.tick < SLOTS as u64;
        let slot = if is_near { slot(tick) } else { list_of_round(tick / SLOTS as u64) };
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
        let least = end.saturating_sub(SLOTS as u64 - 1);
        if least > self.tick {
            self.skip_to(least);
        }
        self.walk(now, end)
    }

    /// Skips the slots before `tick`; the deadlines of rounds that have begun go to their slots.
    #[cold]
    fn skip_to(&mut self, tick: u64) {
        let before = self.tick / SLOTS as u64;
        self.tick = tick;
        let rounds = (tick / SLOTS as u64 - before).min(FAR as u64);
        (before + 1..=before + rounds).for_each(|round| self.begin_round(round));
    }

    /// Moves the deadlines of a round that has begun to their slots. Those of a later round that
    /// shares the list stay in it.
    #[cold]
    fn begin_round(&mut self, round: u64) {
        let mut index = std::mem::replace(&mut self.heads[list_of_round(round)], NIL);
        while index != NIL {
            let Entry { deadline, next, .. } = self.entries[index as usize];
            // It is in no list now.
            self.entries[index as usize].deadline = NEVER;
            self.len -= 1;
            self.set(index, Instant::from_nanos(deadline));
            index = next;
        }
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
            if self.tick.is_multiple_of(SLOTS as u64) {
                self.begin_round(self.tick / SLOTS as u64);
            }
        }
    }

    /// Returns a time before which no deadline comes: the earliest deadline if it is near, else the
    /// beginning of a round with one. `None` if none is set.
    #[cold]
    pub fn next(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let round = self.tick / SLOTS as u64;
        let has_any = |round: &u64| self.heads[list_of_round(*round)] != NIL;
        let far = (round + 1..=round + FAR as u64).find(has_any).map(|round| round * SLOTS as u64);
        let end = self.tick + SLOTS as u64;
        for tick in self.tick..far.unwrap_or(end).min(end) {
            let mut earliest = NEVER;
            let mut index = self.heads[slot(tick)];
            while index != NIL {
                let entry = self.entries[index as usize];
                earliest = earliest.min(entry.deadline);
                index = entry.next;
            }
            if earliest != NEVER {
                return Some(Instant::from_nanos(earliest));
            }
        }
        Some(Instant::from_nanos(far.unwrap_or(end) << TICK_SHIFT))
    }
}

#[inline]
fn slot(tick: u64) -> usize {
    tick as usize % SLOTS
}

/// The list of a round in [`TimerWheel::heads`].
fn list_of_round(round: u64) -> usize {
    SLOTS + round as usize % FAR
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
                    let spans = [1 << 10, 1 << 16, 1 << 24, 1 << 28, 1 << 34, 1 << 37];
                    let span = spans[random.below(6) as usize];
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
                    let steps = [0, 100, 10_000, 1_000_000, 1 << 27, 1 << 33];
                    now += steps[random.below(6) as usize];
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
    fn far_deadlines_are_not_looked_at_before_their_round() {
        let round = (SLOTS as u64) << TICK_SHIFT;
        // Rounds before, at and after the end of the lists.
        for rounds in [2, FAR as u64 - 1, FAR as u64, FAR as u64 + 1, 3 * FAR as u64] {
            let mut wheel = TimerWheel::new(3, Instant::ZERO);
            let deadline = rounds * round + 77;
            (0..3).for_each(|index| wheel.set(index, Instant::from_nanos(deadline)));
            let mut now = 0;
            while wheel.len == 3 {
                let next = wheel.next().unwrap().as_nanos();
                assert!(next > now && next <= deadline, "{next} after {now} for {deadline}");
                now = next;
                assert_eq!(wheel.expire(Instant::from_nanos(now - 1)), None);
                if now == deadline {
                    assert_eq!(expired(&mut wheel, now), [0, 1, 2]);
                } else {
                    assert_eq!(expired(&mut wheel, now), []);
                }
            }
            assert_eq!(now, deadline);
        }
    }

    #[test]
    fn far_deadlines_are_cleared_and_set_again_like_others() {
        let mut wheel = TimerWheel::new(4, Instant::ZERO);
        let at = Instant::from_nanos;
        let far = (SLOTS as u64) << TICK_SHIFT << 3;
        (0..4).for_each(|index| wheel.set(index, at(far + u64::from(index))));
        [3, 0].into_iter().for_each(|index| wheel.clear(index));
        wheel.set(1, at(5));
        wheel.set(0, at(far * 2));
        assert_eq!(expired(&mut wheel, far + 100), [1, 2]);
        // The whole time was skipped.
        assert_eq!(expired(&mut wheel, far * 5000), [0]);
        assert_eq!(wheel.next(), None);
    }
}
