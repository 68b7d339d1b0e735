//! Members of the local fabric that are killed at random moments: the survivors' connections carry
//! whole messages all the time, and nothing is left behind.
//!
//! The test starts this program again for each member; [`a_member_of_the_test`] is that process's
//! main function. `UROCE_ROUNDS` is the number of rounds, by default [`ROUNDS`]; `UROCE_SEED`
//! repeats a run.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use uroce::cm::{ConnectParam, Connection, Listener};
use uroce::config::{DeviceConfig, Idle, PortConfig};
use uroce::local::Reservation;
use uroce::{
    AccessFlags, CompletionQueue, Config, Context, MemoryRegion, QpInit, QueuePair, RecvWr, SendWr,
    WcStatus, WorkCompletion,
};

const MEMBERS: u8 = 8;
/// Rounds of the short form.
const ROUNDS: u32 = 8;
/// Verified answers of each other member that a member needs at the end.
const FINAL: u32 = 20;
/// Longest message in bytes.
const LEN_MAX: usize = 5000;
/// The receives of an end, each with its part of the memory, before the part for sending.
const RECEIVES: usize = 4;
const PORT: u16 = 7471;
/// Environment variable with the directory of a member's fabric.
const TASK: &str = "UROCE_KILL_TASK";
/// Longest time for what comes at all.
const SOON: Duration = Duration::from_secs(60);

/// A message: sender, its process, number and length, and bytes that follow from them.
fn message(from: u8, life: u32, number: u32, len: usize) -> Vec<u8> {
    let mut message = vec![from];
    message.extend(life.to_le_bytes());
    message.extend(number.to_le_bytes());
    message.extend((len as u32).to_le_bytes());
    let seed = number.wrapping_mul(31) ^ life ^ u32::from(from);
    message.extend(
        (message.len()..len).map(|at| (seed.wrapping_add(at as u32) >> (at % 3 * 8)) as u8),
    );
    message
}

/// Panics if the message is not whole.
fn check(bytes: &[u8]) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(bytes, message(bytes[0], word(1), word(5), word(9) as usize), "a message is torn");
}

/// One end of a connection.
struct End {
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
    received: Vec<usize>,
}

impl End {
    fn new(context: &Context) -> End {
        let pd = context.allocate_pd();
        let cq = context.create_cq(64).expect("a CQ");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a QP");
        let memory = pd.allocate((RECEIVES + 1) * LEN_MAX, AccessFlags::all()).expect("memory");
        End { cq, qp, memory, received: Vec::new() }
    }

    /// Posts all receives. `None` if the connection has ended.
    fn begin(&mut self) -> Option<()> {
        (0..RECEIVES).try_for_each(|at| self.receive(at))
    }

    fn receive(&mut self, at: usize) -> Option<()> {
        let slice = self.memory.slice(at * LEN_MAX..(at + 1) * LEN_MAX).unwrap();
        self.qp.post_recv(&RecvWr::new(&[slice]).id(at as u64)).ok()
    }

    /// Waits for a completion. `None` if the connection has ended.
    fn completion(&self) -> Option<WorkCompletion> {
        let completion = self.cq.wait(SOON).expect("no overrun").expect("it comes or is flushed");
        match completion.status {
            WcStatus::Success => Some(completion),
            WcStatus::WrFlushErr | WcStatus::RetryExcErr => None,
            other => panic!("a survivor's connection ends by {other:?}"),
        }
    }

    /// Sends a message; messages that come meanwhile are kept.
    fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let at = RECEIVES * LEN_MAX;
        self.memory.write_at(at, bytes).unwrap();
        let slice = self.memory.slice(at..at + bytes.len()).unwrap();
        self.qp.post_send(&SendWr::send(&[slice]).id(RECEIVES as u64).signaled()).ok()?;
        loop {
            match self.completion()?.wr_id as usize {
                RECEIVES => return Some(()),
                at => self.received.push(at),
            }
        }
    }

    /// Returns the next message, checked.
    fn next(&mut self) -> Option<Vec<u8>> {
        let at = match self.received.is_empty() {
            false => self.received.remove(0),
            true => self.completion()?.wr_id as usize,
        };
        let mut header = [0; 13];
        self.memory.read_at(at * LEN_MAX, &mut header).unwrap();
        let len = u32::from_le_bytes(header[9..].try_into().unwrap()) as usize;
        let mut bytes = vec![0; len.min(LEN_MAX)];
        self.memory.read_at(at * LEN_MAX, &mut bytes).unwrap();
        check(&bytes);
        self.receive(at)?;
        Some(bytes)
    }
}

/// What a member's threads share.
#[derive(Default)]
struct State {
    is_final: AtomicBool,
    is_end: AtomicBool,
    /// Verified answers in the final, by number.
    answers: [AtomicU32; MEMBERS as usize + 1],
}

/// Sends each message back, until the connection ends.
fn serve(mut end: End, connection: Connection) -> Option<()> {
    connection.wait_established(SOON).ok()?;
    end.begin()?;
    loop {
        let bytes = end.next()?;
        end.send(&bytes)?;
    }
}

/// Connects to a member again and again and has messages sent back.
fn talk(context: &Context, own: u8, to: u8, state: &State) {
    let life = std::process::id();
    let mut rng = fastrand::Rng::with_seed(u64::from(life) << 8 | u64::from(to));
    let at = SocketAddr::new([192, 0, 2, to].into(), PORT);
    let mut number = 0;
    while !state.is_end.load(Ordering::Acquire) {
        let mut end = End::new(context);
        let param = ConnectParam::default();
        let Ok(connection) = Connection::connect(&end.qp, at, &param, Duration::from_secs(5))
        else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let is_up = end.begin().is_some();
        while is_up && !state.is_end.load(Ordering::Acquire) {
            number += 1;
            let sent = message(own, life, number, rng.usize(13..=LEN_MAX));
            let in_final = state.is_final.load(Ordering::Acquire);
            let answer = end.send(&sent).and_then(|()| end.next());
            let Some(answer) = answer else { break };
            assert_eq!(answer, sent, "an answer to another message");
            if in_final {
                state.answers[usize::from(to)].fetch_add(1, Ordering::AcqRel);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(connection);
    }
}

/// The main function of a member's process. Without a task there is nothing to do.
#[test]
fn a_member_of_the_test() {
    let Some(directory) = std::env::var_os(TASK) else { return };
    let mut port = PortConfig::local(PathBuf::from(directory)).mtu(4200);
    port.mbufs = Some(2047);
    let mut config = Config::new().device(DeviceConfig::new("m").idle(Idle::Sleep).port(port));
    config.eal.memory_mb = Some(64);
    let context = Context::open(&config, "m").expect("a member");
    let own = context.ports()[0].mac.0[5];
    let listener = Listener::bind(&context, SocketAddr::new([192, 0, 2, own].into(), PORT), 64);
    let listener = listener.expect("the port is free");
    println!("\nnumber={own}");
    // A failed check ends the process, whatever thread finds it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::exit(101);
    }));
    let state = State::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if line == "end" {
                    break;
                }
                state.is_final.fetch_or(line == "final", Ordering::AcqRel);
            }
            // A test that has gone ends its members, too.
            state.is_end.store(true, Ordering::Release);
        });
        for to in (1..=MEMBERS).filter(|&to| to != own) {
            let (context, state) = (&context, &state);
            scope.spawn(move || talk(context, own, to, state));
        }
        let mut is_told = false;
        while !state.is_end.load(Ordering::Acquire) {
            if let Some(request) = listener.next(Duration::from_millis(20)) {
                let end = End::new(&context);
                // A requester may be dead by now.
                if let Ok(connection) = request.accept(&end.qp, &ConnectParam::default()) {
                    std::thread::spawn(move || serve(end, connection));
                }
            }
            let others = (1..=MEMBERS).filter(|&to| to != own);
            let has = |to: u8| state.answers[usize::from(to)].load(Ordering::Acquire) >= FINAL;
            if !is_told && others.clone().all(has) && has_given_back() {
                println!("\ndone={own}");
                is_told = true;
            }
        }
    });
    context.shut_down(Duration::from_millis(100));
}

/// Whether the process has the shared memory of its links and no more: its own board, and for each
/// link a board and rings.
fn has_given_back() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("memfd:uroce-local")).count();
    mapped == 1 + 2 * (usize::from(MEMBERS) - 1)
}

/// A member.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    number: u8,
}

impl Process {
    fn begin(directory: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "local_kill::a_member_of_the_test", "--nocapture"])
            .env(TASK, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let stdin = child.stdin.take().unwrap();
        Process { child, stdin, lines, number: 0 }
    }

    fn start(directory: &Path) -> Process {
        let mut process = Process::begin(directory);
        process.number = process.answer("number");
        process
    }

    /// Waits for a line that begins with a word; returns the number after it.
    fn answer(&self, word: &str) -> u8 {
        loop {
            let line = self.lines.recv_timeout(SOON);
            let line = line.unwrap_or_else(|_| panic!("member {}: no {word}", self.number));
            if let Some((_, rest)) = line.split_once(&format!("{word}=")) {
                return rest.parse().unwrap();
            }
        }
    }

    fn say(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").expect("the member lives");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn variable<T: std::str::FromStr>(name: &str, default: impl FnOnce() -> T) -> T {
    std::env::var(name).map_or_else(|_| default(), |text| text.parse().ok().expect("a number"))
}

#[test]
fn connections_of_survivors_carry_whole_messages_while_members_are_killed() {
    let seed: u64 = variable("UROCE_SEED", || fastrand::u64(..));
    let rounds = variable("UROCE_ROUNDS", || ROUNDS);
    println!("UROCE_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let base = std::env::temp_dir().join(format!("uroce-kill-{}", std::process::id()));
    let fabric = base.join("fabric");
    let started: Vec<_> = (0..MEMBERS).map(|_| Process::start(&fabric)).collect();
    let mut members: HashMap<u8, Process> =
        started.into_iter().map(|process| (process.number, process)).collect();
    assert_eq!(members.len(), usize::from(MEMBERS));
    for round in 0..rounds {
        std::thread::sleep(Duration::from_micros(rng.u64(..150_000)));
        let mut victims: Vec<u8> = members.keys().copied().collect();
        victims.sort_unstable();
        rng.shuffle(&mut victims);
        victims.truncate(rng.usize(1..=3));
        for victim in &victims {
            let process = members.get_mut(victim).unwrap();
            process.child.kill().unwrap();
        }
        let mut freed = Vec::new();
        for victim in victims {
            let mut process = members.remove(&victim).unwrap();
            let status = process.child.wait().unwrap();
            assert_eq!(status.code(), None, "UROCE_SEED={seed}, round {round}: {victim}: {status}");
            freed.push(victim);
        }
        let new: Vec<_> = freed.iter().map(|_| Process::begin(&fabric)).collect();
        let mut taken = Vec::new();
        for mut process in new {
            process.number = process.answer("number");
            taken.push(process.number);
            members.insert(process.number, process);
        }
        freed.sort_unstable();
        taken.sort_unstable();
        assert_eq!(taken, freed, "UROCE_SEED={seed}, round {round}: numbers are free at once");
        for (number, process) in &mut members {
            let status = process.child.try_wait().unwrap();
            assert!(status.is_none(), "UROCE_SEED={seed}, round {round}: {number}: {status:?}");
        }
    }
    let begin = Instant::now();
    members.values_mut().for_each(|process| process.say("final"));
    for process in members.values() {
        process.answer("done");
    }
    println!("{rounds} rounds; all members have talked to all others {:?} later", begin.elapsed());
    members.values_mut().for_each(|process| process.say("end"));
    for (number, mut process) in members {
        let status = process.child.wait().unwrap();
        assert!(status.success(), "UROCE_SEED={seed}: member {number}: {status}");
    }
    check_left(&fabric, seed);
    std::fs::remove_dir_all(base).unwrap();
}

/// Checks that the directory has no file, and no lock, of members that have ended.
fn check_left(fabric: &Path, seed: u64) {
    let left = std::fs::read_dir(fabric).unwrap().flatten();
    let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["members"], "UROCE_SEED={seed}: files are left");
    let all: Vec<_> = (0..64).map(|_| Reservation::take(fabric, None, None)).collect();
    assert!(all.iter().all(Result::is_ok), "UROCE_SEED={seed}: a number is still locked");
}
