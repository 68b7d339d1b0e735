//! Links that lose packets: every message once, in order, with its number and its length. That it
//! has its bytes too is what the campaign looks at.

use core::time::Duration;

use uroce_sim::{Rates, Rule};
use uroce_transport::{Counter, RdAddress, SendOp, Side, WcStatus};
use uroce_wire::{ImmDt, Psn};

use crate::{A, B, Scene};

#[test] //= check R31 test
fn messages_of_several_rd_qps_arrive_once_and_in_order_by_links_that_lose_packets() {
    for seed in 0..6 {
        let mut scene = Scene::with(|terms| terms.settings.seed = seed);
        let rates = Rates { loss: 0.05, duplicate: 0.05, reorder: 0.05, ..Rates::NONE };
        scene.pair.world.set_rates(0, 1, rates);
        scene.pair.world.set_rates(1, 0, rates);
        let mut expected = Vec::new();
        for round in 0..60 {
            for (at, (from, to)) in scene.here.into_iter().zip(scene.there).enumerate() {
                // Some messages find no receive at first.
                let imm = Some(ImmDt(100 * round + at as u32));
                let op = SendOp::Send { imm };
                let len = 100 * (round % 13) + 1;
                let sge = scene.pair.local(A).sge(0, len);
                let send = scene.pair.post_rd(from, to, op, &[sge]);
                if round % 5 == 4 {
                    scene.pair.run_for(Duration::from_micros(100));
                }
                let recv = scene.pair.rd_recv(to, 2000);
                expected.push((from, send, (recv, imm, len)));
            }
        }
        scene.run();
        assert!(scene.pair.world.faults().lost > 10, "{:?}", scene.pair.world.faults());
        for (from, to) in scene.here.into_iter().zip(scene.there) {
            let mine = expected.iter().filter(|(at, ..)| *at == from);
            let (sends, sent): (Vec<_>, Vec<_>) =
                mine.map(|(_, send, recv)| (*send, *recv)).unzip();
            scene.assert_succeeded(from, Side::Send, &sends);
            let cqes = scene.pair.take_at(to, Side::Recv);
            assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::Success));
            let received: Vec<_> =
                cqes.iter().map(|cqe| (cqe.wr_id, cqe.imm, cqe.byte_len)).collect();
            assert_eq!(received, sent);
        }
    }
}

/// Runs a script of all operations by three RD QPs, both ways, with these packets lost, and returns
/// the completions and the memory, and the number of packets.
fn run(lost: &[u32]) -> (Vec<String>, u64) {
    let mut scene = Scene::with(|terms| {
        terms.region = 1 << 14;
        terms.is_recorded = false;
        // 2.56 ms: few repetitions.
        terms.half[B].min_rnr_timer = 16;
    });
    for nth in lost {
        scene.pair.rule(Rule::drop().nth(*nth));
    }
    let ([a, b, c], [x, y, z]) = (scene.here, scene.there);
    let pair = &mut scene.pair;
    for at in [x, y, a] {
        pair.rd_recv(at, 2000);
    }
    pair.rd_send(a, x, 600);
    pair.rd_write(b, y, 600, Some(7));
    pair.rd_read(c, z, 600);
    pair.rd_fetch_add(a, x, 5);
    pair.rd_compare_swap(b, y, 1, 2);
    pair.rd_send(z, a, 300);
    // No receive yet, and a key that is wrong.
    pair.rd_send(c, z, 300);
    let mut far = pair.remote(B);
    let op =
        SendOp::Write { va: far.va(0), rkey: uroce_wire::Rkey(far.rkey().0 ^ 1 << 20), imm: None };
    far = pair.local(A);
    pair.post_rd(a, y, op, &[far.sge(0, 300)]);
    pair.run_for(Duration::from_millis(20));
    pair.rd_recv(z, 2000);
    pair.rd_write(c, z, 200, None);
    scene.pair.run();
    let flaw = scene.pair.world.take_flaw();
    assert_eq!(flaw, None, "packets {lost:?} lost");
    let mut result = Vec::new();
    for at in scene.here.into_iter().chain(scene.there) {
        for side in [Side::Send, Side::Recv] {
            result.push(format!("{at:?} {side:?} {:?}", scene.pair.take_at(at, side)));
        }
        result.push(format!("{:?} {:?}", scene.pair.state_at(at), scene.pair.take_events_at(at)));
    }
    for end in [A, B] {
        result.push(format!("{:?}", scene.pair.bytes(end, scene.pair.local(end))));
        result.push(format!("{:?}", scene.pair.bytes(end, scene.pair.remote(end))));
        result.push(format!("{:?}", scene.pair.qp(end).state()));
    }
    (result, scene.pair.world.packets())
}

#[test] //= check R32 test
fn with_any_packet_lost_the_result_is_that_without_loss() {
    let (clean, packets) = run(&[]);
    for lost in 1..=packets as u32 {
        let (result, _) = run(&[lost]);
        for (found, expected) in result.iter().zip(&clean) {
            assert_eq!(found, expected, "packet {lost} lost");
        }
    }
}

#[test] //= check R32 test
fn with_any_two_packets_lost_the_result_is_that_without_loss() {
    let (clean, packets) = run(&[]);
    for first in 1..=packets as u32 {
        let (_, packets) = run(&[first]);
        for second in first + 1..=packets as u32 {
            let (result, _) = run(&[first, second]);
            for (found, expected) in result.iter().zip(&clean) {
                assert_eq!(found, expected, "packets {first} and {second} lost");
            }
        }
    }
}

#[test] //= check R37 test
fn psns_go_on_from_one_rd_qp_to_the_next_and_wrap() {
    let mut scene = Scene::with(|terms| terms.half[A].sq_psn = Psn::new(0xff_fffa));
    for (from, to) in scene.here.into_iter().zip(scene.there) {
        scene.pair.rd_recv(to, 2000);
        scene.pair.rd_send(from, to, 1000);
    }
    scene.pair.rule(Rule::drop().from(A).nth(6));
    scene.run();
    let mut psns = scene.pair.sequence(A);
    psns.sort_unstable();
    psns.dedup();
    assert_eq!(psns, (0..12).collect::<Vec<_>>());
    for (from, to) in scene.here.into_iter().zip(scene.there) {
        assert_eq!(scene.done(from, Side::Send).len(), 1);
        assert_eq!(scene.done(to, Side::Recv).len(), 1);
    }
    assert_eq!(scene.pair.count(A, Counter::TransportRetriesExceeded), 0);
}

#[test] //= check R5 test
fn two_eecs_between_many_rd_qps_keep_the_order_of_each() {
    let mut scene = Scene::new();
    let others = scene.pair.another();
    let rates = Rates { loss: 0.02, ..Rates::NONE };
    scene.pair.world.set_rates(0, 1, rates);
    scene.pair.world.set_rates(1, 0, rates);
    let second = scene.pair.world.qp(others[A]).qpn();
    let mut expected = vec![Vec::new(); 3];
    for round in 0..40_u32 {
        for (at, from) in scene.here.into_iter().enumerate() {
            let to = scene.there[(at + round as usize) % 3];
            scene.pair.rd_recv(to, 2000);
            let mut address = scene.pair.rd_address(A, to);
            if (round + at as u32).is_multiple_of(3) {
                address = RdAddress { eecn: second, ..address };
            }
            let op = SendOp::Send { imm: Some(ImmDt(round)) };
            let sge = scene.pair.local(A).sge(0, 10 * round + 300);
            expected[at].push(scene.pair.post_rd_as(from, &address, op, &[sge], |_| ()));
        }
    }
    scene.run();
    for (at, sends) in scene.here.into_iter().zip(&expected) {
        scene.assert_succeeded(at, Side::Send, sends);
    }
    // Messages of one RD QP to one other come in their order, by whichever EEC.
    for to in scene.there {
        let cqes = scene.pair.take_at(to, Side::Recv);
        assert_eq!(cqes.len(), 40);
        for from in scene.here {
            let qpn = scene.pair.world.qp(from).qpn();
            let mine = cqes.iter().filter(|cqe| cqe.src_qpn == qpn);
            let numbers: Vec<_> = mine.map(|cqe| (cqe.imm.unwrap().0, cqe.byte_len)).collect();
            assert!(numbers.is_sorted(), "{numbers:?}");
            assert!(numbers.iter().all(|(round, len)| *len == 10 * round + 300), "{numbers:?}");
        }
    }
    let _ = B;
}
