//! Receiving: which rings are looked at, and the frames in them.
//!
//! A ring is looked at in each turn while its member is *hot*: from the activity bit that its
//! member has set until [`QUIET`] turns in a row have found nothing. Then the bit is taken back. A
//! turn without hot members costs one load.

use super::{Core, Frame};
use crate::board::{bit, numbers, numbers_after};
use crate::link::LinkEnd;
use crate::ring::Malformed;

/// Turns in a row without a frame after which a member is hot no more.
const QUIET: u32 = 64;
/// Turns between two looks at the rings of a member without an activity bit. A peer may have
/// cleared the bit of another one.
const SWEEP: u32 = 256;

impl Core {
    #[inline]
    pub(super) fn receive(&mut self, max: usize, mut take: impl FnMut(Frame<'_>) -> bool) -> usize {
        self.look();
        if self.hot == 0 {
            return 0;
        }
        let mut taken = 0;
        let mut cooled = 0;
        for (place, number) in numbers_after(self.hot, self.first).enumerate() {
            if place == 0 {
                // Each turn begins with the member after the one with which the last began.
                self.first = number;
            }
            let (frame_max, turns) = (self.frame_max, self.turns as usize);
            let Some(link) = self.link(number) else {
                self.hot &= !bit(number);
                continue;
            };
            let (mut count, mut bytes, mut goes_on) = (0, 0, true);
            let counted = |frame: Frame<'_>| {
                let len = frame.len();
                goes_on = take(frame);
                if goes_on {
                    count += 1;
                    bytes += len;
                }
                goes_on
            };
            let result = receive_from(link, max - taken, frame_max, turns, counted);
            link.quiet_turns = if count > 0 { 0 } else { link.quiet_turns.saturating_add(1) };
            if link.quiet_turns > QUIET {
                cooled |= bit(number);
            }
            if result == Err(Malformed) {
                self.close(number);
            }
            self.counters.rx_frames.add(count as u64);
            self.counters.rx_bytes.add(bytes as u64);
            taken += count;
            if taken >= max || !goes_on {
                break;
            }
        }
        if cooled != 0 {
            self.cool(cooled);
        }
        taken
    }

    /// Looks for what other threads have set: one load in most turns.
    #[inline]
    fn look(&mut self) {
        let active = self.board.active(self.index) & !self.hot;
        if active != 0 {
            self.heat(active);
        }
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(SWEEP) {
            self.sweep();
        }
        if self.draining != 0 || !self.stranded.is_empty() {
            self.retire();
        }
    }

    /// Members have set their bits.
    #[cold]
    fn heat(&mut self, active: u64) {
        let known = self.open | self.draining;
        // The own bit is about news. A link of which the news has not come yet is hot from then on.
        let taken_back = active & !known;
        if taken_back != 0 {
            self.board.clear(self.index, taken_back);
            self.take_news();
        }
        for number in numbers(active & known) {
            self.warm(number);
        }
    }

    fn warm(&mut self, number: u8) {
        if let Some(link) = self.link(number) {
            link.quiet_turns = 0;
            self.hot |= bit(number);
        }
    }

    /// Takes the bits of quiet members back, and looks at their rings once more.
    #[cold]
    fn cool(&mut self, members: u64) {
        self.board.clear(self.index, members);
        for number in numbers(members & !self.draining) {
            match self.link(number).is_some_and(|link| link.has_more()) {
                true => self.warm(number),
                false => self.hot &= !bit(number),
            }
        }
    }

    /// Looks at the rings of one more member, and for news.
    #[cold]
    fn sweep(&mut self) {
        self.take_news();
        if let Some(number) = numbers_after(self.open & !self.hot, self.swept).next() {
            self.swept = number;
            if self.link(number).is_some_and(|link| link.has_more()) {
                self.warm(number);
            }
        }
    }

    pub(super) fn arm(&mut self) -> bool {
        self.retire();
        self.board.arm(self.index);
        self.is_armed = true;
        if self.something_waits() {
            self.disarm();
            return false;
        }
        true
    }

    /// Returns whether a frame or news has come; makes the members of frames hot.
    fn something_waits(&mut self) -> bool {
        let mut waits = !self.news.is_empty();
        for number in numbers(self.open | self.draining) {
            if self.link(number).is_some_and(|link| link.has_more()) {
                self.warm(number);
                waits = true;
            }
        }
        waits
    }

    pub(super) fn disarm(&mut self) {
        if self.is_armed {
            self.is_armed = false;
            self.board.disarm(self.index);
            // A sender may have written to it.
            self.board.event(self.index).drain();
        }
    }
}

/// Gives up to `max` frames of one link to `take`; its rings begin in turn.
#[inline]
fn receive_from(
    link: &mut LinkEnd,
    max: usize,
    frame_max: usize,
    turns: usize,
    mut take: impl FnMut(Frame<'_>) -> bool,
) -> Result<(), Malformed> {
    let (mut taken, mut goes_on) = (0, true);
    let rings = link.rx.len();
    for ring in 0..rings {
        let ring = &mut link.rx[(ring + turns) % rings];
        while goes_on && taken < max {
            let Some(slot) = ring.next(frame_max)? else { break };
            goes_on = take(Frame { memory: ring.memory(), slot });
            if goes_on {
                ring.pass(slot);
                taken += 1;
            }
        }
        ring.release();
    }
    Ok(())
}
