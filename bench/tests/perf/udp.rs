//! Client and server over the kernel's UDP sockets: on one host without any privilege, and between
//! two network namespaces that a test makes, also with a DPDK port at the other end.

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

    /// Starts the server on the left and the client on the right, over UDP sockets.
    fn start(&self, args: &[&str]) -> (Run, Run) {
        self.start_on(args, [UDP; 2])
    }

    /// Starts the server on the left and the client on the right, with these ports.
    fn start_on(&self, args: &[&str], ports: [Port; 2]) -> (Run, Run) {
        let [left, right] = ports.map(|port| [args, &port].concat());
        let mut server = self.left.start(&left);
        server.until("Waiting for client");
        let client = self.right.start(&[&right[..], &["192.0.2.1"]].concat());
        (client, server)
    }
}

/// The options of a port at the interface of a namespace.
type Port = [&'static str; 2];

const UDP: Port = ["--udp", "e0"];
const AF_PACKET: Port = ["--vdev", "net_af_packet0,iface=e0"];

fn finish((client, server): (Run, Run)) -> Output {
    let output = client.finish();
    server.finish().succeeded();
    output.succeeded()
}

/// Runs a test over UDP sockets and checks that its payload came whole.
fn verified(network: &Network, args: &str) {
    verified_on(network, args, [UDP; 2]);
}

/// Runs a test with these ports, of the server and of the client, and checks that its payload came
/// whole.
fn verified_on(network: &Network, args: &str, ports: [Port; 2]) {
    let mut words: Vec<&str> = args.split(' ').collect();
    words.push("--verify");
    let output = finish(network.start_on(&words, ports));
    assert!(output.stdout.contains(" verified: "), "{ports:?} {args}: {output:?}");
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

/// The messages are shorter than a packet, several at a time, and many packets long: the kernel of
/// a socket may hand both to a virtual interface as one packet.
#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_packet_socket_of_dpdk_is_a_peer_in_both_roles() {
    for (mtu, packet) in [(1500, 1024), (9000, 4096)] {
        let network = Network::new(mtu);
        for ports in [[UDP, AF_PACKET], [AF_PACKET, UDP]] {
            for gid in [0, 1] {
                let path = format!("-m {packet} -x {gid} --port-mtu {mtu}");
                for test in ["write_bw", "read_bw", "send_bw"] {
                    for size in [60, 65537] {
                        let args = format!("{test} -n 40 -s {size} {path}");
                        verified_on(&network, &args, ports);
                    }
                }
                verified_on(&network, &format!("atomic_bw -n 40 {path}"), ports);
            }
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
