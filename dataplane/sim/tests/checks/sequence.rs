//! Checks E: the order of a message's packets.

use uroce_sim::Pair;
use uroce_transport::{Counter, QpState, Side, WcStatus};
use uroce_wire::{NakCode, OpCode};

use crate::scene::*;

/// Delivers packets of end A with consecutive PSNs, with these opcodes and payload lengths.
fn deliver_all(pair: &mut Pair, packets: &[(OpCode, usize)]) {
    for (index, (opcode, len)) in packets.iter().enumerate() {
        let psn = pair.psn(A, index as u32);
        let packet = pair.craft(A, *opcode).psn(psn).payload(&vec![0x5c; *len]);
        let packet = packet.ext(|ext| ext.reth.dma_len = 3 * 256);
        pair.deliver(A, &packet);
    }
}

/// Asserts that the responder refuses the last of these packets as an invalid request.
fn assert_invalid(packets: &[(OpCode, usize)]) {
    let mut pair = Pair::rts();
    let recv = pair.recv(B, 2000);
    deliver_all(&mut pair, packets);
    let refused = pair.psn(A, packets.len() as u32 - 1);
    assert_eq!(naks(&pair, B), [(NakCode::InvalidRequest, refused)], "{packets:?}");
    assert_eq!(pair.qp(B).state(), QpState::Err);
    assert_eq!(statuses(&mut pair, B, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
    let executed = 256 * (packets.len() as u32 - 1);
    assert!(pair.is_untouched_from(B, executed), "{packets:?}");
}

#[test] //= check E1 test
fn a_message_that_does_not_begin_is_an_invalid_request() {
    use OpCode as O;
    let opcodes = [
        O::RC_SEND_MIDDLE,
        O::RC_SEND_LAST,
        O::RC_SEND_LAST_WITH_IMMEDIATE,
        O::RC_RDMA_WRITE_MIDDLE,
        O::RC_RDMA_WRITE_LAST,
        O::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
    ];
    for opcode in opcodes {
        assert_invalid(&[(opcode, 256)]);
    }
}

#[test] //= check E2 test
fn a_message_that_begins_before_the_last_one_ended_is_an_invalid_request() {
    use OpCode as O;
    for first in [O::RC_SEND_FIRST, O::RC_RDMA_WRITE_FIRST] {
        for second in [
            (O::RC_SEND_FIRST, 256),
            (O::RC_SEND_ONLY, 10),
            (O::RC_SEND_ONLY_WITH_IMMEDIATE, 10),
            (O::RC_RDMA_WRITE_FIRST, 256),
            (O::RC_RDMA_WRITE_ONLY, 10),
            (O::RC_RDMA_READ_REQUEST, 0),
            (O::RC_FETCH_ADD, 0),
            (O::RC_COMPARE_SWAP, 0),
        ] {
            assert_invalid(&[(first, 256), second]);
        }
    }
}

#[test] //= check E3 test
fn a_message_that_goes_on_as_another_operation_is_an_invalid_request() {
    use OpCode as O;
    assert_invalid(&[(O::RC_SEND_FIRST, 256), (O::RC_RDMA_WRITE_MIDDLE, 256)]);
    assert_invalid(&[(O::RC_SEND_FIRST, 256), (O::RC_RDMA_WRITE_LAST, 10)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_FIRST, 256), (O::RC_SEND_MIDDLE, 256)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_FIRST, 256), (O::RC_SEND_LAST, 10)]);
}

#[test] //= check E4 test
fn a_payload_that_does_not_fit_its_place_is_an_invalid_request() {
    use OpCode as O;
    for first in [O::RC_SEND_FIRST, O::RC_RDMA_WRITE_FIRST] {
        for len in [0, 4, 252, 260, 512] {
            assert_invalid(&[(first, len)]);
        }
    }
    for (first, middle, last) in [
        (O::RC_SEND_FIRST, O::RC_SEND_MIDDLE, O::RC_SEND_LAST),
        (O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_WRITE_MIDDLE, O::RC_RDMA_WRITE_LAST),
    ] {
        for len in [0, 252, 260] {
            assert_invalid(&[(first, 256), (middle, len)]);
        }
        for len in [0, 257, 512] {
            assert_invalid(&[(first, 256), (last, len)]);
        }
    }
    assert_invalid(&[(O::RC_SEND_ONLY, 257)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_ONLY, 257)]);
}

#[test] //= check E5 test
fn a_write_with_more_or_fewer_bytes_than_announced_is_an_invalid_request() {
    use OpCode as O;
    let (first, middle) = ((O::RC_RDMA_WRITE_FIRST, 256), (O::RC_RDMA_WRITE_MIDDLE, 256));
    // The RETH states 768 bytes.
    assert_invalid(&[(O::RC_RDMA_WRITE_ONLY, 256)]);
    assert_invalid(&[(O::RC_RDMA_WRITE_ONLY, 0)]);
    assert_invalid(&[first, (O::RC_RDMA_WRITE_LAST, 256)]);
    assert_invalid(&[first, middle, (O::RC_RDMA_WRITE_LAST, 255)]);
    assert_invalid(&[first, middle, middle]);
    let mut pair = Pair::rts();
    deliver_all(&mut pair, &[first, middle, (O::RC_RDMA_WRITE_LAST, 256)]);
    assert_eq!(naks(&pair, B), [], "768 bytes are right");
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
}

#[test] //= check E5 test
fn a_write_of_one_packet_may_be_shorter_than_announced_by_nothing() {
    let mut pair = Pair::rts();
    let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).payload(&[1; 8]);
    pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = 7));
    assert_refused(&pair, NakCode::InvalidRequest);
    assert!(pair.is_untouched_from(B, 0));
}
