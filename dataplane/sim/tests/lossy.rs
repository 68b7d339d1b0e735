//! Goodput on lossy links, on the virtual clock: exact, and the same in each run of a seed.

use core::time::Duration;

use uroce_sim::{Pair, Rates, Step};
use uroce_transport::{QpCaps, WcStatus};
use uroce_wire::PathMtu;

/// Length of one WRITE in bytes.
const MESSAGE: u32 = 65_536;

/// A link and the time for which it is measured.
#[derive(Clone, Copy)]
struct Line {
    round_trip: Duration,
    time: Duration,
    /// WRITEs outstanding at once.
    depth: u32,
}

/// A link between machines of one rack.
const NEAR: Line =
    Line { round_trip: Duration::from_micros(10), time: Duration::from_millis(60), depth: 256 };

/// A link between regions.
const FAR: Line =
    Line { round_trip: Duration::from_millis(1), time: Duration::from_millis(300), depth: 1024 };

/// The peer of a connection.
#[derive(Clone, Copy, PartialEq)]
enum Peer {
    /// Any RC end: recovery is go-back-N.
    Any,
    /// One of ours: selective repeat.
    Own,
}

/// Goodput in Gb/s of WRITEs from one end over a link of 100 Gb/s that loses each frame, in either
/// direction, with probability `loss`.
fn goodput(line: Line, peer: Peer, loss: f64, seed: u64) -> f64 {
    let mut pair = Pair::with(|terms| {
        terms.mtu = PathMtu::B4096;
        terms.caps = QpCaps { max_send_wr: line.depth, ..terms.caps };
        terms.is_recorded = false;
        terms.selective_repeat = peer == Peer::Own;
        terms.settings.seed = seed;
        terms.settings.latency = line.round_trip / 2;
        // The usual timeout, 67 ms.
        terms.half.iter_mut().for_each(|half| half.timeout = 14);
    });
    let rates = Rates { loss, ..Rates::NONE };
    pair.world.set_rates(0, 1, rates);
    pair.world.set_rates(1, 0, rates);
    for _ in 0..line.depth {
        pair.write(0, MESSAGE);
    }
    let mut done = 0_u64;
    let mut completed = Vec::new();
    while pair.world.now().as_nanos() < line.time.as_nanos() as u64 {
        assert_eq!(pair.world.step(), Step::Done);
        pair.world.take_completions(&mut completed);
        for completed in completed.drain(..) {
            assert_eq!(completed.cqe.status, WcStatus::Success);
            done += 1;
            pair.write(0, MESSAGE);
        }
    }
    (done * u64::from(MESSAGE) * 8) as f64 / line.time.as_nanos() as f64
}

/// Median goodput of three seeds as a share of that without loss.
fn share(line: Line, peer: Peer, loss: f64) -> f64 {
    let whole = goodput(line, peer, 0.0, 1);
    let mut shares = [1, 2, 3].map(|seed| goodput(line, peer, loss, seed) / whole);
    shares.sort_by(f64::total_cmp);
    println!("{loss}: {shares:.4?} of {whole:.1} Gb/s");
    shares[1]
}

#[test] //= check A24 test
fn any_peer_recovers_in_round_trips() {
    for (loss, least) in [(1e-4, 0.993), (1e-3, 0.95), (1e-2, 0.60), (5e-2, 0.0)] {
        assert!(share(NEAR, Peer::Any, loss) >= least, "{loss}");
    }
}

#[test] //= check A25 test
fn an_own_peer_gets_only_what_it_lacks() {
    for (loss, least) in [(1e-4, 0.999), (1e-3, 0.995), (1e-2, 0.97), (5e-2, 0.85)] {
        assert!(share(NEAR, Peer::Own, loss) >= least, "{loss}");
    }
}

#[test] //= check A25 test
fn an_own_peer_in_another_region_gets_only_what_it_lacks() {
    assert!(share(FAR, Peer::Own, 1e-3) >= 0.97);
}
