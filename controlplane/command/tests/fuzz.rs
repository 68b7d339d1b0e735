//! Fuzz targets of the commands: arbitrary lines, and arbitrary bytes from a process.

use uroce_command::answer::{Counter, Gid, LcoreRuntime, PortStats, Process, Trace, TracedPacket};
use uroce_command::frame::{self, Decoder};
use uroce_command::tree::{Fault, Line, complete, help, parse};
use uroce_command::{Answer, Refusal, Reply, Request, render};
use uroce_fuzz::{Input, Target, fuzz_tests};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");

const TARGETS: &[Target] = &[
    Target { name: "command_line", corpus: CORPUS, run: line, seeds: lines },
    Target { name: "control_reply", corpus: CORPUS, run: reply, seeds: replies },
];

fuzz_tests! {
    TARGETS;
    z12_command_line "command_line";
    z13_control_reply "control_reply";
}

const WORDS: [&str; 78] = [
    "show",
    "sh",
    "port",
    "stats",
    "info",
    "all",
    "0",
    "0x11",
    "qp",
    "clear",
    "help",
    "load",
    "load_echo",
    "config",
    "roce",
    "cores",
    "sleep",
    "quit",
    "start",
    "stop",
    "tx_first",
    "fwd",
    "set",
    "rate",
    "off",
    "verbose",
    "log",
    "debug",
    "xstats-hide-zero",
    "on",
    "fault",
    "loss",
    "0.5",
    "rxq",
    "attach",
    "--force",
    "capture",
    "file",
    "count",
    "trace",
    "monitor",
    "interval",
    "create",
    "type",
    "pd",
    "cq",
    "modify",
    "state",
    "RTS",
    "post",
    "len",
    "ping",
    "192.0.2.1",
    "connect",
    "wait",
    "cm",
    "migrate",
    "alt",
    "device",
    "detail",
    "latency",
    "rss",
    "reta",
    "dump",
    "csum",
    "mempool",
    "\"",
    "#",
    "--",
    "-h",
    " ",
    "\t",
    "route",
    "via",
    "neigh",
    "bench",
    "stats-period",
    "dscp",
];

/// Z12: arbitrary bytes as a line, some of them words of the tree.
///
/// Invariants
/// - No panic. A mistake is in the line or directly after it, and has three lines.
/// - A request is unchanged after it was sent. Blanks and comments around a command change nothing.
/// - A word that completion offers is accepted in its place.
fn line(input: &mut Input<'_>) {
    let mut bytes = Vec::new();
    while !input.is_empty() {
        match input.u8() {
            byte @ 0x80..=0xcd => bytes.extend(WORDS[usize::from(byte - 0x80)].bytes()),
            byte => bytes.push(byte),
        }
    }
    let line = String::from_utf8_lossy(&bytes);
    let parsed = parse(&line);
    match &parsed {
        Ok(Some(Line::Request(request))) => {
            input.reach(1, serde_json::to_string(request).expect("JSON").len() as u32);
            let bytes = frame::encode(request, frame::REQUEST_MAX).expect("short");
            let mut decoder = Decoder::new(frame::REQUEST_MAX);
            decoder.push(&bytes);
            assert_eq!(decoder.take::<Request>().expect("a request").as_ref(), Some(request));
        }
        Ok(Some(Line::Help { words })) => input.reach(2, u32::from(help(words).is_some())),
        Ok(_) => input.reach(3, 0),
        Err(mistake) => {
            let faults = [Fault::NotFound, Fault::Ambiguous, Fault::Bad];
            let fault = faults.iter().position(|fault| *fault == mistake.fault);
            input.reach(4, fault.unwrap_or(3) as u32 * 64 + mistake.expected.len() as u32);
            assert!(mistake.column <= line.chars().count() + 1, "{mistake:?}");
            assert!(mistake.len > 0);
            assert_eq!(mistake.text(3).split('\n').count(), 3, "{mistake:?}");
        }
    }
    if parsed.is_ok() {
        assert_eq!(parse(&format!(" \t{line} # show")), parsed);
    }
    let completion = complete(&line);
    let before = line.get(..completion.start).expect("between two characters");
    for candidate in completion.words {
        let longer = format!("{before}{}", candidate.word);
        if let Err(mistake) = parse(&longer) {
            assert!(mistake.column > before.chars().count(), "{longer}: {mistake:?}");
        }
    }
}

fn lines() -> Vec<Vec<u8>> {
    [
        "show port stats all",
        "show qp 0x11",
        "clear p s 0 # x",
        "help show",
        "load \"a b\"",
        "sleep 5",
        "trace qp 0x11 packets 9",
        "mon qp 7 int 20 count 2",
        "save config x",
        "show device detail",
        "show latency qp 0x11",
        "clear latency",
        "show port 0 rss reta",
        "dump log_types",
        "port stop all --force",
        "port attach net_null0",
        "route add 0 default via 192.0.2.1",
        "neigh del 1 ::1",
        "bench read_lat -n 5 -- x",
        "show txq info 0 1",
        "set port 0 rate 2.5 link-up",
        "set log rdma_cm debug",
        "start tx_first 3",
        "set fault port 0 rx loss 0.5 seed 1",
        "capture start port 0 file x qp 7 count 9",
        "create qp type RC pd 0 scq 0 rcq 0",
        "modify qp 7 state RTS timeout 14",
        "post write qp 7 len 8 rkey 1 addr 0x10",
        "ping 192.0.2.1 count 2",
        "connect 192.0.2.1 7471 alt 192.0.3.1",
        "load alt path qp 7 port 2",
    ]
    .map(|line| line.as_bytes().to_vec())
    .to_vec()
}

/// Z13: arbitrary bytes from a process.
///
/// Invariants
/// - No panic. A text has no control characters except newlines.
fn reply(input: &mut Input<'_>) {
    let is_harmless = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    let mut decoder = Decoder::new(frame::REPLY_MAX);
    decoder.push(input.rest());
    let mut joined: Option<Answer> = None;
    loop {
        match decoder.take::<Reply>() {
            Ok(Some(Reply::More(part) | Reply::Last(part))) => {
                input.reach(1, render::text(&part).lines().count().min(99) as u32);
                let is_joined = joined.as_mut().is_some_and(|all| all.join(part.clone()));
                input.reach(2, u32::from(is_joined));
                joined.get_or_insert(part);
            }
            Ok(Some(Reply::Refused(refusal))) => {
                input.reach(3, 0);
                assert!(is_harmless(&render::harmless(&refusal.to_string())));
            }
            Ok(None) => break,
            Err(frame::FrameError::Text(_)) => input.reach(4, 0),
            Err(_) => break,
        }
    }
    let text = joined.map_or(String::new(), |answer| render::text(&answer));
    assert!(is_harmless(&text), "{text:?}");
}

fn replies() -> Vec<Vec<u8>> {
    let process = Process {
        pid: 1,
        program: "p\u{1b}".into(),
        uid: 0,
        version: String::new(),
        devices: vec![],
    };
    let gid = Gid {
        port: 0,
        device: "d".into(),
        number: 1,
        index: 0,
        gid: "::1".into(),
        address: "192.0.2.1".parse().expect("an address"),
    };
    let counter = Counter {
        device: "d".into(),
        object: "QP 1".into(),
        name: "n".into(),
        value: u64::MAX,
        meaning: "m".into(),
    };
    let packet = TracedPacket {
        time_ns: u64::MAX,
        is_sent: true,
        port: 0,
        packet: "p\u{1b}".into(),
        dest_qpn: None,
        psn: Some(u32::MAX),
        len: 0,
        aeth: Some("\r".into()),
        verdict: String::new(),
    };
    let trace = Trace { device: "d".into(), qp: 7, end: None, missed: 1, packets: vec![packet] };
    let runtime = LcoreRuntime { cycles: 1, idle_cycles: u64::MAX, ..LcoreRuntime::default() };
    [
        Reply::Last(Answer::Process(process)),
        Reply::More(Answer::Gid(vec![gid])),
        Reply::More(Answer::Counters(vec![counter])),
        Reply::More(Answer::Runtime(vec![runtime])),
        Reply::More(Answer::Trace(vec![trace])),
        Reply::Last(Answer::ConfigFile("\u{1b}[2J\n".into())),
        Reply::Last(Answer::PortStats(vec![PortStats::default()])),
        Reply::Refused(Refusal::NoSuchObject("x".into())),
    ]
    .iter()
    .map(|reply| frame::encode(reply, frame::REPLY_MAX).expect("short"))
    .collect()
}
