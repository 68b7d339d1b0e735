//! The requester's part: what the peer holds, what is lost, and what was sent again.
//!
//! A packet is lost if the peer holds packets that were sent clearly later, by the same path. This
//! holds for a packet that was sent again, too: then later means after the repetition.
//!
//! If packets use several UDP source ports in turn, the network may give each port another path.
//! The PSN chooses the port, so that a packet and its repetitions have the same one.
//!
//! While a READ or ATOMIC is outstanding, the requester goes back as with any peer, because a READ
//! is one packet with several PSNs. Selective repeat rests until everything sent by then is
//! acknowledged.
//!
//! Invariants
//! - A PSN is in at most one of `held`, `lost` and `repeats` after [`Sent::judge`].
//! - All PSNs in them lie from `una` on, and before the end of what was sent.

use std::collections::VecDeque;

use uroce_wire::Psn;

use crate::attr::MAX_UDP_SOURCE_PORTS;
use crate::context::Context;
use crate::env::Path;

use super::psn_set::{PsnSet, SPAN};

/// Number of packets by which the network may change their order before one of them is lost.
const REORDER: u32 = 3;

/// Largest number of repetitions in flight at once of which a loss is found early.
const REPEATS: usize = 256;

/// Window of a new connection, in packets.
const FIRST_WINDOW: u32 = 256;

/// Window of a peer that can hold few packets.
const LEAST_WINDOW: u32 = 64;

/// Largest window.
const MAX_WINDOW: u32 = SPAN - 1;

/// Number of windows that may be outstanding, with what the peer holds: a packet that is lost three
/// times in a row stops nothing, and the peer needs no more room than that.
const ROUNDS: u32 = 4;

/// A packet that was sent again.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    psn: Psn,
    /// PSN after the newest packet sent at that time.
    end: Psn,
    /// Whether the packet was sent after the last probe, so that the answer to the probe does not
    /// concern it.
    is_after_probe: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    /// The peer has it.
    Arrived,
    Lost,
}

/// Meaning of a selective acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The peer holds packets that it was not known to hold.
    New,
    /// All of it was known.
    Known,
    /// The acknowledgement cannot be true.
    False,
}

#[derive(Debug)]
pub(crate) struct Sent {
    held: PsnSet,
    lost: PsnSet,
    /// Packets that were sent again: those in `repeats`.
    repeated: PsnSet,
    /// Repetitions in flight, in the order of sending.
    repeats: VecDeque<Repeat>,
    una: Psn,
    /// Every packet before it is known to be held, lost or sent again.
    judged: Psn,
    /// For each source port: PSN after the newest packet that the peer holds of those sent by it.
    high: [Psn; MAX_UDP_SOURCE_PORTS as usize],
    /// Number of source ports, a power of two.
    ports: u32,
    /// Selective repeat rests until everything before this PSN is acknowledged.
    rests_until: Psn,
    /// PSN after the newest packet sent before the last probe.
    probe_end: Psn,
    /// PSN after the newest packet sent when the peer last had no more room.
    crowd_end: Psn,
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
            repeated: PsnSet::default(),
            repeats: VecDeque::with_capacity(REPEATS),
            una: Psn::default(),
            judged: Psn::default(),
            high: Default::default(),
            ports: 1,
            rests_until: Psn::default(),
            probe_end: Psn::default(),
            crowd_end: Psn::default(),
            window: FIRST_WINDOW,
            best_pace: u32::MAX,
            is_trying: false,
            is_on: false,
        }
    }
}

impl Sent {
    /// Starts a connection. `first` is the PSN of its first packet, `ports` the number of source
    /// ports, `is_on` tells whether selective repeat has been agreed on.
    pub(crate) fn start(&mut self, first: Psn, is_on: bool, ports: u8) {
        self.forget();
        (self.una, self.judged) = (first, first);
        (self.rests_until, self.probe_end, self.crowd_end) = (first, first, first);
        (self.high, self.ports) = ([first; _], u32::from(ports.max(1)));
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
        self.repeated.clear();
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
        // The peer expects `una`, so it does not hold that any more.
        self.held.remove_range(self.una, una.next());
        self.lost.remove_range(self.una, una);
        self.repeated.remove_range(self.una, una);
        self.una = una;
        let own =
            [&mut self.judged, &mut self.rests_until, &mut self.probe_end, &mut self.crowd_end];
        for psn in own.into_iter().chain(&mut self.high[..self.ports as usize]) {
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
        let most = MAX_WINDOW.min(self.window * ROUNDS);
        outstanding < most && self.in_flight(outstanding) < self.window
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    pub(crate) fn is_lost(&self, psn: Psn) -> bool {
        self.lost.contains(psn)
    }

    /// Returns whether the packet is lost, or a repetition of it is in flight.
    pub(crate) fn is_known_lost(&self, psn: Psn) -> bool {
        self.lost.contains(psn) || self.repeated.contains(psn)
    }

    /// The oldest packet to be sent again, of those before `end`.
    pub(crate) fn next_lost(&self, end: Psn) -> Option<Psn> {
        if self.lost.is_empty() { None } else { self.lost.first(self.una, end) }
    }

    /// Notes that a lost packet was sent again; `end` is the PSN after the newest one sent.
    pub(crate) fn repeated(&mut self, psn: Psn, end: Psn) {
        self.lost.remove(psn);
        self.repeated.insert(psn);
        if self.repeats.len() == REPEATS {
            // If this one is lost, a probe finds that.
            self.repeats.pop_front();
        }
        let state = State::InFlight;
        self.repeats.push_back(Repeat { psn, end, is_after_probe: true, state });
    }

    /// Notes that the oldest packet was sent as a probe.
    pub(crate) fn probed(&mut self, end: Psn) {
        self.probe_end = end;
        self.repeats.iter_mut().for_each(|repeat| repeat.is_after_probe = false);
    }

    /// Takes the bitmap of a selective acknowledgement: bit n is the PSN n after `una`. It may be
    /// true if everything in it was sent, and the oldest packet, which the peer waits for, is not
    /// in it. If not, nothing changes.
    pub(crate) fn take(&mut self, bitmap: &[u8], end: Psn) -> Claim {
        let words = || {
            bitmap.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")))
        };
        let newest = words().zip(0..).filter(|(word, _)| *word != 0).last();
        // What the peer holds may lie beyond a short bitmap.
        let Some((word, at)) = newest else { return Claim::Known };
        let high = self.una.plus(at * u64::BITS + u64::BITS - word.leading_zeros());
        let claims_oldest = words().next().is_some_and(|word| word & 1 != 0);
        if claims_oldest || end.is_before(high) {
            return Claim::False;
        }
        let before = self.held.len();
        for (word, at) in words().zip(0..) {
            let first = self.una.plus(at * u64::BITS);
            let mut news = word & !self.held.bits_from(first);
            while news != 0 {
                let psn = first.plus(news.trailing_zeros());
                news &= news - 1;
                self.held.insert(psn);
                self.lost.remove(psn);
                let high = &mut self.high[port_of(psn, self.ports)];
                if high.is_before(psn.next()) {
                    *high = psn.next();
                }
            }
        }
        if self.held.len() > before { Claim::New } else { Claim::Known }
    }

    /// The path of the packet `psn`.
    //= check E22 — a packet and its repetitions use the same port
    pub(crate) fn path<'a>(&self, psn: Psn, context: &Context<'a>) -> Path<'a> {
        let port = port_of(psn, self.ports);
        if port == 0 || !self.is_active() {
            return context.path();
        }
        Path::Sprayed(&context.attr.template, port as u16)
    }

    /// Number of packets outstanding with which a READ or ATOMIC has to wait. While it is
    /// outstanding, a changed order would look like a loss.
    pub(crate) fn most_before_read(&self) -> u32 {
        if self.ports > 1 { 1 } else { FIRST_WINDOW }
    }

    /// Returns whether the peer holds this packet.
    pub(crate) fn holds(&self, psn: Psn) -> bool {
        self.held.contains(psn)
    }

    /// PSN after the newest packet that the peer holds.
    pub(crate) fn high(&self) -> Psn {
        let ahead = |psn: &Psn| psn.distance_from(self.una);
        self.high[..self.ports as usize].iter().copied().max_by_key(ahead).unwrap_or(self.una)
    }

    /// Returns whether the peer holds packets that were sent clearly later than the first copy of
    /// the packet `psn`, by the same path. `end` is the PSN after the newest packet sent.
    fn is_overtaken(&self, psn: Psn, end: Psn) -> bool {
        let high = self.high[port_of(psn, self.ports)];
        // If nothing newer was sent by this path, nothing else can show the loss.
        let is_newest = !high.plus(self.ports - 1).is_before(end);
        let reorder = if is_newest { 0 } else { REORDER * self.ports };
        psn.plus(reorder).next().is_before(high)
    }

    /// Returns whether the peer holds packets that were sent clearly later than the repetition of
    /// the packet `psn`, by the same path. `end` is the PSN after the newest packet sent before it.
    fn is_repeat_overtaken(&self, psn: Psn, end: Psn) -> bool {
        end.plus(REORDER * self.ports).is_before(self.high[port_of(psn, self.ports)])
    }

    /// Finds what is lost, now that the peer has told what it holds. `end` is the PSN after the
    /// newest packet sent. Returns whether anything was lost that was not known to be.
    pub(crate) fn judge(&mut self, end: Psn) -> bool {
        let before = self.lost.len();
        let high = self.high();
        let mut is_contiguous = true;
        let mut from = self.judged;
        while from.is_before(high) {
            let mut open = !self.known_bits_from(from);
            while open != 0 {
                let psn = from.plus(open.trailing_zeros());
                open &= open - 1;
                if !psn.is_before(high) {
                    break;
                }
                if self.is_overtaken(psn, end) {
                    self.lost.insert(psn);
                } else if is_contiguous {
                    (self.judged, is_contiguous) = (psn, false);
                }
            }
            from = from.plus(u64::BITS);
        }
        if is_contiguous {
            self.judged = high;
        }
        self.judge_repeats();
        self.lost.len() > before
    }

    /// The 64 PSNs from `psn` on as bits: set for those that the peer holds, that are lost or that
    /// were sent again.
    fn known_bits_from(&self, psn: Psn) -> u64 {
        let sets = [&self.held, &self.lost, &self.repeated];
        sets.into_iter().fold(0, |bits, set| bits | set.bits_from(psn))
    }

    /// Finds the repetitions that have arrived, and those that are lost.
    fn judge_repeats(&mut self) {
        let una = self.una;
        // For each source port: repetitions that have arrived, of those sent later.
        let mut later = [0; MAX_UDP_SOURCE_PORTS as usize];
        for at in (0..self.repeats.len()).rev() {
            let Repeat { psn, end: sent, .. } = self.repeats[at];
            let later = &mut later[port_of(psn, self.ports)];
            if psn.is_before(una) || self.held.contains(psn) {
                self.repeats[at].state = State::Arrived;
                *later += 1;
            } else if *later > REORDER || self.is_repeat_overtaken(psn, sent) {
                self.repeats[at].state = State::Lost;
            }
        }
        let Sent { lost, repeated, .. } = self;
        self.repeats.retain(|repeat| {
            if repeat.state == State::Lost {
                lost.insert(repeat.psn);
            }
            let is_over = repeat.state != State::InFlight;
            if is_over && !repeat.psn.is_before(una) {
                repeated.remove(repeat.psn);
            }
            !is_over
        });
    }

    /// Gives up what is outstanding from `from` up to `end`, except what the peer holds: all of it
    /// is sent again.
    pub(crate) fn lose_from(&mut self, from: Psn, end: Psn) {
        self.repeats.retain(|repeat| !repeat.psn.is_before(end));
        self.repeated.remove_range(self.una, end);
        self.lose(from, end);
    }

    /// Gives up what was sent before the last probe, since its answer has come.
    pub(crate) fn lose_before_probe(&mut self) {
        let (una, end) = (self.una, self.probe_end);
        self.repeats.retain(|repeat| repeat.is_after_probe || !repeat.psn.is_before(end));
        self.repeated.remove_range(una, end);
        for repeat in self.repeats.iter().filter(|repeat| !repeat.psn.is_before(una)) {
            self.repeated.insert(repeat.psn);
        }
        self.lose(una, end);
    }

    /// Makes all packets from `from` up to `end` lost that the peer does not hold and that are not
    /// on their way again.
    fn lose(&mut self, from: Psn, end: Psn) {
        let mut psn = from;
        while psn.is_before(end) {
            let is_safe = self.held.contains(psn) || self.repeated.contains(psn);
            if !is_safe || seeded!(HeldRepeated) {
                self.lost.insert(psn);
            }
            psn = psn.next();
        }
    }

    /// Forgets what the peer holds: it may have lost that.
    pub(crate) fn distrust(&mut self) {
        self.held.clear();
    }

    /// Makes one packet lost, which the peer has refused for now.
    pub(crate) fn refused(&mut self, psn: Psn) {
        self.held.remove(psn);
        self.repeats.retain(|repeat| repeat.psn != psn);
        self.repeated.remove(psn);
        self.lost.insert(psn);
    }

    /// Follows a selective acknowledgement which tells that the peer has no more room: it gets
    /// less, once for everything sent before `end`.
    pub(crate) fn crowd(&mut self, end: Psn) {
        if !self.una.is_before(self.crowd_end) {
            self.crowd_end = end;
            self.window = (self.window / 2).max(FIRST_WINDOW);
            self.is_trying = false;
        }
    }

    /// Follows a sequence NAK: the peer had no room to hold what came early, so it gets less.
    pub(crate) fn shrink(&mut self) {
        self.window = (self.window / 2).max(LEAST_WINDOW);
        self.is_trying = false;
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

/// The index of the source port of the packet `psn`, of `ports`. 2^24 is a multiple of `ports`, so
/// that a wrap of the PSNs changes nothing.
fn port_of(psn: Psn, ports: u32) -> usize {
    (psn.value() & (ports - 1)) as usize
}
