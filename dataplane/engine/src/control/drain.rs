//! Drain: before an engine ends, what it has to send is sent.

use super::{Control, Duration, Instant, Turn};
use crate::lcore::LcoreGuard;

/// Idle turns in a row after which an lcore has nothing left to send.
const EMPTY_TURNS: u32 = 4;

impl Control {
    /// Turns each lcore until it finds nothing to do: then posted datagrams and due
    /// acknowledgements have been handed to their ports. Acknowledgements of peers are not awaited.
    /// Stops after `patience`, since peers may go on sending.
    pub fn drain(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        for (number, slot) in self.shared.seats.iter().enumerate() {
            // The lcore's own thread parks. If another thread has adopted the lcore, this thread
            // turns it between that thread's turns.
            let _guard = LcoreGuard::adopt(slot, number);
            let mut empty = 0;
            while empty < EMPTY_TURNS && Instant::now() < deadline {
                match slot.try_turn() {
                    Turn::Busy | Turn::Blocked => empty = 0,
                    Turn::Idle => empty += 1,
                    Turn::Stopped => break,
                }
            }
        }
    }
}
