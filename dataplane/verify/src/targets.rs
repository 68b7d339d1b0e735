//! The list of fuzz targets.

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

/// A fuzz target: a function of bytes that panics if something is wrong.
#[derive(Debug)]
pub struct Target {
    /// Name of the target and of its corpus file.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&mut Input<'_>),
    /// Returns initial inputs that are not in the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
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
