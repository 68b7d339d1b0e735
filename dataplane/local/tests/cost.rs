//! Measurements: `cargo test -p uroce-local --test cost -- --ignored --nocapture`.

mod common;

use common::*;
use std::hint::black_box;
use std::time::Instant;
use uroce_local::Sent;

/// The time of a turn without traffic, by number of linked members. Best of 20, as other programs
/// may run.
#[test]
#[ignore = "it measures, and judges nothing"]
fn idle_turns() {
    const TURNS: u32 = 100_000;
    for peers in [1, 2, 8, 32, 63] {
        let scratch = Scratch::new();
        let begin = Instant::now();
        let one = join(scratch.path());
        let mut queue = one.queue(0).unwrap();
        let others: Vec<_> = (0..peers).map(|_| join(scratch.path())).collect();
        let mut ends: Vec<_> = others.iter().map(|other| other.queue(0).unwrap()).collect();
        for (other, end) in others.iter().zip(&mut ends) {
            let greeting = frame(other.number(), 1, 0, 0, 100);
            assert_eq!(send_surely(end, begin, &greeting), Sent::Taken);
        }
        let mut came = 0;
        until("all greetings", || {
            came += receive(&mut queue, |_| {});
            came == peers
        });
        let time = now(begin);
        let once = |queue: &mut uroce_local::Queue| {
            let from = Instant::now();
            for _ in 0..TURNS {
                queue.begin(time);
                black_box(queue.receive(32, |_| true));
                queue.flush();
            }
            from.elapsed().as_nanos() as f64 / f64::from(TURNS)
        };
        let best = (0..20).map(|_| once(&mut queue)).fold(f64::MAX, f64::min);
        println!("{peers:3} members: {best:6.1} ns a turn");
    }
}
