//! Measures how many frames per second ports carry, without a protocol above.
//!
//! Run alone, with optimization:
//! `cargo nextest run --release -p uroce-engine --test port_rate --run-ignored all --no-capture`.

mod common;

use common::{Peer, eal, eventually, pool, socket_path};
use std::path::Path;
use std::time::{Duration, Instant};
use uroce_engine::mbuf::{BATCH, MbufBatch, Mempool};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::vdev::{MemifRole, memif};
use uroce_engine::port::{Port, PortConfig, QueuePair};

const TIME: Duration = Duration::from_secs(1);
const LENGTHS: [usize; 3] = [64, 1100, 4200];

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).expect("two CPUs");
}

/// Sends new frames until `done`; writes their bytes if `touch`.
fn flood(
    tx: &mut QueuePair,
    pool: &Mempool,
    len: usize,
    touch: bool,
    mut done: impl FnMut() -> bool,
) {
    let source = vec![0x5a; len];
    let mut batch = MbufBatch::new();
    while !done() {
        let had = batch.len();
        if had <= BATCH / 2 && pool.alloc_burst(&mut batch, BATCH / 2).is_ok() {
            for mbuf in &mut batch.as_mut_slice()[had..] {
                mbuf.set_len(len).expect("fits");
                if touch {
                    mbuf.as_mut_slice().copy_from_slice(&source);
                }
            }
        }
        tx.tx_burst(&mut batch);
    }
}

/// Returns the frames per second that arrive within [`TIME`]; reads their bytes if `touch`.
fn drain(rx: &mut QueuePair, len: usize, touch: bool) -> f64 {
    let mut sink = vec![0; len];
    let mut batch = MbufBatch::new();
    assert!(eventually(|| rx.rx_burst(&mut batch) > 0), "nothing arrives");
    batch.clear();
    let (start, mut count, mut turn) = (Instant::now(), 0, 0u32);
    loop {
        count += rx.rx_burst(&mut batch);
        if touch {
            for mbuf in batch.as_slice() {
                sink.copy_from_slice(mbuf.as_slice());
            }
        }
        batch.clear();
        turn = turn.wrapping_add(1);
        if turn.is_multiple_of(256) && start.elapsed() > TIME {
            std::hint::black_box(&sink);
            return count as f64 / start.elapsed().as_secs_f64();
        }
    }
}

fn report(what: &str, len: usize, touch: bool, rate: f64) {
    let (mpps, gbps) = (rate / 1e6, rate * 8.0 * len as f64 / 1e9);
    let bytes = if touch { "written and read" } else { "untouched" };
    println!("{what:10} {len:5} B  {mpps:8.2} Mpps  {gbps:8.1} Gb/s  bytes {bytes}");
    assert!(rate > 0.0);
}

#[test]
#[ignore = "measures for several seconds on two CPUs"]
fn ring_pair_rate() {
    let eal = eal();
    let _registered = eal.register_thread().expect("an lcore number is free");
    let pool = pool(eal, 4095, 9216);
    pin(0);
    for (len, touch) in LENGTHS.into_iter().flat_map(|len| [(len, false), (len, true)]) {
        let (a, b) = ring_pair(eal, "rate", 1, 256, 9000, &pool).expect("rings");
        let (mut tx, mut rx) = (a.queue_pair(0).expect("free"), b.queue_pair(0).expect("free"));
        let receiver = std::thread::spawn(move || {
            let _registered = eal.register_thread().expect("an lcore number is free");
            pin(1);
            drain(&mut rx, len, touch)
        });
        flood(&mut tx, &pool, len, touch, || receiver.is_finished());
        report("net_ring", len, touch, receiver.join().expect("receiver"));
    }
}

#[test]
#[ignore = "measures for several seconds on two CPUs"]
fn memif_rate() {
    let eal = eal();
    let _registered = eal.register_thread().expect("an lcore number is free");
    let pool = pool(eal, 4095, 9216);
    let open = |role, socket: &Path| {
        let config = PortConfig { mtu: 4200, ..PortConfig::new(memif(0, role, socket, 4200, 512)) };
        Port::open(eal, &config, &pool).expect("memif needs no privilege")
    };
    if let Some(argument) = Peer::argument() {
        let argument = argument.to_string_lossy();
        let (len, socket) = argument.split_once('@').expect("length@socket");
        let port = open(MemifRole::Client, Path::new(socket));
        let mut tx = port.queue_pair(0).expect("free");
        pin(0);
        assert!(eventually(|| port.link().up));
        let mut turn = 0u32;
        flood(&mut tx, &pool, len.parse().expect("a length"), true, || {
            turn = turn.wrapping_add(1);
            turn.is_multiple_of(1 << 16) && !port.link().up
        });
        return;
    }
    for len in LENGTHS {
        let socket = socket_path("rate");
        let port = open(MemifRole::Server, &socket);
        let mut rx = port.queue_pair(0).expect("free");
        let peer = Peer::start("memif_rate", format!("{len}@{}", socket.display()).as_ref());
        pin(1);
        let rate = drain(&mut rx, len, true);
        drop((rx, port));
        peer.join();
        report("memif", len, true, rate);
    }
}
