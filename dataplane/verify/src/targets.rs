//! The targets.

mod arithmetic;
mod cm;
mod cm_link;
mod frame;
mod keys;
mod peer;
mod requester;
mod responder;
mod wheel;

use crate::Input;

/// A function over bytes that panics if something is wrong.
#[derive(Debug)]
pub struct Target {
    /// Its name, and its corpus's.
    pub name: &'static str,
    /// One input.
    pub run: fn(&mut Input<'_>),
    /// Inputs to begin with that are not in the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "frame", run: frame::run, seeds: frame::seeds },
    Target { name: "responder", run: responder::run, seeds: Vec::new },
    Target { name: "requester", run: requester::run, seeds: Vec::new },
    Target { name: "cm", run: cm::run, seeds: cm::seeds },
    Target { name: "cm_link", run: cm_link::run, seeds: Vec::new },
    Target { name: "keys", run: keys::run, seeds: Vec::new },
    Target { name: "wheel", run: wheel::run, seeds: Vec::new },
    Target { name: "arithmetic", run: arithmetic::run, seeds: Vec::new },
];
