//! Monitors: what they print, and what ends them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::lab::{Lab, ask_with, fails, says, text, uroce};
use crate::objects::Own;
use crate::prompt::Terminal;

#[test]
fn rates_of_a_queue_pair_and_a_port_are_shown_as_often_as_told() {
    let mut lab = Lab::new();
    let qpn = lab.left.qp.qpn().value();
    let writes = std::thread::spawn(move || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            lab.write(1);
        }
        lab
    });
    for line in
        [format!("monitor qp {qpn:#x} interval 100 count 3"), "mon port 0 count 2 int 50".into()]
    {
        let said = says(&line);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("State        RX-pps"), "{said}");
        assert_eq!(lines.len(), if line.contains("qp") { 4 } else { 3 }, "{said}");
        for line in &lines[1..] {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(["RTS", "up"].contains(&words[0]), "{line}");
            assert!(words[3].parse::<u64>().expect("a rate") > 0, "{line}");
        }
    }
    let json = ask_with(&["-j"], "monitor port 0 interval 50 count 1");
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(value["monitor"]["state"], "up");
    drop(writes.join().expect("writes"));
}

#[test]
fn events_are_shown_as_they_happen_and_once() {
    let lab = Lab::new();
    lab.left.context.set_link(1, false).expect("a port");
    crate::lab::eventually("the event", || says("show events").contains("PortErr"));
    let pid = std::process::id().to_string();
    let mut command = uroce(&["-s", &pid, "monitor", "events", "interval", "10", "count", "6"]);
    let child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    // What happens before the monitor has begun is not shown.
    let (sender, over) = channel::<()>();
    let changes = std::thread::spawn(move || {
        let mut is_up = true;
        while over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            lab.left.context.set_link(1, is_up).expect("a port");
            is_up = !is_up;
        }
        lab
    });
    let output = child.wait_with_output().expect("an end");
    drop(sender);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    let number = |line: &str| {
        let (number, rest) = line.strip_prefix("left ")?.split_once(": ")?;
        rest.starts_with("port 1 Port").then(|| number.parse::<u64>().ok())?
    };
    let numbers: Vec<u64> = said.lines().filter_map(number).collect();
    assert_eq!(said.lines().count(), 6, "{said}");
    assert!(numbers.len() > 1 && numbers[0] > 0, "{said}");
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{said}");
    drop(changes.join().expect("changes"));
}

#[test]
fn a_monitor_ends_with_its_object() {
    let lab = Lab::new();
    let qpn = lab.left.qp.qpn().value();
    assert!(fails("monitor qp 0xabcdef").contains("no QP 0xabcdef"));
    assert!(fails("monitor port 77").contains("Invalid port 77"));
    let pid = std::process::id().to_string();
    let number = format!("{qpn:#x}");
    let mut command = uroce(&["-s", &pid, "monitor", "qp", &number, "interval", "20"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.by_ref().map_while(Result::ok).take(2).count() == 2);
    drop(lab.left);
    assert!(lines.map_while(Result::ok).all(|line| line.contains("RTS") || line.contains("State")));
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&format!("no QP {qpn:#08x}")), "{output:?}");
}

#[test]
fn ctrl_c_ends_a_monitor_and_not_the_prompt() {
    let _lab = Lab::new();
    let mut terminal = Terminal::open("monitor");
    for end in ["\u{3}", "q"] {
        terminal.types("monitor port 0 interval 20\r");
        terminal.shows("RX-Mbit/s");
        terminal.types(end);
        terminal.shows("uroce> ");
    }
    terminal.types("version\r");
    terminal.shows(concat!("uroce ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_monitor_runs_on_a_device_of_its_own() {
    let mut own = Own::new(&["--vdev=net_null0,no-rx=1", "--", "-i"]);
    own.type_line("monitor port 0 interval 10 count 1");
    own.until("RX-pps");
    own.until("up ");
    own.type_line("monitor events interval 10 count 1");
    let pid = own.pid().to_string();
    let (sender, over) = channel::<()>();
    let changes = std::thread::spawn(move || {
        let mut changes = ["link-down", "link-up"].into_iter().cycle();
        while over.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            let change = changes.next().expect("endless");
            let line = ["-s", &pid, "set", "port", "0", change];
            assert!(uroce(&line).status().expect("it runs").success());
        }
    });
    own.until(": port 1 Port");
    drop(sender);
    changes.join().expect("changes");
    assert!(own.quit());
}
