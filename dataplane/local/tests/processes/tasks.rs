//! What the processes of the tests do.

use crate::common::*;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uroce_local::{Member, Queue, Sent};

/// Frames of each member that every other one has to receive at the end.
const FINAL: u32 = 50;

/// Sends frames to all numbers and checks all that comes, until told to end.
pub(crate) fn chat(
    member: &Member,
    queue: &mut Queue,
    members: u8,
    is_final: &AtomicBool,
    is_end: &AtomicBool,
) {
    let begin = Instant::now();
    let (own, life) = (member.number(), std::process::id());
    let mut rng = fastrand::Rng::with_seed(u64::from(life));
    let mut sent = [0; 65];
    // The next number by sender and its life. The first one is any: it was sent to this number's
    // member before, if the sender is older.
    let mut next: HashMap<(u8, u32), u32> = HashMap::new();
    let mut final_from = [0; 65];
    let mut is_told = false;
    while !is_end.load(Ordering::Acquire) {
        queue.begin(now(begin));
        let in_final = is_final.load(Ordering::Acquire);
        let got = receive(queue, |told| {
            let expected = next.entry((told.from, told.life)).or_insert(told.number);
            assert_eq!(told.number, *expected, "{own}: from {} in {}", told.from, told.life);
            *expected += 1;
            final_from[usize::from(told.from)] += u32::from(in_final);
        });
        for to in (1..=members).filter(|&to| to != own) {
            let frame = frame(own, to, life, sent[usize::from(to)], rng.usize(SHORTEST..=1500));
            if queue.send(&frame) == Sent::Taken {
                sent[usize::from(to)] += 1;
            }
        }
        queue.flush();
        member.forget(member.take_ended());
        let others = (1..=members).filter(|&to| to != own);
        let has_all = others.clone().all(|from| final_from[usize::from(from)] >= FINAL);
        if in_final && has_all && !is_told && has_given_back(members) {
            println!("\ndone={}", queue.counters().malformed);
            is_told = true;
        }
        if got == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Whether this process has the memory and the descriptors of its links and no more.
fn has_given_back(members: u8) -> bool {
    let links = usize::from(members) - 1;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("memfd:uroce-local")).count();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    // Own: three standard ones, the directory, its locks, the listener, the bell, the board and its
    // eventfd; the test's own. For each link: a socket, a process, an eventfd; and some under way.
    mapped == 1 + 2 * links && descriptors <= 16 + 3 * links
}

/// Sends each frame back to its sender.
pub(crate) fn echo(member: &Member, queue: &mut Queue, is_end: &AtomicBool) {
    let begin = Instant::now();
    let own = member.number();
    let mut came = Vec::new();
    while !is_end.load(Ordering::Acquire) {
        queue.begin(now(begin));
        if receive(queue, |told| came.push(told)) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        for told in came.drain(..) {
            let answer = frame(own, told.from, told.life, told.number, 100);
            while queue.send(&answer) == Sent::Full {
                queue.begin(now(begin));
                queue.flush();
                std::thread::yield_now();
            }
        }
        queue.flush();
    }
}

/// Forks a child that lives on with all descriptors, and echoes.
pub(crate) fn fork_and_echo(member: &Member, queue: &mut Queue, is_end: &AtomicBool) {
    // The links are to be there when the process forks.
    let begin = Instant::now();
    while member.linked() == 0 {
        queue.begin(now(begin));
        receive(queue, |_| {});
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the child calls nothing but `sleep` and `_exit`, which are async-signal-safe.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `sleep` is async-signal-safe.
        unsafe { libc::sleep(60) };
        // SAFETY: `_exit` is async-signal-safe and does not return.
        unsafe { libc::_exit(0) };
    }
    println!("\nforked={child}");
    echo(member, queue, is_end);
}

/// Forks a child that becomes a member of its own and drops what it has of its parent's.
pub(crate) fn fork_and_rejoin(member: Member, queue: Queue, directory: &Path, is_end: &AtomicBool) {
    // SAFETY: the other threads of this process hold no lock that the child needs: they wait for
    // lines and connections.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let own = join(directory);
        drop((queue, member));
        println!("\nrejoined={} {}", own.number(), std::process::id());
        // SAFETY: a call without arguments that matter; the process is killed in it.
        unsafe { libc::sleep(60) };
    }
    while !is_end.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Closes all descriptors and ends with status 0 if its own files then stay as they are.
pub(crate) fn close_all(member: Member, mut queue: Queue) {
    let begin = Instant::now();
    while receive(&mut queue, |_| {}) == 0 {
        queue.begin(now(begin));
    }
    // SAFETY: descriptors of others are closed, as programs do; what owned them is never used again
    // but by the code under test.
    unsafe { libc::close_range(0, 1023, 0) };
    let path = format!("{}/own-{}", std::env::temp_dir().display(), std::process::id());
    // The program's files get the numbers of all that was closed.
    let files: Vec<_> = (0..64).map(|_| std::fs::File::create(&path).unwrap()).collect();
    let _ = std::fs::remove_file(&path);
    let cpu = || std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanos = |text: String| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    // The thread may find out only when it is called.
    queue.send(&frame(2, 60, 0, 0, 100));
    queue.flush();
    std::thread::sleep(Duration::from_millis(50));
    let before = nanos(cpu());
    std::thread::sleep(Duration::from_millis(200));
    let spent = Duration::from_nanos(nanos(cpu()) - before);
    drop((queue, member));
    let is_open = |file: &std::fs::File| file.metadata().is_ok_and(|of| of.len() == 0);
    let is_sound = files.iter().all(is_open) && spent < Duration::from_millis(100);
    std::mem::forget(files);
    std::process::exit(i32::from(!is_sound));
}
