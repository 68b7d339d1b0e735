//! Members that are processes: killed, stopped, forked, replaced.
//!
//! A test starts this program again for each member; [`a_member_of_another_test`] is that process's
//! main function.

#[path = "../common/mod.rs"]
mod common;
mod tasks;

use common::*;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use uroce_local::{JoinError, Member, Queue, Sent};

/// Environment variable with a member's task: directory, number of members, task.
const TASK: &str = "UROCE_LOCAL_TASK";

/// A member that is a process.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    number: u8,
}

impl Process {
    fn start(directory: &Path, members: u8, task: &str) -> Process {
        let command = Command::new(std::env::current_exe().unwrap());
        Process::start_by(command, directory, members, task)
    }

    fn start_by(mut command: Command, directory: &Path, members: u8, task: &str) -> Process {
        let mut child = command
            .args(["--exact", "a_member_of_another_test", "--nocapture"])
            .env(TASK, format!("{members} {task} {}", directory.display()))
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
        let mut process = Process { child, stdin, lines, number: 0 };
        process.number = process.answer("number").parse().unwrap();
        process
    }

    /// Waits for a line that begins with a word; returns the rest.
    fn answer(&self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(30));
            let line = line.unwrap_or_else(|_| panic!("{}: no {word}", self.number));
            if let Some((_, rest)) = line.split_once(&format!("{word}=")) {
                return rest.to_owned();
            }
        }
    }

    fn say(&mut self, word: &str) {
        writeln!(self.stdin, "{word}").unwrap();
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Stops the process; waits until each of its threads has stopped.
    fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.pid());
        until("all threads have stopped", || {
            std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
                let status = std::fs::read_to_string(task.path().join("status")).unwrap();
                status.contains("State:\tT")
            })
        });
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) {
        self.say("end");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "member {}: {status}", self.number);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of a member's process. Without a task there is nothing to do.
#[test]
fn a_member_of_another_test() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut words = task.splitn(3, ' ');
    let members: u8 = words.next().unwrap().parse().unwrap();
    let (task, directory) = (words.next().unwrap(), words.next().unwrap());
    let member = join(Path::new(directory));
    println!("\nnumber={}", member.number());
    let [is_final, is_end] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (finals, ends) = (Arc::clone(&is_final), Arc::clone(&is_end));
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            finals.fetch_or(line == "final", Ordering::Release);
            ends.fetch_or(line == "end", Ordering::Release);
        }
        // A parent that has gone ends its members.
        ends.store(true, Ordering::Release);
    });
    let mut queue = member.queue(0).unwrap();
    match task {
        "chat" => tasks::chat(&member, &mut queue, members, &is_final, &is_end),
        "echo" => tasks::echo(&member, &mut queue, &is_end),
        "fork" => tasks::fork_and_echo(&member, &mut queue, &is_end),
        "close" => tasks::close_all(member, queue),
        "rejoin" => tasks::fork_and_rejoin(member, queue, Path::new(directory), &is_end),
        other => panic!("no task {other}"),
    }
}

fn number_of_rounds() -> u32 {
    std::env::var("UROCE_ROUNDS").map_or(10, |rounds| rounds.parse().expect("a number of rounds"))
}

#[test]
fn members_that_are_killed_cost_their_own_links_and_nothing_else() {
    const MEMBERS: u8 = 8;
    let seed = std::env::var("UROCE_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("UROCE_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let scratch = Scratch::new();
    let start = || Process::start(scratch.path(), MEMBERS, "chat");
    let mut processes: Vec<_> = (0..MEMBERS).map(|_| start()).collect();
    for round in 0..number_of_rounds() {
        std::thread::sleep(Duration::from_micros(rng.u64(..40_000)));
        let count = rng.usize(1..=3);
        let mut freed = Vec::new();
        for _ in 0..count {
            let mut victim = processes.swap_remove(rng.usize(..processes.len()));
            victim.kill();
            freed.push(victim.number);
        }
        freed.sort_unstable();
        for number in freed {
            processes.push(start());
            let taken = processes.last().unwrap().number;
            assert_eq!(
                taken, number,
                "UROCE_SEED={seed}, round {round}: the number is free at once"
            );
        }
    }
    processes.iter_mut().for_each(|process| process.say("final"));
    for process in &processes {
        assert_eq!(process.answer("done"), "0", "UROCE_SEED={seed}: malformed links");
    }
    processes.into_iter().for_each(Process::end);
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
    let names: Vec<_> = left.iter().map(std::fs::DirEntry::file_name).collect();
    assert_eq!(names, ["members"], "UROCE_SEED={seed}: files are left");
}

/// Receives until a frame with this number has come.
fn await_echo(queue: &mut Queue, begin: Instant, number: u32) {
    let mut has_come = false;
    until("an echo", || {
        queue.begin(now(begin));
        receive(queue, |told| has_come |= told.number == number);
        has_come
    });
}

/// How often this thread has given up its processor because it had to wait.
fn voluntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_stopped_member_costs_others_its_own_frames_only() {
    let scratch = Scratch::new();
    let [one, two] = [join(scratch.path()), join(scratch.path())];
    let [mut from, mut to] = [one.queue(0).unwrap(), two.queue(0).unwrap()];
    let process = Process::start(scratch.path(), 0, "echo");
    let unlinked = Process::start(scratch.path(), 0, "echo");
    let begin = Instant::now();
    assert_eq!(send_surely(&mut from, begin, &frame(1, 3, 0, 7, 100)), Sent::Taken);
    await_echo(&mut from, begin, 7);
    assert_eq!(send_surely(&mut from, begin, &frame(1, 2, 0, 0, 100)), Sent::Taken);
    process.stop();
    unlinked.stop();

    assert_eq!(one.linked(), 0b110);
    let (mut sent, mut received, mut first_lost) = (0u32, 0u32, None);
    let waits = voluntary_switches();
    while begin.elapsed() < Duration::from_millis(1800) {
        from.begin(now(begin));
        to.begin(now(begin));
        if from.send(&frame(1, 3, 0, 8, 4000)) == Sent::Lost {
            first_lost.get_or_insert(begin.elapsed());
        }
        from.send(&frame(1, 4, 0, 8, 4000));
        from.send(&frame(1, 0, 0, 8, 100));
        sent += u32::from(from.send(&frame(1, 2, 0, 9, 100)) == Sent::Taken);
        from.flush();
        received += receive(&mut to, |told| assert_eq!(told.from, 1)) as u32;
    }
    assert!(first_lost.is_some_and(|at| at < Duration::from_secs(1)), "{first_lost:?}");
    assert!(sent > 5_000 && received >= sent - 32, "{sent} sent, {received} received");
    let counters = from.counters();
    assert!(counters.tx_stuck > 100, "{counters:?}");
    assert!(counters.tx_no_member > 0, "no link to the other one: {counters:?}");
    assert!(counters.tx_missed > 0, "{counters:?}");
    let waits = voluntary_switches() - waits;
    assert!(waits < 10, "the thread has waited {waits} times");

    process.signal("-CONT");
    until("the ring moves again", || {
        from.begin(now(begin));
        let sent = from.send(&frame(1, 3, 0, 10, 100));
        from.flush();
        receive(&mut from, |_| {});
        sent == Sent::Taken
    });
    await_echo(&mut from, begin, 10);
    assert_eq!(one.take_ended(), 0);
    unlinked.signal("-CONT");
    process.end();
    until("the end is reported", || {
        from.begin(now(begin));
        receive(&mut from, |_| {});
        one.take_ended() == 1 << 2
    });
}

#[test]
fn a_forked_child_does_not_keep_a_dead_member_alive() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let mut process = Process::start(scratch.path(), 0, "fork");
    let begin = Instant::now();
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 0, 100)), Sent::Taken);
    let child = process.answer("forked");
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 1, 100)), Sent::Taken);
    await_echo(&mut queue, begin, 1);
    process.kill();
    let killed = Instant::now();
    until("the end is reported", || {
        queue.begin(now(begin));
        receive(&mut queue, |_| {});
        one.take_ended() == 1 << 1
    });
    assert!(killed.elapsed() < Duration::from_secs(1));
    let replacement = Process::start(scratch.path(), 0, "echo");
    assert_eq!(replacement.number, 2);
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 2, 100)), Sent::Taken);
    await_echo(&mut queue, begin, 2);
    assert!(Command::new("kill").args(["-9", &child]).status().unwrap().success(), "it lived");
}

#[test]
fn a_forked_child_that_drops_a_queue_publishes_and_wakes_nothing_of_its_parents() {
    let scratch = Scratch::new();
    let [one, two] = [join(scratch.path()), join(scratch.path())];
    let [mut from, mut to] = [one.queue(0).unwrap(), two.queue(0).unwrap()];
    let begin = Instant::now();
    assert_eq!(send_surely(&mut from, begin, &frame(1, 2, 0, 0, 100)), Sent::Taken);
    await_echo(&mut to, begin, 0);
    from.begin(now(begin));
    assert!(from.arm());
    assert_eq!(from.send(&frame(1, 2, 0, 1, 100)), Sent::Taken);
    // SAFETY: the child drops values and ends; no other thread has a lock that it takes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((from, one));
        // SAFETY: `_exit` is async-signal-safe and does not return.
        unsafe { libc::_exit(0) };
    }
    let mut status = 1;
    // SAFETY: the child is this process's own, and `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    to.begin(now(begin));
    assert_eq!(receive(&mut to, |_| {}), 0, "the frame is the parent's to publish");
    // The parent is still to be woken.
    assert_eq!(send_surely(&mut to, begin, &frame(2, 1, 0, 2, 100)), Sent::Taken);
    let mut woken =
        [rustix::event::PollFd::from_borrowed_fd(from.event_fd(), rustix::event::PollFlags::IN)];
    let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut woken, Some(&second)), Ok(1));
    from.disarm();
    from.flush();
    await_echo(&mut to, begin, 1);
}

#[test]
fn a_new_process_receives_nothing_that_was_meant_for_the_old() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let mut process = Process::start(scratch.path(), 0, "echo");
    let begin = Instant::now();
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 0, 100)), Sent::Taken);
    await_echo(&mut queue, begin, 0);
    process.stop();
    for number in 1..100 {
        assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, number, 100)), Sent::Taken);
    }
    process.kill();
    let other = Member::join(config(scratch.path(), 1)).unwrap();
    assert_eq!(other.number(), 2, "the number is free at once");
    let mut other_queue = other.queue(0).unwrap();
    let mut came = Vec::new();
    let mut sent = None;
    until("the first frame", || {
        queue.begin(now(begin));
        other_queue.begin(now(begin));
        receive(&mut queue, |_| {});
        receive(&mut other_queue, |told| came.push(told.number));
        if sent.is_none() && one.take_ended() != 0 {
            sent = Some(send_surely(&mut queue, begin, &frame(1, 2, 0, 1000, 100)));
        }
        !came.is_empty()
    });
    assert_eq!((sent, came), (Some(Sent::Taken), vec![1000]));
}

#[test]
fn a_number_that_another_process_has_is_refused_and_named() {
    let scratch = Scratch::new();
    let process = Process::start(scratch.path(), 0, "echo");
    let asked = |number| {
        Member::join(uroce_local::MemberConfig {
            number: Some(number),
            ..config(scratch.path(), 1)
        })
    };
    let Err(JoinError::Taken(holder)) = asked(1) else { panic!("it is taken") };
    assert_eq!((holder.number, holder.pid), (1, process.pid()));
    assert!(holder.program.starts_with("a_member") || !holder.program.is_empty());
    let member = asked(5).unwrap();
    let members = member.members();
    let held: Vec<_> = members.iter().map(|holder| (holder.number, holder.pid)).collect();
    assert_eq!(held, [(1, process.pid()), (5, std::process::id())]);
    process.end();
    assert_eq!(member.members().len(), 1);
}

#[test]
fn a_forked_child_becomes_a_member_of_its_own() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let process = Process::start(scratch.path(), 0, "rejoin");
    let begin = Instant::now();
    let answer = process.answer("rejoined");
    let (number, pid) = answer.split_once(' ').unwrap();
    let (number, pid) = (number.parse::<u8>().unwrap(), pid.parse::<u32>().unwrap());
    let held = |one: &Member| {
        one.members().iter().map(|holder| (holder.number, holder.pid)).collect::<Vec<_>>()
    };
    let own = (1, std::process::id());
    assert_eq!(held(&one), [own, (2, process.pid()), (3, pid)]);
    // Both are reached, the parent as well as the child.
    for to in [2, number] {
        assert_eq!(send_surely(&mut queue, begin, &frame(1, to, 0, 0, 100)), Sent::Taken);
    }
    process.end();
    until("the parent's end is reported", || {
        queue.begin(now(begin));
        receive(&mut queue, |_| {});
        one.take_ended() == 1 << 1
    });
    assert_eq!(held(&one), [own, (3, pid)]);
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    until("the child's end is reported", || {
        queue.begin(now(begin));
        receive(&mut queue, |_| {});
        one.take_ended() == 1 << 2
    });
}

#[test]
fn a_member_in_another_pid_namespace_is_like_any_other() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: needs the right to make a PID namespace");
        return;
    }
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let mut command = unshare();
    command.arg(std::env::current_exe().unwrap());
    let mut process = Process::start_by(command, scratch.path(), 0, "echo");
    let begin = Instant::now();
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 1, 100)), Sent::Taken);
    await_echo(&mut queue, begin, 1);
    process.kill();
    until("the end is reported", || {
        queue.begin(now(begin));
        receive(&mut queue, |_| {});
        one.take_ended() == 1 << 1
    });
    assert_eq!(one.members().len(), 1);
}

/// A daemon closes all its descriptors, whatever they are, and opens files of its own.
#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files_and_spins_nowhere() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let mut process = Process::start(scratch.path(), 0, "close");
    let begin = Instant::now();
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 0, 100)), Sent::Taken);
    until("its end is reported", || {
        queue.begin(now(begin));
        receive(&mut queue, |_| {});
        one.take_ended() == 1 << 1
    });
    let status = process.child.wait().unwrap();
    assert!(status.success(), "{status}");
}
