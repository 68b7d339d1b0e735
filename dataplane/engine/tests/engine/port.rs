//! Ports over virtual devices: no root, no hugepages, no NIC. One process per test.

use crate::common;
use crate::common::{LONG, Peer, eal, eventually, memif_port, pool, read_frame, send, socket_path};
use std::time::{Duration, Instant};
use uroce_engine::eal::{Eal, EalConfig, EalError, Memory, explained};
use uroce_engine::mbuf::{BATCH, Mbuf, MbufBatch, Mempool, PoolConfig, PoolEmpty, PoolError};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::vdev::MemifRole;
use uroce_engine::port::{FlowControl, Pause, Port, PortConfig, PortError, QueueError};

#[test]
fn a_million_frames_cross_a_ring_pair_in_order_and_no_mbuf_leaks() {
    const FRAMES: u64 = 1_000_000;
    let eal = eal();
    let pool = pool(eal, 4095, 2048);
    let (a, b) = ring_pair(eal, "pair", 1, 512, 1500, &pool).expect("rings");
    let (mut tx, mut rx) = (a.queue_pair(0).expect("free"), b.queue_pair(0).expect("free"));
    let sender = std::thread::spawn({
        let pool = pool.clone();
        move || {
            let _registered = eal.register_thread().expect("an lcore number is free");
            send(&mut tx, &pool, 0, 64, FRAMES, Duration::from_secs(60))
        }
    });
    let (mut batch, mut expected) = (MbufBatch::new(), 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while expected < FRAMES && Instant::now() < deadline {
        if rx.rx_burst(&mut batch) == 0 {
            std::thread::yield_now();
        }
        for mbuf in batch.drain() {
            assert_eq!(mbuf.len(), 64);
            assert_eq!(read_frame(mbuf.as_slice()), expected);
            expected += 1;
        }
    }
    assert_eq!((sender.join().expect("sender"), expected), (FRAMES, FRAMES));
    assert_eq!(pool.available(), pool.count());
    assert_eq!((a.stats().tx_packets, b.stats().rx_packets), (FRAMES, FRAMES));
}

#[test]
fn an_empty_mempool_says_so_and_recovers() {
    let eal = eal();
    let pool = pool(eal, 127, 2048);
    let mut batches = [MbufBatch::new(), MbufBatch::new()];
    assert_eq!(pool.alloc_burst(&mut batches[0], BATCH), Ok(64));
    assert_eq!(pool.alloc_burst(&mut batches[1], BATCH), Err(PoolEmpty), "63 are left");
    assert!(batches[1].is_empty());
    assert_eq!(pool.alloc_burst(&mut batches[1], 63), Ok(63));
    assert_eq!(pool.alloc().err(), Some(PoolEmpty));
    drop(batches[0].pop());
    let mut mbuf = pool.alloc().expect("one came back");
    assert!(mbuf.set_len(2049).is_err());
    mbuf.set_len(2048).expect("the pool's room");
    drop(mbuf);
    drop(batches);
    assert_eq!(pool.available(), pool.count());
}

#[test]
fn mbufs_apart_from_the_memory_of_eal_are_as_many_and_as_large() {
    const ROOM: u16 = 9216;
    let config = PoolConfig { count: 511, cache: 0, room: ROOM, ..PoolConfig::default() };
    let inside = Mempool::create(eal(), &config).expect("EAL's memory suffices");
    let apart = Mempool::create(eal(), &PoolConfig { apart: true, ..config }).expect("memory");
    let all = |pool: &Mempool| -> Vec<Mbuf> { std::iter::from_fn(|| pool.alloc().ok()).collect() };
    let mut mbufs = all(&apart);
    assert_eq!((mbufs.len(), all(&inside).len()), (511, 511));
    for (number, mbuf) in mbufs.iter_mut().enumerate() {
        mbuf.set_len(ROOM.into()).expect("the pool's room");
        mbuf.as_mut_slice().fill(number as u8);
    }
    for (number, mbuf) in mbufs.iter().enumerate() {
        assert!(mbuf.as_slice().iter().all(|&byte| byte == number as u8), "mbuf {number}");
    }
    drop(mbufs);
    assert_eq!((apart.available(), inside.available()), (511, 511));
}

#[test]
fn a_mempool_for_devices_is_none_that_was_apart_from_the_memory_of_eal() {
    let config = PoolConfig { count: 253, cache: 0, room: 2048, ..PoolConfig::default() };
    let buffers = |apart| -> Vec<usize> {
        let config = PoolConfig { apart, ..config.clone() };
        let pool = Mempool::create(eal(), &config).expect("memory");
        let mbufs: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc().ok()).collect();
        let mut buffers: Vec<usize> =
            mbufs.iter().map(|mbuf| mbuf.as_slice().as_ptr().addr()).collect();
        buffers.sort_unstable();
        buffers
    };
    let apart = buffers(true);
    let inside = buffers(false);
    assert!(inside.iter().all(|buffer| apart.binary_search(buffer).is_err()));
    assert_eq!((buffers(true), buffers(false)), (apart, inside), "each is used again");
}

#[test]
fn mempools_apart_from_the_memory_of_eal_have_no_more_than_that_together() {
    // Each mempool takes 157 MB; EAL has 512 MB.
    let config = PoolConfig { count: 16_383, cache: 0, apart: true, ..PoolConfig::default() };
    let create = || Mempool::create(eal(), &config);
    let mut pools: Vec<Mempool> = (0..3).map(|_| create().expect("a third at most")).collect();
    assert!(matches!(create(), Err(PoolError::NoMemory { count: 16_383, .. })));
    drop(pools.pop());
    assert_eq!(create().expect("one came back").available(), 16_383);
}

#[test]
fn a_full_transmit_ring_keeps_the_tail_in_order() {
    let eal = eal();
    let pool = pool(eal, 511, 2048);
    let (a, b) = ring_pair(eal, "full", 1, 32, 1500, &pool).expect("rings");
    let (mut tx, mut rx) = (a.queue_pair(0).expect("free"), b.queue_pair(0).expect("free"));
    let mut batch = MbufBatch::new();
    pool.alloc_burst(&mut batch, 50).expect("enough");
    for (number, mbuf) in batch.as_mut_slice().iter_mut().enumerate() {
        common::write_frame(mbuf, number as u64, 100);
    }
    assert_eq!(tx.tx_burst(&mut batch), 31, "a ring of 32 holds 31");
    let numbers = |batch: &MbufBatch| -> Vec<u64> {
        batch.as_slice().iter().map(|mbuf| read_frame(mbuf.as_slice())).collect()
    };
    assert_eq!(numbers(&batch), (31..50).collect::<Vec<_>>());
    assert_eq!(tx.tx_burst(&mut batch), 0);
    let mut received = MbufBatch::new();
    assert_eq!(rx.rx_burst(&mut received), 31);
    assert_eq!(tx.tx_burst(&mut batch), 19);
    assert_eq!(rx.rx_burst(&mut received), 19);
    assert_eq!(numbers(&received), (0..50).collect::<Vec<_>>());
    drop(received);
    assert_eq!(pool.available(), pool.count());
}

#[test]
fn frames_left_in_a_ring_are_freed_with_the_ports() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    let (a, b) = ring_pair(eal, "left", 2, 64, 1500, &pool).expect("rings");
    let mut tx = a.queue_pair(1).expect("free");
    assert_eq!(send(&mut tx, &pool, 0, 64, 40, Duration::from_secs(5)), 40);
    assert_eq!(pool.available(), pool.count() - 40);
    drop((a, b));
    assert_eq!(pool.available(), pool.count() - 40, "a queue pair keeps its port");
    drop(tx);
    assert_eq!(pool.available(), pool.count());
    ring_pair(eal, "left", 2, 64, 1500, &pool).expect("the names are free again");
}

#[test]
fn a_queue_pair_has_one_owner() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    let (a, _b) = ring_pair(eal, "owner", 2, 64, 1500, &pool).expect("rings");
    let taken = a.queue_pair(1).expect("free");
    assert_eq!(a.queue_pair(1).err(), Some(QueueError::Taken { index: 1 }));
    assert_eq!(a.queue_pair(2).err(), Some(QueueError::OutOfRange { index: 2, pairs: 2 }));
    drop(taken);
    a.queue_pair(1).expect("given back");
}

#[test]
fn a_port_tells_what_it_is() {
    let eal = eal();
    let pool = pool(eal, 255, 9216);
    let (a, b) = ring_pair(eal, "what", 1, 64, 9000, &pool).expect("rings");
    assert_eq!(a.capabilities().driver, "net_ring");
    assert_eq!((a.mtu(), a.queue_pairs()), (9000, 1));
    assert!(a.link().up);
    assert_ne!(a.mac(), b.mac());
    assert!(!a.mac().is_multicast());
    assert!(a.xstats().iter().any(|(name, _)| name == "rx_good_packets"));
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let eal = eal();
    let small = pool(eal, 255, 1518);
    let too_small = ring_pair(eal, "fit", 1, 64, 1500, &small).err();
    assert!(matches!(too_small, Some(PortError::PoolRoom { room: 1518, needed: 1522 })));
    let pool = pool(eal, 255, 9216);
    let too_long = ring_pair(eal, "fit", 1, 64, 9001, &pool).err();
    assert!(matches!(too_long, Some(PortError::Mtu { asked: 9001, max: 9000, .. })));
    assert!(matches!(ring_pair(eal, "fit", 1, 63, 1500, &pool), Err(PortError::Ring { .. })));
    let huge = PoolConfig { count: 1 << 20, ..PoolConfig::default() };
    let error = Mempool::create(eal, &huge).err();
    assert!(matches!(error, Some(PoolError::NoMemory { .. })), "{error:?}");
}

#[test]
fn a_payload_begins_a_line_where_there_is_room_for_that() {
    let mut mbuf = pool(eal(), 255, 1600).alloc().expect("full");
    let usual = mbuf.headroom();
    for (headers, len, shift) in [(54, 1500, 10), (70, 1500, 58), (64, 1600, 0), (54, 1591, 0)] {
        mbuf.set_len_aligned(headers, len).expect("room");
        assert_eq!((mbuf.len(), mbuf.headroom()), (len, usual + shift));
        let payload = mbuf.as_slice()[headers..].as_ptr();
        assert_eq!(payload.addr().is_multiple_of(64), len != 1591, "{headers} of {len}");
    }
    assert!(mbuf.set_len_aligned(54, 1601).is_err());
    assert_eq!((mbuf.len(), mbuf.headroom()), (0, usual));
}

#[test]
fn a_wrong_device_has_a_named_error() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    let open = |device: &str| Port::open(eal, &PortConfig::new(device), &pool).err();
    for device in ["net_nonesuch0", "0000:01:00.0", ""] {
        let error = open(device);
        assert!(matches!(error, Some(PortError::NoDevice { .. })), "{device:?}: {error:?}");
    }
    let said = open("net_nonesuch0").expect("no driver").to_string();
    let said = explained(&said).expect("a remedy");
    assert!(said.lines().next().is_some_and(|line| line.contains("No driver of this DPDK")));
    let error = open("net_memif0,role=friend");
    assert!(matches!(error, Some(PortError::Memif { .. })), "{error:?}");
    let error = open("net_memif0,role=server,socket-abstract=no,socket=/nonexistent/s");
    assert!(matches!(error, Some(PortError::Memif { .. })), "{error:?}");
}

#[test]
fn an_unknown_argument_is_named_with_those_of_the_driver() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    for (driver, known) in [
        ("net_null", "copy, no-rx, size"),
        ("net_memif", "bsize, id, mac"),
        ("net_tap", "iface, mac, persist"),
        ("net_ring", "internal, nodeaction"),
        ("net_vhost", "client, ext-buffer"),
        ("net_af_packet", "blocksz, fanout_mode"),
    ] {
        let config = PortConfig::new(format!("{driver}_unknown,nosuch=1"));
        let error = Port::open(eal, &config, &pool).expect_err("no such argument");
        let (is_named, said) = (matches!(error, PortError::Argument { .. }), error.to_string());
        let cause = format!("{driver}_unknown: {driver} has no argument \"nosuch\"");
        let remedy = format!("leave it out, or give one of {known}");
        assert!(is_named && said.contains(&cause) && said.contains(&remedy), "{said}");
    }
}

/// net_null has no memory for a frame of no bytes, which it asks for when its queues are made.
#[test]
fn a_driver_that_fails_half_way_is_closed_and_its_error_has_a_remedy() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    let config = PortConfig::new("net_null0,size=0");
    let error = Port::open(eal, &config, &pool).expect_err("no frame is empty");
    assert!(matches!(error, PortError::Step { .. }), "{error:?}");
    let said = explained(&error.to_string()).expect("a remedy");
    let first = said.lines().next().unwrap_or_default();
    assert!(first.starts_with("setting up a receive queue failed: "), "{said}");
    assert!(first.contains(". The driver refuses") && first.contains("fewer lcores"), "{said}");
    Port::open(eal, &PortConfig::new("net_null0"), &pool).expect("nothing is left of it");
}

#[test]
fn flow_control_that_a_driver_lacks_is_refused_with_the_remedy() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    let pause = Some(Pause { rx: true, tx: false });
    for (flow_control, what) in
        [(FlowControl { pause, pfc: 0 }, "`pause`"), (FlowControl { pause: None, pfc: 8 }, "`pfc`")]
    {
        let config = PortConfig { flow_control, ..PortConfig::new("net_null0") };
        let error = Port::open(eal, &config, &pool).expect_err("net_null has none").to_string();
        let said = ["net_null does not take", what, "Leave it out", "ethtool --pause"];
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    }
    // Nothing is left of the attempts.
    Port::open(eal, &PortConfig::new("net_null0"), &pool).expect("net_null");
}

#[test]
fn a_port_is_opened_once_and_again_after_its_end() {
    let eal = eal();
    let pool = pool(eal, 255, 2048);
    let config = PortConfig::new("net_null0,size=64");
    let port = Port::open(eal, &config, &pool).expect("net_null");
    let error = Port::open(eal, &config, &pool).err();
    assert!(matches!(error, Some(PortError::AlreadyOpen { .. })), "{error:?}");
    drop(port);
    Port::open(eal, &config, &pool).expect("net_null again");
}

#[test]
fn a_mempool_without_handles_is_used_again() {
    let eal = eal();
    let first = pool(eal, 8191, 9216);
    let mbuf = first.alloc().expect("full");
    drop(first);
    // The default memory has no room for three of these beside the first.
    for _ in 0..10 {
        assert!(pool(eal, 16383, 9216).alloc().is_ok());
    }
    drop(mbuf);
    assert_eq!(pool(eal, 8191, 9216).available(), 8191);
}

#[test]
fn eal_refuses_another_configuration_and_leaves_the_caller_alone() {
    let before = rustix::thread::sched_getaffinity(None).expect("ours");
    let eal = eal();
    assert!(std::ptr::eq(eal, common::eal()));
    let other = EalConfig { memory: Memory::NoHuge { mb: 64 }, ..EalConfig::default() };
    assert!(matches!(Eal::init(&other), Err(EalError::OtherConfig)));
    assert!(before == rustix::thread::sched_getaffinity(None).expect("ours"));
    assert!(Eal::dpdk_version().starts_with("DPDK "));
}

/// If EAL maps a file on a full file system, the process ends.
#[test]
fn eal_makes_no_files() {
    eal();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
    let mapped = maps.lines().find(|line| line.contains("/dpdk/") && !line.contains(".so"));
    assert_eq!(mapped, None);
    let open = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
    let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let file = open.map(|path| path.display().to_string()).find(|path| path.contains("/dpdk/"));
    assert_eq!(file, None);
}

#[test]
fn an_eal_that_the_program_has_started_is_used() {
    let mut arguments = ["program", "--no-huge", "-m", "64", "--no-pci", "-l", "0", "--no-shconf"]
        .map(|argument| std::ffi::CString::new(argument).expect("no NUL").into_raw())
        .to_vec();
    let count = arguments.len() as i32;
    arguments.push(std::ptr::null_mut());
    // SAFETY: `arguments` are NUL-terminated strings that are never freed, and a null; this is done
    // once in the process.
    let code = unsafe { dpdk_sys::uroce_eal_init(count, arguments.as_mut_ptr()) };
    assert_eq!(code, 0);
    // With the same configuration as before, which is ignored for an EAL of the program's.
    assert_eq!(pool(eal(), 511, 2048).available(), 511);
}

#[test]
fn eal_names_a_nic_that_is_not_there() {
    let config = EalConfig { pci_allow: vec!["ffff:ff:1f.7".into()], ..EalConfig::default() };
    let error = Eal::init(&config).err();
    // On a machine without PCI, DPDK reports the error.
    let expected =
        matches!(&error, Some(EalError::Nic { address, .. }) if address == "ffff:ff:1f.7");
    assert!(expected || !std::path::Path::new("/sys/bus/pci/devices").exists(), "{error:?}");
}

#[test]
fn eal_names_what_is_wrong_with_its_arguments() {
    let with = |args: &[&str]| EalConfig {
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..EalConfig::default()
    };
    let error = Eal::init(&EalConfig { control_cpus: vec![1000], ..EalConfig::default() }).err();
    assert!(matches!(error, Some(EalError::Affinity(_))), "{error:?}");
    let error = Eal::init(&with(&["--nosuch-option"])).err();
    assert!(matches!(error, Some(EalError::Arguments { .. })), "{error:?}");
    let error = Eal::init(&EalConfig::default()).err();
    assert!(matches!(error, Some(EalError::Spent { .. })), "{error:?}");
}

#[test]
fn eal_names_a_wrong_virtual_device() {
    let config = EalConfig { vdevs: vec!["net_nonesuch0".into()], ..EalConfig::default() };
    let error = Eal::init(&config).err();
    assert!(matches!(error, Some(EalError::Device { .. })), "{error:?}");
}

#[test]
fn eal_names_too_little_memory() {
    let config = EalConfig { memory: Memory::NoHuge { mb: 1 << 30 }, ..EalConfig::default() };
    let error = Eal::init(&config).err();
    assert!(matches!(error, Some(EalError::NoMemory { .. })), "{error:?}");
}

#[test]
fn eal_names_a_busy_file_prefix() {
    const NAME: &str = "eal_names_a_busy_file_prefix";
    let prefix = Peer::argument().map_or_else(
        || format!("uroce-test-{}", std::process::id()),
        |argument| argument.to_string_lossy().into_owned(),
    );
    let config = EalConfig { file_prefix: Some(prefix.clone()), ..EalConfig::default() };
    if Peer::argument().is_some() {
        let error = Eal::init(&config).err();
        assert!(matches!(error, Some(EalError::PrefixBusy { .. })), "{error:?}");
        return;
    }
    Eal::init(&config).expect("the prefix is new");
    Peer::start(NAME, prefix.as_ref()).join();
}

#[test]
fn long_frames_cross_memif_between_two_processes_intact() {
    const NAME: &str = "long_frames_cross_memif_between_two_processes_intact";
    const FRAMES: u64 = 20_000;
    let eal = eal();
    let pool = pool(eal, 2047, 9216);
    if let Some(socket) = Peer::argument() {
        let port = memif_port(eal, MemifRole::Client, &socket, &pool);
        let mut queue = port.queue_pair(0).expect("free");
        let sent = send(&mut queue, &pool, 0, LONG, FRAMES, Duration::from_secs(20));
        println!("\nsent {sent}");
        // The parent ends the connection when it has received all.
        assert!(eventually(|| !port.link().up));
        assert_eq!(pool.available(), pool.count());
        return;
    }
    let socket = socket_path("intact");
    let port = memif_port(eal, MemifRole::Server, &socket, &pool);
    let mut queue = port.queue_pair(0).expect("free");
    let mut peer = Peer::start(NAME, &socket);
    let (mut batch, mut expected) = (MbufBatch::new(), 0);
    eventually(|| {
        queue.rx_burst(&mut batch);
        for mbuf in batch.drain() {
            assert_eq!(mbuf.len(), LONG);
            assert_eq!(read_frame(mbuf.as_slice()), expected);
            expected += 1;
        }
        expected == FRAMES
    });
    assert_eq!((peer.line("sent"), expected), (FRAMES.to_string(), FRAMES));
    drop((queue, port));
    peer.join();
    assert_eq!(pool.available(), pool.count());
    assert!(!socket.exists(), "the socket goes with the port");
}

/// The role is in the path's last letter, so that one child serves both tests below.
fn endless_peer(role: MemifRole, socket: &std::path::Path) {
    let eal = eal();
    let pool = pool(eal, 2047, 9216);
    let port = memif_port(eal, role, socket, &pool);
    let mut queue = port.queue_pair(0).expect("free");
    send(&mut queue, &pool, 0, LONG, u64::MAX, Duration::from_secs(60));
}

/// Kills and restarts a sending peer; each time the link goes down and up and frames flow again.
fn survive_killed_peers(test: &str, role: MemifRole) {
    let eal = eal();
    let pool = pool(eal, 2047, 9216);
    let socket = socket_path(test);
    let port = memif_port(eal, role, &socket, &pool);
    let mut queue = port.queue_pair(0).expect("free");
    let mut batch = MbufBatch::new();
    for round in 0..4 {
        assert!(!port.link().up);
        let peer = Peer::start(test, &socket);
        let mut received = 0;
        let mut poll = || {
            let count = queue.rx_burst(&mut batch);
            // The frames are sent back, so that the peer is killed while both processes are inside
            // the driver.
            queue.tx_burst(&mut batch);
            batch.clear();
            count
        };
        assert!(
            eventually(|| {
                received += poll();
                received > 5000 + 1000 * round
            }),
            "round {round}: {received} frames"
        );
        assert!(port.link().up);
        peer.kill();
        assert!(
            eventually(|| {
                poll();
                !port.link().up
            }),
            "round {round}: the link stays up"
        );
    }
    drop((queue, port));
    assert_eq!(pool.available(), pool.count());
    // A killed server leaves its socket behind.
    let _ = std::fs::remove_file(&socket);
}

#[test]
fn a_memif_server_survives_clients_that_are_killed() {
    const NAME: &str = "a_memif_server_survives_clients_that_are_killed";
    match Peer::argument() {
        Some(socket) => endless_peer(MemifRole::Client, &socket),
        None => survive_killed_peers(NAME, MemifRole::Server),
    }
}

#[test]
fn a_memif_client_starts_before_its_server_and_survives_its_death() {
    const NAME: &str = "a_memif_client_starts_before_its_server_and_survives_its_death";
    match Peer::argument() {
        Some(socket) => endless_peer(MemifRole::Server, &socket),
        None => survive_killed_peers(NAME, MemifRole::Client),
    }
}
