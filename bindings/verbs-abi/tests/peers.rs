//! Two processes of the local fabric: effects of one's start, exit and death on the other.

#[allow(dead_code, unused_macros, unused_imports, reason = "each test file uses its part")]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::Place;

/// A timeout that is not reached, and shorter than the retries that would end the connection
/// otherwise.
const SOON: Duration = Duration::from_secs(20);
/// Time for which a process must print nothing.
const QUIET: Duration = Duration::from_millis(700);

/// A run directory with the compiled program.
struct Link {
    place: Place,
    program: PathBuf,
}

impl Link {
    fn new() -> Link {
        let place = Place::new();
        let program = place.compile("peers.c");
        Link { place, program }
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.place.command(&self.program, "none".as_ref());
        command.env_remove("UROCE_CONFIG").args(arguments);
        Running::of(command)
    }

    /// Starts the program on a link that does not tell of the end of the process at its other end,
    /// as a NIC's. `keepalive_ms` is the idle time of connections' keepalives.
    fn start_untold(&self, keepalive_ms: u32, arguments: &[&str]) -> Running {
        let run = self.place.path().display();
        let file = |(role, host): (&str, u8)| {
            let vdev = format!("net_memif0,role={role},socket={run}/m.sock,socket-abstract=no");
            let device = "[[device]]\nname = \"uroce0\"\nidle = \"sleep\"\n[[device.port]]\n";
            let port = format!("ethdev = {{ vdev = \"{vdev}\" }}\nip = [\"192.0.2.{host}/24\"]\n");
            let path = self.place.path().join(format!("{role}.toml"));
            let eal = "[eal]\nhuge = false\nmemory_mb = 128\n";
            std::fs::write(&path, format!("{eal}{device}{port}")).expect("a directory of its own");
            path
        };
        let files = [("server", 1), ("client", 2)].map(file);
        let mut command = self.place.command(&self.program, "none".as_ref());
        command.env("UROCE_CONFIG", std::env::join_paths(files).expect("no colons"));
        command.env("UROCE_KEEPALIVE_MS", keepalive_ms.to_string()).args(arguments);
        Running::of(command)
    }
}

/// A running program. It is killed when this is dropped.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Running {
    fn of(mut command: Command) -> Running {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was compiled");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (to, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| to.send(line))
        });
        let input = child.stdin.take();
        Running { child, input, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(SOON).expect("a line in time")
    }

    fn says(&self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    fn is_silent(&self) {
        assert_eq!(self.lines.recv_timeout(QUIET).ok(), None);
    }

    fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{line}").expect("it reads");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// Waits for its end.
    fn status(mut self) -> ExitStatus {
        self.child.wait().expect("ours")
    }

    /// Closes its input and waits for its end.
    fn ends(mut self) {
        self.input = None;
        assert!(self.child.wait().expect("ours").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail for a program that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_port_is_active_without_an_event_as_the_peer_comes_and_goes() {
    let link = Link::new();
    let mut one = link.start(&["watch"]);
    one.says("before active");
    one.says("ready active");
    for is_killed in [true, false, false] {
        let other = link.start(&["watch", "192.0.2.1"]);
        other.says("before active");
        other.says("ready active");
        if is_killed {
            drop(other)
        } else {
            other.ends()
        }
        // Waits until the link is down at this end.
        std::thread::sleep(Duration::from_millis(300));
    }
    one.tell("");
    one.says("after active, 0 events");
    one.ends();
}

/// Checks the events of a process on either end of a connection when the other one is killed.
fn assert_disconnected(survivor: &Running) {
    let mut told = [survivor.line(), survivor.line()];
    told.sort();
    let flushed = "receive: Work Request Flushed Error";
    assert_eq!(told, ["event RDMA_CM_EVENT_DISCONNECTED", flushed]);
}

#[test]
fn the_connection_of_a_process_that_is_killed_ends_at_once_at_either_end() {
    let link = Link::new();
    for server_dies in [false, true] {
        let server = link.start(&["serve"]);
        server.says("listens");
        let client = link.start(&["wait", "192.0.2.1"]);
        client.says("connected");
        server.says("accepted");
        let (victim, survivor) = if server_dies { (server, client) } else { (client, server) };
        drop(victim);
        assert_disconnected(&survivor);
        survivor.ends();
    }
}

#[test]
fn a_process_that_is_stopped_is_not_dead() {
    let link = Link::new();
    let server = link.start(&["serve"]);
    server.says("listens");
    let client = link.start(&["connect", "192.0.2.1"]);
    server.says("accepted");
    client.signal("STOP");
    server.is_silent();
    client.signal("CONT");
    server.is_silent();
    // The client disconnects when it exits.
    client.ends();
    server.says("event RDMA_CM_EVENT_DISCONNECTED");
    server.says("receive: Work Request Flushed Error");
}

#[test]
fn a_process_is_dead_though_a_child_of_its_has_its_descriptors() {
    let link = Link::new();
    let server = link.start(&["serve"]);
    server.says("listens");
    let client = link.start(&["fork", "192.0.2.1"]);
    client.says("connected");
    server.says("accepted");
    let child = client.line();
    let child = child.strip_prefix("child ").expect("its number").to_owned();
    drop(client);
    assert_disconnected(&server);
    server.ends();
    let _ = Command::new("kill").args(["-s", "KILL", &child]).status();
}

/// An idle queue pair does not notice that its peer is gone, as on any NIC; its next request fails.
#[test]
fn a_queue_pair_without_a_connection_finds_out_by_its_retries() {
    let link = Link::new();
    let mut one = link.start(&["raw", "192.0.2.1", "192.0.2.2"]);
    let number = one.line();
    let mut other = link.start(&["raw", "192.0.2.2", "192.0.2.1"]);
    one.tell(&other.line());
    other.tell(&number);
    one.says("connected");
    other.says("connected");
    drop(other);
    one.is_silent();
    one.tell("");
    one.says("idle in state 3");
    one.says("send: transport retry counter exceeded");
    one.says("receive: Work Request Flushed Error");
    one.ends();
}

/// Sniffers and promiscuous flows hear broadcasts, and nothing that two other processes send each
/// other.
#[test]
fn a_raw_queue_pair_does_not_hear_what_other_processes_exchange() {
    let link = Link::new();
    let mut one = link.start(&["raw", "192.0.2.1", "192.0.2.2"]);
    let number = one.line();
    let mut other = link.start(&["raw", "192.0.2.2", "192.0.2.1"]);
    let its_number = other.line();
    let mut sniffer = link.start(&["sniff"]);
    match sniffer.line().as_str() {
        "sniffs" => {}
        refused => return eprintln!("SKIP: raw queue pairs are {refused} here"),
    }
    one.tell(&its_number);
    other.tell(&number);
    for end in [&mut one, &mut other] {
        end.says("connected");
    }
    one.tell("");
    one.says("idle in state 3");
    // The other process has received it.
    one.says("send: success");
    sniffer.tell("");
    sniffer.says("0 for others, and more");
    sniffer.ends();
}

/// If one process listens, a connection of the other one to the node itself reaches that listener.
#[test]
fn the_other_process_is_meant_where_this_one_does_not_listen() {
    let link = Link::new();
    for (listens, connects) in
        [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::", "::1"), ("::1", "localhost")]
    {
        let server = link.start(&["serve", listens]);
        server.says("listens");
        let client = link.start(&["connect", connects]);
        client.says("connected");
        server.says("accepted");
        client.ends();
        server.says("event RDMA_CM_EVENT_DISCONNECTED");
        server.says("receive: Work Request Flushed Error");
        server.ends();
    }
}

/// Addresses of the machine that are neither loopback nor of the local fabric.
fn addresses_of_the_machine() -> Vec<String> {
    let listed = Command::new("hostname").arg("-I").output().map(|all| all.stdout);
    let listed = String::from_utf8(listed.unwrap_or_default()).expect("addresses");
    let is_member = |ip: &&str| ip.starts_with("192.0.2.") || ip.starts_with("2001:db8:");
    listed.split_whitespace().filter(|ip| !is_member(ip)).map(str::to_owned).collect()
}

/// libfabric binds the addresses of the machine's interfaces, and its peers connect to them.
#[test]
fn an_address_of_the_machine_leads_to_the_process_that_listens() {
    let all = addresses_of_the_machine();
    if all.is_empty() {
        eprintln!("skipped: this machine has loopback addresses only");
    }
    for ip in all {
        // Interfaces of containers come and go.
        if !addresses_of_the_machine().contains(&ip) {
            continue;
        }
        let link = Link::new();
        // A member without a part in this.
        let other = link.start(&["watch"]);
        other.says("before active");
        other.says("ready active");
        let server = link.start(&["host", &ip]);
        server.says("listens");
        let client = link.start(&["guest", &ip]);
        client.says("connected");
        server.says("accepted");
        client.ends();
        server.says("event RDMA_CM_EVENT_DISCONNECTED");
        server.says("receive: Work Request Flushed Error");
        server.ends();
    }
}

/// The process is chosen when the connection is made, because only then the listener must exist.
#[test]
fn a_process_that_starts_after_the_address_was_resolved_is_found() {
    let link = Link::new();
    let mut client = link.start(&["early", "127.0.0.1"]);
    client.says("resolved");
    let server = link.start(&["serve"]);
    server.says("listens");
    client.tell("");
    client.says("connected");
    server.says("accepted");
}

#[test] //= check J15 test
fn a_peer_that_is_killed_or_stands_still_is_noticed_where_no_link_tells() {
    for signal in ["KILL", "STOP"] {
        let link = Link::new();
        let server = link.start_untold(400, &["serve"]);
        server.says("listens");
        let client = link.start_untold(0, &["connect", "192.0.2.1"]);
        client.says("connected");
        server.says("accepted");
        // Longer than the idle time: a client that lives answers.
        server.is_silent();
        client.signal(signal);
        assert_disconnected(&server);
        client.signal("CONT");
        server.ends();
    }
}

#[test] //= check J15 test
fn an_idle_time_that_is_no_number_is_an_error_and_not_ignored() {
    let link = Link::new();
    let mut command = link.place.command(&link.program, "none".as_ref());
    command.env_remove("UROCE_CONFIG").env("UROCE_KEEPALIVE_MS", "10s").args(["serve"]);
    let output = command.output().expect("it was compiled");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("UROCE_KEEPALIVE_MS is \"10s\", not a number of milliseconds"), "{said}");
}

#[test] //= check J16 test
fn a_process_that_a_signal_ends_says_farewell_and_its_status_is_the_signal() {
    for (name, number) in [("INT", libc::SIGINT), ("TERM", libc::SIGTERM)] {
        let link = Link::new();
        let server = link.start_untold(0, &["serve"]);
        server.says("listens");
        let client = link.start_untold(0, &["wait", "192.0.2.1"]);
        client.says("connected");
        server.says("accepted");
        client.signal(name);
        assert_disconnected(&server);
        assert_eq!(client.status().signal(), Some(number));
        server.ends();
    }
}

#[test] //= check J16 test
fn a_handler_of_the_program_s_own_works_as_without_the_library() {
    for when in ["before", "after"] {
        let link = Link::new();
        let server = link.start_untold(0, &["serve"]);
        server.says("listens");
        let client = link.start_untold(0, &["handle", "192.0.2.1", when]);
        client.says("connected");
        client.says("ready");
        server.says("accepted");
        client.signal("TERM");
        client.says("caught 15");
        assert_eq!(client.status().code(), Some(7));
        // It returned from main.
        assert_disconnected(&server);
        server.ends();
    }
}

#[test] //= check J16 test
fn a_signal_to_a_forked_child_ends_it_alone() {
    let link = Link::new();
    let server = link.start_untold(0, &["serve"]);
    server.says("listens");
    let client = link.start_untold(0, &["child", "192.0.2.1"]);
    client.says("connected");
    server.says("accepted");
    client.says("child ended by 15");
    server.is_silent();
    client.ends();
    assert_disconnected(&server);
}
