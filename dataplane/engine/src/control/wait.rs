//! Call: sends one command to one lcore and waits for its reply.

use super::{Control, ControlError, Duration, Instant, LcoreLink};
use crate::lcore::Lcore;
use crate::lcore::command::{Command, LcoreCommand, Reply};
use uroce_shared::seat::Seat;

/// Longest wait for a reply: far beyond any turn, and reached only if an lcore's thread gets no
/// CPU.
const PATIENCE: Duration = Duration::from_secs(10);
/// Checks of the reply ring before the caller yields its CPU, which the lcore may need.
const SPINS: u32 = 200;
/// Yields before the caller sleeps.
const YIELDS: u32 = 2000;

impl Control {
    /// Sends a command and waits for the reply.
    //= check H10 — a change takes effect once, between its call and its return
    ///
    /// # Errors
    /// The lcore is dead or stalled. The content of the command is freed with the rings, or when
    /// the lcore has answered late.
    pub(super) fn call<C: LcoreCommand>(
        &mut self,
        lcore: usize,
        command: C,
    ) -> Result<C::Reply, ControlError> {
        let (seat, link) = (&self.shared.seats[lcore], &mut self.lcores[lcore]);
        match call(seat, link, command.into(), PATIENCE).and_then(C::reply) {
            Some(reply) => Ok(reply),
            None if seat.is_dead() => Err(ControlError::LcoreDied(lcore)),
            None => Err(ControlError::LcoreStalled(lcore)),
        }
    }
}

/// Returns the reply to a command, if the lcore is alive, answers in time, and owes no earlier
/// reply.
fn call(
    seat: &Seat<Lcore>,
    link: &mut LcoreLink,
    command: Command,
    patience: Duration,
) -> Option<Reply> {
    if seat.is_dead() || !is_settled(seat, link) {
        return None;
    }
    // This cannot fail: one command at a time is under way, so there is room.
    link.rings.commands.push(command).ok()?;
    let mut since = None;
    for round in 0u32.. {
        if let Ok(reply) = link.rings.replies.pop() {
            return Some(reply);
        }
        if seat.is_dead() {
            return None;
        }
        // An adopter may itself be waiting for this call, so this thread turns the lcore.
        seat.try_turn();
        match round {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        let begin = *since.get_or_insert_with(Instant::now);
        if round % 64 == 0 && begin.elapsed() > patience {
            break;
        }
    }
    link.owes_reply = true;
    None
}

/// Returns whether the lcore has answered all commands. Replies come in order, so a reply that is
/// there now is the late one; no call waits for it, and its content is freed here.
fn is_settled(seat: &Seat<Lcore>, link: &mut LcoreLink) -> bool {
    if link.owes_reply {
        seat.try_turn();
        link.owes_reply = link.rings.replies.pop().is_err();
    }
    !link.owes_reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lcore::command::{MigratePort, QueryQp};
    use crate::lcore::without_ports;
    use crate::qp::context::Migrated;
    use std::sync::Arc;
    use uroce_shared::wake::doorbell::Doorbell;
    use uroce_shared::wake::events::EventChannel;

    #[test]
    fn an_lcore_that_has_answered_late_obeys_again_and_each_command_has_its_own_reply() {
        let events = EventChannel::new(4).expect("a descriptor");
        let (lcore, rings) = without_ports(&events);
        let seat = Seat::new(lcore, Arc::default(), None);
        let doorbell = Arc::new(Doorbell::new(1, Arc::default()));
        let mut link = LcoreLink { rings, doorbell, qps: 0, owes_reply: false };
        let patience = Duration::from_millis(20);
        seat.while_held(|| {
            // The second command is not sent: its reply would follow the first one's.
            for port in [1, 2] {
                let migrate = MigratePort { port, to: [].into_iter().collect() };
                assert!(call(&seat, &mut link, migrate.into(), patience).is_none());
            }
        });
        let reply = call(&seat, &mut link, QueryQp { index: 0 }.into(), patience);
        assert!(matches!(reply, Some(Reply::QueryQp(None))), "{reply:?}");
        let migrate = MigratePort { port: 1, to: [].into_iter().collect() };
        let reply = call(&seat, &mut link, migrate.into(), patience);
        assert!(
            matches!(reply, Some(Reply::MigratePort(Migrated { migrated: 0, stayed: 0 }))),
            "{reply:?}"
        );
    }
}
