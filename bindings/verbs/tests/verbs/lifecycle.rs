//! Opening, closing, dropping in any order, and lcores that the application drives.

use crate::common;
use std::time::{Duration, Instant};

use crate::common::{Setup, Side, connected, join, post};
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{
    AccessFlags, AdoptError, Config, ConnectOptions, Context, OpenError, QpInit, QpState, SendWr,
    Turn,
};

fn open(config: &Config, name: &str) -> OpenError {
    Context::open(config, name).expect_err("cannot be opened")
}

#[test]
fn a_device_that_cannot_be_opened_names_the_reason_and_leaves_nothing() {
    let config = Setup::default().config();
    assert!(matches!(open(&config, "middle"), OpenError::Config(_)));
    assert_eq!(
        open(&config, "middle").to_string(),
        "no device of the configuration is named \"middle\""
    );

    let port = PortConfig::vdev("net_nonesuch0").ip("192.0.2.9/24").unwrap();
    let broken = Config::new().device(DeviceConfig::new("a").port(port));
    let error = open(&broken, "a");
    assert!(matches!(error, OpenError::Port { port: 1, .. }), "{error}");
    assert!(error.to_string().contains("net_nonesuch0"), "{error}");

    let greedy = PortConfig { mbufs: Some((1 << 20) - 1), ..PortConfig::ring("big").mtu(9000) };
    let greedy = Config::new().device(DeviceConfig::new("a").port(greedy));
    assert!(matches!(open(&greedy, "a"), OpenError::Pool { port: 1, .. }));

    let lcores = uroce::config::Lcores::Cpus(vec![1023]);
    let far = DeviceConfig::new("a").lcores(lcores).port(PortConfig::ring("far"));
    let error = open(&Config::new().device(far), "a");
    assert!(matches!(error, OpenError::Engine(_)), "{error}");

    let mut other_eal = config.clone();
    other_eal.eal.memory_mb = Some(256);
    assert!(matches!(open(&other_eal, "left"), OpenError::Eal(_)));
    // After all these errors a valid configuration still works.
    let (left, _right) = Setup::default().contexts();
    assert_eq!(left.name(), "left");
}

#[test]
fn a_ring_has_two_ends_that_must_agree() {
    let mut config = Setup::default().config();
    config.devices.push(DeviceConfig::new("third").port(PortConfig::ring("link").mtu(4200)));
    let left = Context::open(&config, "left").unwrap();
    let mut differs = config.clone();
    differs.devices[1].ports[0].mtu = 1500;
    let error = open(&differs, "right").to_string();
    assert!(error.contains("has 1 lcores and MTU 4200"), "{error}");
    let right = Context::open(&config, "right").unwrap();
    let error = open(&config, "third").to_string();
    assert_eq!(error, "port 1: both ends of ring \"link\" are taken");
    drop(right);
    assert!(open(&config, "right").to_string().contains("taken"), "its other end is still open");
    drop(left);
    let (left, right) = Setup::default().contexts();
    assert_eq!((left.name(), right.name()), ("left", "right"));
}

#[test]
fn a_device_can_be_opened_and_closed_many_times() {
    for _ in 0..10 {
        let (mut left, right) = connected();
        let slice = left.memory.slice(..64).unwrap();
        post(&mut left.qp, SendWr::write(&[slice], right.memory.remote()));
        left.done();
    }
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    let (left, right) = connected();
    let Side { context, pd, cq, mut qp, memory } = left;
    let slice = [memory.slice(..64).unwrap()];
    post(&mut qp, SendWr::write(&slice, right.memory.remote()));
    drop((context, pd, cq));
    let deadline = Instant::now() + common::SOON;
    while right.counter("rx_write_requests") == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    drop(qp);
    drop(right);
    assert_eq!(memory.load_u8(0), Ok(0), "the memory is the last to go, and the device with it");
}

#[test]
fn a_qp_is_destroyed_with_its_last_part() {
    let mut config = Setup::default().config();
    config.devices[0].max_qps = 1;
    let context = Context::open(&config, "left").unwrap();
    let (pd, cq) = (context.allocate_pd(), context.create_cq(4).unwrap());
    let create = || pd.create_qp(&QpInit::new(&cq));
    let (control, sq, rq) = create().unwrap().into_parts();
    drop((control, sq));
    assert!(create().is_err());
    drop(rq);
    assert!(create().is_ok());
}

#[test]
fn an_adopted_lcore_moves_by_turns() {
    let (mut left, right) = connected();
    let slice = [left.memory.slice(..4096).unwrap()];
    let mut guard = left.context.adopt_lcore(0).unwrap();
    assert!(matches!(left.context.adopt_lcore(0), Err(AdoptError::Adopted(0))));
    assert!(matches!(left.context.adopt_lcore(7), Err(AdoptError::NoSuchLcore(7))));
    let deadline = Instant::now() + common::SOON;
    for id in 0..1000 {
        post(&mut left.qp, SendWr::write(&slice, right.memory.remote()).id(id));
        let completion = loop {
            assert_ne!(guard.turn(), Turn::Stopped);
            if let Some(completion) = left.cq.poll_one().unwrap() {
                break completion;
            }
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        };
        assert_eq!((completion.ok(), completion.wr_id), (Ok(()), id));
    }
    drop(guard);
    post(&mut left.qp, SendWr::write(&slice, right.memory.remote()));
    left.done();
}

#[test]
fn a_thread_that_has_adopted_all_lcores_can_still_make_requests() {
    let (left, right) = Setup::default().contexts();
    let _guards = (left.adopt_lcore(0).unwrap(), right.adopt_lcore(0).unwrap());
    let begin = Instant::now();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    join(&mut left, &mut right, &ConnectOptions::default());
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Rts);
    let slice = left.memory.slice(..64).unwrap();
    post(&mut left.qp, SendWr::write(&[slice], right.memory.remote()));
    left.done();
    drop(left.pd.allocate(64, AccessFlags::all()).unwrap());
    drop((left.qp, right.qp));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn requests_of_many_threads_are_all_served() {
    let (left, right) = Setup::default().contexts();
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..5 {
                    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
                    join(&mut left, &mut right, &ConnectOptions::default());
                    let slice = left.memory.slice(..5000).unwrap();
                    post(&mut left.qp, SendWr::write(&[slice], right.memory.remote()));
                    left.done();
                }
            });
        }
    });
}

#[test]
fn the_callers_cpus_and_name_stay_as_they_are() {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let (_left, _right) = Setup::default().contexts();
    let after = rustix::thread::sched_getaffinity(None).unwrap();
    let cpus = |set: &rustix::thread::CpuSet| {
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
    };
    assert_eq!(cpus(&before), cpus(&after));
}

/// The threads of this process: their names and one field of their status.
fn threads(field: &str) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status"));
    let all = tasks.filter_map(|task| status(task.ok()?).ok()).map(|status| {
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.expect("the kernel tells it").trim().to_owned()
        };
        (value("Name:"), value(field))
    });
    all.filter(|(name, _)| name.starts_with("uroce-")).collect()
}

#[test]
fn our_threads_leave_signals_to_the_application() {
    let (left, right) = Setup::default().contexts();
    // A control-plane thread that answers has started.
    for context in [&left, &right] {
        context.counters().unwrap();
    }
    let blocked = threads("SigBlk:");
    assert_eq!(blocked.len(), 5, "two lcores, two control planes, one socket: {blocked:?}");
    for (name, mask) in blocked {
        let mask = u64::from_str_radix(&mask, 16).unwrap();
        // Bits of SIGINT and SIGTERM.
        assert_eq!(mask & (1 << 1 | 1 << 14), 1 << 1 | 1 << 14, "{name}");
    }
}

#[test]
fn the_control_plane_keeps_off_the_lcores_cpus() {
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu));
    let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else {
        eprintln!("skipped: one CPU leaves no choice");
        return;
    };
    let mut config = Setup::default().config();
    for device in &mut config.devices {
        device.lcores = uroce::config::Lcores::Cpus(vec![first]);
        device.idle = uroce::config::Idle::Sleep;
    }
    let left = Context::open(&config, "left").unwrap();
    left.counters().unwrap();
    let allowed = threads("Cpus_allowed_list:");
    let of = |name: &str| allowed.iter().find(|(n, _)| n == name).map(|(_, cpus)| cpus.clone());
    assert_eq!(of("uroce-lcore-0"), Some(first.to_string()));
    assert_eq!(of("uroce-control"), Some(second.to_string()));
}

#[test]
fn every_counter_has_a_name_of_its_own() {
    let (left, _right) = Setup::default().contexts();
    let counters = left.counters().unwrap();
    let names: std::collections::BTreeSet<_> = counters.iter().map(|count| count.name).collect();
    assert_eq!(names.len(), counters.len());
    assert!(counters.iter().all(|count| count.description.ends_with('.')));
}

#[test]
fn handles_go_to_any_thread_and_queues_to_one() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<(Context, uroce::ProtectionDomain, uroce::MemoryRegion, uroce::QpControl)>();
    shared::<(uroce::CompletionQueue, uroce::CompletionChannel)>();
    sent::<(uroce::QueuePair, uroce::SendQueue, uroce::RecvQueue)>();
    let (left, _right) = connected();
    let memory = std::thread::spawn(move || {
        drop(left.qp);
        left.memory
    });
    assert_eq!(memory.join().unwrap().len(), Side::MEMORY);
}
