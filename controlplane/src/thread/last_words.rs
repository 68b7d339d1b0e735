//! Calls that return only when their message has been sent: a rejection, a disconnect.
//!
//! An application may end its process right after such a call, without closing the device. Linux's
//! kernel would still send the message; uroce can send it only while the process lives.

use std::time::Duration;

use uroce_transport::Instant;

use super::Thread;
use crate::call::{Reply, RequestError};

/// Longest wait of a call. It suffices to resolve a neighbour, and for an lcore to get its CPU.
const PATIENCE: Duration = Duration::from_millis(200);
/// Interval between checks while a call waits.
pub(super) const LOOK: Duration = Duration::from_micros(20);

/// A call that waits until its message has been sent.
#[derive(Debug)]
pub(super) struct LastWord {
    until: Instant,
    reply: Reply<()>,
}

impl LastWord {
    pub(super) fn refuse(self) {
        self.reply.give(Err(RequestError::Gone));
    }
}

impl Thread {
    /// Registers a call. It is answered once the messages of all connections have been sent, or
    /// after [`PATIENCE`].
    pub(crate) fn see_off(&mut self, reply: Reply<()>) {
        self.last_words.push(LastWord { until: self.now() + PATIENCE, reply });
    }

    /// Answers the calls that need not wait any longer. Called after the turn of the connections.
    pub(super) fn answer_last_words(&mut self, now: Instant) {
        if self.last_words.is_empty() {
            return;
        }
        let has_left = !self.service.has_mail() && self.control.frames_have_left();
        for word in std::mem::take(&mut self.last_words) {
            match has_left || now >= word.until {
                true => word.reply.give(Ok(())),
                false => self.last_words.push(word),
            }
        }
    }
}
