//! Files of commands, standard input, and what needs no process.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::lab::{Lab, text, uroce};

/// Runs the program on this process with these options and this standard input.
fn with_input(options: &[&str], input: &[u8]) -> Output {
    let pid = std::process::id().to_string();
    let mut command = uroce(&[&["-s", &pid], options].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    // The program may end before it has read all.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("an end")
}

/// Returns a file in a directory of this test.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = format!("/tmp/uroce-script-{}-{name}", std::process::id());
    std::fs::write(&path, bytes).expect("a file");
    path
}

#[test]
fn a_script_goes_on_after_a_mistake_and_fails_in_the_end() {
    let _lab = Lab::new();
    let script = b"# a comment\nshow prot 0\n\nshow cq\nshow port stats 77\nshow mr\n";
    let output = with_input(&[], script);
    assert_eq!(output.status.code(), Some(1));
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("CQ") && said.contains("MR and MW"), "{said}");
    assert!(errors.starts_with("stdin:2: show prot 0\nBad arguments\n"), "{errors}");
    assert!(errors.contains("\n              ^^^^ expected"), "below the word: {errors}");
    assert!(errors.ends_with("Invalid port 77\n"), "{errors}");
}

#[test]
fn with_e_the_first_failure_is_the_end() {
    let _lab = Lab::new();
    let output = with_input(&["-e"], b"show cq\nshow port stats 77\nshow mr\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output.stdout).contains("MR and MW"));
    let output = with_input(&["-e"], b"show cq\nquit\nshow prot\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn files_are_loaded_and_echoed() {
    let _lab = Lab::new();
    let inner = file("inner", b"show cq\r\nsleep 1\n");
    let outer = file("outer", format!("load {inner}\nload_echo {inner}\nversion").as_bytes());
    let output = with_input(&["-f", &outer], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert_eq!(said.matches("Object").count(), 4 / 2, "{said}");
    assert_eq!(said.matches("> show cq").count(), 1, "{said}");
    assert!(said.ends_with(&format!("uroce {}\n", env!("CARGO_PKG_VERSION"))), "{said}");
    let traced = with_input(&["-x", "-f", &inner], b"");
    assert!(text(&traced.stdout).starts_with("> show cq\nDevice"), "{}", text(&traced.stdout));
}

#[test]
fn hostile_files_end_with_an_error() {
    let _lab = Lab::new();
    let own = format!("/tmp/uroce-script-{}-own", std::process::id());
    std::fs::write(&own, format!("load {own}\n")).expect("a file");
    let output = with_input(&["-f", &own], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("files load files 8 deep"));
    for path in ["/nonexistent", "/tmp", "/dev/zero"] {
        let output = with_input(&["-f", path], b"");
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(text(&output.stderr).contains(path), "{}", text(&output.stderr));
    }
    for line in ["load \u{1b}[2J", "\u{9b}2J", "# \u{1b}[2J", "load_echo \u{202e}"] {
        let output = with_input(&["-x"], line.as_bytes());
        let said = [text(&output.stdout), text(&output.stderr)].concat();
        let harmless = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
        assert!(said.chars().all(harmless), "{said:?}");
    }
    let mut random = fastrand::Rng::with_seed(11);
    let bytes: Vec<u8> = (0..20_000).map(|_| random.u8(..)).collect();
    let output = with_input(&[], &bytes);
    assert_eq!(output.status.code(), Some(1));
    let harmless = |c: char| c == '\n' || !c.is_control();
    assert!(String::from_utf8_lossy(&output.stderr).chars().all(harmless));
}

#[test]
fn help_needs_no_process_and_other_commands_say_what_is_missing() {
    let help = uroce(&["help", "show", "port"]).output().unwrap();
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("show port xstats PORT|all"));
    let missing = uroce(&["show", "cq"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("uroce -s PID"), "{}", text(&missing.stderr));
    let both = uroce(&["-s", "1", "-f", "/dev/null", "show", "cq"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "one of them would be ignored");
    let wrong = uroce(&["--dance"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_reader_that_goes_is_no_error_message() {
    let _lab = Lab::new();
    let pid = std::process::id().to_string();
    let mut child = uroce(&["-s", &pid, "show", "counters"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
}
