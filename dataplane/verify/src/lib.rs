//! Fuzz targets: functions over bytes, each with an oracle, and a driver that feeds them.
//!
//! ```text
//!   corpus/NAME.txt ──▶ replay ─┐
//!   seeds of the target ────────┼──▶ target(Input) ── panics? ──▶ minimized line for the corpus
//!   random mutations ───────────┘          └── reached something new: kept for more mutations
//! ```
//!
//! `tests/fuzz.rs` replays the corpus and explores for a moment in every test run; `deploy/test
//! fuzz` takes longer. There is no instrumented build, so this needs neither a nightly compiler
//! nor a fuzzer installed: a target itself says what an input has reached ([`Input::reach`]), and
//! that guides the search. Targets are plain functions over bytes, as a coverage-guided fuzzer
//! would want them.
//!
//! Files of the engine and of the transport that their crates keep to themselves are compiled in
//! here as they stand.
//!
//! Not here: models of concurrency (`models`), exhaustive proofs (`tests/proofs.rs`), the target that
//! calls the C interface, which stands there (`bindings/verbs-abi/src/fuzz.rs`).

mod driver;
mod input;
mod targets;

pub use driver::{Finding, explore, replay};
pub use input::Input;
pub use targets::{TARGETS, Target};

#[allow(dead_code, unreachable_pub, clippy::new_without_default, reason = "a part is used")]
#[path = "../../engine/src"]
mod engine {
    pub(crate) mod guarded;
    pub(crate) mod key;
    pub(crate) mod memory;
    pub(crate) mod mr_table;
    pub(crate) mod mw;
    pub(crate) mod prefetch;
    pub(crate) mod qsbr;
    pub(crate) mod sum;
    pub(crate) mod timer_wheel;

    #[allow(unused_imports, reason = "a part is used")]
    pub(crate) mod sync;
}

#[allow(dead_code, unreachable_pub, reason = "a part is used")]
#[path = "../../transport/src"]
mod core {
    pub(crate) mod gather;
    pub(crate) mod ring;
}

use engine::{guarded, key, mr_table, mw, prefetch, qsbr, sum, sync};

/// What the transport's files know of each other.
mod env {
    pub(crate) use uroce_transport::{Key, Region};
}

/// The same.
mod wqe {
    pub(crate) use uroce_transport::Sge;
}

/// Registration's face, which stands in the table's file.
#[allow(dead_code, reason = "targets talk to the table itself")]
struct Engine {
    shared: Shared,
}

#[allow(dead_code, reason = "as above")]
struct Shared {
    regions: mr_table::MrTable,
}

/// The range check and what it grants, for the proofs.
pub fn offset_in(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
    mr_table::offset_in(region_va, region_len, va, len)
}
