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

#[test]
fn nothing_is_sent_faster_than_the_rate_that_it_was_given() {
    for service in ["RC", "UC", "UD"] {
        let words = ["rate", "--json", "--rates", "2.5,5", "--runs", "2", "-c", service];
        // Where others keep the CPUs busy it is slower than asked for, and the status says so.
        let output = run(&words);
        let report = output.json();
        let rates = report["rates"].as_array().cloned().unwrap_or_default();
        assert_eq!(rates.len(), 2, "{output:?}");
        for row in rates {
            let of = |name: &str| row[name].as_f64().unwrap_or_default();
            assert!(of("sent_gbps") > 0.0, "{output:?}");
            assert!(of("most_gbps") <= of("asked_gbps") * 1.02, "{output:?}");
        }
    }
}

#[test]
fn bandwidth_tests_have_perftests_rate_limit() {
    let average = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let stdout = run(&words).succeeded().stdout;
        let row = stdout.lines().find(|line| line.starts_with(" 65536")).unwrap_or_default();
        row.split_whitespace().nth(3).and_then(|text| text.parse::<f64>().ok()).expect("a row")
    };
    let test = "write_bw --in-process -n 300 -t 8 -Q 1 --report_gbits";
    assert!(average(&format!("{test} --rate_limit 2.5 --rate_units g")) <= 2.5);
    // In MiB/s, the next rate of the verbs: 2.5 Gb/s.
    assert!(average(&format!("{test} --rate_limit 200")) <= 2.5);
}
