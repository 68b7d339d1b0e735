//! Fuzz targets of the dataplane: functions of bytes, each with an oracle, and a driver that runs
//! them.
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
//! Not here: targets of connection management (`controlplane/cm/fuzz`), of the local fabric's rings
//! (`dataplane/local/src/ring/fuzz.rs`), of commands and their socket
//! (`controlplane/command/tests/fuzz.rs`, `controlplane/src/control_socket/fuzz.rs`) and of the C
//! interface (`bindings/verbs-abi/src/fuzz.rs`); models of concurrency (`uroce_shared`); exhaustive
//! proofs (`tests/proofs.rs`).

mod driver;
mod input;
mod targets;

pub use driver::{Finding, explore, fuzz, replay};
pub use input::Input;
pub use targets::TARGETS;

/// A fuzz target: a function of bytes that panics if something is wrong.
#[derive(Debug)]
pub struct Target {
    /// Name of the target and of its corpus file.
    pub name: &'static str,
    /// The folder of the corpus.
    pub corpus: &'static str,
    /// Runs one input.
    pub run: fn(&mut Input<'_>),
    /// Returns initial inputs that are not in the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Makes the tests of targets, one for each.
#[macro_export]
macro_rules! fuzz_tests {
    ($targets:expr; $($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            let target = $targets.iter().find(|target| target.name == $name).expect("a target");
            $crate::fuzz(target);
        })*

        #[test]
        fn every_target_is_run() {
            let names: Vec<_> = $targets.iter().map(|target| target.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}
