//! Check F16: memory that the program takes away while it is registered.

use uroce_sim::{Mr, Pair};
use uroce_transport::{
    AccessFlags, Accessor, Counter, Key, Memory, MemoryFault, Pd, QpState, QpType, Region, SendOp,
    Side, WcStatus,
};
use uroce_wire::{NakCode, Qpn};

use crate::scene::*;

/// A region of `end` with `len` bytes, of which those from offset `there` on are gone.
fn gone_from(pair: &mut Pair, end: u16, len: usize, there: usize) -> Mr {
    let memory = &mut pair.world.node_mut(end).memory;
    let mr = memory.register(Pd(1), AccessFlags::all(), 0x5000, 9, vec![0; len]);
    memory.take_away(mr, there);
    mr
}

#[test] //= check F16 test
fn a_write_into_memory_that_is_gone_is_a_remote_access_error_at_its_packet() {
    for (there, packets) in [(0, 0), (1, 0), (255, 0), (256, 1), (700, 2), (999, 3)] {
        let mut pair = Pair::rts();
        let mr = gone_from(&mut pair, 1, 1000, there);
        let recv = pair.recv(B, 8);
        let good = pair.write_far(A, 64);
        let op = SendOp::Write { va: mr.va(0), rkey: mr.rkey(), imm: None };
        let source = pair.local(A).sge(0, 1000);
        let bad = pair.post(A, op, &[source]);
        // A key that was refused once is refused from then on, without an access to memory.
        let again = pair.post(A, op, &[pair.local(A).sge(0, 1)]);
        pair.run();
        assert_refused(&pair, NakCode::RemoteAccessError);
        let expected = [
            (good, WcStatus::Success),
            (bad, WcStatus::RemAccessErr),
            (again, WcStatus::WrFlushErr),
        ];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{there}");
        assert_eq!(statuses(&mut pair, B, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
        assert_eq!(pair.count(B, Counter::RespRemoteAccessErrors), 1);
        let sent = pair.bytes(A, pair.local(A))[..there].to_vec();
        assert_eq!(pair.bytes(B, mr)[..there], sent, "{packets} packets and what was there");
        assert!(pair.bytes(B, mr)[there..].iter().all(|byte| *byte == 0));
    }
}

#[test] //= check F16 test
fn a_key_whose_memory_is_gone_opens_nothing_any_more() {
    let mut pair = Pair::rts();
    let mr = gone_from(&mut pair, 1, 1000, 500);
    let by = Accessor { pd: Pd(1), qpn: Qpn::new(2) };
    let memory = &mut pair.world.node_mut(1).memory;
    let region = |at| Region { key: Key::Remote(mr.rkey()), va: mr.va(at), len: 8 };
    assert_eq!(memory.write(by, region(0), &[1; 8]), Ok(()));
    assert_eq!(memory.write(by, region(496), &[1; 8]), Err(MemoryFault::Gone));
    assert!(memory.write(by, region(0), &[2; 8]).is_err());
}

#[test] //= check F16 test
fn a_read_of_memory_that_is_gone_ends_with_a_remote_access_error() {
    for there in [0, 255, 256, 900] {
        let mut pair = Pair::rts();
        let mr = gone_from(&mut pair, 1, 1000, there);
        let good = pair.write_far(A, 64);
        let op = SendOp::Read { va: mr.va(0), rkey: mr.rkey() };
        let bad = pair.post(A, op, &[pair.local(A).sge(0, 1000)]);
        pair.run();
        assert_refused(&pair, NakCode::RemoteAccessError);
        let expected = [(good, WcStatus::Success), (bad, WcStatus::RemAccessErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{there}");
    }
}

#[test] //= check F16 test
fn an_atomic_on_memory_that_is_gone_is_a_remote_access_error() {
    for index in 0..2 {
        let mut pair = Pair::rts();
        let mr = gone_from(&mut pair, 1, 64, 8);
        let (va, rkey) = (mr.va(8), mr.rkey());
        let op = match index {
            0 => SendOp::FetchAdd { va, rkey, add: 1 },
            _ => SendOp::CompareSwap { va, rkey, compare: 0, swap: 1 },
        };
        let bad = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
        pair.run();
        assert_refused(&pair, NakCode::RemoteAccessError);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(bad, WcStatus::RemAccessErr)]);
        assert_eq!(pair.bytes(B, mr), [0; 64]);
    }
}

#[test] //= check F16 test
fn a_receive_whose_memory_is_gone_is_a_remote_operational_error() {
    for there in [0, 10, 256, 500] {
        let mut pair = Pair::rts();
        let mr = gone_from(&mut pair, 1, 600, there);
        let recv = pair.post_recv(B, &[mr.sge(0, 600)]);
        let flushed = pair.recv(B, 600);
        let send = pair.send(A, 600);
        pair.run();
        assert_refused(&pair, NakCode::RemoteOperationalError);
        let expected = [(recv, WcStatus::LocProtErr), (flushed, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, B, Side::Recv), expected, "{there}");
        assert_eq!(statuses(&mut pair, A, Side::Send), [(send, WcStatus::RemOpErr)]);
    }
}

#[test] //= check F16 test
fn a_request_whose_own_memory_is_gone_is_a_local_protection_error_after_what_was_before_it() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        for there in [0, 255, 256, 700] {
            let mut pair = Pair::with(|terms| terms.qp_type = qp_type);
            let mr = gone_from(&mut pair, 0, 1000, there);
            let good = pair.write(A, 300);
            let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
            let bad = pair.post(A, SendOp::Write { va, rkey, imm: None }, &[mr.sge(0, 1000)]);
            let behind = pair.write(A, 8);
            pair.run();
            let expected = [
                (good, WcStatus::Success),
                (bad, WcStatus::LocProtErr),
                (behind, WcStatus::WrFlushErr),
            ];
            assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{qp_type:?} {there}");
            let state = if qp_type == QpType::Rc { QpState::Err } else { QpState::Sqe };
            assert_eq!(pair.qp(A).state(), state);
        }
    }
}

#[test] //= check F16 test
fn an_answer_into_memory_that_is_gone_is_a_local_protection_error() {
    for index in 0..3 {
        let mut pair = Pair::rts();
        let mr = gone_from(&mut pair, 0, 1000, 4);
        let (va, rkey) = (pair.remote(B).va(0), pair.remote(B).rkey());
        let (op, len) = [
            (SendOp::Read { va, rkey }, 1000),
            (SendOp::FetchAdd { va, rkey, add: 1 }, 8),
            (SendOp::CompareSwap { va, rkey, compare: 0, swap: 1 }, 8),
        ][index];
        let good = pair.write(A, 300);
        let bad = pair.post(A, op, &[mr.sge(0, len)]);
        pair.run();
        let expected = [(good, WcStatus::Success), (bad, WcStatus::LocProtErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{op:?}");
        assert_eq!(pair.qp(A).state(), QpState::Err);
    }
}

/// Anybody may send a datagram, so that none may end the QP.
#[test] //= check F16 test
fn a_datagram_to_a_receive_whose_memory_is_gone_fails_that_receive_alone() {
    for uses_srq in [false, true] {
        for there in [0, 39, 40, 41, 139] {
            let mut pair = Pair::with(|terms| {
                terms.qp_type = QpType::Ud;
                terms.half[B].srq = uses_srq.then_some(Pd(1));
            });
            let mr = gone_from(&mut pair, 1, 140, there);
            let gone = match uses_srq {
                true => pair.post_shared_recv(B, &[mr.sge(0, 140)]),
                false => pair.post_recv(B, &[mr.sge(0, 140)]),
            };
            let good = match uses_srq {
                true => pair.shared_recv(B, 140),
                false => pair.recv(B, 140),
            };
            let sends = [pair.send_to(A, 100, None), pair.send_to(A, 100, None)];
            pair.run();
            let expected = [(gone, WcStatus::LocProtErr), (good, WcStatus::Success)];
            assert_eq!(statuses(&mut pair, B, Side::Recv), expected, "{there}");
            assert_eq!(pair.qp(B).state(), QpState::Rts);
            assert_counted(&pair, B, &[("resp_cqe_error", 1), ("rdma_recvs", 1)]);
            assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        }
    }
}

/// The request ends the send queue's work; receives go on.
#[test] //= check F16 test
fn a_datagram_from_memory_that_is_gone_is_a_local_protection_error() {
    for there in [0, 99] {
        let mut pair = Pair::with(|terms| terms.qp_type = QpType::Ud);
        let mr = gone_from(&mut pair, 0, 100, there);
        let op = pair.send_to_op(A, None);
        let bad = pair.post(A, op, &[mr.sge(0, 100)]);
        let behind = pair.send_to(A, 8, None);
        let recv = pair.recv(A, 140);
        pair.send_to(B, 100, None);
        pair.run();
        let expected = [(bad, WcStatus::LocProtErr), (behind, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected, "{there}");
        assert_eq!(pair.qp(A).state(), QpState::Sqe);
        assert_all_succeeded(&mut pair, A, Side::Recv, &[recv]);
        assert_eq!(pair.seen(A), [], "nothing of it is sent");
    }
}

#[test] //= check F16 test
fn an_unreliable_write_into_memory_that_is_gone_is_dropped_and_counted() {
    let mut pair = Pair::with(|terms| terms.qp_type = QpType::Uc);
    let mr = gone_from(&mut pair, 1, 1000, 300);
    let op = SendOp::Write { va: mr.va(0), rkey: mr.rkey(), imm: None };
    let sent = pair.post(A, op, &[pair.local(A).sge(0, 1000)]);
    pair.run();
    assert_eq!(statuses(&mut pair, A, Side::Send), [(sent, WcStatus::Success)]);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
    assert_eq!(pair.count(B, Counter::RespRemoteAccessErrors), 1);
}
