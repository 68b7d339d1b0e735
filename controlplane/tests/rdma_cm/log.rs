//! The log that `UROCE_LOG` asks for. It is written by other tests, in processes of their own.

use std::process::{Command, Output};

/// Runs a test of this binary in a process with `UROCE_LOG` set to `filter`.
fn run(test: &str, filter: &str) -> Output {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env("UROCE_LOG", filter);
    command.output().expect("the program starts again")
}

const CONNECT: &str = "set_up::two_qps_connect_by_address_and_port_and_talk";

#[test]
fn a_connect_and_its_modify_qps_are_logged_when_asked_for() {
    let output = run(CONNECT, "debug");
    let log = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{log}");
    let has = |words: &[&str]| {
        let is_so = log.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(is_so, "no line with {words:?} in\n{log}");
    };
    has(&["INFO", "device opened", "ports=1"]);
    has(&["DEBUG", "uroce_controlplane::rdma_cm", "connect id=", "peer="]);
    has(&["connection id=", "from=Idle", "to=ReqSent"]);
    has(&["connection id=", "from=ReqRcvd", "to=RepSent"]);
    has(&["connection id=", "to=Established"]);
    for state in ["Init", "Rtr", "Rts", "Err"] {
        has(&["Modify QP", "qpn=", &format!("state=Some({state})")]);
    }
    has(&["INFO", "device closed"]);
    assert!(!log.contains('\u{1b}'), "no colours");
}

#[test]
fn a_filter_selects_modules_and_a_bad_one_is_a_warning() {
    let output = run(CONNECT, "uroce_controlplane::log=debug");
    let log = String::from_utf8(output.stderr).expect("text");
    assert!(log.contains("Modify QP") && !log.contains("device opened"), "{log}");
    for (filter, lines) in [("off", 0), ("uroce=loud", 1)] {
        let output = run(CONNECT, filter);
        let log = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{log}");
        let ours = log.lines().filter(|line| line.contains("uroce"));
        assert_eq!(ours.count(), lines, "{log}");
        assert_eq!(log.contains("uroce: UROCE_LOG is ignored: "), lines == 1, "{log}");
    }
}
