//! The list of fuzz targets.

mod arithmetic;
mod datagram;
mod frame;
mod keys;
mod peer;
mod requester;
mod responder;
mod wheel;

use crate::{Input, Target};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");

/// Returns a target with its corpus in this crate.
const fn target(
    name: &'static str,
    run: fn(&mut Input<'_>),
    seeds: fn() -> Vec<Vec<u8>>,
) -> Target {
    Target { name, corpus: CORPUS, run, seeds }
}

/// All targets of the dataplane.
pub const TARGETS: &[Target] = &[
    target("frame", frame::run, frame::seeds),
    target("responder", responder::run, Vec::new),
    target("requester", requester::run, Vec::new),
    target("datagram", datagram::run, datagram::seeds),
    target("keys", keys::run, Vec::new),
    target("wheel", wheel::run, Vec::new),
    target("arithmetic", arithmetic::run, Vec::new),
];
