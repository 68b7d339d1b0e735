//! The program with a device of its own, as testpmd has its ports.

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::lab::{find_socket, text, uroce};

/// Runs the program with these arguments and this standard input.
pub(crate) fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = uroce(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("an end")
}

#[test]
fn a_session_of_testpmds_habits_works() {
    let arguments = ["--vdev=net_null0,no-rx=1", "--vdev=net_null1,no-rx=1", "--", "-i"];
    let output =
        run(&arguments, "show port info all\nshow port stats all\nshow device detail\nquit\n");
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{said}");
    for part in [
        "*** Infos for port 0  ***",
        "*** Infos for port 1  ***",
        "Driver name: net_null\n",
        "NIC statistics for port 1 ",
        "hca_id: uroce0\n",
        "    max_qp_init_rd_atom: ",
        "port 2   max_msg_sz: ",
        "IP address: fe80::",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(said.ends_with("\nBye...\n"), "{said}");
}

#[test]
fn dpdks_own_view_is_shown_of_an_own_device_too() {
    let script = "show port 0 rss reta\ndump mempool\ndump ring\ndump lcores\nquit\n";
    let output = run(&["--vdev=net_null0,no-rx=1", "--", "-i"], script);
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{said}");
    let queue = "RSS RETA configuration: hash index=127, queue=0\n";
    for part in ["Port 0, 128 entries\n", queue, "mempool <", "ring <", "lcore "] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn files_of_commands_run_before_the_prompt() {
    let path = format!("/tmp/uroce-own-{}", std::process::id());
    std::fs::write(&path, "show gid\nshow prot\n").unwrap();
    let file = format!("--cmdline-file={path}");
    let arguments = ["--vdev", "net_null0,no-rx=1", "--", &file, "--ip=0,192.0.2.1/24"];
    let output = run(&arguments, "\n");
    let said = text(&output.stdout);
    assert!(said.starts_with("> show gid\nPort  Device"), "{said}");
    assert!(said.contains("192.0.2.1") && said.contains("Press enter to exit"), "{said}");
    assert_eq!(output.status.code(), Some(1), "a command has failed");
    assert!(text(&output.stderr).contains(&format!("{path}:2: show prot\nBad arguments\n")));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn statistics_are_shown_every_period_and_others_may_attach() {
    let arguments = ["--vdev=net_null0,no-rx=1", "--", "--stats-period=1"];
    let mut command = uroce(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.filter(|line| line.contains("NIC statistics")).take(2).count(), 2);
    let pid = child.id().to_string();
    let attached = uroce(&["-s", &pid, "show", "process"]).output().unwrap();
    assert!(text(&attached.stdout).starts_with("uroce (process "), "{attached:?}");
    // The end of its input.
    drop(child.stdin.take());
    // Its output has no reader any more, so that only its end is certain.
    child.wait().unwrap();
    assert!(find_socket(child.id()).is_none());
}

#[test]
fn a_period_that_a_file_sets_wins_against_the_option() {
    let path = std::env::temp_dir().join(format!("uroce-period-{}", std::process::id()));
    std::fs::write(&path, "set stats-period 0\n").unwrap();
    let file = format!("--cmdline-file={}", path.display());
    let mut command = uroce(&["--vdev=net_null0,no-rx=1", "--", "--stats-period=1", file.as_str()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    drop(child.stdin.take());
    let said = text(&child.wait_with_output().unwrap().stdout);
    assert!(said.contains("Press enter to exit") && !said.contains("NIC statistics"), "{said}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_saved_configuration_starts_the_device_again() {
    let path = format!("/tmp/uroce-saved-{}.toml", std::process::id());
    let arguments = [
        "--no-huge",
        "-m",
        "64",
        "--vdev=net_null0,no-rx=1",
        "--vdev=net_null1,no-rx=1",
        "--",
        "-i",
        "--ip=1,192.0.2.1/24",
        "--mtu=4200",
    ];
    let shown = "show config file\nshow port info all\nquit\n";
    let first = run(&arguments, &format!("save config {path}\n{shown}"));
    assert_eq!((first.status.code(), text(&first.stderr).as_str()), (Some(0), ""));
    let again = run(&["--", "-i", "--config", &path], shown);
    assert_eq!((again.status.code(), text(&again.stderr).as_str()), (Some(0), ""));
    std::fs::remove_file(&path).unwrap();
    let without_mac = |output: &[u8]| {
        let lines = text(output);
        // net_null draws its address.
        let is_drawn = |line: &&str| line.contains("MAC address") || line.contains("fe80::");
        lines.lines().filter(|line| !is_drawn(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    let said = without_mac(&first.stdout);
    assert_eq!(without_mac(&again.stdout), said);
    for line in ["args = [\"--no-huge\", \"-m\", \"64\"]", "mtu = 4200", "IP address: 192.0.2.1"] {
        assert!(said.contains(&line.to_owned()), "no {line:?} in {said:?}");
    }
}

#[test]
fn wrong_options_are_named() {
    let wrong = |arguments: &[&str]| {
        let output = run(arguments, "");
        (output.status.code(), text(&output.stderr))
    };
    let (code, error) = wrong(&["--no-huge", "--", "-i"]);
    assert_eq!(code, Some(2));
    assert!(error.starts_with("no port: name a device by --vdev or -a"), "{error}");
    assert_eq!(wrong(&["--", "--dance"]).0, Some(2));
    let (code, error) = wrong(&["--vdev=net_nothing0", "--", "-i"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("uroce0: port 1: "), "{error}");
    let (code, error) = wrong(&["--", "-i", "--config", "/nonexistent.toml"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("/nonexistent.toml"), "{error}");
}
