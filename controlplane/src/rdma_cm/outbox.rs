//! MADs to be sent. Most are sent at once. Some wait for their neighbour's address, or for room in
//! a port's queue.
//!
//! Invariants
//! - At most [`WAITING_MAX`] MADs wait, and they cause at most that many resolutions: unknown
//!   senders cannot fill the neighbour table.
//! - MADs to one peer are sent in order.
//!
//! A MAD that cannot be sent is dropped, as if lost on the link: `uroce-cm` sends its message
//! again.

use std::collections::VecDeque;

use uroce_cm::MadAddr;
use uroce_engine::SendFrameError;
use uroce_wire::Qpn;
use uroce_wire::mad::Mad;

use super::context::ServiceContext;
use crate::call::Count;

/// Largest number of MADs that may wait.
const WAITING_MAX: usize = 256;

/// A MAD with its destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub(super) addr: MadAddr,
    pub(super) to: Qpn,
    pub(super) mad: Mad,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Letter>,
    full: u64,
    unresolved: u64,
    no_path: u64,
    not_sent: u64,
}

/// Result of an attempt to send.
enum Fate {
    Done,
    Waits,
}

impl Outbox {
    /// Sends a MAD, or queues it until its neighbour is resolved and the port's queue has room.
    pub(super) fn post(&mut self, letter: Letter, context: &mut ServiceContext<'_>) {
        let follows = self.waiting.iter().any(|other| other.addr.dst == letter.addr.dst);
        if !follows && let Fate::Done = self.send(&letter, context) {
            return;
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(letter);
        } else {
            self.full += 1;
        }
    }

    /// Sends a MAD if that is possible at once. It is one that its sender repeats anyway.
    pub(super) fn try_post(&mut self, letter: &Letter, context: &mut ServiceContext<'_>) {
        if let Fate::Waits = self.send(letter, context) {
            self.full += 1;
        }
    }

    /// Tries to send the waiting MADs again.
    pub(super) fn resume(&mut self, context: &mut ServiceContext<'_>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        retry(&mut waiting, |letter| letter.addr.dst, |letter| self.send(letter, context));
        self.waiting = waiting;
    }

    /// Tells whether no MAD waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn send(&mut self, letter: &Letter, context: &mut ServiceContext<'_>) -> Fate {
        use crate::path::PathError::NoAnswer;
        let (port, path) = match context.mad_path(&letter.addr) {
            Ok(Some(found)) => found,
            Ok(None) => return Fate::Waits,
            Err(error) => {
                let count = match error {
                    NoAnswer { .. } => &mut self.unresolved,
                    _ => &mut self.no_path,
                };
                *count += 1;
                return Fate::Done;
            }
        };
        let frame = context.gsi.frame(context.now, port, &path, letter.to, &letter.mad);
        let sent = frame.map(|frame| context.control.send_frame(port, frame));
        match sent {
            Some(Ok(())) => Fate::Done,
            Some(Err(SendFrameError::Full)) => Fate::Waits,
            _ => {
                self.not_sent += 1;
                Fate::Done
            }
        }
    }

    pub(super) fn counts(&self) -> [Count; 4] {
        [
            Count::new(
                "mad_tx_full",
                "A MAD not sent: too many wait already, or it may not wait.",
                self.full,
            ),
            Count::new(
                "mad_tx_unresolved",
                "A MAD not sent: its neighbour did not answer.",
                self.unresolved,
            ),
            Count::new(
                "mad_tx_no_path",
                "A MAD not sent: there is no path to its peer.",
                self.no_path,
            ),
            Count::new("mad_tx_errors", "A MAD not sent: no memory for its frame.", self.not_sent),
        ]
    }
}

/// Tries once to send each waiting item, in order. An item stays if it cannot be sent yet, or if an
/// earlier item to the same peer stays. Without the second rule, a later item would overtake the
/// earlier one if a queue gets room during the pass.
fn retry<T, P: PartialEq>(
    waiting: &mut VecDeque<T>,
    peer: impl Fn(&T) -> P,
    mut send: impl FnMut(&T) -> Fate,
) {
    let mut staying = VecDeque::with_capacity(waiting.len());
    for item in waiting.drain(..) {
        let follows = staying.iter().any(|other| peer(other) == peer(&item));
        if follows || matches!(send(&item), Fate::Waits) {
            staying.push_back(item);
        }
    }
    *waiting = staying;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mads_to_one_peer_keep_their_order_when_room_comes_in_the_middle_of_a_pass() {
        let mut waiting = VecDeque::from([("a", 1), ("a", 2), ("b", 3)]);
        let (mut tries, mut sent) = (0, Vec::new());
        let mut pass = |waiting: &mut VecDeque<(&str, i32)>| {
            retry(
                waiting,
                |item| item.0,
                |item| {
                    tries += 1;
                    // The queue is full at the first try only.
                    if tries == 1 {
                        return Fate::Waits;
                    }
                    sent.push(item.1);
                    Fate::Done
                },
            );
        };
        pass(&mut waiting);
        assert_eq!(waiting, [("a", 1), ("a", 2)]);
        pass(&mut waiting);
        assert!(waiting.is_empty());
        assert_eq!(sent, [3, 1, 2]);
    }
}
