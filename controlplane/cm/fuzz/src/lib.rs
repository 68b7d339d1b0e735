//! Fuzz targets of connection management: any calls and MADs in any order, and two ends over a link
//! that loses, delays and changes what it carries.
//!
//! Not here: the driver and what a target is ([`uroce_fuzz`]).

mod calls;
mod link;

use uroce_fuzz::Target;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");

/// All targets of connection management.
pub const TARGETS: &[Target] = &[
    Target { name: "cm", corpus: CORPUS, run: calls::run, seeds: calls::seeds },
    Target { name: "cm_link", corpus: CORPUS, run: link::run, seeds: Vec::new },
];
