//! Counters, as programs under `uroce-run` read them in the tree.

#[allow(dead_code, unused_imports, unused_macros, reason = "what other tests use")]
mod common;

use common::{Place, printed};

#[test]
fn counts_move_while_a_program_runs() {
    let place = Place::new();
    let program = place.compile("counts.c");
    let mut command = place.launcher();
    let run = command.arg(&program).arg("counts_move_while_a_program_runs").output();
    printed(run.unwrap());
    // Programs outside find the counters in the tree's directory.
    let trees = std::fs::read_dir(place.path().join("uroce/trees")).unwrap();
    let counts = trees.map(|tree| tree.unwrap().path().join("class/infiniband/uroce0/hw_counters"));
    let looped =
        counts.filter_map(|counts| std::fs::read_to_string(counts.join("looped_packets")).ok());
    let looped: Vec<u64> = looped.map(|text| text.trim().parse().unwrap()).collect();
    assert!(looped.iter().any(|count| *count >= 2), "{looped:?}");
}
