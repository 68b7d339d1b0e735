//! One command to one lcore, and its reply.

use super::{Command, Control, ControlError, Duration, Instant, Reply};

/// Far beyond any turn. Reached only if an lcore's thread gets no CPU at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks at the reply ring before the caller gives its CPU away: the lcore may need it.
const SPINS: u32 = 200;
/// Yields before the caller sleeps.
const YIELDS: u32 = 2000;

impl Control {
    /// Sends a command and waits for the reply.
    //= check H10 — a change takes effect once, between its call and its return
    ///
    /// # Errors
    /// The lcore is dead or stalled. What the command carried is freed with the rings.
    pub(super) fn call(&mut self, lcore: usize, command: Command) -> Result<Reply, ControlError> {
        let slot = &self.shared.slots[lcore];
        let link = &mut self.lcores[lcore];
        let rings = &mut link.rings;
        if slot.is_dead() {
            return Err(ControlError::LcoreDied(lcore));
        }
        // One command at a time, so there is room.
        if link.stalled || rings.commands.push(command).is_err() {
            return Err(ControlError::LcoreStalled(lcore));
        }
        let mut since = None;
        for round in 0u32.. {
            if let Ok(reply) = rings.replies.pop() {
                return Ok(reply);
            }
            if slot.is_dead() {
                return Err(ControlError::LcoreDied(lcore));
            }
            // An adopter may be waiting for this very call.
            slot.try_turn();
            match round {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
            let begin = *since.get_or_insert_with(Instant::now);
            if round % 64 == 0 && begin.elapsed() > PATIENCE {
                break;
            }
        }
        link.stalled = true;
        Err(ControlError::LcoreStalled(lcore))
    }
}
