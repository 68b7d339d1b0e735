//! Lcores that sleep: their CPU time, and their wake-ups. One process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, QpWish, TestQp, pattern};
use std::time::{Duration, Instant};
use uroce_engine::{Driver, IdlePolicy, LossConfig};
use uroce_transport::{AccessFlags, SendOp, WcStatus};

const ALL: AccessFlags = AccessFlags::all();
/// Far longer than an lcore polls before it sleeps.
const PAUSE: Duration = Duration::from_millis(3);

fn lab(lcores: usize, driver: Driver) -> Lab {
    Lab::new(&LabConfig { lcores, driver, idle: IdlePolicy::Sleep, ..LabConfig::default() })
}

/// Returns the time for which the lcores' threads have run.
fn lcores_ran() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let ran = tasks.filter_map(|task| {
        let path = task.expect("an entry").path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let ran = stat.split(' ').next()?.parse().ok()?;
        name.starts_with("uroce-lcore").then_some(Duration::from_nanos(ran))
    });
    ran.sum()
}

fn write(remote: &lab::Buffer) -> SendOp {
    SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None }
}

#[test]
fn lcores_without_work_take_no_time() {
    for driver in [Driver::Lcore, Driver::Poller] {
        let mut lab = lab(2, driver);
        let (mut a, b) = lab.connect(&QpWish::default());
        let local = lab.a.register(a.pd, 64, ALL);
        let remote = lab.b.register(b.pd, 64, ALL);
        a.send(1, write(&remote), &[local.sge(0, 64)]);
        assert_eq!(a.completion().status, WcStatus::Success);
        std::thread::sleep(Duration::from_millis(300));
        let before = lcores_ran();
        std::thread::sleep(Duration::from_secs(1));
        let ran = lcores_ran() - before;
        // There are four lcores.
        assert!(ran < Duration::from_millis(20), "{driver:?}: they ran {ran:?} of a second");
        drop((local, remote));
        lab.finish();
    }
}

/// Returns the median time of WRITEs between lcores that sleep on both sides.
fn median_of_writes(lab: &mut Lab, a: &mut TestQp, b: &TestQp) -> Duration {
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    let mut times: Vec<Duration> = (1..=101)
        .map(|round| {
            std::thread::sleep(PAUSE);
            local.fill(round);
            let begin = Instant::now();
            a.send(round, write(&remote), &[local.sge(0, 64)]);
            assert_eq!(a.completion().status, WcStatus::Success);
            assert_eq!(remote.bytes(), pattern(round, 64));
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    drop((local, remote));
    println!("median {:?}, slowest {:?}", times[50], times[100]);
    times[50]
}

#[test]
fn a_post_wakes_the_lcore_and_its_packets_wake_the_peers() {
    for driver in [Driver::Lcore, Driver::Poller] {
        // With [1, 0] each packet arrives at another lcore than its QP's, which must be woken as
        // well.
        for lcores in [[0, 0], [1, 0]] {
            let mut lab = lab(2, driver);
            let lcores = lcores.map(Some);
            let (mut a, b) = lab.connect(&QpWish { lcores, ..QpWish::default() });
            let median = median_of_writes(&mut lab, &mut a, &b);
            // An lcore that is not woken sleeps for 100 ms.
            assert!(median < Duration::from_millis(20), "{driver:?}: {median:?}");
            lab.finish();
        }
    }
}

#[test]
fn an_lcore_without_a_queue_pair_wakes_the_one_that_it_sends_by_and_is_woken_by_it() {
    for driver in [Driver::Lcore, Driver::Poller] {
        let config = LabConfig { lcores: 2, queue_pairs: Some(1), ..LabConfig::default() };
        let mut lab = Lab::new(&LabConfig { driver, idle: IdlePolicy::Sleep, ..config });
        let lcores = [Some(1), Some(1)];
        let (mut a, b) = lab.connect(&QpWish { lcores, ..QpWish::default() });
        let median = median_of_writes(&mut lab, &mut a, &b);
        assert!(median < Duration::from_millis(20), "{driver:?}: {median:?}");
        lab.finish();
    }
}

#[test]
fn a_deadline_ends_the_sleep() {
    let mut lab = lab(1, Driver::Lcore);
    // Timeouts of 4 ms, eight times.
    let (mut a, b) = lab.connect(&QpWish { timeout: 10, retry_cnt: 7, ..QpWish::default() });
    let local = lab.a.register(a.pd, 64, ALL);
    let remote = lab.b.register(b.pd, 64, ALL);
    let loss = LossConfig { rx: 1.0, ..LossConfig::default() };
    lab.b.control.set_loss(1, loss).expect("port 1");
    std::thread::sleep(PAUSE);
    let begin = Instant::now();
    a.send(1, write(&remote), &[local.sge(0, 64)]);
    assert_eq!(a.completion().status, WcStatus::RetryExcErr);
    let time = begin.elapsed();
    assert!(time > Duration::from_millis(20), "{time:?}");
    assert!(time < Duration::from_millis(500), "{time:?}");
    drop((local, remote));
    lab.finish();
}

#[test]
fn commands_and_the_end_reach_an_lcore_that_sleeps() {
    for driver in [Driver::Lcore, Driver::Poller] {
        let mut lab = lab(1, driver);
        let (a, _b) = lab.connect(&QpWish::default());
        let begin = Instant::now();
        for _ in 0..50 {
            std::thread::sleep(PAUSE);
            lab.a.control.query_qp(a.qpn).expect("the QP is there");
        }
        let time = begin.elapsed() - 50 * PAUSE;
        assert!(time < Duration::from_secs(2), "{driver:?}: {time:?}");
        std::thread::sleep(PAUSE);
        let guard = lab.a.engine.adopt(0).expect("free");
        drop(guard);
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        lab.finish();
        assert!(begin.elapsed() < Duration::from_secs(2), "{driver:?}");
    }
}
