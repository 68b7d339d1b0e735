//! Two communication managers, a link that harms every message, and consumers that do anything.
//!
//! [`Pair`] is the link and the clock, for tests that know what they want to happen. [`World`] adds
//! random consumers and what must hold whatever they do; [`run`] repeats worlds until so many
//! messages have come. A failure names its seed, and the seed repeats it.

mod check;
mod consumer;
mod pair;
mod world;

pub use pair::{Fate, Faults, Pair, Passing, Script, conn_params, gid, path};
pub use world::{Report, World};

/// Messages of one world, before it winds down.
const WORLD_MESSAGES: u64 = 20_000;

/// Runs worlds until `messages` have been delivered. Panics name the seed of the world.
///
/// # Panics
/// Where something that must hold does not.
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
