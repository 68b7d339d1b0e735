//! `bench`, with a script in the place of `uroce-perf` that does what a test asks for.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use uroce_command::Answer;

use crate::capture::Folder;
use crate::lab::{Lab, text};
use crate::prompt::Terminal;

/// Prints perftest's table for the test of its first word; waits with `-D`, fails with `-n 0`.
const SCRIPT: &str = r#"#!/bin/sh
printf ' %s of %s\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]\n' "$*" $PPID
printf ' 65536      100              3009.69            2608.39\t\n'
case "$2$3" in -D*) echo $$ $UROCE_PERF_ENDS_WITH >"$0.pid"; exec sleep 100;; -n0) echo 'no such luck' >&2; exit 1;; esac
"#;

/// A folder with the program and, beside it, the script.
struct Place(Arc<Folder>);

impl Place {
    fn new(name: &str) -> Place {
        let place = Place::empty(name);
        std::fs::write(place.perf(), SCRIPT).unwrap();
        std::fs::set_permissions(place.perf(), Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn empty(name: &str) -> Place {
        let folder = Folder::new(&format!("bench-{name}"));
        std::fs::copy(env!("CARGO_BIN_EXE_uroce"), folder.file("uroce")).unwrap();
        Place(Arc::new(folder))
    }

    fn perf(&self) -> String {
        self.0.file("uroce-perf")
    }

    /// Returns the program, attached to this process.
    fn attached(&self) -> Command {
        let mut command = Command::new(self.0.file("uroce"));
        command.args(["-s", &std::process::id().to_string()]).env("NO_COLOR", "1");
        command
    }

    /// Starts a prompt without a terminal, with these lines.
    fn start(&self, mut command: Command, lines: &str) -> Child {
        let file = self.0.file("lines");
        std::fs::write(&file, lines).unwrap();
        command.stdin(std::fs::File::open(file).unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program runs")
    }

    /// Runs these lines at a prompt without a terminal.
    fn run(&self, command: Command, lines: &str) -> Output {
        self.start(command, lines).wait_with_output().expect("the program ends")
    }

    /// Returns the number of the script's process that was started with `-D`, and the number of the
    /// process with which it ends; both are empty if it has not begun.
    fn numbers(&self) -> (String, String) {
        let numbers = std::fs::read_to_string(self.perf() + ".pid").unwrap_or_default();
        let (own, other) = numbers.trim().split_once(' ').unwrap_or_default();
        (own.to_owned(), other.to_owned())
    }

    /// Returns whether the script runs that has been started with `-D`.
    fn is_running(&self) -> bool {
        let (own, _) = self.numbers();
        !own.is_empty() && Path::new("/proc").join(own).exists()
    }
}

#[test]
fn a_measurement_runs_beside_the_prompt_and_shows_its_table() {
    let (_lab, place) = (Lab::new(), Place::new("beside"));
    let lines = "bench write_bw -n 100 192.0.2.1\nshow gid\nbench wait timeout 20000\nbench show\n\
                 show process\n";
    let output = place.run(place.attached(), lines);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{said}");
    assert!(said.starts_with("write_bw runs beside the prompt, on a device of its own"), "{said}");
    let row = " 65536      100              3009.69            2608.39  \n";
    // By `wait` and by `show`, and before that if it has ended before `wait`.
    assert!((2..=3).contains(&said.matches(row).count()), "{said}");
    assert!(said.contains("bench write_bw -n 100 192.0.2.1: done, "), "{said}");
    assert!(said.contains("192.0.2.2") && said.contains("(process "), "{said}");
}

#[test]
fn the_outcome_is_told_before_the_next_line_if_no_command_has_shown_it() {
    let (_lab, place) = (Lab::new(), Place::new("told"));
    let lines = "bench read_lat\nsleep 1000\nshow process\nshow process\n";
    let said = text(&place.run(place.attached(), lines).stdout);
    assert_eq!(said.matches("bench read_lat: done, ").count(), 1, "{said}");
    let (told, shown) = (said.find(": done, "), said.find("(process "));
    assert!(told < shown, "{said}");
}

#[test]
fn each_outcome_of_a_script_is_told_and_a_failed_one_is_a_failure_of_the_script() {
    let (_lab, place) = (Lab::new(), Place::new("each"));
    let lines = "bench send_bw -n 0\nsleep 1000\nbench read_lat\nsleep 1000\n";
    let output = place.run(place.attached(), lines);
    let said = text(&output.stdout);
    assert_eq!(said.matches("bench send_bw -n 0: failed, ").count(), 1, "{said}");
    assert_eq!(said.matches("bench read_lat: done, ").count(), 1, "{said}");
    assert_eq!(output.status.code(), Some(1), "one has failed");
    let mut command = place.attached();
    command.arg("--end");
    let said = text(&place.run(command, "bench send_bw -n 0\nsleep 1000\nshow process\n").stdout);
    assert!(said.contains(": failed, ") && !said.contains("(process "), "{said}");
}

#[test]
fn one_runs_at_a_time_and_is_stopped() {
    let (_lab, place) = (Lab::new(), Place::new("stop"));
    let lines = "bench stop\nbench wait\nbench send_bw -D 9\nsleep 300\nbench show\n\
                 bench write_bw\nbench wait timeout 5\nbench stop\nbench stop\nbench show\n";
    let output = place.run(place.attached(), lines);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    let none = "no measurement has been started here\nstart one: bench write_bw\n";
    assert_eq!(errors.matches(none).count(), 2, "{errors}");
    for error in [
        "send_bw -D 9 runs\n`bench stop` ends it\n",
        "the measurement still runs\n`bench stop` ends it\n",
        "no measurement runs\n`bench show` has the last one\n",
    ] {
        assert!(errors.contains(error), "no {error:?} in {errors}");
    }
    assert!(said.contains("bench send_bw -D 9: running, "), "{said}");
    assert_eq!(said.matches("bench send_bw -D 9: stopped, ").count(), 2, "{said}");
    assert!(!place.is_running());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn it_ends_with_the_prompt_however_that_ends() {
    let (_lab, place) = (Lab::new(), Place::new("end"));
    let prompt = place.start(place.attached(), "bench write_bw -D 9\nsleep 300\nquit\n");
    let number = prompt.id().to_string();
    prompt.wait_with_output().expect("the program ends");
    assert!(!place.is_running(), "after quit");
    assert_eq!(place.numbers().1, number, "it had begun, and would end with a killed prompt");
}

#[test]
fn a_command_of_a_shell_waits_for_the_end_and_needs_no_process() {
    let place = Place::new("shell");
    let uroce = |arguments: &[&str]| {
        let mut command = Command::new(place.0.file("uroce"));
        command.args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.output().expect("the program runs")
    };
    let output = uroce(&["-j", "bench", "atomic_bw", "-n", "100"]);
    let Ok(Answer::Bench(of)) = serde_json::from_slice(&output.stdout) else {
        panic!("{output:?}");
    };
    assert_eq!((of.line.as_str(), of.state.as_str()), ("atomic_bw -n 100", "done"));
    assert_eq!(of.columns[2..], ["BW peak[MiB/sec]", "BW average[MiB/sec]"]);
    assert_eq!(of.rows, [["65536", "100", "3009.69", "2608.39"]]);
    let output = uroce(&["bench", "write_lat", "-n", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains(": failed, ") && said.contains("\nno such luck\n"), "{said}");
}

#[test]
fn a_program_that_is_missing_is_named_with_the_remedy() {
    let place = Place::empty("missing");
    let mut command = Command::new(place.0.file("uroce"));
    command.args(["bench", "write_bw"]).env("PATH", "/nonexistent").env("NO_COLOR", "1");
    let output = command.output().expect("the program runs");
    let error = "uroce-perf is neither beside this program nor in PATH\n\
                 build it, and put it there: cargo build --release -p uroce-bench\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), error));
}

#[test]
fn a_device_of_its_own_has_it_too_and_it_is_told_while_a_line_is_typed() {
    let place = Place::new("own");
    let mut command = Command::new(place.0.file("uroce"));
    command.args(["--vdev=net_null0,no-rx=1", "--", "-i"]).env("NO_COLOR", "1");
    command.env("XDG_STATE_HOME", place.0.file(""));
    let mut terminal = Terminal::run(command, Arc::clone(&place.0));
    terminal.shows("uroce> ");
    terminal.types("bench write_lat -n 5\r");
    terminal.shows("bench write_lat -n 5: done, ");
    terminal.types("bench show\r");
    terminal.shows("bench write_lat -n 5: done, ");
    terminal.types("quit\r");
    terminal.shows("Bye...");
}
