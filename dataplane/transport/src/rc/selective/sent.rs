//! The requester's part: what the peer holds, what is lost, and what was sent again.
//!
//! A packet is lost if the peer holds packets that were sent clearly later. That is so for a packet
//! that was sent again, too: then later means after the repetition.
//!
//! While a READ or ATOMIC is outstanding, the requester goes back as with any peer, because PSNs are
//! then no packets. Selective repeat rests until everything sent until then is acknowledged.
//!
//! Invariants
//! - A PSN is in at most one of `held`, `lost` and `repeats`.
//! - All PSNs in them lie from `una` on, and before the end of what was sent.

use std::collections::VecDeque;

use uroce_wire::Psn;

use super::psn_set::{PsnSet, SPAN};

/// Number of packets by which the network may change their order before one of them is lost.
const REORDER: u32 = 3;

/// Most repetitions in flight at once.
const REPEATS: usize = 256;

/// Window of a new connection, in packets.
const FIRST_WINDOW: u32 = 256;

/// Largest window.
const MAX_WINDOW: u32 = SPAN - 1;

/// A packet that was sent again.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    psn: Psn,
    /// PSN after the newest packet sent at that time.
    end: Psn,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    /// The peer has it.
    Arrived,
    Lost,
}

#[derive(Debug)]
pub(crate) struct Sent {
    held: PsnSet,
    lost: PsnSet,
    /// Repetitions in flight, in the order of sending.
    repeats: VecDeque<Repeat>,
    una: Psn,
    /// Packets before it are held, lost or in `repeats`, unless they are still in flight.
    judged: Psn,
    /// PSN after the newest packet that the peer holds.
    high: Psn,
    /// Selective repeat rests until everything before this PSN is acknowledged.
    rests_until: Psn,
    /// PSN after the newest packet sent before the last probe.
    probe_end: Psn,
    window: u32,
    /// Least time of a packet so far, in sixteenths of a nanosecond.
    best_pace: u32,
    /// The window has just been doubled.
    is_trying: bool,
    /// Selective acknowledgements have been agreed on.
    pub(crate) is_on: bool,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent {
            held: PsnSet::default(),
            lost: PsnSet::default(),
            repeats: VecDeque::with_capacity(REPEATS),
            una: Psn::default(),
            judged: Psn::default(),
            high: Psn::default(),
            rests_until: Psn::default(),
            probe_end: Psn::default(),
            window: FIRST_WINDOW,
            best_pace: u32::MAX,
            is_trying: false,
            is_on: false,
        }
    }
}

impl Sent {
    /// Starts a connection whose first packet has this PSN.
    pub(crate) fn start(&mut self, first: Psn, is_on: bool) {
        self.forget();
        (self.una, self.judged, self.high) = (first, first, first);
        (self.rests_until, self.probe_end) = (first, first);
        self.is_on = is_on;
        self.restart_window();
    }

    /// Begins to look for the window anew, for instance on another path.
    pub(crate) fn restart_window(&mut self) {
        (self.window, self.best_pace, self.is_trying) = (FIRST_WINDOW, u32::MAX, false);
    }

    fn forget(&mut self) {
        self.held.clear();
        self.lost.clear();
        self.repeats.clear();
    }

    /// Returns whether packets are sent again one by one; otherwise the requester goes back.
    pub(crate) fn is_active(&self) -> bool {
        self.is_on && !self.una.is_before(self.rests_until)
    }

    /// Makes selective repeat rest until everything before `end` is acknowledged.
    pub(crate) fn rest_until(&mut self, end: Psn) {
        self.forget();
        self.rests_until = end;
    }

    /// Notes that everything before `una` is acknowledged.
    pub(crate) fn advance(&mut self, una: Psn) {
        self.held.remove_range(self.una, una);
        self.lost.remove_range(self.una, una);
        self.una = una;
        for psn in [&mut self.judged, &mut self.high, &mut self.rests_until, &mut self.probe_end] {
            if psn.is_before(una) {
                *psn = una;
            }
        }
        while self.repeats.front().is_some_and(|repeat| repeat.psn.is_before(una)) {
            self.repeats.pop_front();
        }
    }

    /// Number of packets that may be on their way, of `outstanding` that are not acknowledged.
    pub(crate) fn in_flight(&self, outstanding: u32) -> u32 {
        outstanding.saturating_sub(self.held.len() + self.lost.len())
    }

    /// Returns whether another new packet may be sent with this number of PSNs outstanding.
    pub(crate) fn has_room(&self, outstanding: u32) -> bool {
        outstanding < MAX_WINDOW && self.in_flight(outstanding) < self.window
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    pub(crate) fn is_lost(&self, psn: Psn) -> bool {
        self.lost.contains(psn)
    }

    /// The oldest packet to be sent again, of those before `end`.
    pub(crate) fn next_lost(&self, end: Psn) -> Option<Psn> {
        if self.lost.len() == 0 || self.repeats.len() == REPEATS {
            return None;
        }
        self.lost.first(self.una, end)
    }

    /// Notes that a lost packet was sent again; `end` is the PSN after the newest one sent.
    pub(crate) fn repeated(&mut self, psn: Psn, end: Psn) {
        self.lost.remove(psn);
        self.repeats.push_back(Repeat { psn, end, state: State::InFlight });
    }

    /// Notes that the oldest packet was sent as a probe.
    pub(crate) fn probed(&mut self, end: Psn) {
        self.probe_end = end;
    }

    /// Takes the bitmap of a selective acknowledgement: bit n is the PSN n after `una`. Returns
    /// whether it may be true: everything in it was sent, and the oldest packet, which the peer
    /// waits for, is not in it. If not, nothing has changed.
    pub(crate) fn take(&mut self, bitmap: &[u8], end: Psn) -> bool {
        let words = || {
            bitmap.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")))
        };
        let newest = words().zip(0..).filter(|(word, _)| *word != 0).last();
        let Some((word, at)) = newest else { return false };
        let high = self.una.plus(at * u64::BITS + u64::BITS - word.leading_zeros());
        let claims_oldest = words().next().is_some_and(|word| word & 1 != 0);
        if claims_oldest || end.is_before(high) {
            return false;
        }
        for (word, at) in words().zip(0..) {
            let first = self.una.plus(at * u64::BITS);
            let mut news = word & !self.held.bits_from(first);
            while news != 0 {
                let psn = first.plus(news.trailing_zeros());
                news &= news - 1;
                self.held.insert(psn);
                self.lost.remove(psn);
            }
        }
        if self.high.is_before(high) {
            self.high = high;
        }
        true
    }

    /// Returns whether the peer holds this packet.
    pub(crate) fn holds(&self, psn: Psn) -> bool {
        self.held.contains(psn)
    }

    /// PSN after the newest packet that the peer holds.
    pub(crate) fn high(&self) -> Psn {
        self.high
    }

    /// Finds what is lost, now that the peer has told what it holds. `end` is the PSN after the
    /// newest packet sent. Returns whether anything was lost that was not known to be.
    pub(crate) fn judge(&mut self, end: Psn) -> bool {
        let before = self.lost.len();
        // If nothing newer was sent, nothing else can show the loss.
        let reorder = if self.high == end { 0 } else { REORDER };
        while self.judged.plus(reorder).is_before(self.high) {
            if !self.held.contains(self.judged) {
                self.lost.insert(self.judged);
            }
            self.judged = self.judged.next();
        }
        self.judge_repeats();
        self.lost.len() > before
    }

    /// Finds the repetitions that have arrived, and those that are lost.
    fn judge_repeats(&mut self) {
        let (held, high, una) = (&self.held, self.high, self.una);
        // Repetitions that have arrived, of those sent later.
        let mut later = 0;
        for repeat in self.repeats.iter_mut().rev() {
            if repeat.psn.is_before(una) || held.contains(repeat.psn) {
                repeat.state = State::Arrived;
                later += 1;
            } else if later >= REORDER || repeat.end.plus(REORDER).is_before(high) {
                repeat.state = State::Lost;
            }
        }
        let lost = &mut self.lost;
        self.repeats.retain(|repeat| {
            if repeat.state == State::Lost {
                lost.insert(repeat.psn);
            }
            repeat.state == State::InFlight
        });
    }

    /// Gives up what is outstanding before `end`, except what the peer holds: all of it is sent
    /// again.
    pub(crate) fn lose_from(&mut self, from: Psn, end: Psn) {
        self.repeats.retain(|repeat| !repeat.psn.is_before(end));
        let mut psn = from;
        while psn.is_before(end) {
            if !self.held.contains(psn) || seeded!(HeldRepeated) {
                self.lost.insert(psn);
            }
            psn = psn.next();
        }
        if self.judged.is_before(end) {
            self.judged = end;
        }
    }

    /// Gives up what was sent before the last probe, since its answer has come.
    pub(crate) fn lose_before_probe(&mut self) {
        let (una, end) = (self.una, self.probe_end);
        self.lose_from(una, end);
    }

    /// Forgets what the peer holds: it may have lost that.
    pub(crate) fn distrust(&mut self) {
        self.held.clear();
    }

    /// Makes one packet lost, which the peer has refused for now.
    pub(crate) fn refused(&mut self, psn: Psn) {
        self.held.remove(psn);
        self.repeats.retain(|repeat| repeat.psn != psn);
        self.lost.insert(psn);
        if self.judged == psn {
            self.judged = psn.next();
        }
    }

    /// Follows a sample of the time that a packet takes with a full window: the window doubles as
    /// long as that shortens it clearly.
    pub(crate) fn grow(&mut self, pace: u32) {
        let is_better = pace < self.best_pace - self.best_pace / 4;
        if is_better {
            self.best_pace = pace;
            self.window = (self.window * 2).min(MAX_WINDOW);
        } else if self.is_trying {
            self.window = (self.window / 2).max(FIRST_WINDOW);
        }
        self.is_trying = is_better;
    }
}
