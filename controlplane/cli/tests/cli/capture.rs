//! Captures: their files as Wireshark reads them, and files that must not be written.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use uroce_command::answer::Capture;
use uroce_command::frame::{self, Decoder};
use uroce_command::{Answer, Refusal, Reply, Request, Select};

use crate::lab::{Lab, ask, ask_with, eventually, says, socket, text, uroce};

/// A folder of its own, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("uroce-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("removable");
    }
}

/// Returns the captures of this process.
fn shown() -> Vec<Capture> {
    let output = ask_with(&["-j"], "show capture");
    match serde_json::from_slice(&output.stdout).expect("an answer") {
        Answer::Capture(captures) => captures,
        other => panic!("{other:?}"),
    }
}

/// Returns fields of each frame of a file that match a display filter. `None` if there is no
/// tshark.
fn tshark(file: &str, filter: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-r", file, "-Y", filter, "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", text(&output.stderr));
            Some(text(&output.stdout).lines().map(str::to_owned).collect())
        }
        Err(error) => {
            eprintln!("SKIP: what Wireshark reads: tshark does not start: {error}");
            None
        }
    }
}

/// Checks that a file has this many frames, none of them malformed, and all of them RoCEv2.
pub(crate) fn check(file: &str, frames: usize) {
    let Some(malformed) = tshark(file, "_ws.malformed", &["frame.number"]) else { return };
    assert!(malformed.is_empty(), "{malformed:?}");
    let roce = tshark(file, "infiniband.bth.opcode", &["frame.number"]).unwrap();
    assert_eq!(roce.len(), frames);
}

#[test]
fn a_thousand_frames_are_captured_as_wireshark_reads_them() {
    let folder = Folder::new("thousand");
    let file = folder.file("port.pcapng");
    let mut lab = Lab::new();
    assert_eq!(says(&format!("capture start port 0 file {file} count 1000")), "");
    let before = std::time::SystemTime::now();
    lab.write(100);
    eventually("its end", || shown()[0].end.is_some());
    let [capture] = &shown()[..] else { panic!("{:?}", shown()) };
    let end = (capture.frames, capture.missed, capture.end.as_deref());
    assert_eq!(end, (1000, 0, Some("has all 1000 frames")));
    assert_eq!(capture.bytes, std::fs::metadata(&file).unwrap().len());
    let text = says("show capture");
    assert!(text.contains("has all 1000 frames") && text.contains(&file), "{text}");

    check(&file, 1000);
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "ip.src",
        "frame.time_epoch",
        "frame.len",
    ];
    let Some(frames) = tshark(&file, "frame", &fields) else { return };
    let (mut last, mut received) = (0.0, 0);
    for frame in &frames {
        let [name, direction, source, time, _] = frame.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{frame}");
        };
        assert_eq!(name, "left/1");
        let expected = if source == "192.0.2.1" { "0x00000002" } else { "0x00000001" };
        assert_eq!(direction, expected, "{frame}");
        received += usize::from(source == "192.0.2.2");
        let time: f64 = time.parse().expect("seconds");
        assert!(time >= last, "in order");
        last = time;
    }
    assert!(received > 0, "acknowledgements");
    let begin = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..20.0).contains(&(last - begin)), "the time of day: {begin} {last}");
}

#[test]
fn a_capture_ends_when_it_is_told_to_with_all_frames_until_then() {
    let folder = Folder::new("stop");
    let file = folder.file("with a space.pcapng");
    let mut lab = Lab::new();
    let qpn = lab.left.qp.qpn().value();
    let start = format!("capture start port 0 file {file} qp {qpn:#x} snaplen 128");
    let arguments = ["-s", &std::process::id().to_string(), &start.replace(&file, "\"FILE\"")];
    let line = arguments[2].replace("FILE", &file);
    let output = uroce(&arguments[..2])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            writeln!(child.stdin.take().expect("a pipe"), "{line}")?;
            child.wait_with_output()
        })
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let running = shown().remove(0);
    assert_eq!((running.end, running.qp, running.snaplen), (None, Some(qpn), 128));
    let again = ask(&format!("capture start port 0 file {}", folder.file("b")));
    assert_eq!(
        text(&again.stderr),
        format!("port 0 is captured already, into {file}; see `capture stop`\n")
    );
    assert!(!Path::new(&folder.file("b")).exists(), "the file of a refused capture is removed");

    lab.write(10);
    says("capture stop");
    let stopped = shown().remove(0);
    assert_eq!(stopped.end.as_deref(), Some("stopped"));
    assert!(stopped.frames >= 170, "160 with data, and acknowledgements: {stopped:?}");
    lab.write(10);
    assert_eq!(shown().remove(0), stopped, "nothing comes after the end");
    let words = ["frame.cap_len", "frame.len", "infiniband.bth.opcode"];
    if let Some(frames) = tshark(&file, "frame", &words) {
        assert_eq!(frames.len() as u64, stopped.frames);
        let longest = frames.iter().filter(|frame| frame.starts_with("128\t4"));
        assert!(longest.count() >= 160 - 10, "{frames:?}");
    }
    // Another may follow.
    says(&format!("capture start port 0 file {}", folder.file("c")));
    assert_eq!(shown().len(), 1, "the former one is forgotten");
    says(&format!("capture start port 1 file {}", folder.file("d")));
    says("capture stop 0");
    let ends: Vec<bool> = shown().iter().map(|capture| capture.end.is_some()).collect();
    assert_eq!(ends, [true, false], "the other port's goes on");
    drop(lab);
    check(&folder.file("d"), 0);
}

#[test]
fn the_frames_of_another_qp_are_left_out() {
    let folder = Folder::new("qp");
    let file = folder.file("other");
    let mut lab = Lab::new();
    let other = lab.left.pd.create_qp(&uroce::QpInit::new(&lab.left.cq)).expect("QPs are left");
    says(&format!("capture start port 0 file {file} qp {}", other.qpn().value()));
    lab.write(3);
    says("capture stop 0");
    assert_eq!(shown()[0].frames, 0);
    check(&file, 0);
    let wrong = ask(&format!("capture start port 0 file {} qp 0xffffff", folder.file("b")));
    assert_eq!(text(&wrong.stderr), "no QP 0xffffff\n");
    let wrong = ask(&format!("capture start port 0 file {} qp 0x1000000", folder.file("b")));
    assert_eq!(text(&wrong.stderr), "no QP 0x1000000\n");
}

#[test]
fn no_file_that_is_there_is_written() {
    let folder = Folder::new("files");
    let (there, link) = (folder.file("there"), folder.file("link"));
    std::fs::write(&there, "kept").unwrap();
    std::os::unix::fs::symlink(folder.file("target"), &link).unwrap();
    let _lab = Lab::new();
    for path in [&there, &link, "/dev/full", "/dev/null"] {
        let output = ask(&format!("capture start port 0 file {path}"));
        let expected = format!("{path}: exists already; choose another name, or remove it\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), expected));
    }
    assert_eq!(std::fs::read(&there).unwrap(), b"kept");
    assert!(!Path::new(&folder.file("target")).exists());
    let nowhere = folder.file("nowhere/file");
    let output = ask(&format!("capture start port 0 file {nowhere}"));
    assert_eq!(
        text(&output.stderr),
        format!("{nowhere}: No such file or directory (os error 2)\n")
    );
    let output = ask(&format!("capture start port 7 file {}", folder.file("port")));
    assert_eq!(text(&output.stderr), "Invalid port 7\n");
    assert!(!Path::new(&folder.file("port")).exists());
    let output = ask("capture stop 7");
    assert_eq!(text(&output.stderr), "Invalid port 7\n");
    let output = ask("capture stop 0");
    assert_eq!(text(&output.stderr), "port 0 is not captured\n");
    says("capture stop");
    assert!(shown().is_empty());
}

/// Asks for a capture with a descriptor of any kind, as a hostile client may.
fn start_with(file: Option<BorrowedFd<'_>>) -> Reply {
    let start = uroce_command::Capture::Start {
        port: 0,
        file: "x".into(),
        qp: None,
        snaplen: 64,
        count: None,
    };
    let bytes = frame::encode(&Request::Capture(start), frame::REQUEST_MAX).unwrap();
    let mut stream = UnixStream::connect(socket()).unwrap();
    match file {
        Some(file) => {
            // More than one: the process takes one, and the kernel closes the other.
            let files = [file, file];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
            let sent = sendmsg(&stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty());
            assert_eq!(sent.unwrap(), bytes.len());
        }
        None => stream.write_all(&bytes).unwrap(),
    }
    let mut inbox = Decoder::new(frame::REPLY_MAX);
    loop {
        if let Some(reply) = inbox.take().unwrap() {
            return reply;
        }
        let mut bytes = [0; 4096];
        let len = std::io::Read::read(&mut stream, &mut bytes).unwrap();
        assert!(len > 0, "a reply");
        inbox.push(&bytes[..len]);
    }
}

#[test]
fn descriptors_on_which_a_write_could_wait_are_refused() {
    let _lab = Lab::new();
    let refused = |text: &str| Reply::Refused(Refusal::Failed(format!("x: {text}")));
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert_eq!(start_with(None), refused("the file did not come with the request"));
    let before = descriptors();
    let (_reader, writer) = std::io::pipe().unwrap();
    assert_eq!(start_with(Some(writer.as_fd())), refused("not a regular file"));
    let null = File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(start_with(Some(null.as_fd())), refused("not a regular file"));
    let own = File::open("/proc/self/exe").unwrap();
    assert_eq!(start_with(Some(own.as_fd())), refused("not open for writing"));
    drop((_reader, writer, null, own));
    eventually("closing", || descriptors() <= before);
    assert!(shown().is_empty());
    let stop = uroce_command::Capture::Stop { port: Select::All };
    assert_eq!(serde_json::to_string(&stop).unwrap(), r#"{"stop":{"port":"all"}}"#);
}

#[test]
fn a_device_of_the_programs_own_is_captured_too() {
    let folder = Folder::new("own");
    let file = folder.file("own.pcapng");
    let mut child = uroce(&["--vdev=net_null0,no-rx=1", "--", "-i"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = format!("capture start port 0 file {file}\nshow capture\ncapture stop 0\nquit\n");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("  running  ") && said.contains("  stopped  "), "{said}");
    check(&file, 0);
}
