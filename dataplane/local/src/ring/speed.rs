//! Measurement behind [`RING_MAX`](crate::layout::RING_MAX): `cargo test -p uroce-local --lib
//! ring_lengths -- --ignored --nocapture`. The best of many short runs is what the machine can do
//! while it does nothing else.

use super::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of the memory that frames are read from and written to, as registered memory and mbufs.
const AROUND: usize = 8 << 20;
/// Frames between two publications, as in a lcore's turn.
const BURST: usize = 32;
/// Time of one measurement.
const TIME: Duration = Duration::from_millis(40);

/// Passes frames of `len` bytes through a ring of `ring_len` bytes between two threads. Returns
/// frames per second.
fn rate(ring_len: usize, len: usize) -> f64 {
    let place = Place { tail_at: 0, head_at: LINE, ring_at: 4096, ring_len };
    let (_, memory) = Memory::create(4096 + ring_len).unwrap();
    let memory = Arc::new(memory);
    let mut producer = Producer::new(Arc::clone(&memory), place);
    let mut consumer = Consumer::new(memory, place);
    let begin = Instant::now();
    let count = std::thread::scope(|scope| {
        scope.spawn(move || {
            let source = vec![7u8; AROUND];
            let mut at = 0;
            while begin.elapsed() < TIME {
                for _ in 0..BURST {
                    at = if at + 2 * len > AROUND { 0 } else { at + len };
                    if producer.push(&source[at..at + len]).is_err() {
                        break;
                    }
                }
                if !producer.publish() {
                    std::thread::yield_now();
                }
            }
        });
        let mut target = vec![0u8; AROUND];
        let (mut at, mut count) = (0, 0u64);
        while begin.elapsed() < TIME {
            let before = count;
            for _ in 0..BURST {
                let Ok(Some(slot)) = consumer.next(FRAME_MAX) else { break };
                at = if at + 2 * len > AROUND { 0 } else { at + len };
                consumer.memory().read(slot.at, black_box(&mut target[at..at + slot.len]));
                consumer.pass(slot);
                count += 1;
            }
            consumer.release();
            if count == before {
                std::thread::yield_now();
            }
        }
        count
    });
    count as f64 / begin.elapsed().as_secs_f64()
}

#[test]
#[ignore = "it measures, and judges nothing"]
fn ring_lengths() {
    const LENGTHS: [usize; 3] = [4142, 1102, 78];
    let sizes = [64, 128, 256, 512, 1024, 2048];
    let mut rates = sizes.map(|_| LENGTHS.map(|_| Vec::new()));
    // In turn, so that what else the machine does meets all alike.
    for _ in 0..30 {
        for (kib, rates) in sizes.iter().zip(&mut rates) {
            for (len, rates) in LENGTHS.iter().zip(rates) {
                rates.push(rate(kib << 10, *len));
            }
        }
    }
    println!("frames of {LENGTHS:?} bytes, M/s: best, and best quarter");
    for (kib, rates) in sizes.iter().zip(&mut rates) {
        print!("{kib:6} KiB");
        for rates in rates {
            rates.sort_by(f64::total_cmp);
            let [quarter, best] = [rates[22], rates[29]].map(|rate| rate * 1e-6);
            print!(" {best:8.2} {quarter:8.2}");
        }
        println!();
    }
}
