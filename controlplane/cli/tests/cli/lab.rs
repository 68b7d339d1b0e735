//! Two devices of this process on a ring link, with a connected QP each, and the program `uroce`.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uroce::config::{DeviceConfig, PortConfig};
use uroce::{
    AccessFlags, CompletionQueue, Config, ConnectOptions, Context, MemoryRegion, ProtectionDomain,
    QpInit, QueuePair, SendWr, WcStatus,
};
use uroce_command::Answer;
use uroce_command::answer::Made;

/// A timeout that is not reached.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// One end of the link.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) memory: MemoryRegion,
}

/// Both ends.
pub(crate) struct Lab {
    pub(crate) left: Side,
    pub(crate) right: Side,
}

/// Returns the configuration of two devices on a link.
pub(crate) fn config() -> Config {
    let device = |name: &str, address: &str| {
        let port = PortConfig::ring("link").mtu(4200).ip(address).expect("an address");
        DeviceConfig::new(name).port(port)
    };
    Config::new().device(device("left", "192.0.2.1/24")).device(device("right", "192.0.2.2/24"))
}

impl Side {
    fn open(config: &Config, name: &str) -> Side {
        let context = Context::open(config, name).expect("a ring link needs no privilege");
        let pd = context.allocate_pd();
        let cq = context.create_cq(64).expect("a depth in range");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("QPs are left");
        let memory = pd.allocate(1 << 20, AccessFlags::all()).expect("memory");
        Side { context, pd, cq, qp, memory }
    }
}

impl Lab {
    /// Opens both ends and connects their QPs.
    pub(crate) fn new() -> Lab {
        Lab::of(&config())
    }

    /// Opens both ends as configured and connects their QPs.
    pub(crate) fn of(config: &Config) -> Lab {
        let (mut left, mut right) = (Side::open(config, "left"), Side::open(config, "right"));
        let options = ConnectOptions::default();
        let ends = [&left.qp, &right.qp].map(|qp| qp.endpoint(1, 0).expect("an address"));
        right.qp.connect(&ends[0], &options).expect("left answers");
        left.qp.connect(&ends[1], &options).expect("right answers");
        Lab { left, right }
    }

    /// Writes `count` messages of 64 KiB from left to right.
    pub(crate) fn write(&mut self, count: u64) {
        let target = self.right.memory.remote();
        for id in 0..count {
            let source = self.left.memory.slice(..1 << 16).expect("in range");
            let source = [source];
            let wr = SendWr::write(&source, target).id(id).signaled();
            self.left.qp.post_send(&wr).expect("room");
            let completion = self.left.cq.wait(SOON).expect("no overrun").expect("in time");
            assert_eq!(completion.status, WcStatus::Success);
        }
    }
}

/// Runs `commands` twenty times while another thread opens and closes a third device.
pub(crate) fn beside_a_closing_device(commands: impl Fn()) {
    let port = PortConfig::ring("other").ip("198.51.100.1/24").expect("an address");
    let config = config().device(DeviceConfig::new("third").port(port));
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                // Closed at once.
                drop(Context::open(&config, "third").expect("it opens"));
            }
        });
        let ended = Until(&end);
        (0..20).for_each(|_| commands());
        drop(ended);
    });
}

/// Ends a thread, even if the test fails.
struct Until<'e>(&'e AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns `uroce` with these arguments.
pub(crate) fn uroce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uroce"));
    command.args(arguments);
    command
}

/// Runs a command in this process, as another would.
pub(crate) fn ask(line: &str) -> Output {
    ask_with(&[], line)
}

/// Runs a command in this process with options of the program.
pub(crate) fn ask_with(options: &[&str], line: &str) -> Output {
    let pid = std::process::id().to_string();
    let words: Vec<&str> = line.split(' ').collect();
    let arguments = [&["-s", &pid], options, &words].concat();
    uroce(&arguments).output().expect("the program runs")
}

/// Runs a command in this process that must not fail, and returns its text.
pub(crate) fn says(line: &str) -> String {
    let output = ask(line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{line}");
    text(&output.stdout)
}

/// Runs a command in this process that must not fail, and returns its answer.
pub(crate) fn answer(line: &str) -> Answer {
    let output = ask_with(&["-j"], line);
    assert!(output.status.success(), "{line}: {}", text(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("an answer")
}

/// Runs a command in this process that must fail, and returns what is said of it.
pub(crate) fn fails(line: &str) -> String {
    let output = ask(line);
    assert_eq!(output.status.code(), Some(1), "{line}: {}", text(&output.stdout));
    text(&output.stderr)
}

/// Runs a command that makes an object.
pub(crate) fn made(line: &str) -> Made {
    match answer(line) {
        Answer::Made(made) => made,
        other => panic!("{line}: {other:?}"),
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Returns the path of this process's socket.
pub(crate) fn socket() -> PathBuf {
    find_socket(std::process::id()).expect("a socket")
}

/// Returns the path of a process's socket, if it has one.
pub(crate) fn find_socket(pid: u32) -> Option<PathBuf> {
    let directory = uroce_command::run_dir::sub_dir(uroce_command::run_dir::CONTROL);
    let entries = std::fs::read_dir(directory.expect("a run directory")).expect("readable");
    let begin = format!("{pid}-");
    let is_its = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(&begin);
    entries.flatten().find(|entry| is_its(&entry.file_name())).map(|entry| entry.path())
}

/// Waits until `check` is true.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < SOON, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}
