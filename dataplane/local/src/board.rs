//! Board: what tells a queue that something has come, in memory that a member shares with all its
//! peers.
//!
//! For each queue of the member there are two words, on lines of their own:
//!
//! ```text
//!   activity   bit n − 1: look at the rings of member n (the member's own bit: at its news)
//!   armed      1: the owner sleeps, or is about to; write to its eventfd
//! ```
//!
//! Invariants
//! - No frame is overlooked, and no wake-up lost. A sender publishes its frames, passes a fence,
//!   and then reads both words; the receiver writes a word, passes a fence, and then looks at the
//!   rings. So at least one of them sees what the other has written.
//! - A bit that is set stays set until the receiver has found the rings empty for some turns, so a
//!   sender that goes on writes nothing here.
//! - A peer that writes rubbish here costs looks at rings, and delays what others send until the
//!   receiver looks at all rings, which it does now and then.

use crate::layout::LINE;
use crate::memory::Memory;
use std::sync::Arc;
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::sync::{Ordering, fence};

/// Returns the bytes of the board of a member with this number of queues.
pub(crate) fn board_len(queues: u16) -> usize {
    (usize::from(queues) * 2 * LINE).next_multiple_of(4096)
}

/// Returns a member's bit in words about members.
#[inline]
pub(crate) fn bit(number: u8) -> u64 {
    1 << (number - 1)
}

/// Returns the numbers of the members in such a word.
pub(crate) fn numbers(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let lowest = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (lowest < u64::BITS).then_some(lowest as u8 + 1)
    })
}

/// Returns the numbers of the members in such a word, from the one after `last` on, all around.
#[inline]
pub(crate) fn numbers_after(bits: u64, last: u8) -> impl Iterator<Item = u8> {
    let first = u32::from(last) % 64;
    numbers(bits.rotate_right(first)).map(move |place| (place - 1 + first as u8) % 64 + 1)
}

/// A member's board with its eventfds.
#[derive(Debug)]
pub(crate) struct Board {
    memory: Memory,
    events: Box<[EventFd]>,
}

/// Orders what was published before against reads of boards after it. A sender calls it once for
/// all rings that it has published in a turn.
#[inline]
pub(crate) fn publish_fence() {
    fence(Ordering::SeqCst);
}

impl Board {
    /// Makes a board of mapped memory and an eventfd per queue.
    pub(crate) fn new(memory: Memory, events: Box<[EventFd]>) -> Board {
        Board { memory, events }
    }

    /// Returns the eventfd of a queue.
    pub(crate) fn event(&self, queue: u16) -> &EventFd {
        &self.events[usize::from(queue)]
    }

    /// Returns all eventfds, by queue.
    pub(crate) fn events(&self) -> &[EventFd] {
        &self.events
    }

    fn activity_at(queue: u16) -> usize {
        usize::from(queue) * 2 * LINE
    }

    fn armed_at(queue: u16) -> usize {
        Board::activity_at(queue) + LINE
    }

    /// Sender: tells the owner of `queue` that member `number` has published something, and wakes
    /// it if it sleeps. Call [`publish_fence`] between the publication and this.
    #[inline]
    pub(crate) fn notify(&self, queue: u16, number: u8) {
        let activity = self.memory.long(Board::activity_at(queue));
        if activity.load(Ordering::Relaxed) & bit(number) == 0 {
            activity.fetch_or(bit(number), Ordering::Release);
        }
        let armed = self.memory.word(Board::armed_at(queue));
        if armed.load(Ordering::Relaxed) != 0 && armed.swap(0, Ordering::AcqRel) != 0 {
            // A program that has closed the descriptor sleeps until its own deadline.
            self.events[usize::from(queue)].signal();
        }
    }

    /// Receiver: returns the members that have published something.
    #[inline]
    pub(crate) fn active(&self, queue: u16) -> u64 {
        self.memory.long(Board::activity_at(queue)).load(Ordering::Acquire)
    }

    /// Receiver: takes bits back. It has to look at the rings of these members once more after
    /// this.
    pub(crate) fn clear(&self, queue: u16, bits: u64) {
        self.memory.long(Board::activity_at(queue)).fetch_and(!bits, Ordering::AcqRel);
        // Pairs with `publish_fence`.
        fence(Ordering::SeqCst);
    }

    /// Receiver: asks to be woken. It has to look at everything once more after this.
    pub(crate) fn arm(&self, queue: u16) {
        self.memory.word(Board::armed_at(queue)).store(1, Ordering::Relaxed);
        // Pairs with `publish_fence`.
        fence(Ordering::SeqCst);
    }

    /// Receiver: asks not to be woken any more.
    pub(crate) fn disarm(&self, queue: u16) {
        self.memory.word(Board::armed_at(queue)).store(0, Ordering::Relaxed);
    }
}

/// The queue of a peer that receives what one queue of ours sends to it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) board: Arc<Board>,
    pub(crate) queue: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::EventfdFlags;

    fn board(queues: u16) -> Board {
        let (_, memory) = Memory::create(board_len(queues)).unwrap();
        let event = || EventFd::new(EventfdFlags::NONBLOCK).unwrap();
        Board::new(memory, (0..queues).map(|_| event()).collect())
    }

    #[test]
    fn bits_and_numbers_agree() {
        assert_eq!(numbers(0).count(), 0);
        assert_eq!(numbers(bit(1) | bit(64) | bit(9)).collect::<Vec<_>>(), [1, 9, 64]);
        assert_eq!(numbers(u64::MAX).count(), 64);
        let after = |last| numbers_after(bit(1) | bit(64) | bit(9), last).collect::<Vec<_>>();
        assert_eq!((after(1), after(8)), (vec![9, 64, 1], vec![9, 64, 1]));
        assert_eq!((after(9), after(64)), (vec![64, 1, 9], vec![1, 9, 64]));
        assert_eq!(after(63), [64, 1, 9]);
    }

    #[test]
    fn a_queue_that_is_armed_is_woken_once_and_one_that_is_not_never() {
        let board = board(33);
        board.notify(32, 7);
        assert_eq!((board.active(32), board.active(31)), (bit(7), 0));
        assert!(!board.event(32).drain());
        board.arm(32);
        board.notify(32, 7);
        board.notify(32, 64);
        assert!(board.event(32).drain() && !board.event(32).drain());
        board.clear(32, bit(7));
        assert_eq!(board.active(32), bit(64));
        board.arm(32);
        board.disarm(32);
        board.notify(32, 7);
        assert!(!board.event(32).drain());
    }
}
