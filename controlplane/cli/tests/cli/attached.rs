//! A session with another process, which talks to a third one over the local fabric: a capture,
//! and loss on purpose.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use uroce::cm::{ConnectParam, Connection, Listener};
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{AccessFlags, Config, ConnectOptions, Context, QpInit, RemoteBuffer, SendWr, Va};
use uroce_command::Answer;

use crate::capture::{Folder, check};
use crate::lab::{SOON, eventually, text, uroce};

/// Environment variable with the fabric's folder.
const FABRIC: &str = "UROCE_TEST_FABRIC";
/// Environment variable with address, buffer and key of the listener.
const PEER: &str = "UROCE_TEST_PEER";
const LEN: usize = 1 << 16;

/// Opens a device in the fabric. `None` if no other test has started this one.
fn open(name: &str) -> Option<Context> {
    let fabric = std::env::var(FABRIC).ok()?;
    let port = PortConfig::local(Path::new(&fabric)).mtu(4200);
    let config = Config::new().device(DeviceConfig::new(name).port(port));
    Some(Context::open(&config, name).expect("opens"))
}

#[test]
fn a_child_that_is_written_to() {
    let Some(context) = open("target") else { return };
    let pd = context.allocate_pd();
    let memory = pd.allocate(LEN, AccessFlags::all()).expect("memory");
    let cq = context.create_cq(16).expect("a depth in range");
    let mut qp = pd.create_qp(&QpInit::new(&cq)).expect("QPs are left");
    let listener = Listener::bind(&context, "[::]:7471".parse().unwrap(), 16).expect("listens");
    let address = context.ports()[0].gids[0].to_ip();
    let RemoteBuffer { va, rkey, .. } = memory.remote();
    println!("peer: {address} {} {}", va.0, rkey.0);
    std::io::stdout().flush().unwrap();
    let request = listener.next(SOON).expect("a client");
    qp.init(&ConnectOptions::default()).expect("INIT");
    let connection = request.accept(&qp, &ConnectParam::default()).expect("accepts");
    connection.wait_established(SOON).expect("established");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_child_that_writes() {
    let Some(context) = open("writer") else { return };
    let peer = std::env::var(PEER).expect("a peer");
    let [address, va, key] = peer.split(' ').collect::<Vec<_>>()[..] else { panic!("{peer}") };
    let (va, rkey) = (Va(va.parse().unwrap()), uroce::Rkey(key.parse().unwrap()));
    let target = RemoteBuffer { va, rkey, len: LEN as u64 };
    let pd = context.allocate_pd();
    let memory = pd.allocate(LEN, AccessFlags::LOCAL_WRITE).expect("memory");
    let cq = context.create_cq(16).expect("a depth in range");
    let mut qp = pd.create_qp(&QpInit::new(&cq)).expect("QPs are left");
    let server: std::net::SocketAddr = format!("{address}:7471").parse().expect("an address");
    let connection = Connection::connect(&qp, server, &ConnectParam::default(), SOON);
    let connection = connection.expect("connects");
    println!("peer: connected");
    std::io::stdout().flush().unwrap();
    let source = [memory.slice(..).expect("in range")];
    let over = end_of_input();
    while over.try_recv().is_err() {
        qp.post_send(&SendWr::write(&source, target).signaled()).expect("room");
        cq.wait(SOON).expect("no overrun").expect("in time").ok().expect("success");
    }
    drop(connection);
}

/// Returns a channel that gets a message at the end of the standard input.
fn end_of_input() -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        let _ = sender.send(());
    });
    receiver
}

/// A child of this test.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a child, and returns it with what it says when it is ready.
    pub(crate) fn start(test: &str, fabric: &str, peer: &str) -> (Process, String) {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", &format!("attached::{test}"), "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env(FABRIC, fabric).env(PEER, peer).env_remove("UROCE_CONTROL");
        let mut child = command.spawn().expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // The name of the test may stand before it.
        let said = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("peer: ").map(|(_, said)| said.to_owned()));
        (Process(child), said.expect("it is ready"))
    }

    /// Runs a command in the child, and returns the text of its answer.
    fn says(&self, line: &str) -> String {
        self.run(&[], line)
    }

    fn run(&self, options: &[&str], line: &str) -> String {
        let pid = self.0.id().to_string();
        let words: Vec<&str> = line.split(' ').collect();
        let output = uroce(&[&["-s", &pid], options, &words].concat()).output().expect("runs");
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn counter(&self, name: &str) -> u64 {
        match serde_json::from_str(&self.run(&["-j"], "show counters")).expect("an answer") {
            Answer::Counters(counters) => {
                counters.iter().find(|of| of.name == name).expect("a counter").value
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_running_process_is_captured_and_loses_frames_on_purpose() {
    let folder = Folder::new("attached");
    let (fabric, file) = (folder.file("fabric"), folder.file("port.pcapng"));
    let (target, peer) = Process::start("a_child_that_is_written_to", &fabric, "");
    let (writer, _) = Process::start("a_child_that_writes", &fabric, &peer);

    assert!(writer.says("show qp").contains("RTS"));
    writer.says(&format!("capture start port 0 file {file} count 1000"));
    eventually("the end of the capture", || {
        writer.says("show capture").contains("has all 1000 frames")
    });
    check(&file, 1000);

    writer.says("set fault port 0 tx loss 0.01 seed 1");
    let (lost, again) = ("tx_injected_loss", "retransmitted_packets");
    eventually("loss", || writer.counter(lost) > 20);
    eventually("retransmissions", || writer.counter(again) > 20);
    writer.says("clear faults");
    let before = writer.counter(lost);
    let written = target.counter("rx_write_requests");
    eventually("writes", || target.counter("rx_write_requests") > written + 10);
    assert_eq!(writer.counter(lost), before);
    assert!(writer.says("show qp").contains("RTS"), "it goes on as if nothing had been");
}
