//! What the control plane does, measured.

use super::common::run;

#[test]
fn modify_qp_is_measured_beside_an_idle_and_a_busy_lcore() {
    let output = run(&["modify", "--json", "--time-ms", "60"]).succeeded();
    let report = output.json();
    for part in ["idle", "traffic"] {
        let row = &report[part];
        let of = |name: &str| row[name].as_f64().unwrap_or_default();
        assert!(of("calls") > 0.0 && of("min_us") > 0.0, "{output:?}");
        assert!(of("median_us") <= of("p99_us") && of("p99_us") <= of("max_us"), "{output:?}");
    }
    assert!(report["traffic_gbps"].as_f64().is_some_and(|rate| rate > 0.0), "{output:?}");
    let table = run(&["modify", "--time-ms", "60", "-s", "8"]).succeeded().stdout;
    assert!(table.contains(" lcore idle ") && table.contains(" of WRITE "), "{table}");
}
