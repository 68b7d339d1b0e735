//! Common parts of the port tests: EAL, frames, and a second process.

#![allow(unreachable_pub, reason = "a module of a program has no public items")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use uroce_engine::eal::{Eal, EalConfig};
use uroce_engine::mbuf::{Mbuf, MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::vdev::{MemifRole, memif};
use uroce_engine::port::{Port, PortConfig, QueuePair};

pub fn eal() -> &'static Eal {
    Eal::init(&EalConfig::default()).expect("EAL starts without privileges")
}

pub fn pool(eal: &'static Eal, count: u32, room: u16) -> Mempool {
    let config =
        PoolConfig { name: "test".into(), count, cache: 64, room, ..PoolConfig::default() };
    Mempool::create(eal, &config).expect("the default memory suffices")
}

/// Length of the frames of the memif tests: more than a standard mbuf holds.
pub const LONG: usize = 4200;

/// Opens a memif port with buffers for frames of [`LONG`] bytes.
pub fn memif_port(eal: &'static Eal, role: MemifRole, socket: &Path, pool: &Mempool) -> Port {
    let device = memif(0, role, socket, LONG as u16, 512);
    let config = PortConfig { mtu: LONG as u16, ..PortConfig::new(device) };
    Port::open(eal, &config, pool).expect("memif needs no privilege")
}

/// Returns a path that no other test uses.
pub fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("uroce-{name}-{}.sock", std::process::id()))
}

/// Writes frame number `number`: the number, then bytes that depend on it.
pub fn write_frame(mbuf: &mut Mbuf, number: u64, len: usize) {
    mbuf.set_len(len).expect("the pool's room suffices");
    let (head, rest) = mbuf.as_mut_slice().split_at_mut(8);
    head.copy_from_slice(&number.to_le_bytes());
    for (index, byte) in rest.iter_mut().enumerate() {
        *byte = (number as u8).wrapping_add(index as u8);
    }
}

/// Returns the number of an undamaged frame.
pub fn read_frame(frame: &[u8]) -> u64 {
    let (head, rest) = frame.split_at(8);
    let number = u64::from_le_bytes(head.try_into().expect("eight bytes"));
    let intact = rest
        .iter()
        .enumerate()
        .all(|(index, &byte)| byte == (number as u8).wrapping_add(index as u8));
    assert!(intact, "frame {number} is damaged");
    number
}

/// Sends frames numbered from `first` on until `count` are sent or the time is over; returns how
/// many.
pub fn send(
    queue: &mut QueuePair,
    pool: &Mempool,
    first: u64,
    len: usize,
    count: u64,
    time: Duration,
) -> u64 {
    let mut batch = MbufBatch::new();
    let (mut made, deadline) = (0, Instant::now() + time);
    while (made < count || !batch.is_empty()) && Instant::now() < deadline {
        let had = batch.len();
        let want = (count - made).min(batch.room() as u64) as usize;
        if pool.alloc_burst(&mut batch, want).is_ok() {
            for mbuf in &mut batch.as_mut_slice()[had..] {
                write_frame(mbuf, first + made, len);
                made += 1;
            }
        }
        if queue.tx_burst(&mut batch) == 0 {
            std::thread::yield_now();
        }
    }
    made - batch.len() as u64
}

/// Polls until `done` returns true or ten seconds have passed. Returns whether it did.
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Returns the arguments of this program that run one test of a module, which `module_path!` names.
pub fn only(module: &str, test: &str) -> Vec<String> {
    let (_, module) = module.split_once("::").expect("tests are in modules");
    let name = format!("{module}::{test}");
    ["--exact", &name, "--include-ignored", "--nocapture"].map(str::to_owned).to_vec()
}

/// Checks that a run of [`only`] has run the test.
pub fn check_passed(output: &str) {
    assert!(output.contains("1 passed"), "{output}");
}

/// The running test of module `port` once more, in a child process that sees `UROCE_TEST_PEER`.
pub struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub fn start(test: &str, argument: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("we are running"))
            .args(only("engine::port", test))
            .arg("--test-threads=1")
            .env("UROCE_TEST_PEER", argument)
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, output }
    }

    /// Returns the argument that the parent has passed, in the child.
    pub fn argument() -> Option<PathBuf> {
        std::env::var_os("UROCE_TEST_PEER").map(PathBuf::from)
    }

    /// Returns the rest of the child's line that begins with `word`.
    pub fn line(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).is_ok_and(|length| length > 0) {
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the peer ended without saying {word:?}");
    }

    /// Waits for the child's success.
    pub fn join(mut self) {
        let mut output = String::new();
        self.output.read_to_string(&mut output).expect("text");
        assert!(self.child.wait().expect("it is our child").success());
        check_passed(&output);
    }

    /// Ends the child as if it had crashed.
    pub fn kill(mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Has no effect on a process that was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
