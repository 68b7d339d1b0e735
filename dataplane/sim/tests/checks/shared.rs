//! Changes while requests are in progress: memory is deregistered, other programs add to a word,
//! posted lists are changed, a completion queue overflows.

use uroce_sim::{At, Pair, Rates, Step};
use uroce_transport::{AsyncEvent, QpState, SendOp, Side, WcStatus};
use uroce_wire::{NakCode, OpCode};

use crate::scene::*;

/// Runs a message step by step, and deregisters its memory before step `before`.
fn deregister_before(before: u32, post: fn(&mut Pair) -> u64, is_far: bool) -> WcStatus {
    let mut pair = Pair::with(|terms| terms.settings.budget = 1);
    pair.recv(B, 2048);
    let wr_id = post(&mut pair);
    for _ in 0..before {
        pair.world.step();
    }
    let mr = if is_far { pair.remote(B) } else { pair.local(B) };
    pair.world.node_mut(B as u16).memory.deregister(mr);
    let bytes = pair.bytes(B, mr).to_vec();
    let answers = pair.responses(B).len();
    pair.run();
    assert_eq!(pair.bytes(B, mr), bytes, "written after step {before}");
    let data = pair.responses(B).into_iter().skip(answers);
    assert_eq!(data.map(|seen| seen.payload.len()).sum::<usize>(), 0, "read after step {before}");
    let done = statuses(&mut pair, A, Side::Send);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].0, wr_id);
    if done[0].1 != WcStatus::Success {
        assert_eq!(naks(&pair, B).len(), 1);
        assert_eq!(pair.qp(B).state(), QpState::Err);
    }
    done[0].1
}

#[test] //= check F6 test
fn memory_deregistered_at_any_step_is_not_touched_again() {
    type Post = fn(&mut Pair) -> u64;
    let cases: [(Post, bool, WcStatus); 4] = [
        (|pair| pair.write(A, 2048), true, WcStatus::RemAccessErr),
        (|pair| pair.read(A, 2048), true, WcStatus::RemAccessErr),
        (|pair| pair.fetch_add(A, 1), true, WcStatus::RemAccessErr),
        (|pair| pair.send(A, 2048), false, WcStatus::RemOpErr),
    ];
    for (post, is_far, refusal) in cases {
        let ends: Vec<WcStatus> =
            (0..60).map(|before| deregister_before(before, post, is_far)).collect();
        // Deregistered early it is refused; from some step on it is done before.
        let is_refused = |status: &WcStatus| *status == refusal;
        let refused = ends.iter().take_while(|status| is_refused(status)).count();
        assert!(refused > 0, "{ends:?}");
        assert!(ends[refused..].iter().all(|status| *status == WcStatus::Success), "{ends:?}");
        assert!(refused < ends.len(), "{ends:?}");
    }
}

#[test] //= check D8 test
fn sixteen_connections_that_lose_packets_add_to_one_word_exactly() {
    const ADDS: u64 = 40;
    let mut pair = Pair::rts();
    pair.set_word(B, 0);
    let mut ats: Vec<At> = vec![pair.at(A)];
    ats.extend((1..16).map(|_| pair.another()[0]));
    let rates = Rates { loss: 0.02, duplicate: 0.02, ..Rates::NONE };
    pair.world.set_rates(A as u16, B as u16, rates);
    pair.world.set_rates(B as u16, A as u16, rates);
    let word = pair.remote(B);
    for _ in 0..ADDS {
        for at in &ats {
            let op = SendOp::FetchAdd { va: word.va(0), rkey: word.rkey(), add: 1 };
            let (wr, sge) = (pair.send_wr(op), pair.local(A).sge(0, 8));
            pair.world.post_send(*at, &wr, &[sge]).unwrap();
        }
    }
    pair.run();
    assert!(pair.world.faults().lost > 20, "{:?}", pair.world.faults());
    for at in ats {
        let cqes = pair.take_at(at, Side::Send);
        assert_eq!(cqes.len() as u64, ADDS);
        assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::Success));
    }
    assert_eq!(pair.word(B), 16 * ADDS);
}

#[test] //= check D9 test
fn what_the_cpu_adds_between_the_peers_adds_is_not_lost() {
    let mut pair = Pair::rts();
    pair.set_word(B, 0);
    for _ in 0..200 {
        pair.fetch_add(A, 1);
    }
    let mut by_cpu = 0;
    while pair.world.step() != Step::Idle {
        pair.set_word(B, pair.word(B) + 1_000_000);
        by_cpu += 1_000_000;
    }
    assert_eq!(pair.word(B), by_cpu + 200);
    // Each answer is the value of the word at its time: they differ, and they increase.
    let originals: Vec<u64> =
        pair.responses(B).iter().map(|seen| seen.ext.atomic_ack.original).collect();
    assert!(originals.is_sorted_by(|first, second| first < second));
}

#[test] //= check F15 test
fn a_list_changed_after_the_post_changes_nothing() {
    let mut pair = Pair::rts();
    let mut gather = [pair.local(A).sge(100, 300), pair.local(A).sge(1000, 300)];
    let mut scatter = [pair.local(B).sge(0, 500), pair.local(B).sge(5000, 500)];
    pair.world.set_full_rate(1.0); // nothing is sent yet
    let recv = pair.post_recv(B, &scatter);
    let send = pair.post(A, SendOp::Send { imm: None }, &gather);
    for sge in gather.iter_mut().chain(&mut scatter) {
        (sge.va.0, sge.len, sge.lkey.0) = (0, u32::MAX, 0);
    }
    pair.world.set_full_rate(0.0);
    pair.run();
    let from = pair.bytes(A, pair.local(A));
    let sent = [&from[100..400], &from[1000..1300]].concat();
    let to = pair.bytes(B, pair.local(B));
    assert_eq!([&to[..500], &to[5000..5100]].concat(), sent);
    assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
    assert_all_succeeded(&mut pair, B, Side::Recv, &[recv]);
}

#[test] //= check G6 test
fn a_qp_whose_completion_queue_is_overrun_fails_alone_and_says_so() {
    let mut pair = Pair::rts();
    let [other, _] = pair.another();
    let recv = pair.recv(B, 10);
    pair.world.fail(pair.at(B)); // as the environment does then
    assert_eq!(pair.take_events(B), [AsyncEvent::QpFatal]);
    assert_eq!(statuses(&mut pair, B, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY);
    pair.deliver(A, &packet);
    assert_counted(&pair, B, &[("resp_cqe_flush_error", 1), ("rx_qp_not_ready", 1)]);
    let (wr, sge) = (pair.send_wr(pair.write_op(A, 0, None)), pair.local(A).sge(0, 10));
    pair.world.post_send(other, &wr, &[sge]).unwrap();
    pair.run();
    assert_eq!(pair.take_at(other, Side::Send)[0].status, WcStatus::Success);
    assert_eq!(naks(&pair, B), [] as [(NakCode, uroce_wire::Psn); 0]);
}
