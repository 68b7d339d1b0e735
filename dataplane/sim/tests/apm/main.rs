//! Path migration, draining and pacing of two QPs with two paths between them: each row of the
//! checks as a scene, and sweeps over every packet.

mod drain;
mod former;
mod pace;
mod peer;
mod rates;
mod retries;
mod sweep;
mod unreliable;

use core::time::Duration;

use uroce_sim::Pair;
use uroce_transport::AsyncEvent;

/// The end that sends requests.
const A: usize = 0;

/// The end that answers.
const B: usize = 1;

/// The ACK timeout of the default terms.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 8);

/// Longer than a round trip, shorter than any timeout of the scenes.
const SHORTLY: Duration = Duration::from_micros(20);

/// The events of an end that report a migration, or that none was possible.
fn migrations(pair: &mut Pair, end: usize) -> Vec<AsyncEvent> {
    let is_of_migration =
        |event: &AsyncEvent| matches!(event, AsyncEvent::PathMig | AsyncEvent::PathMigErr);
    pair.take_events(end).into_iter().filter(is_of_migration).collect()
}

/// Asserts that neither the independent checker nor the oracle has found a flaw.
#[track_caller]
fn assert_flawless(pair: &mut Pair) {
    let flaw = pair.world.take_flaw();
    assert_eq!(flaw, None, "{:#?}", pair.trace(40));
}
