//! Poller: lets a thread that polls a completion queue drive the lcores that fill it.
//!
//! A poll that finds nothing runs a turn of each lcore with QPs that use its queue. A poll that
//! finds completions needs no turn: the completions of the last turn are not used up yet.
//!
//! One kind of program waits without polling: it posts a WRITE, polls until that has completed, and
//! then reads its memory until the peer's WRITE has arrived. No thread would drive while it reads.
//! The answer usually arrives a fraction of the round trip after the completion, so the poll that
//! takes the completion runs some further turns, until a WRITE arrives. For programs that get no
//! such answers this is done rarely, since it was in vain before.
//!
//! A poll that finds nothing yields the processor where that brings its completion nearer: if
//! another thread drives the lcore, which may have been preempted in its turn, or if the turn did
//! no work and more threads poll than there are processors ([`crate::control::crowd`]), or other
//! processes wait for the processor ([`contention`]).
//!
//! Not here: how pollers and the lcore's thread take turns ([`uroce_shared::seat`]).

use crate::control::crowd;
use crate::control::engine::Engine;
use crate::control::signals;
use crate::limits::MAX_LCORES;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use uroce_shared::queue::CompletionQueue;
use uroce_shared::seat::Turn;
use uroce_shared::seat::contention;
use uroce_shared::seat::idle::Driver;
use uroce_shared::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use uroce_shared::time::clock::Clock;
use uroce_transport::Counter;

/// Turns for which a poll that took a WRITE's completion waits for an answer: some microseconds.
const LINGER_TURNS: u32 = 64;
/// The waiting time doubles with each answer in a row, up to this many times: a tenth of a
/// millisecond, so that a peer that was delayed for a moment does not cost a nap of the lcore's
/// thread.
const MAX_HITS: u32 = 5;
/// If no WRITEs arrive, one completion in 2 to the power of this number waits.
const MAX_MISSES: u32 = 6;

// A completion queue has one bit for each lcore.
const _: () = assert!(MAX_LCORES <= u64::BITS as usize);

thread_local! {
    /// Whether the thread has unblocked the signals of memory faults. If the program blocks them
    /// again, memory that is gone ends the process.
    static IS_READY: Cell<bool> = const { Cell::new(false) };
}

/// Drives the lcores that fill a completion queue. Any thread may use it, several at the same time.
#[derive(Debug)]
pub struct Poller {
    engine: Engine,
    cq: Arc<CompletionQueue>,
    answer: Answer,
    clock: Clock,
}

/// The result of a turn of each lcore of a queue.
struct Turns {
    /// Busy if one of them has done something.
    turn: Turn,
    /// Whether another thread drives one of them.
    has_met_another: bool,
}

/// The guess whether the program waits for WRITEs after its own. Threads that poll the same queue
/// disturb each other's guesses, but nothing else.
#[derive(Debug, Default)]
struct Answer {
    /// Whether a poll has found nothing since the last completion was taken: then the next WRITE is
    /// posted.
    is_awaited: AtomicBool,
    /// Number of received WRITEs at that time.
    before: AtomicU64,
    /// Number of received WRITEs when the last completion was taken.
    last: AtomicU64,
    /// Completions in a row after which a WRITE has arrived at once.
    hits: AtomicU32,
    /// Completions in a row after which none has arrived.
    misses: AtomicU32,
    /// Completions that will not wait.
    skip: AtomicU32,
}

impl Engine {
    /// Returns the poller of a queue of this engine; `None` unless pollers drive.
    pub fn poller(&self, cq: &Arc<CompletionQueue>) -> Option<Poller> {
        (self.shared.driver == Driver::Poller).then(|| Poller {
            engine: self.clone(),
            cq: Arc::clone(cq),
            answer: Answer::default(),
            clock: Clock::new(),
        })
    }
}

impl Poller {
    /// Called after a poll that has found nothing: runs a turn of each lcore of the queue that no
    /// other thread drives. Another poll afterwards may find something.
    ///
    /// Neither allocates nor waits. Enters the kernel to raise a requested event, and to yield to
    /// another thread that drives one of the lcores.
    #[inline]
    pub fn turn(&self) -> Turn {
        let lcores = self.cq.lcores();
        if !self.answer.is_awaited.load(Ordering::Relaxed) {
            self.answer.before.store(self.writes(lcores), Ordering::Relaxed);
            self.answer.is_awaited.store(true, Ordering::Relaxed);
        }
        let Turns { turn, has_met_another } = self.turn_all(lcores);
        if turn == Turn::Busy {
            contention::found_work();
        } else if has_met_another {
            contention::make_room();
        }
        turn
    }

    /// Called after a poll that has found nothing even after a `turn`: yields the processor if more
    /// threads poll than the process has processors, or if nothing was found for a while and other
    /// processes wait for it. After a turn that did some work it does nothing: the next turns go on
    /// with that work, which may be the caller's.
    #[inline]
    pub fn rest(&self, turn: Turn) {
        if turn != Turn::Busy {
            match crowd::is_crowded(&self.clock, self.engine.shared.processors) {
                true => contention::make_room(),
                false => contention::found_nothing(),
            }
        }
    }

    /// Called after a poll that has taken completions, of which another thread's turn may have
    /// produced some.
    #[inline]
    pub fn found(&self) {
        contention::found_work();
    }

    /// Called after a poll that has taken a WRITE's completion: runs turns for a moment until an
    /// answer arrives, if answers have arrived before.
    #[inline]
    pub fn linger(&self) {
        let lcores = self.cq.lcores();
        let (answer, before) = (&self.answer, self.answer.before.load(Ordering::Relaxed));
        let mut writes = self.writes(lcores);
        let mut turns = answer.turns(writes);
        if turns > 0 && crowd::is_crowded(&self.clock, self.engine.shared.processors) {
            turns = 0;
        }
        // After misses the turns may be other work; after hits they may be an answer's first
        // packets.
        let mut busy = if turns > LINGER_TURNS { LINGER_TURNS } else { 1 };
        for _ in 0..turns {
            busy -= u32::from(self.turn_all(lcores).turn == Turn::Busy);
            writes = self.writes(lcores);
            if writes != before || busy == 0 {
                break;
            }
        }
        answer.learn(turns > 0, writes);
    }

    /// Called when the program has requested an event and is about to sleep: the lcores' threads
    /// take over.
    pub fn leave(&self) {
        for lcore in bits(self.cq.lcores()) {
            self.engine.shared.seats[lcore].leave_to_thread();
        }
    }

    #[inline]
    fn turn_all(&self, lcores: u64) -> Turns {
        IS_READY.with(|is_ready| {
            if !is_ready.replace(true) {
                signals::unblock();
            }
        });
        // A program that has requested an event sleeps after this poll.
        let stays = !self.cq.is_armed();
        let mut turns = Turns { turn: Turn::Idle, has_met_another: false };
        for lcore in bits(lcores) {
            let seat = &self.engine.shared.seats[lcore];
            // After a panic the lcore ends and reports that itself; the poll goes on without it.
            let turn = catch_unwind(AssertUnwindSafe(|| seat.turn_for_poller(stays)));
            match turn {
                Ok(Some(Turn::Busy)) => turns.turn = Turn::Busy,
                Ok(Some(Turn::Blocked)) if turns.turn == Turn::Idle => turns.turn = Turn::Blocked,
                Ok(None) => turns.has_met_another = true,
                _ => {}
            }
        }
        turns
    }

    /// Returns the number of WRITEs that those lcores have received.
    #[inline]
    fn writes(&self, lcores: u64) -> u64 {
        let of =
            |lcore: usize| self.engine.shared.counters[lcore].transport(Counter::WriteRequests);
        bits(lcores).map(of).fold(0, u64::wrapping_add)
    }
}

impl Answer {
    /// Returns for how many turns to wait, if `writes` WRITEs have arrived so far.
    #[inline]
    fn turns(&self, writes: u64) -> u32 {
        if writes != self.before.load(Ordering::Relaxed) {
            // The answer has arrived together with the completion.
            return 0;
        }
        let skip = self.skip.load(Ordering::Relaxed);
        // The last answer came late, perhaps because no thread drove.
        let is_late = writes != self.last.load(Ordering::Relaxed);
        if skip > 0 && !is_late {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return 0;
        }
        LINGER_TURNS << self.hits.load(Ordering::Relaxed)
    }

    /// Adapts the guess to whether a WRITE has arrived.
    #[inline]
    fn learn(&self, waited: bool, writes: u64) {
        let has_come = writes != self.before.load(Ordering::Relaxed);
        let was_late = writes != self.last.load(Ordering::Relaxed);
        let hits = self.hits.load(Ordering::Relaxed);
        self.hits
            .store(if has_come { MAX_HITS.min(hits + 1) } else { hits / 2 }, Ordering::Relaxed);
        let misses = self.misses.load(Ordering::Relaxed);
        if has_come || was_late {
            self.misses.store(0, Ordering::Relaxed);
            self.skip.store(0, Ordering::Relaxed);
        } else if waited {
            self.misses.store(MAX_MISSES.min(misses + 1), Ordering::Relaxed);
            self.skip.store((1 << misses) - 1, Ordering::Relaxed);
        }
        self.last.store(writes, Ordering::Relaxed);
        self.is_awaited.store(false, Ordering::Relaxed);
    }
}

/// Returns the numbers of the bits that are set.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_numbered_from_the_lowest() {
        assert_eq!(bits(0).count(), 0);
        assert_eq!(bits(1 << 63 | 0b101).collect::<Vec<_>>(), [0, 2, 63]);
    }

    /// Returns how many of `rounds` completions waited, if `late` WRITEs arrive before each is
    /// posted, and their turns in all.
    fn waits(answer: &Answer, rounds: u64, late: u64) -> (u64, u64) {
        let mut writes = answer.last.load(Ordering::Relaxed);
        let mut waited = (0, 0);
        for _ in 0..rounds {
            writes += late;
            answer.before.store(writes, Ordering::Relaxed);
            let turns = answer.turns(writes);
            waited.0 += u64::from(turns > 0);
            waited.1 += u64::from(turns);
            answer.learn(turns > 0, writes);
        }
        waited
    }

    #[test]
    fn a_poller_that_no_write_follows_soon_hardly_lingers() {
        let answer = Answer::default();
        assert!(waits(&answer, 64, 0).0 <= 7);
        let (waited, turns) = waits(&answer, 640, 0);
        assert!(waited <= 11 && turns <= 11 * u64::from(LINGER_TURNS));
    }

    #[test]
    fn a_poller_with_late_answers_lingers_for_a_little_each_time() {
        let answer = Answer::default();
        waits(&answer, 1000, 0);
        assert_eq!(waits(&answer, 100, 1), (100, 100 * u64::from(LINGER_TURNS)));
    }

    #[test]
    fn a_poller_with_answers_at_once_lingers_for_longer_when_one_does_not_come() {
        let answer = Answer::default();
        for writes in 0..20 {
            answer.before.store(writes, Ordering::Relaxed);
            assert!(answer.turns(writes) > 0);
            answer.learn(true, writes + 1);
        }
        answer.before.store(20, Ordering::Relaxed);
        assert_eq!(answer.turns(20), LINGER_TURNS << MAX_HITS);
    }

    #[test]
    fn an_answer_that_is_there_is_not_waited_for() {
        let answer = Answer::default();
        answer.before.store(7, Ordering::Relaxed);
        assert_eq!(answer.turns(8), 0);
    }
}
