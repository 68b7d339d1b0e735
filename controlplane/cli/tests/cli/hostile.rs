//! Clients that send anything, stall or go.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use uroce_command::frame::{self, Decoder};
use uroce_command::request::{Class, Start};
use uroce_command::{Answer, Refusal, Reply, Request, Select, Set, Show, ShowPort};

use crate::lab::{Lab, SOON, eventually, fails, says, socket};

pub(crate) fn connect() -> UnixStream {
    let stream = UnixStream::connect(socket()).expect("it listens");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream
}

fn request(show: Show) -> Vec<u8> {
    frame::encode(&Request::Show(show), frame::REQUEST_MAX).unwrap()
}

/// Reads the next reply; `None` at the end of the connection.
pub(crate) fn reply(stream: &mut UnixStream, inbox: &mut Decoder) -> Option<Reply> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(reply) = inbox.take().expect("a reply") {
            return Some(reply);
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return None,
            Ok(len) => inbox.push(&bytes[..len]),
        }
    }
}

#[test]
fn what_is_not_understood_is_refused_and_the_connection_goes_on() {
    let _lab = Lab::new();
    let (mut stream, mut inbox) = (connect(), Decoder::new(frame::REPLY_MAX));
    for text in ["", "{}", "{\"show\":\"dance\"}", "\"\\ud800\"", "[[[[[[[[", "\u{0}"] {
        let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
        bytes.extend(text.as_bytes());
        stream.write_all(&bytes).unwrap();
        let refused = reply(&mut stream, &mut inbox);
        assert!(
            matches!(refused, Some(Reply::Refused(Refusal::NotUnderstood(_)))),
            "{text:?}: {refused:?}"
        );
    }
    stream.write_all(&request(Show::Process)).unwrap();
    let told = reply(&mut stream, &mut inbox);
    assert!(matches!(told, Some(Reply::Last(Answer::Process(_)))), "{told:?}");
    // A wrong length is the end, after its refusal.
    stream.write_all(&[0xff; 4]).unwrap();
    let refused = reply(&mut stream, &mut inbox);
    assert!(matches!(refused, Some(Reply::Refused(_))), "{refused:?}");
    assert_eq!(reply(&mut stream, &mut inbox), None);
}

#[test]
fn requests_that_come_together_or_in_pieces_are_answered_in_order() {
    let _lab = Lab::new();
    let (mut stream, mut inbox) = (connect(), Decoder::new(frame::REPLY_MAX));
    let many: Vec<u8> = (0..100).flat_map(|_| request(Show::Process)).collect();
    stream.write_all(&many).unwrap();
    for byte in request(Show::Gid) {
        stream.write_all(&[byte]).unwrap();
    }
    for _ in 0..100 {
        let told = reply(&mut stream, &mut inbox);
        assert!(matches!(told, Some(Reply::Last(Answer::Process(_)))), "{told:?}");
    }
    let mut gids = 0;
    loop {
        match reply(&mut stream, &mut inbox) {
            Some(Reply::More(Answer::Gid(more))) => gids += more.len(),
            Some(Reply::Last(Answer::Done)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gids, 2);
}

#[test]
fn numbers_that_the_grammar_refuses_are_refused_in_requests_too() {
    let _lab = Lab::new();
    let (mut stream, mut inbox) = (connect(), Decoder::new(frame::REPLY_MAX));
    for bursts in [0, 1001, u32::MAX] {
        let start = Request::Start(Start { tx_first: true, bursts, force: true });
        stream.write_all(&frame::encode(&start, frame::REQUEST_MAX).unwrap()).unwrap();
        let refused = reply(&mut stream, &mut inbox);
        let text = format!("{refused:?}");
        assert!(matches!(refused, Some(Reply::Refused(Refusal::Command { .. }))), "{text}");
        assert!(text.contains("EINVAL") && text.contains("choose 1 to 1000"), "{text}");
    }
    assert!(fails("stop").contains("Packet forwarding not started"));
    says("set fwd rxonly");
    says("start tx_first 1000 --force");
}

#[test]
fn random_bytes_cost_only_their_own_connections() {
    let mut lab = Lab::new();
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut stream = connect();
        for _ in 0..random.usize(..30) {
            let mut bytes = match random.u8(..4) {
                0 => request(Show::Port(ShowPort::Xstats { port: Select::All })),
                1 => (0..random.usize(..200)).map(|_| random.u8(..)).collect(),
                2 => [&[0, 0, 0, random.u8(..)], b"{\"show\":{\"qp\":{\"qp\":".as_slice()].concat(),
                _ => request(Show::Counters { qp: None, port: None }),
            };
            if random.bool() && !bytes.is_empty() {
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u8(..8);
            }
            // The server may have closed the connection.
            if stream.write_all(&bytes).is_err() {
                break;
            }
            if random.bool() {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                let _ = stream.read(&mut [0; 512]);
            }
        }
    }
    lab.write(3);
    assert!(says("show process").contains("2"));
}

#[test]
fn clients_that_stall_do_not_stop_others() {
    let mut lab = Lab::new();
    // More than the server takes at a time: some read nothing, some have sent half a request.
    let stalled: Vec<UnixStream> = (0..40)
        .map(|number| {
            let mut stream = connect();
            let half = number % 2 == 0;
            let all: Vec<u8> =
                (0..50).flat_map(|_| request(Show::Counters { qp: None, port: None })).collect();
            stream.set_nonblocking(true).unwrap();
            // What does not fit into the connection stays unsent.
            let _ = stream.write(if half { &all[..7] } else { &all });
            stream
        })
        .collect();
    let begin = Instant::now();
    for _ in 0..5 {
        says("show port stats all");
    }
    lab.write(3);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    drop(stalled);
}

#[test]
fn a_client_that_goes_in_the_middle_of_an_answer_leaves_nothing() {
    let _lab = Lab::new();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    says("show process");
    let before = open();
    for _ in 0..50 {
        let mut stream = connect();
        stream.write_all(&request(Show::Counters { qp: None, port: None })).unwrap();
        let _ = stream.read(&mut [0; 10]);
    }
    eventually("the end of all connections", || open() <= before);
}

#[test]
fn a_request_does_not_delay_modify_qp() {
    let lab = Lab::new();
    let make = |_| lab.left.pd.create_qp(&uroce::QpInit::new(&lab.left.cq)).expect("QPs are left");
    let _qps: Vec<_> = (0..3000).map(make).collect();
    let (mut stream, mut inbox) = (connect(), Decoder::new(frame::REPLY_MAX));
    let reader = std::thread::spawn(move || {
        stream.write_all(&request(Show::Qp { qp: Select::All })).unwrap();
        let mut parts = 0;
        while let Some(Reply::More(_)) = reply(&mut stream, &mut inbox) {
            parts += 1;
        }
        parts
    });
    let mut slowest = Duration::ZERO;
    while !reader.is_finished() {
        let begin = Instant::now();
        lab.left.context.port_status(1).expect("a port");
        slowest = slowest.max(begin.elapsed());
    }
    assert!(reader.join().unwrap() >= 3000 / 256);
    // A page takes half a millisecond; the rest is the scheduler's on a machine under load.
    assert!(slowest < Duration::from_millis(200), "{slowest:?}");
}

#[test]
fn a_prompt_that_was_put_out_by_other_clients_connects_again() {
    let _lab = Lab::new();
    let mut terminal = crate::prompt::Terminal::open("again");
    terminal.types("show cq\r");
    terminal.shows("Object");
    let others: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    says("show process");
    terminal.types("show mr\r");
    terminal.shows("MR and MW");
    drop(others);
}

#[test]
fn periodic_statistics_that_were_put_out_by_other_clients_go_on() {
    let _lab = Lab::new();
    let mut terminal = crate::prompt::Terminal::open("period");
    terminal.types("set stats-period 1\r");
    terminal.shows("NIC statistics for port 1 ");
    let others: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    says("show process");
    // The first may have come before the others.
    for _ in 0..2 {
        terminal.types("\r");
        terminal.shows("NIC statistics for port 1 ");
    }
    drop(others);
}

#[test]
fn words_that_exclude_each_other_are_refused_of_a_program_too() {
    let lab = Lab::new();
    let (mut stream, mut inbox) = (connect(), Decoder::new(frame::REPLY_MAX));
    let class = Class { tclass: Some(1), dscp: Some(1), vlan_pcp: None };
    for (set, words) in [
        (Set::Qp { qp: lab.left.qp.qpn().value(), rate: None, class }, "tclass and dscp"),
        (Set::Port { port: 0, up: true, down: true, rate: None }, "link-up and link-down"),
    ] {
        let request = frame::encode(&Request::Set(set), frame::REQUEST_MAX).unwrap();
        stream.write_all(&request).unwrap();
        let refused = reply(&mut stream, &mut inbox);
        let expected = format!("{words} exclude each other (EINVAL)\ngive one of them");
        assert!(
            matches!(&refused, Some(Reply::Refused(of)) if of.to_string().contains(&expected)),
            "{refused:?}"
        );
    }
}

#[test]
fn processes_that_accept_nothing_are_listed_as_silent() {
    let directory = uroce_command::run_dir::sub_dir(uroce_command::run_dir::CONTROL).unwrap();
    // A number that no process has.
    let path = directory.join(format!("4194399-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let begin = Instant::now();
    let output = crate::lab::uroce(&["ps"]).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let said = crate::lab::text(&output.stdout);
    let line = said.lines().find(|line| line.starts_with("4194399 "));
    assert!(line.is_some_and(|line| line.ends_with("does not answer")), "{said}");
}

#[test]
fn a_process_that_answers_without_end_is_listed_as_silent() {
    let directory = uroce_command::run_dir::sub_dir(uroce_command::run_dir::CONTROL).unwrap();
    let path = directory.join(format!("4194398-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&1000u32.to_be_bytes()).unwrap();
        // Until the client has had enough.
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let begin = Instant::now();
    let said = crate::lab::text(&crate::lab::uroce(&["ps"]).output().unwrap().stdout);
    std::fs::remove_file(&path).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let line = said.lines().find(|line| line.starts_with("4194398 "));
    assert!(line.is_some_and(|line| line.ends_with("does not answer")), "{said}");
}

/// A process that listens, forks and ends: its child keeps the socket open and serves nothing.
const ORPHAN: &str = "import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if os.fork() == 0:
    sys.stdin.read()";

#[test]
fn a_socket_that_a_forked_child_keeps_open_counts_as_dead() {
    let directory = uroce_command::run_dir::sub_dir(uroce_command::run_dir::CONTROL).unwrap();
    let path = directory.join(format!("4194397-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut python = std::process::Command::new("python3");
    python.args(["-c", ORPHAN, path.to_str().unwrap()]).stdin(std::process::Stdio::piped());
    let mut parent = python.spawn().expect("python3");
    // The child ends with this pipe.
    let _pipe = parent.stdin.take();
    parent.wait().unwrap();
    UnixStream::connect(&path).expect("it still accepts");
    let output = crate::lab::uroce(&["-s", path.to_str().unwrap(), "show", "cq"]).output().unwrap();
    assert!(crate::lab::text(&output.stderr).contains("its process has ended"), "{output:?}");
    let _lab = Lab::new();
    assert!(!path.exists(), "a process that opens a device sweeps it");
}
