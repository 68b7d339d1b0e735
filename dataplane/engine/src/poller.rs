//! What a thread does beside polling where pollers drive: turns the lcores it waits for.
//!
//! A poll that finds nothing makes a turn of each lcore whose QPs complete to its queue. One that
//! finds completions needs none: what the lcores brought last is not used up yet.
//!
//! One kind of program waits without polling: it WRITEs, polls until that is completed, and looks
//! at its memory until the peer's WRITE has come. Nobody would drive while it looks. Its answer is
//! a fraction of the round trip away when its own WRITE completes, so the poll that takes the
//! completion stays for some turns, until a WRITE comes in. Programs that wait for no such answer
//! are told apart by its never coming, and then pay for it rarely.
//!
//! A poll that finds nothing gives the processor away where that brings its completion nearer: another
//! thread has the lcore and may have been interrupted in its turn, or more threads poll than there are
//! processors ([`crate::crowd`]).
//!
//! Not here: how pollers and the lcore's thread make room for each other ([`crate::slot`]).

use crate::clock::Clock;
use crate::config::MAX_LCORES;
use crate::crowd;
use crate::engine::Engine;
use crate::idle::Driver;
use crate::queue::CompletionQueue;
use crate::signals;
use crate::slot::Turn;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use uroce_transport::Counter;

/// Turns that a poll with a completion of a WRITE waits for an answer: some microseconds.
const LINGER_TURNS: u32 = 64;
/// Answers in a row after which it waits no longer than it does: a tenth of a millisecond, so that
/// a peer that was held up for a moment does not cost the nap of the lcore's thread.
const MAX_HITS: u32 = 5;
/// Where no WRITEs come, one of two to this power waits.
const MAX_MISSES: u32 = 6;

// A completion queue has a bit for each.
const _: () = assert!(MAX_LCORES <= u64::BITS as usize);

thread_local! {
    /// The thread has unblocked what a turn may bring. A program that blocks it again later does
    /// without: memory that is gone ends the process then.
    static IS_READY: Cell<bool> = const { Cell::new(false) };
}

/// Drives the lcores that a completion queue is filled by. Any thread may, several may at once.
#[derive(Debug)]
pub struct Poller {
    engine: Engine,
    cq: Arc<CompletionQueue>,
    answer: Answer,
    clock: Clock,
}

/// What came of a turn of each lcore of a queue.
struct Turns {
    /// Busy if one of them had something to do.
    turn: Turn,
    /// Another thread drives one of them.
    has_met_another: bool,
}

/// Whether the program waits for WRITEs after its own. Threads that poll the same queue spoil each
/// other's guesses, nothing more.
#[derive(Debug, Default)]
struct Answer {
    /// A poll has found nothing since the last completion was taken: the next WRITE is posted.
    is_awaited: AtomicBool,
    /// WRITEs that had come by then.
    before: AtomicU64,
    /// WRITEs that had come when the last completion was taken.
    last: AtomicU64,
    /// Completions in a row after which a WRITE has come at once.
    hits: AtomicU32,
    /// Completions in a row after which none has come.
    misses: AtomicU32,
    /// Completions that will not wait.
    skip: AtomicU32,
}

impl Engine {
    /// What drives the lcores of a queue of this engine, if pollers do.
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
    /// For a poll that has found nothing: a turn of each lcore of the queue that nobody else
    /// drives. Another poll afterwards may find something.
    ///
    /// Neither allocates nor waits. Enters the kernel to raise an event that is asked for, and to let
    /// another thread go on that drives one of the lcores.
    #[inline]
    pub fn turn(&self) -> Turn {
        let lcores = self.cq.lcores();
        if !self.answer.is_awaited.load(Ordering::Relaxed) {
            self.answer.before.store(self.writes(lcores), Ordering::Relaxed);
            self.answer.is_awaited.store(true, Ordering::Relaxed);
        }
        let Turns { turn, has_met_another } = self.turn_all(lcores);
        if turn != Turn::Busy && has_met_another {
            std::thread::yield_now();
        }
        turn
    }

    /// For a poll that has found nothing, after its turn either: gives the processor to another thread
    /// where more threads poll than the process has processors, and is nothing elsewhere.
    #[inline]
    pub fn rest(&self) {
        crowd::make_room(&self.clock, self.engine.shared.processors);
    }

    /// For a poll that has taken a completion of a WRITE: waits a moment for an answer by the same
    /// means, if there ever was one.
    #[inline]
    pub fn linger(&self) {
        let lcores = self.cq.lcores();
        let (answer, before) = (&self.answer, self.answer.before.load(Ordering::Relaxed));
        let mut writes = self.writes(lcores);
        let mut turns = answer.turns(writes);
        if turns > 0 && crowd::is_crowded(&self.clock, self.engine.shared.processors) {
            turns = 0;
        }
        // Who had no answers lately may have other work; else it may be an answer's first packets.
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

    /// For who has asked for an event and is going to sleep: the lcores' threads go on.
    pub fn leave(&self) {
        for lcore in bits(self.cq.lcores()) {
            self.engine.shared.slots[lcore].leave_to_thread();
        }
    }

    #[inline]
    fn turn_all(&self, lcores: u64) -> Turns {
        IS_READY.with(|is_ready| {
            if !is_ready.replace(true) {
                signals::unblock();
            }
        });
        // Who has asked for an event goes to sleep after this poll.
        let stays = !self.cq.is_armed();
        let mut turns = Turns { turn: Turn::Idle, has_met_another: false };
        for lcore in bits(lcores) {
            let slot = &self.engine.shared.slots[lcore];
            // A panic is the lcore's last, and told as such; the application's poll is a poll.
            let turn = catch_unwind(AssertUnwindSafe(|| slot.turn_for_poller(stays)));
            match turn {
                Ok(Some(Turn::Busy)) => turns.turn = Turn::Busy,
                Ok(None) => turns.has_met_another = true,
                _ => {}
            }
        }
        turns
    }

    /// WRITEs that those lcores have received.
    #[inline]
    fn writes(&self, lcores: u64) -> u64 {
        let of =
            |lcore: usize| self.engine.shared.counters[lcore].transport(Counter::WriteRequests);
        bits(lcores).map(of).fold(0, u64::wrapping_add)
    }
}

impl Answer {
    /// How many turns are worth waiting, that many WRITEs having come?
    #[inline]
    fn turns(&self, writes: u64) -> u32 {
        if writes != self.before.load(Ordering::Relaxed) {
            // It came together with the completion.
            return 0;
        }
        let skip = self.skip.load(Ordering::Relaxed);
        // The last came late, perhaps because nobody waited.
        let is_late = writes != self.last.load(Ordering::Relaxed);
        if skip > 0 && !is_late {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return 0;
        }
        LINGER_TURNS << self.hits.load(Ordering::Relaxed)
    }

    /// Whether one has come is what the next is expected to do.
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

/// The numbers of the bits that are set.
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

    /// How many of `rounds` completions waited, `late` WRITEs having come before each was posted,
    /// and how many turns in all.
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
    fn who_waits_for_no_write_soon_hardly_lingers() {
        let answer = Answer::default();
        assert!(waits(&answer, 64, 0).0 <= 7);
        let (waited, turns) = waits(&answer, 640, 0);
        assert!(waited <= 11 && turns <= 11 * u64::from(LINGER_TURNS));
    }

    #[test]
    fn whose_answers_come_late_lingers_for_a_little_each_time() {
        let answer = Answer::default();
        waits(&answer, 1000, 0);
        assert_eq!(waits(&answer, 100, 1), (100, 100 * u64::from(LINGER_TURNS)));
    }

    #[test]
    fn whose_answers_come_at_once_lingers_for_longer_when_one_does_not() {
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
