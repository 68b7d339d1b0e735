//! Fuzz targets: functions of bytes, each with an oracle, and a driver that runs them.
//!
//! ```text
//!   corpus/NAME.txt ──▶ replay ─┐
//!   seeds of the target ────────┼──▶ target(Input) ── panics? ──▶ minimized line for the corpus
//!   random mutations ───────────┘          └── reached something new: kept for more mutations
//! ```
//!
//! `tests/fuzz.rs` replays the corpus and explores briefly in every test run; `deploy/test fuzz`
//! explores longer. There is no instrumented build, so neither a nightly compiler nor a fuzzer is
//! needed: a target itself reports what an input has reached ([`Input::reach`]), which guides the
//! search. Targets are plain functions of bytes, as a coverage-guided fuzzer would need them.
//!
//! Private files of the engine and of the transport are compiled in here unchanged.
//!
//! Not here: models of concurrency (`models`), exhaustive proofs (`tests/proofs.rs`), the target of
//! the C interface (`bindings/verbs-abi/src/fuzz.rs`).

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

/// Names of the transport that its files import from `env`.
mod env {
    pub(crate) use uroce_transport::{Key, Region};
}

/// Names of the transport that its files import from `wqe`.
mod wqe {
    pub(crate) use uroce_transport::Sge;
}

/// Stub of the engine; the file of the table has its registration methods.
#[allow(dead_code, reason = "targets use the table itself")]
struct Engine {
    shared: Shared,
}

#[allow(dead_code, reason = "targets use the table itself")]
struct Shared {
    regions: mr_table::MrTable,
}

/// The offset of a range in a region, if the region contains it; exported for the proofs.
pub fn offset_in(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
    mr_table::offset_in(region_va, region_len, va, len)
}
