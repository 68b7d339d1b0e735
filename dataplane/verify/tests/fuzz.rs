//! Runs each fuzz target: its corpus, and a short exploration with a seed of its own.
//!
//! `UROCE_FUZZ_SECONDS` sets the length of the exploration, `UROCE_FUZZ_SEED` repeats one. Inputs
//! that reach something new are appended to files in the folder `UROCE_FUZZ_KEEP`.

use std::fmt::Write;
use std::time::Duration;
use uroce_verify::{Finding, TARGETS, explore, replay};

const MOMENT: Duration = Duration::from_secs(1);

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let seed = number("UROCE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let time = number("UROCE_FUZZ_SECONDS").map_or(MOMENT, Duration::from_secs);
    let fail = |Finding { line, message }: Finding| -> ! {
        panic!("{name}, UROCE_FUZZ_SEED={seed}: {message}\nfor corpus/{name}.txt: {line}")
    };
    let replayed = replay(target).unwrap_or_else(|finding| fail(finding));
    let (runs, kept) = explore(target, seed, time).unwrap_or_else(|finding| fail(finding));
    println!("{name}: {replayed} inputs replayed, {runs} explored, {} reached new", kept.len());
    if let Ok(folder) = std::env::var("UROCE_FUZZ_KEEP") {
        let lines = kept.iter().fold(String::new(), |mut lines, input| {
            input.iter().for_each(|byte| write!(lines, "{byte:02x}").expect("a string"));
            lines + "\n"
        });
        std::fs::write(format!("{folder}/{name}.txt"), lines).expect("a folder to keep inputs in");
    }
    assert!(replayed > 0, "an empty corpus shows nothing");
}

macro_rules! targets {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            fuzz($name);
        })*

        #[test]
        fn every_target_is_run() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

targets! {
    z1_frame "frame";
    z2_responder "responder";
    z3_requester "requester";
    z5_cm "cm";
    z6_cm_link "cm_link";
    z11_keys "keys";
    z12_wheel "wheel";
    z13_arithmetic "arithmetic";
}
