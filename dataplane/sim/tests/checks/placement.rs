//! Checks P: ATOMIC WRITE and FLUSH.

use core::time::Duration;

use uroce_sim::{Mr, Pair, Rule, WindowType};
use uroce_transport::{
    AccessFlags, BindMw, Pd, PostError, QpState, QpType, SendOp, Side, WcOpcode, WcStatus,
};
use uroce_wire::{NakCode, OpCode, Placement, Rkey, Selectivity, Va};

use crate::scene::*;

const BOTH: Placement = Placement::GLOBAL.union(Placement::PERSISTENT);

/// Everything that a region of the simulator can grant.
const ALL: AccessFlags = AccessFlags::all().union(AccessFlags::FLUSH_PERSISTENT);

/// A region of B of 64 bytes with these rights.
fn region_of(pair: &mut Pair, access: AccessFlags) -> Mr {
    pair.world.node_mut(1).memory.register(Pd(1), access, 0x8000, 5, vec![0; 64])
}

/// A FLUSH of 8 bytes from `va` on.
fn flush_at(va: Va, rkey: Rkey, placement: Placement) -> SendOp {
    SendOp::Flush { va, rkey, len: 8, placement, selectivity: Selectivity::Range }
}

/// Bytes of B's region that would survive a loss of power.
fn durable(pair: &Pair, len: usize) -> &[u8] {
    &pair.node(B).memory.durable(pair.remote(B))[..len]
}

#[test] //= check P1 test
fn each_is_one_packet_with_the_fields_of_its_request() {
    let mut pair = Pair::with(|terms| terms.is_tapped = true);
    let target = pair.remote(B);
    pair.atomic_write(A);
    pair.flush(A, 100, BOTH);
    pair.run();
    let [write, flush] = &pair.seen(A)[..] else { panic!("{:#?}", pair.trace(20)) };
    assert_eq!(write.bth.opcode, OpCode::RC_ATOMIC_WRITE);
    assert_eq!((write.ext.reth.va, write.ext.reth.rkey), (target.va(0), target.rkey()));
    assert_eq!((write.ext.reth.dma_len, &write.payload[..]), (8, pair.source(A, 8)));
    assert_eq!(flush.bth.opcode, OpCode::RC_FLUSH);
    assert_eq!((flush.ext.reth.va, flush.ext.reth.rkey), (target.va(0), target.rkey()));
    assert_eq!((flush.ext.reth.dma_len, flush.payload.len()), (100, 0));
    assert_eq!(flush.ext.feth.placement, BOTH);
    assert_eq!(flush.ext.feth.selectivity, Selectivity::Range);
    assert_eq!(pair.target(B, 8), pair.source(A, 8));
    assert_eq!(pair.world.take_flaw(), None);
}

#[test] //= check P4 test
fn a_flush_of_a_region_is_sent_without_address_and_length() {
    let mut pair = Pair::with(|terms| terms.is_tapped = true);
    let (va, rkey) = (pair.remote(B).va(8), pair.remote(B).rkey());
    let (placement, selectivity) = (BOTH, Selectivity::Region);
    let op = SendOp::Flush { va, rkey, len: u32::MAX, placement, selectivity };
    let wr_id = pair.post(A, op, &[]);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[wr_id]);
    let [flush] = &pair.seen(A)[..] else { panic!("{:#?}", pair.trace(20)) };
    assert_eq!((flush.ext.reth.va, flush.ext.reth.dma_len), (Va(0), 0));
    assert_eq!(flush.ext.feth.selectivity, Selectivity::Region);
    assert_eq!(pair.world.take_flaw(), None);
}

#[test] //= check P1 test
fn the_eight_bytes_may_be_inline_or_in_pieces() {
    let mut pair = Pair::rts();
    let (va, rkey) = (pair.remote(B).va(16), pair.remote(B).rkey());
    let op = SendOp::AtomicWrite { va, rkey };
    pair.post_inline(A, op, b"inlined!");
    pair.run();
    only_success(&mut pair, A, Side::Send);
    assert_eq!(pair.slice(B, pair.remote(B), 16, 8), b"inlined!");
    let local = pair.local(A);
    let wr_id = pair.post(A, op, &[local.sge(3, 5), local.sge(100, 0), local.sge(40, 3)]);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[wr_id]);
    let pieces = [pair.slice(A, local, 3, 5), pair.slice(A, local, 40, 3)].concat();
    assert_eq!(pair.slice(B, pair.remote(B), 16, 8), pieces);
}

#[test] //= check P2 test
fn both_are_answered_by_a_read_response_without_data() {
    let mut pair = Pair::rts();
    let wr_ids = [pair.atomic_write(A), pair.flush(A, 100, BOTH), pair.write(A, 10)];
    pair.run();
    let answers = pair.responses(B);
    for (index, answer) in answers[..2].iter().enumerate() {
        assert_eq!(answer.bth.opcode, OpCode::RC_RDMA_READ_RESPONSE_ONLY);
        assert_eq!((answer.bth.psn, answer.payload.len()), (pair.psn(A, index as u32), 0));
    }
    assert_eq!(answers[2].bth.opcode, OpCode::RC_ACKNOWLEDGE);
    assert_eq!(answers[2].ext.aeth.msn.value(), 3);
    let cqes = pair.take(A, Side::Send);
    let kinds: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.opcode, cqe.byte_len)).collect();
    let opcodes = [WcOpcode::AtomicWrite, WcOpcode::Flush, WcOpcode::RdmaWrite];
    let expected: Vec<_> = (0..3).map(|at| (wr_ids[at], opcodes[at], 0)).collect();
    assert_eq!(kinds, expected);
    let counted = [("rx_atomic_write_requests", 1), ("rx_flush_requests", 1)];
    assert_counted(&pair, B, &[counted[0], counted[1], ("rx_write_requests", 1)]);
}

#[test] //= check P2 test
fn another_answer_is_an_error() {
    use {OpCode as O, WcStatus as S};
    let wrong = [
        (O::RC_RDMA_READ_RESPONSE_ONLY, 8, S::LocLenErr),
        (O::RC_RDMA_READ_RESPONSE_FIRST, 256, S::BadRespErr),
        (O::RC_RDMA_READ_RESPONSE_LAST, 8, S::BadRespErr),
        (O::RC_ATOMIC_ACKNOWLEDGE, 0, S::BadRespErr),
    ];
    let posts: [fn(&mut Pair) -> u64; 2] =
        [|pair| pair.atomic_write(A), |pair| pair.flush(A, 10, BOTH)];
    for (opcode, len, status) in wrong {
        for post in posts {
            let mut pair = Pair::rts();
            pair.rule(Rule::drop().from(A));
            let wr_id = post(&mut pair);
            let psn = pair.psn(A, 0);
            pair.run_for(SHORTLY);
            let answer = pair.craft(B, opcode).psn(psn).payload(&vec![1; len]);
            pair.deliver(B, &answer);
            assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, status)], "{opcode}");
        }
    }
}

#[test] //= check P2 test
fn an_acknowledgement_completes_neither() {
    let posts: [fn(&mut Pair) -> u64; 2] =
        [|pair| pair.atomic_write(A), |pair| pair.flush(A, 10, BOTH)];
    for post in posts {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A).nth(1));
        let wr_id = post(&mut pair);
        let psn = pair.psn(A, 0);
        pair.run_for(SHORTLY / 10);
        let ack = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn);
        pair.deliver(B, &ack);
        assert_eq!(pair.take(A, Side::Send), []);
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &[wr_id]);
        assert_eq!(pair.sequence(A), [0, 0], "it was taken for a lost response");
    }
}

#[test] //= check P3 test
fn an_atomic_write_of_another_length_is_an_invalid_request() {
    for (dma_len, len) in [
        (4, 4),
        (9, 9),
        (8, 4),
        (8, 9),
        (4, 8),
        (9, 8),
        (0, 0),
        (8, 0),
        (0, 8),
        (16, 16),
        (512, 256),
    ] {
        let mut pair = Pair::rts();
        let packet = pair.craft(A, OpCode::RC_ATOMIC_WRITE).payload(&vec![7; len]);
        pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = dma_len));
        assert_refused(&pair, NakCode::InvalidRequest);
        assert!(pair.is_untouched_from(B, 0), "{dma_len} {len}");
        assert_counted(&pair, B, &[("resp_remote_invalid_requests", 1)]);
    }
}

#[test] //= check P3 test
fn an_atomic_write_to_an_unaligned_address_is_an_invalid_request() {
    for offset in 1..8 {
        let mut pair = Pair::rts();
        let op = SendOp::AtomicWrite { va: pair.remote(B).va(offset), rkey: pair.remote(B).rkey() };
        let wr_id = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
        pair.run();
        assert_refused(&pair, NakCode::InvalidRequest);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemInvReqErr)]);
        assert!(pair.is_untouched_from(B, 0));
    }
}

#[test] //= check P4 test
fn a_flush_of_a_region_uses_neither_address_nor_length() {
    let mut pair = Pair::rts();
    let len = pair.remote(B).len() as usize;
    pair.write(A, 1000);
    pair.run();
    assert_ne!(durable(&pair, 1000), pair.source(A, 1000));
    let first_psn = 4; // after the packets of the WRITE
    let places = [(Va(0), 0), (Va(u64::MAX), u32::MAX), (Va(1), 1 << 31)];
    for (psn, (va, dma_len)) in (first_psn..).zip(places) {
        let flush = pair.craft(A, OpCode::RC_FLUSH).psn(pair.psn(A, psn)).ext(|ext| {
            (ext.reth.va, ext.reth.dma_len) = (va, dma_len);
            (ext.feth.placement, ext.feth.selectivity) = (BOTH, Selectivity::Region);
        });
        pair.deliver(A, &flush);
        let answer = pair.responses(B).pop().expect("an answer");
        assert_eq!(answer.bth.opcode, OpCode::RC_RDMA_READ_RESPONSE_ONLY);
        assert_eq!(durable(&pair, len), pair.target(B, len as u32));
    }
}

#[test] //= check P4 test
fn a_flush_of_a_range_has_at_most_two_to_the_31_bytes() {
    for (dma_len, code) in
        [((1 << 31) + 1, NakCode::InvalidRequest), (1 << 31, NakCode::RemoteAccessError)]
    {
        let mut pair = Pair::rts();
        let flush = pair.craft(A, OpCode::RC_FLUSH);
        pair.deliver(A, &flush.ext(|ext| ext.reth.dma_len = dma_len));
        assert_refused(&pair, code);
    }
}

#[test] //= check P5 test
fn an_atomic_write_needs_the_right_of_the_qp_and_of_the_region() {
    let mut pair = Pair::with(|terms| terms.half[B].access = ALL - AccessFlags::REMOTE_WRITE);
    pair.atomic_write(A);
    pair.run();
    assert_refused(&pair, NakCode::InvalidRequest);
    assert!(pair.is_untouched_from(B, 0));

    // The right to ATOMICs is not needed.
    let mut pair = Pair::with(|terms| terms.half[B].access = AccessFlags::REMOTE_WRITE);
    pair.atomic_write(A);
    pair.run();
    only_success(&mut pair, A, Side::Send);

    let mut pair = Pair::rts();
    let mr = region_of(&mut pair, ALL - AccessFlags::REMOTE_WRITE);
    let op = SendOp::AtomicWrite { va: mr.va(0), rkey: mr.rkey() };
    let wr_id = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
    pair.run();
    assert_refused(&pair, NakCode::RemoteAccessError);
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemAccessErr)]);
    assert_eq!(pair.bytes(B, mr), [0; 64]);
}

#[test] //= check P5 test
fn an_atomic_write_stays_inside_of_its_region_which_is_there() {
    for (offset, gone_from) in [(64, 64), (60, 64), (u64::MAX - 0x8007, 64), (8, 12), (8, 0)] {
        let mut pair = Pair::rts();
        let mr = region_of(&mut pair, ALL);
        pair.world.node_mut(1).memory.take_away(mr, gone_from);
        let va = Va(mr.va(offset).0 & !7);
        let packet = pair.craft(A, OpCode::RC_ATOMIC_WRITE).payload(&[1; 8]);
        pair.deliver(
            A,
            &packet.ext(|ext| {
                (ext.reth.va, ext.reth.rkey, ext.reth.dma_len) = (va, mr.rkey(), 8);
            }),
        );
        let is_inside = va.0 == mr.va(56).0;
        if is_inside {
            assert_eq!(pair.responses(B).len(), 1);
        } else {
            assert_refused(&pair, NakCode::RemoteAccessError);
            assert_eq!(pair.bytes(B, mr), [0; 64]);
        }
    }
}

#[test] //= check P6 test
fn a_flush_needs_the_right_to_its_placement_types() {
    let (global, persistent) = (AccessFlags::FLUSH_GLOBAL, AccessFlags::FLUSH_PERSISTENT);
    for (placement, needed) in [
        (Placement::GLOBAL, global),
        (Placement::PERSISTENT, persistent),
        (BOTH, global.union(persistent)),
    ] {
        for granted in [AccessFlags::empty(), global, persistent, global.union(persistent)] {
            let is_granted = granted.contains(needed);
            let mut pair = Pair::with(|terms| terms.half[B].access = granted);
            pair.flush(A, 10, placement);
            pair.run();
            if is_granted {
                only_success(&mut pair, A, Side::Send);
            } else {
                assert_refused(&pair, NakCode::InvalidRequest);
            }

            let mut pair = Pair::rts();
            let mr = region_of(&mut pair, granted);
            let wr_id = pair.post(A, flush_at(mr.va(8), mr.rkey(), placement), &[]);
            pair.run();
            let status = if is_granted { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, status)]);
            if !is_granted {
                assert_refused(&pair, NakCode::RemoteAccessError);
            }
        }
    }
}

#[test] //= check P6 test
fn reserved_placement_types_and_levels_are_invalid_requests() {
    for code in 0..=0x3f_u8 {
        let mut pair = Pair::rts();
        let (placement, selectivity) = (Placement(code & 0xf), Selectivity::from_code(code >> 4));
        let flush = pair.craft(A, OpCode::RC_FLUSH).ext(|ext| {
            (ext.feth.placement, ext.feth.selectivity) = (placement, selectivity);
        });
        pair.deliver(A, &flush);
        if matches!(code & 0xf, 1..=3) && code >> 4 <= 1 {
            assert_counted(&pair, B, &[("rx_flush_requests", 1)]);
        } else {
            assert_refused(&pair, NakCode::InvalidRequest);
            assert_counted(&pair, B, &[("resp_remote_invalid_requests", 1)]);
        }
    }
}

#[test] //= check P6 test
fn a_flush_of_memory_that_is_not_there_is_a_remote_access_error() {
    let wrap = (Va(u64::MAX - 7), 64);
    let base = 0x8000;
    for (range, stale, gone_from) in [
        (Some((Va(base + 60), 5)), false, 64),
        (Some((Va(base - 1), 1)), false, 64),
        (Some((Va(base), 65)), false, 64),
        (Some(wrap), false, 64),
        (Some((Va(base), 8)), true, 64),
        // The key is checked without a byte as well, because it is part of the promise.
        (Some((Va(base), 0)), true, 64),
        (None, true, 64),
        (None, false, 63),
        (Some((Va(base + 4), 8)), false, 8),
    ] {
        let mut pair = Pair::rts();
        let mr = region_of(&mut pair, ALL);
        pair.world.node_mut(1).memory.take_away(mr, gone_from);
        let rkey = if stale { Rkey(mr.rkey().0 ^ 1 << 20) } else { mr.rkey() };
        let (va, len) = range.unwrap_or((Va(0), 0));
        let selectivity = if range.is_none() { Selectivity::Region } else { Selectivity::Range };
        let op = SendOp::Flush { va, rkey, len, placement: BOTH, selectivity };
        let wr_id = pair.post(A, op, &[]);
        pair.run();
        assert_refused(&pair, NakCode::RemoteAccessError);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemAccessErr)]);
        let counted = [("resp_remote_access_errors", 1)];
        assert_counted(&pair, B, &counted);
    }
}

#[test] //= check P6 test
fn the_key_of_a_window_grants_no_flush_but_an_atomic_write() {
    let mut pair = Pair::rts();
    let mr = pair.remote(B);
    let rkey = pair.world.node_mut(1).memory.allocate_window(Pd(1), WindowType::Two);
    let (new_rkey, access) = (Rkey(rkey.0 ^ 1), AccessFlags::REMOTE_WRITE);
    let bind = BindMw { rkey, new_rkey, lkey: mr.lkey(), va: mr.va(0), len: 64, access };
    pair.post(B, bind.into(), &[]);
    pair.run();
    let op = SendOp::AtomicWrite { va: mr.va(8), rkey: new_rkey };
    let written = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
    let refused = pair.post(A, flush_at(mr.va(8), new_rkey, Placement::GLOBAL), &[]);
    pair.run();
    let expected = [(written, WcStatus::Success), (refused, WcStatus::RemAccessErr)];
    assert_eq!(statuses(&mut pair, A, Side::Send), expected);
}

#[test] //= check P7 test
fn after_a_lost_answer_an_atomic_write_is_not_done_again() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(B).nth(1));
    pair.atomic_write(A);
    pair.run_for(SHORTLY);
    assert_eq!(pair.target(B, 8), pair.source(A, 8));
    pair.set_word(B, 5); // another program writes it
    pair.run();
    assert_eq!(pair.word(B), 5);
    assert_eq!(pair.sequence(A), [0, 0]);
    assert_counted(&pair, B, &[("rx_atomic_write_requests", 1), ("duplicate_request", 1)]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check P7 test
fn after_a_lost_answer_a_flush_is_answered_again() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(B).nth(1));
    pair.flush(A, 100, BOTH);
    pair.run();
    assert_eq!(pair.sequence(A), [0, 0]);
    assert_counted(&pair, B, &[("rx_flush_requests", 1), ("duplicate_request", 1)]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check P7 test
fn a_repetition_of_another_kind_or_too_old_a_one_is_dropped() {
    let others = [
        OpCode::RC_ATOMIC_WRITE,
        OpCode::RC_FLUSH,
        OpCode::RC_RDMA_READ_REQUEST,
        OpCode::RC_FETCH_ADD,
    ];
    for first in [OpCode::RC_ATOMIC_WRITE, OpCode::RC_FLUSH] {
        for other in others {
            let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 1);
            let craft = |pair: &Pair, opcode: OpCode, index| {
                let len = if opcode == OpCode::RC_ATOMIC_WRITE { 8 } else { 0 };
                let packet = pair.craft(A, opcode).psn(pair.psn(A, index)).payload(&[2; 8][..len]);
                packet.ext(|ext| {
                    ext.reth.dma_len = len as u32;
                    if opcode == OpCode::RC_RDMA_READ_REQUEST {
                        // As the record of a request without data has it.
                        (ext.reth.va, ext.reth.rkey) = (Va(0), Rkey(0));
                    }
                })
            };
            let packet = craft(&pair, first, 0);
            pair.deliver(A, &packet);
            let packet = craft(&pair, other, 0);
            pair.deliver(A, &packet);
            let answers = if first == other { 2 } else { 1 };
            assert_eq!(pair.responses(B).len(), answers, "{first} {other}");
            let packet = craft(&pair, OpCode::RC_FETCH_ADD, 1);
            pair.deliver(A, &packet);
            let packet = craft(&pair, first, 0);
            pair.deliver(A, &packet);
            // A record of a FLUSH takes none from others, nor does another take it.
            let kept = usize::from(first == OpCode::RC_FLUSH);
            assert_eq!(pair.responses(B).len(), answers + 1 + kept, "{first} {other}");
            assert_eq!(pair.qp(B).state(), QpState::Rts);
        }
    }
}

#[test] //= check P7 test
fn with_selective_repeat_what_is_lost_is_sent_again() {
    for nth in 1..8 {
        for from in [A, B] {
            let mut pair = Pair::with(|terms| {
                terms.selective_repeat = true;
                terms.is_tapped = true;
            });
            pair.rule(Rule::drop().from(from).nth(nth));
            let wr_ids = [
                pair.write(A, 600),
                pair.flush(A, 600, BOTH),
                pair.atomic_write(A),
                pair.write_far(A, 600),
                pair.flush(A, 600, Placement::GLOBAL),
            ];
            pair.run();
            assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
            assert_eq!(pair.world.take_flaw(), None);
        }
    }
}

#[test] //= check P8 test
fn they_count_among_the_outstanding_requests() {
    for max in 1..=4 {
        let mut pair = Pair::with(|terms| {
            terms.half[A].max_rd_atomic = max;
            terms.is_tapped = true;
        });
        let wr_ids: Vec<u64> = (0..4)
            .flat_map(|_| [pair.atomic_write(A), pair.flush(A, 8, BOTH), pair.read(A, 8)])
            .collect();
        pair.run_for(Duration::from_nanos(900)); // no answer has arrived yet
        assert_eq!(pair.sequence(A).len(), usize::from(max));
        pair.run();
        assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
        assert_eq!(pair.world.take_flaw(), None);
    }
    let posts: [fn(&mut Pair) -> u64; 2] =
        [|pair| pair.atomic_write(A), |pair| pair.flush(A, 10, BOTH)];
    for post in posts {
        let mut pair = Pair::with(|terms| terms.half[A].max_rd_atomic = 0);
        let wr_id = post(&mut pair);
        pair.run();
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::LocQpOpErr)]);
    }
}

/// A peer such as Soft-RoCE does not count its FLUSHes.
#[test] //= check P8 test
fn a_flush_that_is_not_answered_yet_leaves_the_other_requests_their_room() {
    for opcode in [OpCode::RC_RDMA_READ_REQUEST, OpCode::RC_FETCH_ADD, OpCode::RC_ATOMIC_WRITE] {
        let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 1);
        pair.world.set_full_rate(1.0); // no answer can be sent
        let flush = pair.craft(A, OpCode::RC_FLUSH);
        pair.deliver(A, &flush);
        let len = if opcode == OpCode::RC_ATOMIC_WRITE { 8 } else { 0 };
        let request = pair.craft(A, opcode).psn(pair.psn(A, 1)).payload(&[1; 8][..len]);
        pair.deliver(A, &request.ext(|ext| ext.reth.dma_len = 8));
        pair.world.set_full_rate(0.0);
        pair.run();
        assert_eq!(naks(&pair, B), [], "{opcode:?}");
        assert_eq!(pair.responses(B).len(), 2, "{opcode:?}");
    }
}

#[test] //= check P8 test
fn a_flush_without_a_record_to_keep_it_in_is_asked_for_again() {
    let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 1);
    pair.world.set_full_rate(1.0); // no answer can be sent
    for index in 0..17 {
        let flush = pair.craft(A, OpCode::RC_FLUSH).psn(pair.psn(A, index));
        pair.deliver(A, &flush);
    }
    let counted = [("rx_flush_requests", 16), ("rx_flush_too_many", 1), ("out_of_sequence", 1)];
    assert_counted(&pair, B, &counted);
    pair.world.set_full_rate(0.0);
    pair.run();
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 16))]);
    let flush = pair.craft(A, OpCode::RC_FLUSH).psn(pair.psn(A, 16));
    pair.deliver(A, &flush);
    assert_eq!(pair.responses(B).len(), 18, "sixteen answers, the NAK, and the last answer");
}

#[test] //= check P8 test
fn an_atomic_write_beyond_the_depth_ends_the_connection() {
    let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 1);
    pair.world.set_full_rate(1.0);
    for index in [0, 1] {
        let write = pair.craft(A, OpCode::RC_ATOMIC_WRITE).psn(pair.psn(A, index));
        pair.deliver(A, &write.payload(&[1; 8]).ext(|ext| ext.reth.dma_len = 8));
    }
    pair.world.set_full_rate(0.0);
    pair.run();
    assert_refused(&pair, NakCode::InvalidRequest);

    for opcode in [OpCode::RC_FLUSH, OpCode::RC_ATOMIC_WRITE] {
        let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 0);
        let len = if opcode == OpCode::RC_FLUSH { 0 } else { 8 };
        let packet = pair.craft(A, opcode).payload(&[0; 8][..len]);
        pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = 8));
        assert_refused(&pair, NakCode::InvalidRequest);
    }
}

#[test] //= check P9 test
fn a_fenced_request_waits_for_their_answers() {
    let posts: [fn(&mut Pair) -> u64; 2] =
        [|pair| pair.atomic_write(A), |pair| pair.flush(A, 10, BOTH)];
    for post in posts {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(B).nth(1));
        let first = post(&mut pair);
        let op = pair.write_op(A, 100, None);
        let sge = pair.local(A).sge(0, 8);
        let fenced = pair.post_as(A, op, &[sge], |wr| wr.fence = true);
        pair.run_for(SHORTLY);
        assert_eq!(pair.sequence(A), [0]);
        pair.run();
        assert_eq!(pair.sequence(A), [0, 0, 1]);
        assert_all_succeeded(&mut pair, A, Side::Send, &[first, fenced]);
    }
}

#[test] //= check P12 test
fn what_was_written_before_a_flush_is_durable_when_it_completes() {
    for lost in 1..=8 {
        let mut pair = Pair::with(|terms| terms.is_tapped = true);
        pair.rule(Rule::drop().from(A).nth(lost));
        let wr_ids = [pair.write(A, 1000), pair.atomic_write(A), pair.flush(A, 1000, BOTH)];
        let later = pair.write_far(A, 300);
        let done = |pair: &Pair| pair.qp(A).send_wrs() <= 1;
        pair.run_until(done);
        assert_eq!(durable(&pair, 1000), pair.source(A, 1000), "packet {lost} lost");
        pair.run();
        let all = [&wr_ids[..], &[later]].concat();
        assert_all_succeeded(&mut pair, A, Side::Send, &all);
        assert_eq!(pair.world.take_flaw(), None);
    }
}

#[test] //= check P12 test
fn a_flush_for_visibility_promises_no_persistence() {
    let mut pair = Pair::rts();
    pair.write(A, 100);
    pair.flush(A, 100, Placement::GLOBAL);
    pair.run();
    assert_eq!(pair.target(B, 100), pair.source(A, 100));
    assert_ne!(durable(&pair, 100), pair.source(A, 100));
}

#[test] //= check G2 test
fn a_post_that_no_peer_could_carry_out_is_refused() {
    let mut pair = Pair::rts();
    let (at, target) = (pair.at(A), pair.remote(B));
    let (va, rkey) = (target.va(0), target.rkey());
    let flush =
        |placement, selectivity, len| SendOp::Flush { va, rkey, len, placement, selectivity };
    let (range, region) = (Selectivity::Range, Selectivity::Region);
    let bad = [
        flush(Placement(0), range, 8),
        flush(Placement(4), range, 8),
        flush(Placement(9), region, 8),
        flush(BOTH, Selectivity::Reserved(2), 8),
        flush(BOTH, range, (1 << 31) + 1),
    ];
    for op in bad {
        let wr = pair.send_wr(op);
        assert_eq!(pair.world.post_send(at, &wr, &[]), Err(PostError::BadFlush), "{op:?}");
    }
    assert_eq!(flush(BOTH, region, u32::MAX).check(QpType::Rc, 0, 0), Ok(()));
    let wr = pair.send_wr(SendOp::AtomicWrite { va, rkey });
    let local = pair.local(A);
    for list in [&[][..], &[local.sge(0, 4)], &[local.sge(0, 8), local.sge(0, 1)]] {
        assert_eq!(pair.world.post_send(at, &wr, list), Err(PostError::AtomicLength));
    }
    assert_eq!(pair.world.post_inline(at, &wr, &[0; 9]), Err(PostError::AtomicLength));
    pair.run();
    assert_eq!(pair.seen(A), []);
}
