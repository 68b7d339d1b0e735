//! `uroce-perf loss`: goodput against the probability of loss.

use super::common::run;

#[test]
fn goodput_is_reported_for_each_probability_and_peer_and_drawn() {
    let plot = std::env::temp_dir().join(format!("uroce-loss-{}.svg", std::process::id()));
    let file = plot.to_str().expect("a path in UTF-8");
    let words = ["loss", "--loss", "0.02", "--runs", "1", "--time-ms", "50"];
    let output = run(&[&words[..], &["--json", "--plot", file]].concat()).succeeded();
    let report = output.json();
    let points = report["points"].as_array().expect("points");
    let of = |at: usize, key: &str| points[at][key].as_f64().expect("a number");
    assert_eq!((points.len(), of(0, "p"), of(1, "p")), (4, 0.0, 0.02));
    assert_eq!((&points[1]["mode"], &points[3]["mode"]), (&"any".into(), &"own".into()));
    // On a busy machine a timeout may send packets again that were not lost, and nothing is said
    // about the goodput.
    assert!(of(1, "retransmitted") > 0.0, "{report}");
    assert!((0..4).all(|at| of(at, "gbps") > 0.0), "{report}");
    assert_eq!(of(0, "share_percent"), 100.0, "{report}");
    let svg = std::fs::read_to_string(&plot).expect("the plot");
    assert!(
        ["2e-2", "own", "probability of loss each way"]
            .iter()
            .all(|text| svg.contains(&format!("\n{text}\n</text>"))),
        "{svg}"
    );
    std::fs::remove_file(plot).expect("the plot was written");
}
