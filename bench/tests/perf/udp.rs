//! Client and server over the kernel's UDP sockets: on one host without any privilege, and between
//! two network namespaces that a test makes.

use super::common::{Output, Run, run};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

/// Runs a command.
fn sh(words: &str) {
    let output = Command::new("sh").args(["-ec", words]).output().expect("a shell");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace, which ends with its process.
struct Namespace(Child);

impl Namespace {
    fn new() -> Self {
        let own = std::fs::read_link("/proc/self/ns/net").expect("Linux");
        let child =
            Command::new("unshare").args(["--net", "sleep", "300"]).spawn().expect("unshare");
        let path = format!("/proc/{}/ns/net", child.id());
        let end = Instant::now() + SOON;
        while std::fs::read_link(&path).is_ok_and(|of| of == own) {
            assert!(Instant::now() < end, "root");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(child)
    }

    /// Runs a command in the namespace.
    fn sh(&self, words: &str) {
        sh(&format!("nsenter -t {} -n {words}", self.0.id()));
    }

    /// Starts `uroce-perf` in the namespace.
    fn start(&self, args: &[&str]) -> Run {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0.id().to_string(), "-n", env!("CARGO_BIN_EXE_uroce-perf")]);
        Run::of(command.args(args))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two namespaces that a pair of interfaces joins.
struct Network {
    left: Namespace,
    right: Namespace,
}

impl Network {
    fn new(mtu: u16) -> Self {
        let (left, right) = (Namespace::new(), Namespace::new());
        let (one, two) = (left.0.id(), right.0.id());
        sh(&format!("ip link add e0 netns {one} type veth peer name e0 netns {two}"));
        for (number, side) in [(1, &left), (2, &right)] {
            side.sh("ip link set lo up");
            side.sh(&format!("ip link set e0 mtu {mtu} addrgenmode none up"));
            side.sh(&format!("ip addr add 192.0.2.{number}/24 dev e0"));
            side.sh(&format!("ip addr add 2001:db8::{number}/64 dev e0 nodad"));
        }
        Self { left, right }
    }

    /// Starts the server on the left and the client on the right.
    fn start(&self, args: &[&str]) -> (Run, Run) {
        let all = [args, &["--udp", "e0"]].concat();
        let mut server = self.left.start(&all);
        server.until("Waiting for client");
        let client = self.right.start(&[&all[..], &["192.0.2.1"]].concat());
        (client, server)
    }
}

fn finish((client, server): (Run, Run)) -> Output {
    let output = client.finish();
    server.finish().succeeded();
    output.succeeded()
}

/// Runs a test and checks that its payload came whole.
fn verified(network: &Network, args: &str) {
    let mut words: Vec<&str> = args.split(' ').collect();
    words.push("--verify");
    let output = finish(network.start(&words));
    assert!(output.stdout.contains(" verified: "), "{args}: {output:?}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn all_operations_are_verified_over_both_ip_versions_and_each_mtu() {
    for (mtu, packet) in [(1500, 1024), (4200, 4096), (9000, 4096)] {
        let network = Network::new(mtu);
        for gid in [0, 1] {
            let path = format!("-m {packet} -x {gid} --port-mtu {mtu}");
            verified(&network, &format!("write_bw -n 100 -s 65537 {path}"));
            verified(&network, &format!("read_bw -n 60 -s 65537 {path}"));
            verified(&network, &format!("send_bw -n 60 -s 9001 {path}"));
            verified(&network, &format!("atomic_bw -n 60 {path}"));
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn losses_are_mended_over_both_ip_versions() {
    let network = Network::new(1500);
    for gid in [0, 1] {
        for test in ["write_bw", "read_bw", "send_bw"] {
            let loss = "-n 100 -s 20000 -m 1024 --loss-rx 0.02 --loss-tx 0.02 --seed 5";
            verified(&network, &format!("{test} {loss} -x {gid}"));
        }
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn many_queue_pairs_send_all_at_once() {
    verified(&Network::new(1500), "write_bw -q 16 -t 64 -n 64 -s 65536 -m 1024");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_link_that_comes_back_in_time_costs_nothing_but_time() {
    let network = Network::new(1500);
    // Seven timeouts of two seconds each.
    let args = "write_bw -D 4 -s 4096 -m 1024 -u 19";
    let (mut client, server) = network.start(&args.split(' ').collect::<Vec<_>>());
    client.until("#bytes");
    std::thread::sleep(Duration::from_millis(500));
    network.left.sh("ip link set e0 down");
    std::thread::sleep(Duration::from_secs(1));
    network.left.sh("ip link set e0 up");
    let output = finish((client, server));
    assert!(output.stdout.contains("packets were sent again"), "{output:?}");
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn two_processes_of_a_host_need_no_capability_and_an_address_each() {
    let host = Namespace::new();
    for words in ["link set lo up", "addr add 192.0.2.1/24 dev lo", "addr add 192.0.2.2/24 dev lo"]
    {
        host.sh(&format!("ip {words}"));
    }
    let start = |more: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &host.0.id().to_string(), "-n", "setpriv", "--bounding-set=-all"]);
        command.args([
            "--inh-caps=-all",
            env!("CARGO_BIN_EXE_uroce-perf"),
            "write_bw",
            "-n",
            "100",
        ]);
        Run::of(command.args(["-m", "1024", "--verify", "--udp", "lo"]).args(more))
    };
    let mut server = start(&["--ip", "192.0.2.1/24"]);
    server.until("Waiting for client");
    let second = start(&["--ip", "192.0.2.1/24", "-p", "18516"]).finish();
    assert_eq!(second.code, Some(2), "{second:?}");
    let said = "UDP port 4791 of 192.0.2.1 is taken";
    assert!(second.stderr.contains(said) && second.stderr.contains("`ss -ulpn"), "{second:?}");
    let output = finish((start(&["--ip", "192.0.2.2/24", "192.0.2.1"]), server));
    assert!(output.stdout.contains(" verified: 6553600 bytes"), "{output:?}");
}

#[test]
fn what_is_in_the_way_is_named_with_the_remedy() {
    for (args, cause, remedy) in [
        (&["lo", "--ip", "203.0.113.77/24"][..], "203.0.113.77 is no address", "`ip addr` shows"),
        (&["uroce-none"], "no network interface \"uroce-none\"", "`ip link`"),
    ] {
        let output = run(&[&["write_bw", "-n", "5", "--udp"], args].concat());
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(cause) && output.stderr.contains(remedy), "{output:?}");
    }
}

#[test]
#[ignore = "needs root: makes a network namespace"]
fn an_interface_without_an_address_is_named() {
    let namespace = Namespace::new();
    let output = namespace.start(&["write_bw", "-n", "5", "--udp", "lo"]).finish();
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("lo has no IP address: give it one (`ip addr add`)"),
        "{output:?}"
    );
}
