//! Last words: a rejection, a wish to disconnect. Who says one may end its process next, in a way that
//! leaves us no time, where Linux's kernel would still send. So it hears that the word was said only
//! once it has left.

use std::time::Duration;

use uroce_transport::Instant;

use super::Thread;
use super::requests::answer;
use crate::request::{Reply, RequestError};

/// How long a word may take, the look-up of a neighbour and an lcore that waits for its CPU included.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks meanwhile.
pub(super) const LOOK: Duration = Duration::from_micros(20);

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct LastWord {
    until: Instant,
    reply: Reply<()>,
}

impl LastWord {
    pub(super) fn refuse(self) {
        answer(&self.reply, Err(RequestError::Gone));
    }
}

impl Thread {
    /// Answers once everything that connections have said so far has left.
    pub(super) fn see_off(&mut self, reply: Reply<()>) {
        self.last_words.push(LastWord { until: self.now() + PATIENCE, reply });
    }

    /// To be called when connections have had their turn.
    pub(super) fn answer_last_words(&mut self, now: Instant) {
        if self.last_words.is_empty() {
            return;
        }
        let has_left = !self.driver.has_mail() && self.control.frames_have_left();
        for word in std::mem::take(&mut self.last_words) {
            match has_left || now >= word.until {
                true => answer(&word.reply, Ok(())),
                false => self.last_words.push(word),
            }
        }
    }
}
