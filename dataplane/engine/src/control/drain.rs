//! Before the end: what an engine has to send is sent.

use super::{Control, Duration, Instant, Turn};
use crate::slot::LcoreGuard;

/// Turns without anything to do after which there is nothing left.
const EMPTY_TURNS: u32 = 4;

impl Control {
    /// Turns each lcore until it finds nothing to do: datagrams that were posted and acknowledgements
    /// that are due have been handed to their ports then. What peers have not acknowledged is not
    /// waited for. Gives up after `patience`, as peers may go on sending.
    pub fn drain(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        for (number, slot) in self.shared.slots.iter().enumerate() {
            // Its own thread lets go of it. One that is adopted is turned between its turns.
            let _guard = LcoreGuard::adopt(slot, number);
            let mut empty = 0;
            while empty < EMPTY_TURNS && Instant::now() < deadline {
                match slot.try_turn() {
                    Turn::Busy => empty = 0,
                    Turn::Idle => empty += 1,
                    Turn::Stopped => break,
                }
            }
        }
    }
}
