//! Measurements of the control plane.

use super::common::{Run, run};

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
    for service in ["RC", "UC", "UD", "XRC", "RD"] {
        let words = ["rate", "--json", "--rates", "2.5,5", "--runs", "2", "-c", service];
        // On a busy machine it is slower than requested, and the exit status is an error.
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
    assert!(average(&format!("{test} --rate_limit 2.5")) <= 2.5);
    // 200 MiB/s is rounded up to the next rate of the verbs: 2.5 Gb/s.
    assert!(average(&format!("{test} --rate_limit 200 --rate_units M")) <= 2.5);
}

/// Cuts a link under traffic and checks that no message is lost or doubled and that all queue pairs
/// migrated.
fn failover(words: &str) -> serde_json::Value {
    let plot = std::env::temp_dir().join(format!("uroce-failover-{}.svg", std::process::id()));
    let file = plot.to_string_lossy().into_owned();
    let mut args: Vec<&str> = words.split_whitespace().collect();
    args.extend(["--json", "--time-ms", "100", "--plot", &file]);
    // The duration is not checked here, because the machine may be busy.
    let output = run(&args);
    let report = output.json();
    let svg = std::fs::read_to_string(&plot).expect("the plot was written");
    let _ = std::fs::remove_file(&plot);
    assert!(svg.starts_with("<svg ") && svg.contains("link 1 cut"), "{svg}");
    for name in ["lost", "doubled", "corrupt"] {
        assert_eq!(report[name], 0, "{output:?}");
    }
    assert!(report["messages"].as_u64().is_some_and(|messages| messages > 0), "{output:?}");
    let in_time = report["failover_us"].as_f64() <= report["limit_us"].as_f64();
    assert_eq!(output.code == Some(0), in_time, "{output:?}");
    report
}

#[test]
fn a_link_cut_silently_is_left_and_no_message_lost_or_doubled() {
    let report = failover("failover -u 12 --retry_count 2");
    assert_eq!((&report["path_mig_events"], &report["retry_cnt"]), (&2.into(), &2.into()));
    assert_eq!(report["ack_timeout_us"], 16777.216);
    // The migration comes after all retries.
    assert!(report["failover_us"].as_f64().is_some_and(|us| us > 2.0 * 16777.216), "{report}");
    let many = failover("failover -u 12 -q 40");
    assert_eq!(many["path_mig_events"], 80);
}

#[test]
fn a_link_that_reports_itself_down_is_left_before_any_timeout() {
    let report = failover("failover -u 18 -q 10 --link-down");
    assert_eq!(report["path_mig_events"], 20);
    assert!(report["failover_us"].as_f64() < report["ack_timeout_us"].as_f64(), "{report}");
}

#[test]
fn connections_are_set_up_between_two_processes_and_in_one() {
    let check = |output: super::common::Output| {
        let output = output.succeeded();
        let report = output.json();
        assert!(report["setups_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{output:?}");
        let of = |name: &str| report[name].as_f64();
        assert!(of("latency_median_us") <= of("latency_p99_us"), "{output:?}");
    };
    check(run(&["connect", "--in-process", "-n", "50", "--rounds", "2", "--json"]));
    let socket = std::env::temp_dir().join(format!("uroce-connect-{}", std::process::id()));
    let vdev = |role: &str| {
        let socket = socket.display();
        format!("net_memif0,role={role},socket-abstract=no,socket={socket},bsize=4352,rsize=10")
    };
    let mut server = Run::start(&["connect", "--vdev", &vdev("server")]);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !socket.exists() {
        assert!(std::time::Instant::now() < end, "the server listens in time");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let client = ["connect", "--vdev", &vdev("client"), "--json", "-n", "50", "198.18.0.1:18515"];
    check(run(&client));
    server.kill();
    let _ = std::fs::remove_file(&socket);
}
