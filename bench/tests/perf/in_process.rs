//! Every test with both ends in one process.

use super::common::run;

/// Runs a test with verification and returns its output.
fn verified(words: &str, bytes: u64) -> String {
    let mut args: Vec<&str> = words.split_whitespace().collect();
    args.extend(["--in-process", "--verify"]);
    let output = run(&args).succeeded();
    let line = format!(" verified: {bytes} bytes of payload, each as it was sent");
    assert!(output.stdout.lines().any(|found| found == line), "{output:?}");
    output.stdout
}

#[test]
fn every_operation_is_verified_over_one_byte_and_over_many_packets() {
    for (words, count) in [("write_bw", 100), ("read_bw", 100), ("send_bw", 100)] {
        verified(&format!("{words} -n {count} -s 1"), count);
        verified(&format!("{words} -n {count} -s 70001 -m 1024"), count * 70001);
    }
    verified("atomic_bw -n 300", 2400);
    verified("atomic_bw -n 300 -A CMP_AND_SWAP", 2400);
}

#[test]
fn verification_needs_no_deep_queues() {
    for depth in [1, 2, 15] {
        verified(&format!("write_bw -n 100 -s 64 -t {depth}"), 6400);
        verified(&format!("read_bw -n 100 -s 64 -q 2 -t {depth}"), 12800);
    }
    for depth in [1, 3, 32] {
        verified(&format!("send_bw -n 100 -s 64 -r {depth}"), 6400);
    }
}

#[test]
fn every_latency_test_is_verified() {
    for words in ["write_lat", "read_lat", "send_lat"] {
        verified(&format!("{words} -n 50 -s 1"), 50);
        verified(&format!("{words} -n 50 -s 9000"), 50 * 9000);
    }
    verified("atomic_lat -n 50", 400);
    verified("atomic_lat -n 50 -A CMP_AND_SWAP", 400);
}

#[test]
fn unreliable_services_and_inline_data_are_verified() {
    verified("write_bw -c UC -n 100 -s 9000", 900_000);
    verified("write_lat -c UC -n 50 -s 1", 50);
    verified("send_bw -c UC -n 100 -s 9000", 900_000);
    verified("send_bw -c UD -n 100 -s 1000 -q 2", 200_000);
    verified("send_bw -c UD -n 100 -m 512", 51_200);
    verified("send_lat -c UD -n 50 -s 4096 -m 4096", 50 * 4096);
    verified("write_bw -n 100 -s 100 -I 100", 10_000);
    verified("send_lat -c UD -n 50 -s 64 -I 64", 3200);
}

#[test]
fn extended_connections_are_verified() {
    for (words, count) in [("write_bw", 100), ("read_bw", 100), ("send_bw", 100)] {
        verified(&format!("{words} -c XRC -n {count} -s 70001 -m 1024"), count * 70001);
        verified(&format!("{words} -c XRC -n {count} -s 64 -q 3 -t 7"), 3 * count * 64);
    }
    verified("atomic_bw -c XRC -n 300 -q 2", 4800);
    verified("atomic_bw -c XRC -n 300 -A CMP_AND_SWAP", 2400);
    for words in ["write_lat", "read_lat", "send_lat"] {
        verified(&format!("{words} -c XRC -n 50 -s 9000"), 50 * 9000);
    }
    verified("atomic_lat -c XRC -n 50", 400);
    verified("send_bw -c XRC -n 100 -s 64 -q 2 --send_with_imm -I 64", 12_800);
    verified("write_bw -c XRC -n 100 -s 64 -q 4 -r 8 --write_with_imm", 25_600);
    verified(
        "send_bw -c XRC -n 100 -s 5000 -q 2 --mr_per_qp --lcore-thread --idle yield",
        1_000_000,
    );
    let lossy = "write_bw -c XRC -n 50 -s 20000 -q 2 --loss-rx 0.02 --loss-tx 0.02 --seed 3 -u 12";
    assert!(verified(lossy, 2_000_000).contains("packets were sent again"));
}

#[test]
fn extended_connections_go_both_ways() {
    for test in ["write_bw -s 64", "read_bw -s 64", "send_bw -s 64", "atomic_bw"] {
        let words = format!("{test} --in-process -c XRC -b -n 400 -q 2");
        let output = run(&words.split(' ').collect::<Vec<_>>()).succeeded();
        let row = |line: &str| line.starts_with(" 64 ") || line.starts_with(" 8 ");
        let row = output.stdout.lines().find(|line| row(line)).expect("a row");
        assert_eq!(row.split_whitespace().nth(1), Some("800"), "{output:?}");
        // As perftest's, the title counts the queue pairs of both directions.
        assert!(output.stdout.contains(" Number of qps   : 4\t"), "{output:?}");
        assert_eq!(output.stdout.matches(" SRQn 0x").count(), 8, "{output:?}");
    }
}

#[test]
fn reliable_datagrams_are_verified() {
    for (words, count) in [("write_bw", 100), ("read_bw", 100), ("send_bw", 100)] {
        verified(&format!("{words} -c RD -n {count} -s 70001 -m 1024"), count * 70001);
        verified(&format!("{words} -c RD -n {count} -s 64 -q 5 --eecs 2 -t 7"), 5 * count * 64);
    }
    verified("atomic_bw -c RD -n 300 -q 2", 4800);
    verified("atomic_bw -c RD -n 300 -q 2 --eecs 1 -A CMP_AND_SWAP", 4800);
    for words in ["write_lat", "read_lat", "send_lat"] {
        verified(&format!("{words} -c RD -n 50 -s 9000"), 50 * 9000);
    }
    verified("atomic_lat -c RD -n 50", 400);
    verified("send_bw -c RD -n 100 -s 64 -q 2 --send_with_imm -I 64", 12_800);
    verified("write_bw -c RD -n 100 -s 64 -q 4 --eecs 1 -r 2 --write_with_imm", 25_600);
    verified(
        "send_bw -c RD -n 100 -s 5000 -q 2 --mr_per_qp --lcore-thread --idle yield",
        1_000_000,
    );
    let lossy = "read_bw -c RD -n 50 -s 20000 -q 3 --eecs 2 --loss-rx 0.02 --loss-tx 0.02 --seed 3";
    assert!(verified(&format!("{lossy} -u 12"), 3_000_000).contains("packets were sent again"));
}

#[test]
fn reliable_datagrams_go_both_ways() {
    for test in ["write_bw -s 64", "read_bw -s 64", "send_bw -s 64", "atomic_bw"] {
        let words = format!("{test} --in-process -c RD -b -n 400 -q 3 --eecs 2");
        let output = run(&words.split(' ').collect::<Vec<_>>()).succeeded();
        let row = |line: &str| line.starts_with(" 64 ") || line.starts_with(" 8 ");
        let row = output.stdout.lines().find(|line| row(line)).expect("a row");
        assert_eq!(row.split_whitespace().nth(1), Some("1200"), "{output:?}");
        assert!(output.stdout.contains(" EE contexts     : 2\n"), "{output:?}");
        let eecns: Vec<&str> = output.stdout.split(" EECn ").skip(1).map(|of| &of[..8]).collect();
        assert_eq!(eecns.len(), 6, "{output:?}");
        assert!(eecns[0] == eecns[2] && eecns[0] != eecns[1], "in turn: {eecns:?}");
    }
}

#[test]
fn datagrams_without_a_receive_request_are_told() {
    let words = "send_bw --in-process -c UD -n 2000 -s 64 -t 256 -r 1";
    let output = run(&words.split(' ').collect::<Vec<_>>()).succeeded();
    assert!(output.stdout.contains(" messages did not arrive"), "{output:?}");
    run(&["send_bw", "--in-process", "-c", "UD", "-D", "1", "-s", "64"]).succeeded();
}

#[test]
fn several_queue_pairs_and_posts_at_once() {
    verified("send_bw -n 60 -q 3 -s 5000", 3 * 60 * 5000);
    let words = "write_bw --in-process -n 1000 -q 3 -l 4 -t 16 -Q 5 -s 64 --report_gbits";
    let output = run(&words.split(' ').collect::<Vec<_>>()).succeeded();
    assert!(output.stdout.contains("\n 64         3000 "), "{output:?}");
    // Two lists fill the send queue.
    let output = run(&["write_bw", "--in-process", "-l", "64", "-n", "500"]).succeeded();
    assert!(output.stdout.contains(" CQ Moderation   : 64\n"), "{output:?}");
    // No list ends with a signaled request.
    run(&["write_bw", "--in-process", "-l", "64", "-Q", "100", "-n", "500"]).succeeded();
}

#[test]
fn a_lcore_with_a_thread_of_its_own_verifies_too() {
    verified("write_bw -n 50 -s 5000 --lcore-thread --idle yield", 250_000);
    verified("write_lat -n 50 -s 5000 --lcore-thread --idle yield", 250_000);
    verified("send_lat -n 50 -s 64 --lcore-thread --idle sleep", 3200);
}

#[test]
fn both_directions_at_once() {
    for test in ["write_bw", "read_bw", "send_bw"] {
        let output = run(&[test, "--in-process", "-b", "-n", "500", "-s", "4096"]).succeeded();
        assert!(output.stdout.contains("Bidirectional BW Test"), "{output:?}");
        // Each end reports its own messages, although the rates are sums.
        assert!(output.stdout.contains("\n 4096       500 "), "{output:?}");
    }
}

#[test]
fn a_sweep_prints_a_row_for_each_size() {
    let output = run(&["write_bw", "--in-process", "-a", "-n", "5"]).succeeded();
    let rows: Vec<u64> = output
        .stdout
        .lines()
        // A line below the table may begin with a number, too.
        .filter(|line| line.split_whitespace().nth(1) == Some("5"))
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    let sizes: Vec<u64> = (1..=23).map(|log2| 1 << log2).collect();
    assert_eq!(rows, sizes, "{output:?}");
}

#[test]
fn a_run_by_time_takes_that_time() {
    let begin = std::time::Instant::now();
    let output = run(&["send_lat", "--in-process", "-D", "1"]).succeeded();
    assert!(begin.elapsed().as_secs_f64() >= 1.0);
    assert!(output.stdout.contains("tps average"), "{output:?}");
    run(&["send_bw", "--in-process", "-D", "1"]).succeeded();
}

#[test]
fn the_json_file_has_the_figures() {
    let path = std::env::temp_dir().join(format!("uroce-perf-{}.json", std::process::id()));
    let file = path.to_str().expect("plain text");
    let output = run(&[
        "write_bw",
        "--in-process",
        "-n",
        "50",
        "--verify",
        "--report_gbits",
        "--out_json_file",
        file,
    ]);
    output.succeeded();
    let text = std::fs::read_to_string(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it is ours");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["test_info"]["test"], "RDMA_Write_BW_Test");
    assert_eq!(value["results"]["n_iterations"], 50);
    assert!(value["results"]["BW_average"].as_f64().expect("a number") > 0.0);
    assert_eq!(value["uroce"]["verified"], true);
}

#[test]
fn limits_are_measured_and_the_roofline_is_the_lower_of_two() {
    let args = ["limits", "--in-process", "--runs", "1", "--time-ms", "20", "--json"];
    let value = run(&args).succeeded().json();
    let number = |key: &str| value[key].as_f64().expect("a number");
    for key in ["frames_mpps", "copy_gbps", "icrc_gbps", "half_rtt_ns", "small_frames_mpps"] {
        assert!(number(key) > 0.0, "{key}: {value}");
    }
    assert_eq!(number("roofline_gbps"), number("frames_gbps").min(number("copy_icrc_gbps")));
}

#[test]
fn a_flood_of_bad_frames_is_dropped_and_damages_nothing() {
    let value = run(&["flood", "--runs", "1", "--time-ms", "50", "--json", "-s", "9000"])
        .succeeded()
        .json();
    assert_eq!((&value["verified"], &value["verified_bytes"]), (&true.into(), &4_500_000.into()));
    assert!(value["flood_share"].as_f64().is_some_and(|share| share > 0.0), "{value}");
    for reason in ["rx_malformed", "rx_icrc_errors", "rx_unknown_qpn", "rx_wrong_source"] {
        assert!(value["dropped"][reason].as_u64().is_some_and(|count| count > 0), "{value}");
    }
}

#[test]
fn losses_are_repaired() {
    let words = "write_bw -n 100 -s 20000 --loss-rx 0.02 --loss-tx 0.02 --seed 3 -u 12";
    let output = verified(words, 2_000_000);
    assert!(output.contains("packets were sent again"), "{output}");
}

#[test]
fn a_wrong_command_line_says_what_is_wrong() {
    let error = |args: &[&str]| {
        let output = run(args);
        assert_eq!(output.code, Some(2), "{output:?}");
        output.stderr
    };
    assert!(error(&["write_bw", "-R"]).contains("-R is not supported here"));
    assert!(error(&["write_bw", "-c", "UD"]).contains("UD has no RDMA WRITE"));
    assert!(error(&["write_bw", "--in-process", "-m", "1500"]).contains("-m must be 256"));
    assert!(error(&["quickstart", "--time-ms", "10001"]).contains("--time-ms 1 to 10000"));
    assert!(error(&["limits"]).contains("--vdev, --pci or --in-process"));
}

#[test]
fn packets_are_counted_by_receive_queue() {
    let name = format!("uroce-queues-{}", std::process::id());
    let file = |end: &str| std::env::temp_dir().join(format!("{name}.{end}")).display().to_string();
    let (config, json) = (file("toml"), file("json"));
    let device = |name: &str, address: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nidle = \"yield\"\nlcores = 2\n[[device.port]]\n\
             ethdev = {{ ring = \"queues\" }}\nip = [\"{address}\"]\n"
        )
    };
    let text = device("server", "198.18.0.1/24") + &device("client", "198.18.0.2/24");
    std::fs::write(&config, text).expect("a file");
    let words = ["write_bw", "-n", "50", "-s", "5000", "-m", "1024", "-q", "4", "--lcore-thread"];
    let more = ["--in-process", "--config", &config, "--out_json_file", &json];
    let output = run(&[&words[..], &more].concat()).succeeded();
    assert!(output.stdout.contains("\n packets by receive queue: "), "{output:?}");
    let report = std::fs::read_to_string(&json).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let received = report["uroce"]["received_by_queue"].as_array().expect("a list").clone();
    assert_eq!(received.len(), 2, "{report}");
    assert!(received.iter().all(|packets| packets.as_u64() > Some(0)), "{report}");
    for file in [config, json] {
        std::fs::remove_file(file).expect("it is there");
    }
}
