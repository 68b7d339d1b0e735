//! Two threads change one QP: some order of their calls always explains the results.

use crate::lab;
use crate::lab::{Lab, LabConfig, Node, QpWish};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use uroce_transport::{QpChange, QpState};
use uroce_wire::Qpn;

/// A call. Each change has exactly the attributes of the transition in its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    ToInit,
    InitToRtr,
    RtrToRts,
    SqdToRts,
    ToSqd,
    ToErr,
    ToReset,
    /// Reads the state that the lcore has published, without a call to the control plane.
    Look,
}

const CHANGES: [Call; 7] = [
    Call::ToInit,
    Call::InitToRtr,
    Call::RtrToRts,
    Call::SqdToRts,
    Call::ToSqd,
    Call::ToErr,
    Call::ToReset,
];

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Changed,
    Refused,
    Saw(QpState),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    call: Call,
    outcome: Outcome,
    begin: u64,
    end: u64,
}

/// The state model, independently of the core: the effect of a call on a QP without work requests.
fn model(state: QpState, call: Call) -> (QpState, Outcome) {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd};
    let to = match (call, state) {
        (Call::Look, _) => return (state, Outcome::Saw(state)),
        (Call::ToReset, _) => Reset,
        (Call::ToErr, _) => Err,
        (Call::ToInit, Reset | Init) => Init,
        (Call::InitToRtr, Init) => Rtr,
        (Call::RtrToRts, Rtr) => Rts,
        // Without attributes this change is allowed in RTS and in SQD.
        (Call::SqdToRts, Sqd | Rts) => Rts,
        (Call::ToSqd, Rts | Sqd) => Sqd,
        _ => return (state, Outcome::Refused),
    };
    (to, Outcome::Changed)
}

/// Returns whether there is an order of the calls, each somewhere between its begin and its end, in
/// which the model gives the same results.
fn is_linearizable([a, b]: [&[Record]; 2]) -> bool {
    // How many calls of each thread have been placed, and the resulting state.
    let mut front = vec![(0, 0, QpState::Reset)];
    for _ in 0..a.len() + b.len() {
        let mut next = Vec::with_capacity(front.len() * 2);
        for (i, j, state) in front {
            // A call may come next unless the other thread's has ended before it began.
            let before = |one: Option<&Record>, other: Option<&Record>| {
                let one = *one?;
                other.is_none_or(|other| other.end > one.begin).then_some(one)
            };
            let step = |record: Record| {
                let (state, outcome) = model(state, record.call);
                (outcome == record.outcome).then_some(state)
            };
            next.extend(before(a.get(i), b.get(j)).and_then(step).map(|to| (i + 1, j, to)));
            next.extend(before(b.get(j), a.get(i)).and_then(step).map(|to| (i, j + 1, to)));
        }
        next.sort_unstable_by_key(|&(i, j, state)| (i, j, state as u8));
        next.dedup();
        front = next;
    }
    !front.is_empty()
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Shared {
    node: Mutex<Node>,
    qpn: Qpn,
    changes: [QpChange; 3],
    clock: AtomicU64,
}

impl Shared {
    fn change(&self, call: Call) -> QpChange {
        let [init, rtr, rts] = self.changes;
        match call {
            Call::ToInit => init,
            Call::InitToRtr => rtr,
            Call::RtrToRts => rts,
            Call::SqdToRts => QpChange::to(QpState::Rts),
            Call::ToSqd => QpChange::to(QpState::Sqd),
            Call::ToErr => QpChange::to(QpState::Err),
            Call::ToReset | Call::Look => QpChange::to(QpState::Reset),
        }
    }

    /// Makes `count` calls and records their results.
    fn run(&self, count: usize, mut seed: u64, look: impl Fn() -> QpState) -> Vec<Record> {
        let mut state = QpState::Reset;
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            let choice = random(&mut seed) as usize;
            // Most calls are legal unless the other thread was quicker.
            let legal = |call: &&Call| model(state, **call).1 == Outcome::Changed;
            let legal: Vec<_> = CHANGES.iter().filter(legal).copied().collect();
            let call = match choice % 16 {
                0..=2 => Call::Look,
                3 => CHANGES[choice / 16 % CHANGES.len()],
                _ => legal[choice / 16 % legal.len()],
            };
            let begin = self.clock.fetch_add(1, Ordering::SeqCst);
            let outcome = match call {
                Call::Look => Outcome::Saw(look()),
                call => {
                    let change = self.change(call);
                    let mut node = self.node.lock().expect("no thread panics with it");
                    match node.control.modify_qp(self.qpn, &change) {
                        Ok(()) => Outcome::Changed,
                        Err(_) => Outcome::Refused,
                    }
                }
            };
            let end = self.clock.fetch_add(1, Ordering::SeqCst);
            state = match outcome {
                Outcome::Saw(seen) => seen,
                Outcome::Changed => model(state, call).0,
                Outcome::Refused => look(),
            };
            records.push(Record { call, outcome, begin, end });
        }
        records
    }
}

/// Two threads make `count` calls each for a new QP of one lcore.
fn two_threads(lab: Lab, count: usize, seed: u64) -> Lab {
    let Lab { mut a, b, pool } = lab;
    let wish = QpWish::default();
    let qp = a.create_qp(&wish);
    let changes = lab::changes(&a.addresses, &b.addresses, Qpn::new(2), &wish);
    let (qpn, sq, rq) = (qp.qpn, qp.sq, qp.rq);
    let shared = Shared { node: Mutex::new(a), qpn, changes, clock: AtomicU64::new(0) };
    let [first, second] = std::thread::scope(|scope| {
        let shared = &shared;
        let first = scope.spawn(move || shared.run(count, seed, || sq.state()));
        let second = scope.spawn(move || shared.run(count, !seed, || rq.state()));
        [first, second].map(|thread| thread.join().expect("no panic"))
    });
    let all = first.iter().chain(&second);
    let refused = all.clone().filter(|record| record.outcome == Outcome::Refused).count();
    assert!(refused * 2 < 2 * count, "most are legal");
    assert!(is_linearizable([&first, &second]), "no order explains what the threads saw");
    let a = shared.node.into_inner().expect("no thread has panicked");
    Lab { a, b, pool }
}

#[test] //= check H10 test
fn some_order_explains_a_million_changes_by_two_threads() {
    let mut lab = Lab::new(&LabConfig::default());
    // First the lcore's own thread turns; then the thread that waits turns, which is quicker here.
    for seed in 0..4 {
        lab = two_threads(lab, 5_000, seed);
    }
    let engine = lab.a.engine.clone();
    let adopted = engine.adopt(0).expect("lcore 0");
    for seed in 0..48 {
        lab = two_threads(lab, 10_000, seed);
    }
    drop(adopted);
    lab.finish();
}

#[test]
fn a_history_that_no_order_explains_is_noticed() {
    let at = |call, outcome, begin, end| Record { call, outcome, begin, end };
    let init = at(Call::ToInit, Outcome::Changed, 0, 3);
    let saw = |state, begin, end| at(Call::Look, Outcome::Saw(state), begin, end);
    // While a change is under way both states may be seen, afterwards one, and never the former
    // again.
    let fine = [saw(QpState::Reset, 1, 2), saw(QpState::Init, 4, 5)];
    assert!(is_linearizable([&[init], &fine]));
    assert!(!is_linearizable([&[init], &[saw(QpState::Reset, 4, 5)]]));
    let back = [saw(QpState::Init, 1, 2), saw(QpState::Reset, 4, 5)];
    assert!(!is_linearizable([&[at(Call::ToInit, Outcome::Changed, 0, 9)], &back]));
    let twice = at(Call::InitToRtr, Outcome::Changed, 4, 5);
    assert!(!is_linearizable([&[init, twice], &[at(Call::InitToRtr, Outcome::Changed, 6, 7)]]));
}
