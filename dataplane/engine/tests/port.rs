//! Ports over virtual devices: no root, no hugepages, no NIC.

use std::time::{Duration, Instant};
use uroce_engine::eal::{Eal, EalConfig};
use uroce_engine::mbuf::{BATCH, MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;

fn eal() -> &'static Eal {
    Eal::init(&EalConfig::default()).expect("EAL starts without privileges")
}

fn pool(eal: &'static Eal, count: u32, room: u16) -> Mempool {
    let config = PoolConfig { name: "test".into(), count, cache: 64, room };
    Mempool::create(eal, &config).expect("the default memory suffices")
}

#[test]
fn a_million_frames_cross_a_ring_pair_in_order_and_no_mbuf_leaks() {
    const FRAMES: u64 = 1_000_000;
    let eal = eal();
    let pool = pool(eal, 4095, 2048);
    let (a, b) = ring_pair(eal, "pair", 1, 512, 1500, &pool).expect("rings");
    let mut tx = a.queue_pair(0).expect("free");
    let mut rx = b.queue_pair(0).expect("free");
    let sender = std::thread::spawn({
        let pool = pool.clone();
        move || {
            let _registered = eal.register_thread().expect("an lcore number is free");
            let mut batch = MbufBatch::new();
            let mut next = 0u64;
            while next < FRAMES || !batch.is_empty() {
                let want = (FRAMES - next).min(batch.room() as u64) as usize;
                let had = batch.len();
                if pool.alloc_burst(&mut batch, want).is_ok() {
                    for mbuf in &mut batch.as_mut_slice()[had..] {
                        mbuf.set_len(64).expect("fits");
                        mbuf.as_mut_slice()[..8].copy_from_slice(&next.to_le_bytes());
                        next += 1;
                    }
                }
                if tx.tx_burst(&mut batch) == 0 {
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut batch = MbufBatch::new();
    let mut expected = 0u64;
    let deadline = Instant::now() + Duration::from_secs(60);
    while expected < FRAMES && Instant::now() < deadline {
        if rx.rx_burst(&mut batch) == 0 {
            std::thread::yield_now();
        }
        for mbuf in batch.drain() {
            assert_eq!(mbuf.len(), 64);
            assert_eq!(mbuf.as_slice()[..8], expected.to_le_bytes());
            expected += 1;
        }
    }
    sender.join().expect("sender");
    assert_eq!(expected, FRAMES);
    assert_eq!(pool.available(), pool.count());
}
