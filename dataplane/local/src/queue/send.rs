//! Sending: a frame's way into the rings of its receivers.

use super::{Core, Sent};
use crate::board::{bit, numbers, publish_fence};
use crate::link::Refused;
use crate::{FRAME_MAX, FRAME_MIN, number_of};
use std::time::Duration;
use uroce_transport::Instant;
use uroce_wire::Mac;

/// Longest wait of a frame for the first link to its member. The peer may be a process that is just
/// starting, and a datagram that is dropped is lost for good.
const LINKING: Duration = Duration::from_secs(1);
/// Longest wait of a frame to a group for links to members that are present and not linked.
const GROUP: Duration = Duration::from_millis(50);
/// Time between two requests for the same link.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Longest time between two attempts to send a frame that waits. After a longer one the frame was
/// given up elsewhere, and the next one waits anew.
const PAUSE: Duration = Duration::from_millis(100);

/// The time for which frames wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span(Option<Ends>);

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: Instant,
    last: Instant,
}

impl Span {
    /// Returns how long frames have waited at `now`, when one waits.
    fn waited(&mut self, now: Instant) -> Duration {
        let continued = self.0.filter(|ends| now.since(ends.last) < PAUSE);
        let first = continued.map_or(now, |ends| ends.first);
        self.0 = Some(Ends { first, last: now });
        now.since(first)
    }
}

/// A wait for a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    /// The wait of the frames.
    span: Span,
    /// The last request to the thread.
    asked: Option<Instant>,
}

impl Core {
    #[inline]
    pub(super) fn send(&mut self, frame: &[u8]) -> Sent {
        let Some(&mac) = frame.first_chunk::<6>().filter(|_| is_frame(frame.len())) else {
            self.counters.tx_length.add(1);
            return Sent::Lost;
        };
        let mac = Mac(mac);
        if mac.is_multicast() {
            return self.send_to_all(frame);
        }
        match number_of(mac).filter(|&number| number != self.number) {
            Some(number) => self.send_to(number, frame),
            None => self.has_no_member(),
        }
    }

    #[inline]
    fn send_to(&mut self, number: u8, frame: &[u8]) -> Sent {
        if self.open & bit(number) == 0
            && let Some(result) = self.without_link(number)
        {
            return result;
        }
        let now = self.now;
        let Some(link) = self.link(number) else { return Sent::Full };
        if frame.len() > link.frame_max {
            self.counters.tx_length.add(1);
            return Sent::Lost;
        }
        match link.push(frame, now) {
            Ok(()) => {
                self.touched |= bit(number);
                self.counters.tx_frames.add(1);
                self.counters.tx_bytes.add(frame.len() as u64);
                Sent::Taken
            }
            Err(Refused::Full) => Sent::Full,
            Err(Refused::Stuck) => {
                self.counters.tx_stuck.add(1);
                Sent::Lost
            }
            Err(Refused::Malformed) => {
                self.close(number);
                self.has_no_member()
            }
        }
    }

    fn has_no_member(&self) -> Sent {
        self.counters.tx_no_member.add(1);
        Sent::Lost
    }

    /// A frame has a member's address, and there was no link to it in the last turn. Returns `None`
    /// if there is one now.
    #[cold]
    fn without_link(&mut self, number: u8) -> Option<Sent> {
        self.take_news();
        if self.open & bit(number) != 0 {
            return None;
        }
        self.ask(bit(number));
        let wait = &mut self.waits[usize::from(number) - 1];
        if self.shared.refused() & bit(number) != 0 {
            // When the member comes it is waited for anew.
            wait.span = Span::default();
            return Some(self.has_no_member());
        }
        let is_over = wait.span.waited(self.now) >= LINKING;
        Some(if is_over { self.has_no_member() } else { Sent::Full })
    }

    /// Asks the thread for links, each at most once in [`ASK_AGAIN`].
    fn ask(&mut self, members: u64) {
        let mut due = 0;
        for number in numbers(members) {
            let asked = &mut self.waits[usize::from(number) - 1].asked;
            if asked.is_none_or(|asked| self.now.since(asked) >= ASK_AGAIN) {
                *asked = Some(self.now);
                due |= bit(number);
            }
        }
        if due != 0 {
            self.shared.want(due);
        }
    }

    /// Copies a frame to all members. A member that is full misses it.
    #[cold]
    fn send_to_all(&mut self, frame: &[u8]) -> Sent {
        let absent = |core: &Core| core.shared.present() & !core.open & !bit(core.number);
        if absent(self) != 0 {
            self.take_news();
        }
        let missing = absent(self);
        self.ask(missing);
        if missing & !self.shared.refused() != 0 {
            if self.group.waited(self.now) < GROUP {
                return Sent::Full;
            }
        } else {
            // The next time that a member is missing is another wait.
            self.group = Span::default();
        }
        for number in numbers(self.open) {
            let now = self.now;
            let Some(link) = self.link(number) else { continue };
            let fits = frame.len() <= link.frame_max;
            match if fits { link.push(frame, now) } else { Err(Refused::Full) } {
                Ok(()) => self.touched |= bit(number),
                Err(Refused::Full | Refused::Stuck) => self.counters.tx_missed.add(1),
                Err(Refused::Malformed) => self.close(number),
            }
        }
        self.counters.tx_frames.add(1);
        self.counters.tx_bytes.add(frame.len() as u64);
        Sent::Taken
    }

    #[inline]
    pub(super) fn flush(&mut self) {
        if self.touched == 0 {
            return;
        }
        let mut published = 0;
        for number in numbers(self.touched) {
            if self.link(number).is_some_and(|link| link.tx.publish()) {
                published |= bit(number);
            }
        }
        self.touched = 0;
        publish_fence();
        let own = self.number;
        for number in numbers(published) {
            if let Some(link) = self.link(number) {
                link.target.board.notify(link.target.queue, own);
            }
        }
    }
}

fn is_frame(len: usize) -> bool {
    (FRAME_MIN..=FRAME_MAX).contains(&len)
}
