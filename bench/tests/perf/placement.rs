//! Data that is flushed and announced by an ATOMIC WRITE, as two processes joined by memif.

use super::common::{Memif, Output};

/// Runs both ends with these options, and the client with more. Gives the client's output first.
fn pair(options: &str, more: &str) -> [Output; 2] {
    let memif = Memif::new("placement");
    let words = |own: &'static str, more: &str| -> Vec<String> {
        let all = format!("placement --json --ip {own} {options} {more}");
        all.split_whitespace().map(str::to_owned).collect()
    };
    let start = |role: &str, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        memif.start(role, &words)
    };
    let server = start("server", &words("192.0.2.1/24", ""));
    let client = start("client", &words("192.0.2.2/24", more));
    [client.finish(), server.finish()]
}

#[test]
fn data_are_where_they_were_announced() {
    for options in ["-s 1 -m 4096 -n 200", "-s 1025 -m 1024 -n 200", "-s 300000 -m 256 -n 20"] {
        for output in pair(options, "") {
            let report = output.succeeded().json();
            assert_eq!((&report["verified"], &report["refused"]), (&true.into(), &().into()));
        }
    }
}

#[test]
fn a_round_may_be_without_a_flush() {
    let [client, server] = pair("-n 100", "--unflushed").map(|output| output.succeeded().json());
    assert_eq!((&client["rounds"], &server["rounds"]), (&100.into(), &100.into()));
}

#[test]
fn losses_are_repaired() {
    let reports = pair("-s 3000 -n 200 -u 13 --loss-rx 0.02 --loss-tx 0.02", "")
        .map(|output| output.succeeded().json());
    assert!(reports.iter().any(|report| report["lost"] != 0), "{reports:?}");
}

#[test]
fn the_wrong_request_is_refused() {
    for (wrong, status) in [
        ("address", "remote invalid request"),
        ("range", "remote access error"),
        ("rights", "remote invalid request"),
    ] {
        let [client, server] = pair("-n 4", &format!("-w {wrong}"));
        assert_eq!(client.succeeded().json()["refused"], status);
        assert_eq!(server.succeeded().json()["rounds"], 4);
    }
}

#[test]
fn ends_with_different_memory_say_so() {
    for output in pair("", "-s 8") {
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("different options: -s"), "{output:?}");
    }
}
