//! Checks F: memory that is not granted, local and remote.

use uroce_sim::{Mr, Pair};
use uroce_transport::{AccessFlags, Counter, Pd, QpState, QpType, SendOp, Sge, Side, WcStatus};
use uroce_wire::{ImmDt, Lkey, NakCode, OpCode, Rkey, Va};

use crate::scene::*;

/// Operations on eight bytes at `va` under `rkey`: WRITE, READ and both ATOMICs.
fn operations(va: Va, rkey: Rkey) -> [SendOp; 4] {
    [
        SendOp::Write { va, rkey, imm: None },
        SendOp::Read { va, rkey },
        SendOp::FetchAdd { va, rkey, add: 1 },
        SendOp::CompareSwap { va, rkey, compare: 0, swap: 1 },
    ]
}

/// Asserts that the responder answers `op` of eight bytes with a NAK, both ends fail, no byte
/// changes.
fn assert_nak(mut pair: Pair, op: SendOp, code: NakCode) {
    let before = [pair.bytes(A, pair.local(A)).to_vec(), pair.bytes(B, pair.remote(B)).to_vec()];
    let recvs = [pair.recv(A, 8), pair.recv(B, 8)];
    let good = pair.write_far(A, 0);
    let sge = pair.local(A).sge(64, 8);
    let bad = pair.post(A, op, &[sge]);
    let behind = pair.post_wr(A, op, &[sge], false);
    pair.run();
    assert_refused(&pair, code);
    assert_eq!(pair.qp(A).state(), QpState::Err);
    let status = match code {
        NakCode::RemoteAccessError => WcStatus::RemAccessErr,
        _ => WcStatus::RemInvReqErr,
    };
    let expected = [(good, WcStatus::Success), (bad, status), (behind, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{op:?}");
    for end in [A, B] {
        let flushed = [(recvs[end], WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, end, Side::Recv), flushed);
    }
    assert_eq!(pair.bytes(A, pair.local(A)), before[0]);
    assert_eq!(pair.bytes(B, pair.remote(B)), before[1]);
    let refused = pair.count(B, Counter::RespRemoteAccessErrors);
    assert_eq!(refused, u64::from(code == NakCode::RemoteAccessError));
}

#[test] //= check F1 test
fn a_wrong_rkey_is_a_remote_access_error() {
    for index in 0..4 {
        let pair = Pair::rts();
        let mr = pair.remote(B);
        for rkey in [mr.rkey().0 ^ 1 << 20, mr.rkey().0 ^ 1, 0, u32::MAX] {
            let op = operations(mr.va(0), Rkey(rkey))[index];
            assert_nak(Pair::rts(), op, NakCode::RemoteAccessError);
        }
    }
}

#[test] //= check F2 test
fn a_range_that_wraps_the_address_space_is_a_remote_access_error() {
    for base in [0xffff_ffff_ffff_fff8, 0, 8] {
        for va in [0xffff_ffff_ffff_fff8_u64, 0xffff_ffff_ffff_fffc] {
            // A region at either end of the address space: eight bytes at the top, or some at 0.
            for index in 0..2 {
                let mut pair = Pair::rts();
                let mr = add_region(&mut pair, AccessFlags::all(), base, 8);
                let len = 16;
                let op = operations(Va(va), mr.rkey())[index];
                let wr_id = pair.post(A, op, &[pair.local(A).sge(0, len)]);
                pair.run();
                assert_refused(&pair, NakCode::RemoteAccessError);
                let expected = [(wr_id, WcStatus::RemAccessErr)];
                assert_eq!(statuses(&mut pair, A, Side::Send), expected);
                assert_eq!(pair.bytes(B, mr), [0; 8]);
            }
        }
    }
}

#[test] //= check F2 test
fn eight_bytes_that_end_at_2_to_the_64_need_a_region_that_does() {
    let top = Va(0xffff_ffff_ffff_fff8);
    for index in 0..4 {
        // Regions at the bottom, one that ends just before these bytes, and the bytes' own.
        for (base, is_granted) in [(0, false), (8, false), (top.0 - 8, false), (top.0, true)] {
            let mut pair = Pair::rts();
            let mr = add_region(&mut pair, AccessFlags::all(), base, 8);
            let wr_id = pair.post(A, operations(top, mr.rkey())[index], &[pair.local(A).sge(0, 8)]);
            pair.run();
            let status = if is_granted { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, status)]);
            if !is_granted {
                assert_refused(&pair, NakCode::RemoteAccessError);
                assert_eq!(pair.bytes(B, mr), [0; 8]);
            }
        }
    }
}

#[test] //= check F7 test
fn a_region_of_no_bytes_grants_nothing() {
    for base in [0, 0x5000, u64::MAX] {
        for (index, len) in [(0, 1), (1, 1), (2, 8), (3, 8), (0, 0), (1, 0)] {
            let mut pair = Pair::rts();
            let mr = add_region(&mut pair, AccessFlags::all(), base, 0);
            let va = Va(base & !7);
            let sge = pair.local(A).sge(0, len);
            let wr_id = pair.post(A, operations(va, mr.rkey())[index], &[sge]);
            pair.run();
            let status = if len == 0 { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, status)]);
            if len > 0 {
                assert_refused(&pair, NakCode::RemoteAccessError);
            }
        }
    }
}

fn add_region(pair: &mut Pair, access: AccessFlags, base: u64, len: usize) -> Mr {
    pair.world.node_mut(1).memory.register(Pd(1), access, base, 9, vec![0; len])
}

#[test] //= check F3 test
fn a_region_is_open_to_its_first_and_last_byte_and_no_further() {
    for (offset, len, is_inside) in [
        (0, 64, true),
        (63, 1, true),
        (0, 1, true),
        (0, 65, false),
        (63, 2, false),
        (64, 1, false),
        (-1, 1, false),
        (-1, 66, false),
        // No byte is accessed, so nothing is checked.
        (64, 0, true),
        (-1, 0, true),
    ] {
        for index in 0..2 {
            let mut pair = Pair::rts();
            let mr = add_region(&mut pair, AccessFlags::all(), 0x5000, 64);
            let op = operations(mr.va(offset as u64), mr.rkey())[index];
            pair.post(A, op, &[pair.local(A).sge(0, len)]);
            pair.run();
            let status = pair.take(A, Side::Send)[0].status;
            let expected = if is_inside { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(status, expected, "{op:?} at {offset}, {len} bytes");
            if index == 0 && !is_inside {
                assert_eq!(pair.bytes(B, mr), [0; 64]);
            }
        }
    }
}

#[test] //= check F3 test
fn a_write_that_ends_outside_is_refused_at_its_first_packet() {
    for (len, inside) in [(1000, 999), (1000, 256), (512, 511), (1 << 20, 1000)] {
        let mut pair = Pair::rts();
        let mr = add_region(&mut pair, AccessFlags::all(), 0x5000, inside);
        let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_FIRST).payload(&[1; 256]);
        pair.deliver(
            A,
            &packet.ext(|ext| {
                (ext.reth.va, ext.reth.rkey, ext.reth.dma_len) = (mr.va(0), mr.rkey(), len);
            }),
        );
        assert_refused(&pair, NakCode::RemoteAccessError);
        assert!(pair.bytes(B, mr).iter().all(|byte| *byte == 0));
    }
}

#[test] //= check F4 test
fn a_right_that_the_qp_lacks_makes_an_invalid_request() {
    let rights = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ, AccessFlags::REMOTE_ATOMIC];
    for (index, right) in rights.into_iter().enumerate() {
        let pair = Pair::with(|terms| terms.half[B].access = AccessFlags::all() - right);
        let op = operations(pair.remote(B).va(128), pair.remote(B).rkey())[index];
        if right == AccessFlags::REMOTE_WRITE {
            // A WRITE without bytes is checked too, so the WRITE comes without another before it.
            let mut pair = pair;
            pair.post(A, op, &[]);
            pair.run();
            assert_refused(&pair, NakCode::InvalidRequest);
        } else {
            assert_nak(pair, op, NakCode::InvalidRequest);
        }
    }
}

#[test] //= check F4 test
fn a_right_that_the_region_lacks_makes_a_remote_access_error() {
    let rights = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ, AccessFlags::REMOTE_ATOMIC];
    for (index, right) in rights.into_iter().enumerate() {
        let mut pair = Pair::rts();
        let mr = add_region(&mut pair, AccessFlags::all() - right, 0x5000, 64);
        let op = operations(mr.va(8), mr.rkey())[index];
        assert_nak(pair, op, NakCode::RemoteAccessError);
    }
}

#[test] //= check F5 test
fn a_region_of_another_domain_is_a_remote_access_error() {
    for index in 0..4 {
        let mut pair = Pair::rts();
        let memory = &mut pair.world.node_mut(1).memory;
        let mr = memory.register(Pd(2), AccessFlags::all(), 0x5000, 9, vec![0; 64]);
        let op = operations(mr.va(0), mr.rkey())[index];
        assert_nak(pair, op, NakCode::RemoteAccessError);
    }
}

#[test] //= check F10 test
fn a_send_that_is_longer_than_its_receive_fails_both_ends() {
    for (room, len) in [(99, 100), (0, 1), (256, 257), (511, 1000), (512, 1000)] {
        let mut pair = Pair::rts();
        let mr = pair.local(B);
        let before = pair.bytes(B, mr).to_vec();
        let recv = pair.recv(B, room);
        let flushed = pair.recv(B, 2000);
        let send = pair.send(A, len);
        pair.run();
        assert_refused(&pair, NakCode::InvalidRequest);
        let expected = [(recv, WcStatus::LocLenErr), (flushed, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, B, Side::Recv), expected, "{room} {len}");
        let expected = [(send, WcStatus::RemInvReqErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected);
        let counted = [("req_remote_invalid_request", 1), ("req_cqe_error", 1)];
        assert_counted(&pair, A, &counted);
        let counted =
            [("resp_local_length_error", 1), ("resp_cqe_error", 1), ("resp_cqe_flush_error", 1)];
        for (name, times) in counted {
            let counter = Counter::ALL.iter().find(|one| one.name() == name).unwrap();
            assert_eq!(pair.count(B, *counter), times, "{name}");
        }
        let beyond = (mr.len() / 4 * 3 + room) as usize;
        assert_eq!(pair.bytes(B, mr)[beyond..], before[beyond..], "{room} {len}");
    }
}

#[test] //= check F10 test
fn a_send_that_fits_its_receive_exactly_is_received() {
    for len in [0, 1, 256, 257, 1000] {
        let mut pair = Pair::rts();
        pair.recv(B, len);
        pair.send(A, len);
        pair.run();
        assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, len);
        assert_eq!(pair.received_bytes(B, len), pair.source(A, len));
    }
}

#[test] //= check F11 test
fn a_receive_without_a_right_to_its_memory_is_a_remote_operational_error() {
    let mut pair = Pair::rts();
    let closed = add_region(&mut pair, AccessFlags::REMOTE_WRITE, 0x5000, 64);
    let lists = [
        vec![Sge { lkey: Lkey(1), ..pair.local(B).sge(0, 64) }],
        vec![Sge { len: 64, ..pair.local(B).sge(pair.local(B).len() - 63, 0) }],
        vec![closed.sge(0, 64)],
        vec![pair.local(B).sge(0, 4), closed.sge(0, 60)],
    ];
    for list in lists {
        let mut pair = Pair::rts();
        add_region(&mut pair, AccessFlags::REMOTE_WRITE, 0x5000, 64);
        let recv = pair.post_recv(B, &list);
        let send = pair.send(A, 64);
        pair.run();
        assert_refused(&pair, NakCode::RemoteOperationalError);
        let expected = [(recv, WcStatus::LocProtErr)];
        assert_eq!(statuses(&mut pair, B, Side::Recv), expected);
        let expected = [(send, WcStatus::RemOpErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected);
        assert_counted(&pair, A, &[("req_cqe_error", 1)]);
        assert_counted(&pair, B, &[("resp_cqe_error", 1)]);
    }
}

#[test] //= check F12 test
fn a_send_without_a_right_to_its_memory_fails_and_sends_nothing() {
    for index in 0..5 {
        let mut pair = Pair::rts();
        let mr = pair.remote(B);
        let mut ops = operations(mr.va(0), mr.rkey()).to_vec();
        ops.push(SendOp::Send { imm: None });
        let bad = [
            Sge { lkey: Lkey(77), ..pair.local(A).sge(0, 8) },
            Sge { va: Va(u64::MAX - 3), ..pair.local(A).sge(0, 8) },
            Sge { len: 8, ..pair.local(A).sge(pair.local(A).len() - 7, 0) },
        ][index % 3];
        let wr_id = pair.post_wr(A, ops[index], &[bad], false);
        let behind = pair.write(A, 8);
        let recv = pair.recv(A, 8);
        pair.run();
        assert_eq!(pair.seen(A), [], "no packet");
        let expected = [(wr_id, WcStatus::LocProtErr), (behind, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected);
        assert_eq!(statuses(&mut pair, A, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
        assert_eq!(pair.qp(A).state(), QpState::Err);
    }
}

#[test] //= check F12 test
fn on_every_service_a_send_without_a_right_to_its_memory_sends_nothing() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let pair = Pair::with(|terms| terms.qp_type = qp_type);
        let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
        let imm = Some(ImmDt(1));
        let ops = [
            SendOp::Send { imm },
            SendOp::SendWithInvalidate { rkey },
            SendOp::Write { va, rkey, imm },
            SendOp::Write { va, rkey, imm: None },
            pair.send_to_op(A, Some(1)),
        ];
        for op in ops.into_iter().filter(|op| op.suits(qp_type)) {
            let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
            let good = pair.local(A).sge(0, 8);
            let bad = Sge { lkey: Lkey(77), ..good };
            let wr_id = pair.post(A, op, &[good, bad]);
            pair.run();
            assert_eq!(pair.seen(A), [], "no packet");
            assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::LocProtErr)]);
            let state = if qp_type == QpType::Rc { QpState::Err } else { QpState::Sqe };
            assert_eq!(pair.qp(A).state(), state);
            assert_counted(&pair, A, &[("req_cqe_error", 1)]);
        }
    }
}

#[test] //= check F12 test
fn a_local_error_waits_for_the_work_before_it() {
    let mut pair = Pair::rts();
    let good = [pair.write(A, 1000), pair.read(A, 1000)];
    let op = SendOp::Send { imm: None };
    let bad = pair.post(A, op, &[Sge { lkey: Lkey(77), ..pair.local(A).sge(0, 8) }]);
    pair.run();
    let expected =
        [(good[0], WcStatus::Success), (good[1], WcStatus::Success), (bad, WcStatus::LocProtErr)];
    assert_eq!(statuses(&mut pair, A, Side::Send), expected);
}

#[test] //= check F14 test
fn lists_with_empty_and_odd_elements_are_gathered_and_scattered_exactly() {
    let mut pair = Pair::rts();
    let (from, to) = (pair.local(A), pair.local(B));
    let gather = [from.sge(10, 0), from.sge(3, 301), from.sge(1000, 1), from.sge(2000, 255)];
    let scatter = [to.sge(1, 1), to.sge(5000, 0), to.sge(6000, 500), to.sge(9000, 100)];
    pair.post_recv(B, &scatter);
    pair.post(A, SendOp::Send { imm: None }, &gather);
    pair.run();
    let sent = pair.bytes(A, from);
    let sent = [&sent[3..304], &sent[1000..1001], &sent[2000..2255]].concat();
    let got = pair.bytes(B, to);
    let got = [&got[1..2], &got[6000..6500], &got[9000..9056]].concat();
    assert_eq!(sent, got);
    assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, 557);
}

#[test] //= check F14 test
fn read_data_is_scattered_exactly() {
    let mut pair = Pair::rts();
    let mr = pair.remote(B);
    pair.bytes_mut(B, mr).iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 5) as u8);
    let to = pair.local(A);
    let scatter = [to.sge(1, 255), to.sge(5000, 2), to.sge(6000, 0), to.sge(9000, 600)];
    pair.post(A, SendOp::Read { va: mr.va(3), rkey: mr.rkey() }, &scatter);
    pair.run();
    let got = pair.bytes(A, to);
    let got = [&got[1..256], &got[5000..5002], &got[9000..9600]].concat();
    assert_eq!(got, pair.bytes(B, mr)[3..3 + 857]);
    only_success(&mut pair, A, Side::Send);
}

#[test]
fn a_write_of_nothing_needs_no_key() {
    let mut pair = Pair::rts();
    let op = SendOp::Write { va: Va(1), rkey: Rkey(2), imm: None };
    pair.post(A, op, &[]);
    pair.run();
    assert_eq!(pair.seen(A)[0].bth.opcode, OpCode::RC_RDMA_WRITE_ONLY);
    only_success(&mut pair, A, Side::Send);
}
