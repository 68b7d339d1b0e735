//! Client and server as two processes joined by memif, and failures of one of them.

use super::common::{Memif, Output, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs both ends of a test.
fn pair(name: &str, server: &[&str], client: &[&str]) -> (Output, Output) {
    let memif = Memif::new(name);
    let server = memif.start("server", server);
    let client = memif.start("client", client);
    (client.finish(), server.finish())
}

#[test]
fn the_main_job_is_verified() {
    let args = ["write_bw", "-n", "100", "--verify"];
    let (client, server) = pair("main", &args, &args);
    for output in [client.succeeded(), server.succeeded()] {
        assert!(output.stdout.contains(" verified: 6553600 bytes"), "{output:?}");
    }
}

#[test]
fn two_processes_without_a_device_meet_in_the_local_fabric() {
    for args in [
        &["write_bw", "-n", "100", "--verify"][..],
        &["send_lat", "-n", "100", "-s", "64"],
        &["ud_pingpong", "-n", "50", "-c", "-s", "1000"],
    ] {
        let place = Memif::new("default");
        let server = place.start_default("server", args);
        let client = place.start_default("client", args);
        for output in [client.finish().succeeded(), server.finish().succeeded()] {
            if args.contains(&"--verify") {
                assert!(output.stdout.contains(" verified: 6553600 bytes"), "{output:?}");
            }
        }
        let left = std::fs::read_dir(place.folder().join("uroce/fabric")).expect("they met here");
        let names: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["members"]);
    }
}

#[test]
fn reliable_datagrams_of_every_test_meet_in_the_local_fabric() {
    for test in [
        "write_bw -q 4 --eecs 2",
        "read_bw -q 4 --eecs 2",
        "send_bw -q 4 --eecs 2 -b",
        "atomic_bw -q 4 --eecs 1",
        "write_lat",
        "read_lat",
        "send_lat",
        "atomic_lat",
    ] {
        let args: Vec<&str> = test.split(' ').chain(["-c", "RD", "-n", "100"]).collect();
        let place = Memif::new("rd");
        let server = place.start_default("server", &args);
        let client = place.start_default("client", &args);
        for output in [client.finish().succeeded(), server.finish().succeeded()] {
            assert!(output.stdout.contains(" Connection type : RD\t"), "{output:?}");
        }
    }
}

#[test]
fn both_ends_print_the_same_row() {
    let args = ["send_lat", "-n", "100", "-s", "64"];
    let (client, server) = pair("row", &args, &args);
    let row = |output: Output| {
        let row = output.stdout.lines().find(|line| line.starts_with(" 64 ")).map(str::to_owned);
        row.unwrap_or_else(|| panic!("no row: {output:?}"))
    };
    assert_eq!(row(client.succeeded()), row(server.succeeded()));
}

#[test]
fn pingpong_checks_every_byte_in_both_roles() {
    for (test, size, mtu) in [
        ("rc_pingpong", "1", "1024"),
        ("rc_pingpong", "4096", "1024"),
        ("rc_pingpong", "100000", "4096"),
        ("uc_pingpong", "1", "256"),
        ("uc_pingpong", "10001", "1024"),
        ("ud_pingpong", "1", "256"),
        ("ud_pingpong", "4096", "4096"),
    ] {
        let args = |ip| [test, "-s", size, "-m", mtu, "-n", "50", "-c", "--json", "--ip", ip];
        let (client, server) = pair("pingpong", &args("192.0.2.1/24"), &args("192.0.2.2/24"));
        for (output, role) in [(client.succeeded(), "client"), (server.succeeded(), "server")] {
            let value = output.json();
            assert_eq!((&value["verified"], &value["role"]), (&true.into(), &role.into()));
            assert_eq!((&value["test"], &value["iters"]), (&test.into(), &50.into()));
        }
    }
}

#[test]
fn pingpong_over_ipv6_with_events_and_with_losses() {
    let (client, server) = pair(
        "events",
        &["rc_pingpong", "-n", "50", "-e", "-c", "--ip", "2001:db8::1/64"],
        &["rc_pingpong", "-n", "50", "-c", "--ip", "2001:db8::2/64"],
    );
    assert!(client.succeeded().stdout.contains("50 messages checked byte by byte"));
    server.succeeded();

    let lossy = |ip| {
        let words = "rc_pingpong -n 40 -c --json --loss-rx 0.03 --loss-tx 0.03 --seed 7 --ip";
        let mut args: Vec<&str> = words.split(' ').collect();
        args.push(ip);
        args
    };
    let (client, server) = pair("lossy", &lossy("192.0.2.1/24"), &lossy("192.0.2.2/24"));
    let sent_again = |output: Output| {
        let value = output.succeeded().json();
        assert_eq!(value["verified"], true);
        value["retransmissions"].as_u64().expect("a number")
    };
    assert!(sent_again(client) + sent_again(server) > 0);
}

#[test]
fn limits_are_measured_between_two_processes() {
    let args = ["limits", "--runs", "1", "--time-ms", "20", "--json"];
    let (client, server) = pair("limits", &args, &args);
    server.succeeded();
    let value = client.succeeded().json();
    assert_eq!(value["device"], "net_memif");
    assert!(value["half_rtt_ns"].as_f64().expect("a number") > 0.0);
}

#[test]
fn different_options_are_named_by_both() {
    let (client, server) = pair("differ", &["write_bw", "-s", "8"], &["write_bw", "-s", "16"]);
    for output in [client, server] {
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("different options: sizes is ["), "{output:?}");
    }
}

#[test]
fn a_killed_peer_ends_the_other_with_a_reason() {
    for victim in ["server", "client"] {
        let memif = Memif::new(victim);
        let args = ["write_bw", "-D", "30"];
        let mut runs = [memif.start("server", &args), memif.start("client", &args)];
        // Both are connected then; the test runs for half a minute.
        runs.iter_mut().for_each(|run| run.until(" #bytes "));
        runs[usize::from(victim == "client")].kill();
        let [server, client] = runs;
        let survivor = if victim == "client" { server } else { client }.finish();
        assert_eq!(survivor.code, Some(1), "{survivor:?}");
        assert!(survivor.stderr.contains("the other end is gone"), "{survivor:?}");
    }
}

/// Connects to a server and returns its messages until both are ready, then sends `word`.
fn deceive(port: &str, word: &str) {
    let mut stream = TcpStream::connect(format!("localhost:{port}")).expect("it listens");
    stream.write_all(b"6.30\0uroce2\0\0\0\0\0").expect("writes");
    stream.read_exact(&mut [0; 16]).expect("a version");
    let mut said = BufReader::new(stream.try_clone().expect("a stream"));
    let mut line = String::new();
    while !line.contains("Ready") {
        line.clear();
        assert!(said.read_line(&mut line).expect("a line") > 0, "it has left");
        stream.write_all(line.as_bytes()).expect("writes");
    }
    writeln!(stream, "{{\"Value\":{word}}}").expect("writes");
}

#[test]
fn a_peer_that_speaks_of_messages_beyond_the_test_is_refused() {
    for (test, word) in [
        ("read_bw", r#"{"Prepare":{"first":0,"count":4611686018427387904}}"#),
        ("write_bw", r#"{"Check":{"first":18446744073709551615,"count":1,"words":[]}}"#),
    ] {
        let memif = Memif::new(test);
        let mut server = memif.start("server", &[test, "--verify", "-n", "100"]);
        server.until("Waiting for client");
        deceive(memif.port(), word);
        let output = server.finish();
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains("it asked for "), "{output:?}");
    }
}

#[test]
fn a_peer_that_is_still_at_work_is_waited_for() {
    let memif = Memif::new("busy");
    let mut server = memif.start("server", &["write_bw", "-n", "100"]);
    server.until("Waiting for client");
    deceive(memif.port(), "\"Busy\"");
    let output = server.finish();
    assert!(output.stderr.contains("the other end is gone"), "{output:?}");
}

#[test]
fn a_device_that_cannot_be_opened_ends_the_run() {
    let memif = Memif::new("no-device");
    let folder = memif.folder().join("not-here").join("m.sock");
    let vdev = format!("net_memif0,role=nobody,socket={}", folder.display());
    let output = run(&["write_bw", "--vdev", &vdev, "-p", "0"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("opening the device"), "{output:?}");
}

#[test]
fn the_quickstart_ends_with_one_json_object() {
    let output = run(&["quickstart", "--json", "--runs", "1", "--time-ms", "50"]).succeeded();
    assert_eq!(output.stdout.lines().count(), 1, "{output:?}");
    let value = output.json();
    assert_eq!(value["verified"], true);
    for key in [
        "write_bw_ring_gbps",
        "roofline_ring_gbps",
        "write_bw_memif_gbps",
        "roofline_memif_gbps",
        "msg_rate_ring_mps",
        "half_rtt_ring_ns",
        "half_rtt_bare_ns",
    ] {
        assert!(value[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {value}");
    }
}

#[test]
fn a_test_that_a_prompt_has_started_ends_with_it() {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|of| of.local_addr()).expect("a port");
    let script = "UROCE_PERF_ENDS_WITH=$$ \"$0\" write_bw -p \"$1\" & echo $!; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_uroce-perf"), &free.port().to_string()]);
    let mut prompt = command.stdout(Stdio::piped()).spawn().expect("a shell");
    let mut lines = BufReader::new(prompt.stdout.take().expect("a pipe")).lines();
    let pid = lines.next().expect("a line").expect("a number");
    let waits =
        lines.by_ref().map_while(Result::ok).any(|line| line.contains("Waiting for client"));
    assert!(waits && Path::new("/proc").join(pid).exists());
    prompt.kill().expect("it runs");
    prompt.wait().expect("an end");
    // The pipe closes with the last process that has it, which is the server.
    lines.by_ref().for_each(drop);
    // Of another parent it takes none.
    let mut other = Command::new(env!("CARGO_BIN_EXE_uroce-perf"));
    let status = other.args(["write_bw", "--in-process"]).env("UROCE_PERF_ENDS_WITH", "1").status();
    assert_eq!(status.expect("it runs").code(), Some(1));
}
