//! `uroce-perf ndr`: known limits are found, and what was offered is what the output says.

use super::common::{Memif, run};
use serde_json::Value;
use std::path::PathBuf;

/// A goal that a machine meets which is so busy that no trial is without a late message: for tests
/// that need some rate, whichever.
const SOME_RATE: [&str; 2] = ["--loss", "50"];

/// A configuration of two devices joined by rings; the client's port has a bottleneck, in Mb/s.
struct Limited {
    file: PathBuf,
}

/// Rate of the bottleneck in 10^6 bit/s of frames without their check sequence.
const LIMIT_MBPS: f64 = 400.0;

impl Limited {
    /// Makes the configuration with a queue of this length.
    fn new(name: &str, queue: &str) -> Self {
        let file = std::env::temp_dir().join(format!("uroce-{name}-{}.toml", std::process::id()));
        let device = |name: &str, address: &str, more: &str| {
            format!(
                "[[device]]\nname = \"{name}\"\nidle = \"sleep\"\n[[device.port]]\n\
                 ethdev = {{ ring = \"limited\" }}\nip = [\"{address}\"]\nmtu = 4200\n{more}\n"
            )
        };
        let limit = format!("bottleneck = {{ rate = \"{LIMIT_MBPS}M\", queue = \"{queue}\" }}");
        let text =
            device("server", "198.18.0.1/24", "") + &device("client", "198.18.0.2/24", &limit);
        std::fs::write(&file, text).expect("a file");
        Self { file }
    }

    fn path(&self) -> &str {
        self.file.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().filter_map(Value::as_f64).collect()
}

/// Searches over a service, and checks that nine of ten searches find the limit.
fn finds_the_limit(service: &str, queue: &str) {
    let limited = Limited::new(&format!("ndr-limit-{service}-{queue}"), queue);
    let words = ["ndr", "--in-process", "--json", "--frames", "1024", "--load", "none"];
    let more = ["-c", service, "--config", limited.path()];
    let report = run(&[&words[..], &more].concat()).succeeded().json();
    let point = &report["points"][0];
    // Of a frame of 1022 bytes the bottleneck counts 1018.
    let bits = 8.0 * (point["frame_bytes"].as_f64().expect("a length") - 4.0);
    let limit = LIMIT_MBPS * 1e6 / bits;
    let zero = &point["goals"][0];
    let found = numbers(&zero["searches_messages_per_s"]);
    let right = found.iter().filter(|rate| (*rate / limit - 1.0).abs() < 0.02).count();
    assert!(found.len() == 10 && right >= 9, "{limit}: {point}");
    let tolerant = point["goals"][1]["messages_per_s"]["median"].as_f64().expect("a rate");
    assert!(tolerant >= zero["messages_per_s"]["median"].as_f64().expect("a rate"), "{point}");
}

#[test]
fn a_known_limit_that_drops_datagrams_is_found_in_nine_of_ten_searches() {
    // Sixteen frames, of which a trial sends some thousand.
    finds_the_limit("UD", "16KB");
}

#[test]
fn a_known_limit_is_not_raised_by_what_a_deep_queue_delivers_late() {
    // The queue holds five milliseconds of a trial's fifty.
    finds_the_limit("UD", "256KB");
}

#[test]
fn a_known_limit_that_makes_messages_late_is_found_in_nine_of_ten_searches() {
    // All that a reliable connection has under way fits, so that nothing is ever dropped.
    finds_the_limit("RC", "256KB");
}

#[test]
fn frames_have_the_length_that_the_output_says_and_all_loads_their_latency() {
    let log = std::env::temp_dir().join(format!("uroce-ndr-{}.hlog", std::process::id()));
    let file = log.to_str().expect("a path in UTF-8");
    let words = ["ndr", "--in-process", "--json", "--frames", "64,imix,9000", "-s", "65536"];
    let quick = ["--searches", "1", "--time-ms", "10", "--trials", "1", "--load-time-ms", "20"];
    let output = run(&[&words[..], &quick, &SOME_RATE, &["--hdr-log", file]].concat()).succeeded();
    let report = output.json();
    let points = report["points"].as_array().expect("points");
    assert_eq!(points.len(), 12, "{report}");
    let last = &points[10]["impossible"];
    assert!(last.as_str().is_some_and(|text| text.contains("longer than the path MTU")), "{last}");
    for point in points.iter().filter(|point| point["impossible"].is_null()) {
        assert!(point["bare_port"]["messages_per_s"].as_f64() > Some(0.0), "{point}");
        let loads = point["latency_over_load"].as_array().expect("loads");
        assert_eq!(loads.len(), if point["service"] == "RC" { 3 } else { 0 }, "{point}");
        for load in loads {
            let at = |key: &str| load[key].as_f64().expect("a time");
            assert!(at("min_us") > 0.0 && at("p50_us") <= at("p99_us"), "{load}");
            assert!(at("p99_99_us") <= at("max_us"), "{load}");
        }
    }
    let text = std::fs::read_to_string(&log).expect("the log");
    let tagged = text.lines().filter(|line| line.starts_with("Tag=RC-")).count();
    assert_eq!(tagged, 12, "{text}");
    std::fs::remove_file(log).expect("the log was written");
}

#[test]
fn two_processes_search_together_and_the_server_ends_with_its_client() {
    let local = Memif::new("ndr");
    let words = ["ndr", "--frames", "512", "-c", "UC", "--searches", "1", "--time-ms", "10"];
    let server = local.start_default("server", &words);
    let client = local.start_default("client", &words).finish().succeeded();
    server.finish().succeeded();
    let line = client.stdout.lines().find(|line| line.starts_with(" UC  512")).expect("a row");
    assert!(line.split_whitespace().count() >= 12, "{client:?}");
    assert!(client.stdout.contains("bare: not here"), "{client:?}");
}

#[test]
fn a_server_that_goes_away_in_the_middle_is_said_in_one_line() {
    let local = Memif::new("ndr-gone");
    let log = std::env::temp_dir().join(format!("uroce-ndr-gone-{}.hlog", std::process::id()));
    let file = log.to_str().expect("a path in UTF-8");
    let frames = "64,128,256,512,1024,1280,1518,4096,9000,imix";
    let words = ["ndr", "--frames", frames, "-c", "RC", "--searches", "1"];
    let mut server = local.start_default("server", &words);
    let more = ["--load", "50", "--load-time-ms", "100", "--hdr-log", file];
    let mut client = local.start_default("client", &[&words[..], &SOME_RATE, &more].concat());
    // The first point has been measured, and nine are left.
    client.until("latency at  50 %");
    server.kill();
    let client = client.finish();
    assert_eq!(client.code, Some(1), "{client:?}");
    assert_eq!(client.stderr.lines().count(), 1, "{client:?}");
    assert!(client.stderr.contains("the other end is gone"), "{client:?}");
    let text = std::fs::read_to_string(&log).expect("what was measured before is kept");
    assert!(text.contains("Tag=RC-64-50%"), "{text}");
    std::fs::remove_file(log).expect("the log was written");
}

#[test]
fn ends_that_do_not_agree_say_what_differs() {
    let local = Memif::new("ndr-differ");
    let words = ["ndr", "--frames", "512", "-c", "UC", "--searches", "1", "--time-ms", "10"];
    let server = local.start_default("server", &words);
    let client = local.start_default("client", &[&words[..], &["-m", "1024"]].concat()).finish();
    let server = server.finish();
    assert!(client.stderr.contains("path MTU 1024 here, 4096 there"), "{client:?}");
    assert!(server.stderr.contains("path MTU 4096 here, 1024 there"), "{server:?}");
}
