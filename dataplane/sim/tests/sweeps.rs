//! Every packet, and every pair of packets, of 21 scenarios is lost once, without any effect.

use core::time::Duration;

use uroce_sim::{Pair, Scenario, Swept, Terms};
use uroce_transport::{SendOp, WcStatus};
use uroce_wire::{ImmDt, Placement, Psn};

/// The ends.
const A: usize = 0;
const B: usize = 1;

/// Path MTU of the scenarios.
const MTU: u32 = 256;

const fn scenario(name: &'static str, script: fn(&mut Pair)) -> Scenario {
    Scenario { name, terms: |_| (), script }
}

const SCENARIOS: [Scenario; 21] = [
    scenario("a WRITE of one packet", |pair| {
        pair.write(A, 10);
    }),
    scenario("a WRITE of forty packets", |pair| {
        pair.write(A, 40 * MTU - 3);
    }),
    scenario("twenty WRITEs", |pair| (0..20).for_each(|at| write_to(pair, A, 300 * at, at))),
    scenario("a SEND of seven packets", |pair| {
        receives(pair, B, 1, 2048);
        pair.send(A, 6 * MTU + 1);
    }),
    scenario("ten SENDs with and without immediate", |pair| {
        receives(pair, B, 10, 400);
        for at in 0..5 {
            pair.send(A, 300 + at);
            pair.send_imm(A, at, at);
        }
    }),
    scenario("WRITEs with immediate", |pair| {
        receives(pair, B, 4, 0);
        for at in 0..4 {
            pair.write_imm(A, 700, at);
        }
    }),
    scenario("a READ of one packet", |pair| {
        pair.read(A, 9);
    }),
    scenario("a READ of thirty packets", |pair| {
        pair.read(A, 30 * MTU);
    }),
    scenario("seven READs of three packets", |pair| {
        (0..7).for_each(|at| read_to(pair, A, 700, at))
    }),
    scenario("twenty FETCH_ADDs", |pair| (0..20).for_each(|at| add_to(pair, A, 1 << at, at))),
    scenario("a chain of CMP_SWAPs", |pair| {
        let word = pair.word(B);
        (0..16).for_each(|at| {
            let expected = if at == 0 { word } else { u64::from(at) };
            swap_to(pair, A, expected, u64::from(at) + 1, at);
        });
    }),
    scenario("all operations in a row, three times", |pair| {
        receives(pair, B, 6, 600);
        for round in 0..3 {
            pair.send(A, 500);
            write_to(pair, A, 4096, 10 + round);
            read_to(pair, A, 600, round);
            add_to(pair, A, 5, 20 + round);
            pair.write_imm(A, 300, round);
        }
    }),
    scenario("both ways at once", |pair| {
        for end in [A, B] {
            receives(pair, end, 3, 600);
            pair.send(end, 500);
            add_to(pair, end, 9, 50);
            pair.write_imm(end, 900, 5);
            write_to(pair, end, 4096, 3);
            read_to(pair, end, 600, 0);
            pair.send(end, 20);
        }
    }),
    Scenario {
        name: "all operations over the wrap of the PSN",
        terms: |terms| {
            terms.half[A].sq_psn = Psn::new(0xff_fffc);
            terms.half[B].sq_psn = Psn::new(0xff_fffe);
        },
        script: |pair| {
            receives(pair, B, 1, 600);
            read_to(pair, A, 600, 0);
            pair.send(A, 500);
            add_to(pair, A, 5, 9);
            read_to(pair, A, 900, 1);
            write_to(pair, A, 5000, 1);
            pair.write(B, 1500);
            read_to(pair, B, 700, 1);
        },
    },
    scenario("SENDs before their receives", |pair| {
        pair.send(A, 300);
        pair.send(A, 600);
        for at in 0..2 {
            pair.run_for(Duration::from_micros(300));
            receives_from(pair, B, at, 1, 700);
        }
    }),
    scenario("a WRITE with immediate before its receive", |pair| {
        pair.write_imm(A, 700, 77);
        write_to(pair, A, 1500, 3);
        pair.run_for(Duration::from_micros(200));
        receives(pair, B, 1, 0);
    }),
    scenario("scattered SENDs of odd lengths", |pair| {
        let (from, to) = (pair.local(A), pair.local(B));
        let inbox = pair.inbox();
        for at in 0..4_u32 {
            let start = inbox + 1000 * at;
            pair.post_recv(B, &[to.sge(start, 3), to.sge(start + 5, 0), to.sge(start + 9, 800)]);
            let list = [from.sge(1, 257), from.sge(0, 0), from.sge(501, 13), from.sge(9, 300 + at)];
            pair.post(A, SendOp::Send { imm: Some(ImmDt(at)) }, &list);
        }
    }),
    scenario("nothing, in every way", |pair| {
        receives(pair, B, 2, 0);
        pair.send(A, 0);
        pair.write(A, 0);
        pair.read(A, 0);
        pair.write_imm(A, 0, 5);
        pair.read(A, 0);
        pair.write(A, 0);
    }),
    scenario("unsignalled work before signalled work", |pair| {
        receives(pair, B, 4, 300);
        for round in 0..4 {
            let op = pair.write_op(A, 5000 + 900 * round, None);
            pair.post_wr(A, op, &[pair.local(A).sge(7 * round, 600)], false);
            pair.post_wr(A, SendOp::Send { imm: None }, &[pair.local(A).sge(0, 200)], false);
            read_to(pair, A, 600, round);
        }
    }),
    scenario("ATOMIC WRITEs and FLUSHes between all others", |pair| {
        for at in 0..3 {
            write_to(pair, A, 3000 * at, at);
            word_to(pair, A, at);
            pair.flush(A, 4000, Placement::GLOBAL.union(Placement::PERSISTENT));
            read_to(pair, A, 600, at);
            pair.flush(A, 8, Placement::GLOBAL);
            word_to(pair, A, at + 1);
            add_to(pair, A, 5, 20 + at);
        }
    }),
    Scenario {
        name: "READs and ATOMICs one at a time, by a slow node",
        terms: |terms| {
            for half in &mut terms.half {
                (half.max_rd_atomic, half.max_dest_rd_atomic) = (1, 1);
            }
            terms.settings.budget = 1;
        },
        script: |pair| {
            for at in 0..6 {
                read_to(pair, A, 400, at);
                add_to(pair, A, 3, 10 + at);
            }
        },
    },
];

/// Posts receives, each into a buffer of its own.
fn receives(pair: &mut Pair, end: usize, count: u32, len: u32) {
    receives_from(pair, end, 0, count, len);
}

/// Posts receives, each into a buffer of its own, beginning with buffer `first`.
fn receives_from(pair: &mut Pair, end: usize, first: u32, count: u32, len: u32) {
    for at in first..first + count {
        let sge = pair.local(end).sge(pair.inbox() + at * len, len);
        pair.post_recv(end, &[sge]);
    }
}

/// Posts a WRITE of bytes of its own to a place of its own.
fn write_to(pair: &mut Pair, end: usize, offset: u32, at: u32) {
    let op = pair.write_op(end, offset + 8, None);
    pair.post(end, op, &[pair.local(end).sge(at, 290)]);
}

/// Posts a READ into the `at`-th kibibyte of the landing place.
fn read_to(pair: &mut Pair, end: usize, len: u32, at: u32) {
    let from = pair.remote(1 - end);
    let op = SendOp::Read { va: from.va(2048), rkey: from.rkey() };
    let sge = pair.local(end).sge(pair.landing() + 1024 * at, len);
    pair.post(end, op, &[sge]);
}

/// Posts a fetch and add to the first word; its result goes to the `at`-th word after the READs'
/// landing place.
fn add_to(pair: &mut Pair, end: usize, add: u64, at: u32) {
    let word = pair.remote(1 - end);
    let op = SendOp::FetchAdd { va: word.va(0), rkey: word.rkey(), add };
    let sge = pair.local(end).sge(pair.landing() + 3072 + 8 * at, 8);
    pair.post(end, op, &[sge]);
}

/// Posts an ATOMIC WRITE of bytes of its own to the `at`-th word after the first kibibyte.
fn word_to(pair: &mut Pair, end: usize, at: u32) {
    let target = pair.remote(1 - end);
    let op = SendOp::AtomicWrite { va: target.va(1024 + 8 * u64::from(at)), rkey: target.rkey() };
    pair.post(end, op, &[pair.local(end).sge(11 * at, 8)]);
}

fn swap_to(pair: &mut Pair, end: usize, compare: u64, swap: u64, at: u32) {
    let word = pair.remote(1 - end);
    let op = SendOp::CompareSwap { va: word.va(0), rkey: word.rkey(), compare, swap };
    let sge = pair.local(end).sge(pair.landing() + 3072 + 8 * at, 8);
    pair.post(end, op, &[sge]);
}

/// Sweeps these scenarios and prints the numbers of runs and packets.
fn sweep(which: &[Scenario], how: fn(&Scenario) -> Result<Swept, String>) -> Swept {
    let mut sum = Swept::default();
    for scenario in which {
        let swept = how(scenario).unwrap_or_else(|what| panic!("{what}"));
        println!("{}: {} runs, {} packets", scenario.name, swept.runs, swept.packets);
        sum.runs += swept.runs;
        sum.packets += swept.packets;
    }
    println!("together {} runs, {} packets", sum.runs, sum.packets);
    sum
}

#[test]
fn each_scenario_does_something_and_succeeds() {
    for scenario in SCENARIOS {
        let mut pair = Pair::with(|terms: &mut Terms| (scenario.terms)(terms));
        (scenario.script)(&mut pair);
        pair.run();
        let cqes = pair.take(A, uroce_transport::Side::Send);
        assert!(!cqes.is_empty(), "{}", scenario.name);
        assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::Success), "{}", scenario.name);
    }
}

#[test]
fn every_single_packet_of_every_scenario_may_be_lost() {
    assert!(sweep(&SCENARIOS, Scenario::sweep_singles).runs > 500);
}

#[test]
fn every_pair_of_packets_of_the_first_ten_scenarios_may_be_lost() {
    assert!(sweep(&SCENARIOS[..10], Scenario::sweep_pairs).runs > 5000);
}

#[test]
fn every_pair_of_packets_of_the_other_scenarios_may_be_lost() {
    assert!(sweep(&SCENARIOS[10..], Scenario::sweep_pairs).runs > 5000);
}
