//! Simulator: two communication managers, a link with faults, and consumers that act at random.
//!
//! [`Pair`] holds the two managers, the link and the clock, for tests with a fixed course.
//! [`World`] adds random consumers and checks what must hold in every case. [`run`] repeats worlds
//! until a number of messages has been delivered. A failure prints the seed that repeats it.

#![forbid(unsafe_code)]

mod check;
mod consumer;
mod pair;
mod world;

pub use pair::{Fate, Faults, Pair, Passing, Script, conn_params, gid, path};
pub use world::{Report, World};

/// Largest number of messages of one world, before it winds down.
const WORLD_MESSAGES: u64 = 20_000;

/// Runs worlds until `messages` have been delivered.
///
/// # Panics
/// If a check fails. The text names the seed of the world.
pub fn run(seed: u64, messages: u64) -> Report {
    let mut total = Report::default();
    let mut seeds = fastrand::Rng::with_seed(seed);
    let mut next = seed;
    while total.messages < messages {
        let share = WORLD_MESSAGES.min(messages - total.messages);
        total.add(&World::new(next).run(share));
        next = seeds.u64(..);
    }
    total
}
