//! Migration at every packet of a mixed stream, and of both ends at every distance in time.

use core::time::Duration;

use uroce_sim::{Pair, Rails, Step};
use uroce_transport::{AsyncEvent, Cqe, Instant, PathMigState, QpState, Side};

use super::{A, B, TIMEOUT, assert_flawless, migrations};

/// Length of the regions in bytes: enough for the stream, and quick to create.
const REGION: u32 = 1 << 14;

/// Cause for which the path is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The owner of this end requests it.
    Software(usize),
    /// The path loses everything, in both directions or from this end only.
    Cut(Option<usize>),
    /// The ports report that their link is down.
    LinkDown,
}

const WAYS: [Way; 6] = [
    Way::Software(A),
    Way::Software(B),
    Way::Cut(None),
    Way::Cut(Some(A)),
    Way::Cut(Some(B)),
    Way::LinkDown,
];

/// Result of a run at both ends.
#[derive(PartialEq, Debug)]
struct Outcome {
    /// Completions, by end and side.
    completions: [Vec<Cqe>; 4],
    /// Content of the local and the remote region, by end.
    memory: [Vec<u8>; 4],
}

fn begin(rails: Rails) -> Pair {
    let mut pair = Pair::armed(|terms| {
        terms.rails = rails;
        terms.region = REGION;
    });
    pair.world.record_mut().expect("pairs record").clear();
    // SENDs, WRITEs with and without immediate data, READs and ATOMICs, in both directions: 64
    // packets, and some acknowledgements.
    for end in [A, B] {
        for _ in 0..5 {
            pair.recv(1 - end, 1024);
        }
    }
    pair.set_word(A, 5);
    pair.set_word(B, 7);
    pair.send(A, 900);
    pair.read(A, 2300);
    pair.write_far(A, 3000);
    pair.fetch_add(A, 3);
    pair.send(B, 700);
    pair.write_far(B, 1900);
    pair.fetch_add(B, 11);
    pair.send_imm(A, 0, 1);
    pair.compare_swap(A, 10, 4);
    pair.read(B, 1100);
    pair.write_imm(A, 1300, 2);
    pair.read(A, 1400);
    pair.send(A, 1024);
    pair.send_imm(B, 300, 3);
    pair
}

fn end(pair: &mut Pair) -> Outcome {
    pair.run();
    let sides = [(A, Side::Send), (A, Side::Recv), (B, Side::Send), (B, Side::Recv)];
    let completions = sides.map(|(end, side)| pair.take(end, side));
    let regions =
        [(A, pair.local(A)), (A, pair.remote(A)), (B, pair.local(B)), (B, pair.remote(B))];
    let memory = regions.map(|(end, mr)| pair.bytes(end, mr).to_vec());
    Outcome { completions, memory }
}

fn leave(pair: &mut Pair, way: Way) {
    match way {
        Way::Software(end) => pair.migrate(end).expect("an armed QP"),
        Way::Cut(None) => pair.cut(0),
        Way::Cut(Some(from)) => pair.world.cut_rail(from as u16, 1 - from as u16, 0),
        Way::LinkDown => pair.link_down(0),
    }
}

/// Time at which the first response on the second rail was sent.
fn first_answer(pair: &Pair) -> Option<Instant> {
    let answers = [A, B].into_iter().flat_map(|end| pair.responses(end));
    answers.filter(|seen| seen.rail == 1).map(|seen| seen.at).min()
}

fn judge(pair: &mut Pair, way: Way, at: Instant, what: &str) {
    assert_flawless(pair);
    let moved = [A, B].map(|end| migrations(pair, end));
    let is_told =
        |events: &Vec<AsyncEvent>| events.is_empty() || events[..] == [AsyncEvent::PathMig];
    assert!(moved.iter().all(is_told), "{what}: {moved:?}");
    for end in [A, B] {
        assert_eq!(pair.qp(end).state(), QpState::Rts, "{what}");
        let has_moved = pair.path_mig_state(end) == PathMigState::Migrated;
        assert_eq!(has_moved, !moved[end].is_empty(), "{what}");
        assert_eq!(pair.rail(end), usize::from(has_moved), "{what}");
    }
    match way {
        Way::Software(end) => assert_eq!(pair.rail(end), 1, "{what}"),
        Way::LinkDown => assert_eq!((pair.rail(A), pair.rail(B)), (1, 1), "{what}"),
        Way::Cut(_) => {
            let retries = 7;
            let bound = (retries + 2) * TIMEOUT;
            if let Some(answer) = first_answer(pair) {
                assert!(answer.since(at) <= bound, "{what}: after {:?}", answer.since(at));
            }
        }
    }
}

#[test] //= check I10 test
//= check D10 test
fn migrating_at_any_packet_of_a_mixed_stream_loses_and_doubles_nothing() {
    for rails in [Rails::TwoPorts, Rails::OnePort] {
        let mut pair = begin(rails);
        let before = pair.world.packets();
        let clean = end(&mut pair);
        assert_flawless(&mut pair);
        let packets = pair.world.packets() - before;
        assert!(packets >= 64, "{packets}");
        assert_eq!(clean.completions.each_ref().map(Vec::len), [9, 2, 5, 4]);
        let mut moved = 0;
        for way in WAYS {
            for k in 0..=packets {
                let mut pair = begin(rails);
                let first = pair.world.packets();
                while pair.world.packets() < first + k && pair.world.step() != Step::Idle {}
                let at = pair.world.now();
                leave(&mut pair, way);
                let outcome = end(&mut pair);
                let what = format!("{rails:?}, {way:?} at packet {k}");
                judge(&mut pair, way, at, &what);
                assert_eq!(outcome.completions, clean.completions, "{what}");
                assert!(outcome.memory == clean.memory, "{what}: memory differs");
                moved += pair.rail(A) + pair.rail(B);
            }
        }
        assert!(moved as u64 > 6 * packets, "{moved} migrations");
    }
}

#[test] //= check I9 test
fn both_ends_migrate_at_any_distance_and_meet() {
    let clean = end(&mut begin(Rails::TwoPorts));
    for distance in 0..60_u32 {
        for (first, start) in [(A, 0), (B, 0), (A, 17), (B, 17), (A, 40), (B, 40)] {
            let mut pair = begin(Rails::TwoPorts);
            for _ in 0..start {
                pair.world.step();
            }
            pair.migrate(first).expect("an armed QP");
            for _ in 0..distance {
                pair.world.step();
            }
            // The other end may have followed already; then its owner's request is refused.
            let is_armed = pair.path_mig_state(1 - first) == PathMigState::Armed;
            assert_eq!(pair.migrate(1 - first).is_ok(), is_armed);
            let what = format!("{first} first, after {start} steps, then {distance}");
            let outcome = end(&mut pair);
            assert_flawless(&mut pair);
            for end in [A, B] {
                assert_eq!(migrations(&mut pair, end), [AsyncEvent::PathMig], "{what}");
                assert_eq!(pair.rail(end), 1, "{what}");
                assert_eq!(pair.qp(end).migration().count, 1, "{what}");
            }
            assert_eq!(outcome.completions, clean.completions, "{what}");
            assert!(outcome.memory == clean.memory, "{what}: memory differs");
        }
    }
}

#[test] //= check I9 test
fn crossing_migrations_at_any_few_nanoseconds_apart_meet() {
    for apart in (0..6_000).step_by(97) {
        let mut pair = begin(Rails::TwoPorts);
        pair.run_for(Duration::from_nanos(700));
        pair.migrate(A).expect("an armed QP");
        pair.run_for(Duration::from_nanos(apart));
        let _ = pair.migrate(B);
        end(&mut pair);
        assert_flawless(&mut pair);
        let events = [A, B].map(|end| migrations(&mut pair, end));
        assert_eq!(events, [[AsyncEvent::PathMig], [AsyncEvent::PathMig]], "{apart} ns");
    }
}

#[test] //= check I10 test
fn there_and_back_again_while_work_goes_on() {
    let mut pair = Pair::armed(|terms| terms.region = REGION);
    for round in 0..20 {
        for _ in 0..3 {
            pair.write(A, 1000);
            pair.read(B, 500);
        }
        pair.run_for(Duration::from_nanos(300 * round));
        match round % 3 {
            0 => pair.migrate(round as usize % 2).expect("an armed QP"),
            1 => {
                let rail = pair.rail(A);
                pair.cut(rail);
                pair.run();
                pair.mend(rail);
            }
            _ => {
                let rail = pair.rail(A);
                pair.link_down(rail);
                pair.run();
                pair.mend(rail);
            }
        }
        // The end that migrated may be done; the other follows when it receives the next packet.
        pair.write(A, 10);
        pair.write(B, 10);
        pair.run();
        let done = [A, B].map(|end| pair.take(end, Side::Send).len());
        assert_eq!(done, [4, 4], "round {round}");
        let used = [A, B].map(|end| pair.rail(end));
        assert_eq!(used[A], used[B], "round {round}");
        if pair.path_mig_state(A) == PathMigState::Migrated {
            pair.arm();
        }
    }
    assert_flawless(&mut pair);
    let count = pair.qp(A).migration().count;
    assert!(count >= 14, "{count} migrations");
}
