//! Checks D: ATOMIC operations.

use uroce_sim::{Pair, Rule};
use uroce_transport::{AccessFlags, Pd, QpState, SendOp, Side, WcStatus};
use uroce_wire::{NakCode, OpCode};

use crate::scene::*;

#[test] //= check D1 test
fn after_a_lost_answer_fetch_add_gives_the_first_value_again_and_adds_once() {
    let mut pair = Pair::rts();
    pair.set_word(B, 1000);
    pair.rule(Rule::drop().from(B).nth(1));
    pair.fetch_add(A, 7);
    pair.run();
    assert_eq!(pair.sequence(A), [0, 0]);
    assert_eq!((pair.word(B), pair.landed_word(A)), (1007, 1000));
    let counted = [("local_ack_timeout_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
    assert_counted(&pair, B, &[("rx_atomic_requests", 1), ("duplicate_request", 1)]);
    assert_eq!(only_success(&mut pair, A, Side::Send).byte_len, 8);
}

#[test] //= check D2 test
fn after_a_lost_answer_compare_swap_swaps_once_whatever_others_did() {
    let mut pair = Pair::rts();
    pair.set_word(B, 5);
    pair.rule(Rule::drop().from(B).nth(1));
    pair.compare_swap(A, 5, 6);
    pair.run_for(SHORTLY);
    assert_eq!(pair.word(B), 6);
    pair.set_word(B, 5); // another program sets it back
    pair.run();
    assert_eq!((pair.word(B), pair.landed_word(A)), (5, 5));
    assert_counted(&pair, B, &[("rx_atomic_requests", 1), ("duplicate_request", 1)]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check D2 test
fn compare_swap_leaves_a_word_alone_that_differs() {
    let mut pair = Pair::rts();
    pair.set_word(B, 9);
    pair.compare_swap(A, 5, 6);
    pair.run();
    assert_eq!((pair.word(B), pair.landed_word(A)), (9, 9));
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check D3 test
fn a_repeated_atomic_with_other_operands_gets_the_stored_result() {
    let mut pair = Pair::rts();
    pair.set_word(B, 100);
    let first = pair.craft(A, OpCode::RC_FETCH_ADD).ext(|ext| ext.atomic.swap_add = 1);
    pair.deliver(A, &first);
    let other = pair.craft(A, OpCode::RC_FETCH_ADD).ext(|ext| ext.atomic.swap_add = 50);
    pair.deliver(A, &other);
    let swap = pair.craft(A, OpCode::RC_COMPARE_SWAP).ext(|ext| ext.atomic.compare = 101);
    pair.deliver(A, &swap);
    let values: Vec<u64> =
        pair.responses(B).iter().map(|seen| seen.ext.atomic_ack.original).collect();
    assert_eq!(values, [100, 100, 100]);
    assert_eq!(pair.word(B), 101);
    assert_counted(&pair, B, &[("rx_atomic_requests", 1), ("duplicate_request", 2)]);
}

#[test] //= check D4 test
fn a_repeated_atomic_that_is_too_old_is_dropped() {
    let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 2);
    pair.set_word(B, 0);
    for index in 0..3 {
        let psn = pair.psn(A, index);
        let add = pair.craft(A, OpCode::RC_FETCH_ADD).psn(psn);
        pair.deliver(A, &add.ext(|ext| ext.atomic.swap_add = 1));
    }
    let oldest = pair.craft(A, OpCode::RC_FETCH_ADD);
    pair.deliver(A, &oldest);
    assert_eq!(pair.responses(B).len(), 3);
    let counted = [("rx_atomic_requests", 3), ("duplicate_request", 1), ("rx_old_read", 1)];
    assert_counted(&pair, B, &counted);
    assert_eq!(pair.word(B), 3);
}

#[test] //= check D5 test
fn duplicates_of_every_request_in_depth_get_their_own_result() {
    for depth in [1, 2, 4, 8, 16] {
        let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = depth);
        pair.set_word(B, 0);
        let add = |pair: &Pair, index: u32| {
            let psn = pair.psn(A, index);
            let add = pair.craft(A, OpCode::RC_FETCH_ADD).psn(psn);
            add.ext(|ext| ext.atomic.swap_add = 1)
        };
        for newest in 0..40_u32 {
            let request = add(&pair, newest);
            pair.deliver(A, &request);
            for back in 0..u32::from(depth).min(newest + 1) {
                let again = add(&pair, newest - back);
                pair.deliver(A, &again);
                let answer = pair.responses(B).pop().unwrap();
                assert_eq!(answer.ext.atomic_ack.original, u64::from(newest - back));
            }
            pair.world.record_mut().unwrap().clear();
        }
        assert_eq!(pair.word(B), 40);
    }
}

#[test] //= check D6 test
fn an_unaligned_atomic_is_an_invalid_request() {
    for offset in 1..8 {
        let mut pair = Pair::rts();
        let mr = pair.remote(B);
        let op = SendOp::FetchAdd { va: mr.va(offset), rkey: mr.rkey(), add: 1 };
        let wr_id = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
        pair.run();
        assert_refused(&pair, NakCode::InvalidRequest);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemInvReqErr)]);
        assert!(pair.is_untouched_from(B, 0));
    }
}

#[test] //= check D7 test
fn an_atomic_needs_the_right_of_the_qp_and_of_the_region() {
    let mut pair =
        Pair::with(|terms| terms.half[B].access = AccessFlags::all() - AccessFlags::REMOTE_ATOMIC);
    pair.fetch_add(A, 1);
    pair.run();
    assert_refused(&pair, NakCode::InvalidRequest);
    assert!(pair.is_untouched_from(B, 0));

    let mut pair = Pair::rts();
    let rights = AccessFlags::all() - AccessFlags::REMOTE_ATOMIC;
    let memory = &mut pair.world.node_mut(1).memory;
    let mr = memory.register(Pd(1), rights, 0x8000, 5, vec![0; 8]);
    let op = SendOp::FetchAdd { va: mr.va(0), rkey: mr.rkey(), add: 1 };
    let wr_id = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
    pair.run();
    assert_refused(&pair, NakCode::RemoteAccessError);
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemAccessErr)]);
    assert_eq!(pair.bytes(B, mr), [0; 8]);
    assert_eq!(pair.qp(A).state(), QpState::Err);
}
