//! Lcores driven by the application's polling threads. One process per test.

use crate::lab::{Lab, LabConfig, QpWish, TestQp, eventually, pattern};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uroce_engine::{Arm, CompletionChannel, Driver, Engine, IdlePolicy, Poller, Turn};
use uroce_transport::{AccessFlags, Cqe, SendOp, WcStatus};

const ALL: AccessFlags = AccessFlags::all();

fn lab(lcores: usize, idle: IdlePolicy) -> Lab {
    Lab::new(&LabConfig { lcores, idle, driver: Driver::Poller, ..LabConfig::default() })
}

fn poller(engine: &Engine, qp: &TestQp) -> Poller {
    engine.poller(&qp.cq).expect("pollers drive")
}

/// Polls as the verbs do: a poll that finds nothing runs a turn.
fn poll(qp: &TestQp, poller: &Poller) -> Option<Cqe> {
    qp.cq.poll().expect("no overrun").or_else(|| {
        poller.turn();
        qp.cq.poll().expect("no overrun")
    })
}

/// Returns the nanoseconds for which the lcores' own threads have run.
fn lcores_ran() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let ran = tasks.filter_map(|task| {
        let path = task.expect("an entry").path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let ran = stat.split(' ').next()?.parse::<u64>().ok()?;
        name.starts_with("uroce-lcore").then_some(ran)
    });
    ran.sum()
}

#[test]
fn a_poster_that_never_polls_is_served() {
    for idle in [IdlePolicy::Poll, IdlePolicy::Yield, IdlePolicy::Sleep] {
        let mut lab = lab(1, idle);
        let (mut a, b) = lab.connect(&QpWish::default());
        let local = lab.a.register(a.pd, 1 << 16, ALL);
        let remote = lab.b.register(b.pd, 1 << 16, ALL);
        local.fill(3);
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(1, op, &[local.sge(0, 1 << 16)]);
        // Polls the queue without a turn.
        assert_eq!(a.completion().status, WcStatus::Success);
        assert_eq!(remote.bytes(), pattern(3, 1 << 16));
        drop((local, remote));
        lab.finish();
    }
}

#[test]
fn threads_that_poll_drive_and_the_lcores_own_step_back() {
    let mut lab = lab(1, IdlePolicy::Yield);
    let (mut a, b) = lab.connect(&QpWish::default());
    let pollers = [poller(&lab.a.engine, &a), poller(&lab.b.engine, &b)];
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    let begin = Instant::now();
    let mut ran = (0, 0);
    for wr_id in 1.. {
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(wr_id, op, &[local.sge(0, 64)]);
        let deadline = Instant::now() + Duration::from_secs(20);
        while poll(&a, &pollers[0]).is_none() {
            assert!(Instant::now() < deadline, "no completion");
            assert_eq!(poll(&b, &pollers[1]), None);
        }
        match begin.elapsed().as_millis() {
            // It takes a moment until the lcores' threads step back.
            0..100 => ran.0 = lcores_ran(),
            100..600 => ran.1 = lcores_ran(),
            _ => break,
        }
    }
    let ran = Duration::from_nanos(ran.1 - ran.0);
    assert!(ran < Duration::from_millis(150), "the lcores' threads ran {ran:?} of 500 ms");
    drop((pollers, local, remote));
    lab.finish();
}

#[test]
fn when_polling_ends_the_lcores_thread_takes_over() {
    let mut lab = lab(1, IdlePolicy::Sleep);
    let (mut a, b) = lab.connect(&QpWish::default());
    let pollers = [poller(&lab.a.engine, &a), poller(&lab.b.engine, &b)];
    let local = lab.a.register(a.pd, 1 << 16, ALL);
    let remote = lab.b.register(b.pd, 1 << 16, ALL);
    for round in 1..=5 {
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            assert_eq!(poll(&a, &pollers[0]), None);
            assert_eq!(poll(&b, &pollers[1]), None);
        }
        // From now on neither application thread polls.
        remote.fill(round);
        let op = SendOp::Read { va: remote.va(), rkey: remote.keys.rkey };
        a.send(round, op, &[local.sge(0, 1 << 16)]);
        let begin = Instant::now();
        assert_eq!(a.completion().status, WcStatus::Success);
        let time = begin.elapsed();
        assert!(time < Duration::from_secs(2), "{time:?}");
        assert_eq!(local.bytes(), pattern(round, 1 << 16));
    }
    drop((pollers, local, remote));
    lab.finish();
}

#[test]
fn many_threads_poll_queues_of_two_lcores_and_come_and_go() {
    const WRITES: u64 = 2000;
    let mut lab = lab(2, IdlePolicy::Yield);
    let wish = |lcore| QpWish { lcores: [Some(lcore), Some(1 - lcore)], ..QpWish::default() };
    let mut pairs = [lab.connect(&wish(0)), lab.connect(&wish(1))];
    let regions =
        [lab.a.register(pairs[0].0.pd, 256, ALL), lab.a.register(pairs[1].0.pd, 256, ALL)];
    let remotes =
        [lab.b.register(pairs[0].1.pd, 256, ALL), lab.b.register(pairs[1].1.pd, 256, ALL)];
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    let posting = AtomicBool::new(true);
    let cqs = [&pairs[0].0.cq, &pairs[1].0.cq].map(std::sync::Arc::clone);
    let pollers = cqs.each_ref().map(|cq| lab.a.engine.poller(cq).expect("pollers drive"));
    std::thread::scope(|scope| {
        let (done, posting, cqs, pollers) = (&done, &posting, &cqs, &pollers);
        for which in [0, 1, 0] {
            scope.spawn(move || {
                while posting.load(Ordering::Relaxed) {
                    // Each thread lives for some polls, and ends without notice.
                    let life = move || {
                        for _ in 0..500 {
                            while cqs[which].poll().expect("no overrun").is_some() {
                                done[which].fetch_add(1, Ordering::Relaxed);
                            }
                            pollers[which].turn();
                        }
                    };
                    scope.spawn(life).join().expect("no panic");
                }
            });
        }
        for number in 0..WRITES {
            for (which, (a, _)) in pairs.iter_mut().enumerate() {
                // At most the capacity of the completion queue.
                let taken = || done[which].load(Ordering::Relaxed);
                eventually("completions", || number < taken() + 64);
                let (va, rkey) = (remotes[which].va(), remotes[which].keys.rkey);
                let op = SendOp::Write { va, rkey, imm: None };
                a.send_when_room(number, op, &[regions[which].sge(0, 256)]);
            }
        }
        eventually("all completions", || {
            done.iter().all(|done| done.load(Ordering::Relaxed) == WRITES)
        });
        posting.store(false, Ordering::Relaxed);
    });
    drop((regions, remotes));
    lab.finish();
}

#[test]
fn a_thread_that_asks_for_an_event_and_sleeps_gets_it() {
    let mut lab = lab(1, IdlePolicy::Sleep);
    let (mut a, b) = lab.connect(&QpWish::default());
    let channel = CompletionChannel::new(4).expect("a channel");
    let cq = lab.a.engine.create_cq(16, Some(&channel)).expect("CQ");
    let poller = lab.a.engine.poller(&cq).expect("pollers drive");
    // No QP completes to the queue yet, so no lcore is driven.
    assert_eq!(poller.turn(), Turn::Idle);
    cq.arm(Arm::Next);
    poller.leave();
    drop(poller);
    let poller = self::poller(&lab.a.engine, &a);
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    for wr_id in 1..=20 {
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(wr_id, op, &[local.sge(0, 64)]);
        poller.turn();
        a.cq.arm(Arm::Next);
        poller.leave();
        assert_eq!(a.completion().wr_id, wr_id);
    }
    drop((poller, cq, local, remote));
    lab.finish();
}

#[test]
fn a_poller_outlives_the_engine() {
    let mut lab = lab(1, IdlePolicy::Sleep);
    let (a, _b) = lab.connect(&QpWish::default());
    let (poller, cq) = (poller(&lab.a.engine, &a), std::sync::Arc::clone(&a.cq));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                poller.turn();
                assert_eq!(cq.poll(), Ok(None));
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        lab.finish();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(poller.turn(), Turn::Idle);
}

#[test]
fn an_adopted_lcore_is_its_adopters_alone() {
    let mut lab = lab(1, IdlePolicy::Sleep);
    let (a, _b) = lab.connect(&QpWish::default());
    let poller = poller(&lab.a.engine, &a);
    let mut guard = lab.a.engine.adopt(0).expect("free");
    let before = lab.a.engine.heartbeat(0);
    for _ in 0..1000 {
        poller.turn();
    }
    assert_eq!(lab.a.engine.heartbeat(0), before);
    guard.turn();
    assert_ne!(lab.a.engine.heartbeat(0), before);
    drop(guard);
    eventually("its turns by polling", || {
        let before = lab.a.engine.heartbeat(0);
        poller.turn();
        lab.a.engine.heartbeat(0) != before
    });
    drop(poller);
    lab.finish();
}

#[test]
fn where_lcores_drive_polls_do_not() {
    let mut lab = Lab::new(&LabConfig::default());
    let (a, _b) = lab.connect(&QpWish::default());
    assert!(lab.a.engine.poller(&a.cq).is_none());
    lab.finish();
}
