//! Makes random calls of the C interface and compares the results with a model of the objects: with
//! handles that are live, destroyed, NULL or of another kind, with arguments of any value, and with
//! work requests on connected queue pairs.
//!
//! The model records which objects each object was made from. From that it predicts whether a
//! destruction succeeds or fails with EBUSY or EINVAL, and checks that no object is made from one
//! that is not live and that each completion belongs to an outstanding work request. Finally
//! everything is destroyed, and no object may be left.
//!
//! Not here: several threads, and pointers to unmapped memory, which no C library can detect.

mod model;
mod seeds;
mod traffic;
mod walk;

use std::collections::BTreeSet;
use std::sync::Once;

use model::{DESTROYED, Kind};
use uroce_fuzz::{Input, Target};

const CONFIG: &str = r#"
[[device]]
name = "uroce0"
max_qps = 1024
idle = "yield"
[[device.port]]
ethdev = { ring = "nowhere" }
ip = ["192.0.2.1/24"]
"#;

fn run(input: &mut Input<'_>) {
    configure();
    walk::walk(input);
}

/// Configures a device that has no peer but itself.
fn configure() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let path = std::env::temp_dir().join(format!("uroce-fuzz-{}.toml", std::process::id()));
        std::fs::write(&path, CONFIG).expect("a place for a file");
        // SAFETY: no other thread of the test process reads the environment yet.
        unsafe { std::env::set_var("UROCE_CONFIG", &path) };
        assert_eq!(crate::runtime::devices().map(<[_]>::len), Ok(1));
        std::fs::remove_file(&path).expect("the file written above");
    });
}

#[test]
fn z8_z10_no_sequence_of_calls_breaks_anything() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    uroce_fuzz::fuzz(&Target { name: "verbs_abi", corpus, run, seeds: seeds::seeds });
}

#[test]
fn seeds_use_what_was_destroyed() {
    let reached: BTreeSet<u64> = seeds::seeds()
        .iter()
        .flat_map(|seed| {
            let mut input = Input::new(seed);
            run(&mut input);
            input.reached()
        })
        .collect();
    for kind in [Kind::Qp, Kind::Srq, Kind::Cq, Kind::Ah] {
        let place = u64::from(DESTROYED) << 32 | kind as u64;
        assert!(reached.contains(&place), "{kind:?}");
    }
}
