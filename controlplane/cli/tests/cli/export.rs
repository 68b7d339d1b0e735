//! `uroce export`: what Prometheus reads, and what clients and processes cannot do to it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::{Lab, uroce};

/// A running exporter.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(options: &[&str], environment: &[(&str, &str)]) -> Exporter {
        let arguments = [&["export", "--listen", "127.0.0.1:0"], options].concat();
        let mut child = uroce(&arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on http://").expect("where it listens");
        let address =
            address.strip_suffix("/metrics").expect("a page").parse().expect("an address");
        Exporter { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        stream
    }

    /// Sends a request and returns the whole answer.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn metrics(&self) -> String {
        let answer = self.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
        body.to_owned()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the value of a metric of this process, the first with `labels` among its labels.
fn value(text: &str, name: &str, labels: &str) -> Option<f64> {
    let own = format!("{name}{{pid=\"{}\",", std::process::id());
    let mut lines = text.lines().filter(|line| line.starts_with(&own) && line.contains(labels));
    lines.next()?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn traffic_drops_lcores_and_queue_pairs_are_exported() {
    let mut lab = Lab::new();
    let exporter = Exporter::start(&[], &[]);
    exporter.metrics();
    std::thread::sleep(Duration::from_millis(600));
    lab.write(20);
    let text = exporter.metrics();
    let own =
        |name: &str, labels: &str| value(&text, name, labels).unwrap_or_else(|| panic!("{name}"));
    let left = "device=\"left\"";
    assert!(own("roce_port_packets_transmitted_total", left) >= 320.0);
    assert!(own("roce_rdma_tx_bytes_total", left) > 20.0 * 65536.0);
    assert!(own("roce_rdma_tx_packets_total", left) >= 320.0);
    assert!(own("roce_dropped_packets_total", "reason=\"rx_unknown_qpn\",lcore=\"0\"") == 0.0);
    assert!(own("roce_lcore_turns_total", left) > 0.0);
    assert!(own("roce_lcore_seconds_total", "activity=\"transmit\"") > 0.0);
    assert!(own("roce_request_round_trip_seconds_count", left) >= 1.0);
    assert_eq!(own("roce_qps", "service=\"RC\",state=\"RTS\""), 1.0);
    let qpn = format!("device=\"left\",qpn=\"{:#08x}\"", lab.left.qp.qpn().value());
    assert!(own("roce_qp_transmitted_bytes_total", &qpn) > 20.0 * 65536.0);
    assert_eq!(own("roce_port_up", left), 1.0);
    assert_eq!(value(&text, "roce_objects", "object=\"CQ\""), Some(1.0));
    assert!(text.contains(&format!("roce_process_up{{pid=\"{}\"}} 1\n", std::process::id())));
    let quiet = Exporter::start(&["--top", "0", "--no-measure"], &[]).metrics();
    assert!(!quiet.contains("roce_qp_"), "{quiet}");
}

#[test]
fn promtool_finds_no_fault_in_the_metrics() {
    let _lab = Lab::new();
    let exporter = Exporter::start(&[], &[]);
    let text = exporter.metrics();
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        eprintln!("SKIP: promtool is not installed (Debian: prometheus)");
        return;
    };
    tool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = tool.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
}

#[test]
fn the_dashboard_shows_only_metrics_that_are_exported() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/grafana/uroce.json");
    let dashboard = std::fs::read_to_string(path).expect("the dashboard");
    let value: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert!(value["panels"].as_array().expect("panels").len() > 10);
    let mut lab = Lab::new();
    lab.write(1);
    let exporter = Exporter::start(&[], &[]);
    exporter.metrics();
    std::thread::sleep(Duration::from_secs(1));
    let text = exporter.metrics();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> =
        dashboard.split(|c| !is_word(c)).filter(|word| word.starts_with("roce_")).collect();
    assert!(words.len() > 20, "{words:?}");
    for word in words {
        assert!(text.contains(&format!("\n{word}{{")), "{word} is not exported");
    }
}

#[test]
fn wrong_requests_are_answered_and_cost_their_connection() {
    let exporter = Exporter::start(&[], &[]);
    for (request, status) in [
        ("GET /other HTTP/1.1\r\n\r\n", "404"),
        ("GET / HTTP/1.0\r\n\r\n", "200"),
        ("GET /metrics?x=y HTTP/1.1\r\n\r\n", "200"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\u{0}\u{1}rubbish\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
    ] {
        let answer = exporter.ask(request);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request:?}: {answer}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(9000));
    assert!(exporter.ask(&long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn clients_that_say_nothing_keep_no_other_away() {
    let exporter = Exporter::start(&[], &[]);
    let mut silent: Vec<TcpStream> = (0..200).map(|_| exporter.connect()).collect();
    for stream in &mut silent {
        // Some have been closed already to make room.
        let _ = stream.write_all(b"GET /metr");
    }
    let begin = Instant::now();
    assert!(exporter.metrics().contains("roce_exporter_scrape_duration_seconds "));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_process_that_stalls_costs_only_its_own_metrics() {
    let mut lab = Lab::new();
    lab.write(1);
    let base = PathBuf::from(format!("/tmp/uroce-export-{}", std::process::id()));
    let directory = base.join("uroce/control");
    for part in [base.clone(), base.join("uroce"), directory.clone()] {
        std::fs::DirBuilder::new().mode(0o700).create(part).expect("a directory");
    }
    // Both accept connections; one sends nothing, and the other rubbish.
    let _silent = UnixListener::bind(directory.join("1-2.sock")).expect("a socket");
    let rubbish = UnixListener::bind(directory.join("3-2.sock")).expect("a socket");
    // This one has the name of a process that it is not.
    let namespace = std::fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
    let impostor = directory.join(format!("1-{namespace}.sock"));
    let _impostor = UnixListener::bind(impostor).expect("a socket");
    std::thread::spawn(move || {
        for stream in rubbish.incoming().flatten() {
            let _ = (&stream).write_all(&[0, 0, 0, 2, b'{', b'}']);
            // Until the client closes it.
            let _ = (&stream).read_to_end(&mut Vec::new());
        }
    });
    let run_dir = uroce_command::run_dir::sub_dir(uroce_command::run_dir::CONTROL);
    assert!(run_dir.is_ok_and(|own| own != directory));
    let environment = [("XDG_RUNTIME_DIR", base.to_str().expect("UTF-8"))];
    let exporter = Exporter::start(&[], &environment);
    let begin = Instant::now();
    let text = exporter.metrics();
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert!(text.contains("roce_process_up{pid=\"1-2\"} 0\n"), "{text}");
    assert!(text.contains("roce_process_up{pid=\"3-2\"} 0\n"), "{text}");
    assert!(!text.contains("pid=\"1\""), "{text}");
    assert!(value(&text, "roce_rdma_tx_packets_total", "device=\"left\"").is_some_and(|v| v > 0.0));
    std::fs::remove_dir_all(base).expect("its own directory");
}
