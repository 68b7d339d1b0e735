//! Checks F3, F4, F5, F8, F9 and L6 on memory windows: their range, their users, their lifetime.

use uroce_sim::{Pair, WindowType};
use uroce_transport::{
    AccessFlags, AsyncEvent, BindMw, Memory, Pd, QpState, SendOp, Side, WcOpcode, WcStatus,
};
use uroce_wire::{NakCode, OpCode, Rkey, Va};

use crate::scene::*;

/// Offset in end B's region at which the windows of these scenes begin.
const OFFSET: u64 = 4096;

/// Length of these windows in bytes.
const LEN: u64 = 64;

/// The request that end B posts to bind a window of its region under `rkey`.
fn binding(pair: &Pair, rkey: Rkey) -> BindMw {
    let region = pair.remote(B);
    BindMw {
        rkey,
        new_rkey: Rkey(rkey.0 ^ 1),
        lkey: region.lkey(),
        va: region.va(OFFSET),
        len: LEN,
        access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
    }
}

/// A pair in which end B has bound a window, changed by `change`; returns the window's key.
fn bound(kind: WindowType, change: impl FnOnce(&mut BindMw)) -> (Pair, Rkey) {
    let mut pair = Pair::rts();
    let rkey = pair.world.node_mut(B as u16).memory.allocate_window(Pd(1), kind);
    let mut bind = binding(&pair, rkey);
    change(&mut bind);
    pair.post(B, bind.into(), &[]);
    pair.run();
    assert_eq!(only_success(&mut pair, B, Side::Send).opcode, WcOpcode::BindMw);
    assert_eq!(pair.seen(B), [], "binding sends nothing");
    (pair, bind.new_rkey)
}

/// Writes `len` bytes from end A through a key, at `offset` from the windows' beginning.
fn write_through(pair: &mut Pair, rkey: Rkey, offset: i64, len: u32) -> WcStatus {
    let va = Va(pair.remote(B).va(OFFSET).0.wrapping_add_signed(offset));
    let op = SendOp::Write { va, rkey, imm: None };
    pair.post(A, op, &[pair.local(A).sge(0, len)]);
    pair.run();
    pair.take(A, Side::Send)[0].status
}

const KINDS: [WindowType; 2] = [WindowType::One, WindowType::Two];

#[test] //= check F3 test
fn a_window_is_open_to_its_first_and_last_byte_and_no_further() {
    for kind in KINDS {
        for (offset, len, is_inside) in [
            (0, 64, true),
            (63, 1, true),
            (0, 1, true),
            (0, 65, false),
            (63, 2, false),
            (64, 1, false),
            (-1, 1, false),
            (-1, 66, false),
            (64, 0, true),
            (-1, 0, true),
        ] {
            let (mut pair, rkey) = bound(kind, |_| ());
            let status = write_through(&mut pair, rkey, offset, len);
            let expected = if is_inside { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(status, expected, "{kind:?} at {offset}, {len} bytes");
            if !is_inside {
                assert_refused(&pair, NakCode::RemoteAccessError);
                assert!(pair.is_untouched_from(B, 0));
            }
        }
    }
}

#[test] //= check F4 test
fn a_window_grants_what_it_was_bound_with_and_no_more() {
    for kind in KINDS {
        let (mut pair, rkey) = bound(kind, |bind| bind.access = AccessFlags::REMOTE_READ);
        assert_eq!(write_through(&mut pair, rkey, 0, 8), WcStatus::RemAccessErr);
        assert_refused(&pair, NakCode::RemoteAccessError);
        let (mut pair, rkey) = bound(kind, |_| ());
        let op = SendOp::FetchAdd { va: pair.remote(B).va(OFFSET), rkey, add: 1 };
        let wr_id = pair.post(A, op, &[pair.local(A).sge(0, 8)]);
        pair.run();
        assert_refused(&pair, NakCode::RemoteAccessError);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemAccessErr)]);
        assert!(pair.is_untouched_from(B, 0));
    }
}

#[test] //= check F5 test
fn a_window_of_another_domain_can_neither_be_bound_nor_used() {
    for kind in KINDS {
        let mut pair = Pair::rts();
        let rkey = pair.world.node_mut(B as u16).memory.allocate_window(Pd(2), kind);
        let bind = binding(&pair, rkey);
        let wr_id = pair.post(B, bind.into(), &[]);
        pair.run();
        assert_eq!(statuses(&mut pair, B, Side::Send), [(wr_id, WcStatus::MwBindErr)]);

        let mut pair = Pair::rts();
        let rkey = pair.world.node_mut(B as u16).memory.allocate_window(Pd(2), kind);
        assert_eq!(write_through(&mut pair, rkey, 0, 8), WcStatus::RemAccessErr);
        assert_refused(&pair, NakCode::RemoteAccessError);
    }
}

#[test] //= check F8 test
fn a_type_2_window_is_open_to_the_qp_that_bound_it_alone() {
    for (kind, expected) in
        [(WindowType::One, WcStatus::Success), (WindowType::Two, WcStatus::RemAccessErr)]
    {
        let (mut pair, rkey) = bound(kind, |_| ());
        let [other, other_peer] = pair.another();
        let op = SendOp::Write { va: pair.remote(B).va(OFFSET), rkey, imm: None };
        let (wr, sge) = (pair.send_wr(op), pair.local(A).sge(0, 8));
        pair.world.post_send(other, &wr, &[sge]).unwrap();
        pair.run();
        assert_eq!(pair.take_at(other, Side::Send)[0].status, expected);
        if kind == WindowType::Two {
            assert_eq!(naks(&pair, B)[0].0, NakCode::RemoteAccessError);
            assert_eq!(pair.world.qp(other_peer).state(), QpState::Err);
            assert!(pair.is_untouched_from(B, 0));
        }
        // The QP that bound the window is not affected.
        assert_eq!(pair.qp(B).state(), QpState::Rts);
        assert_eq!(write_through(&mut pair, rkey, 0, 8), WcStatus::Success);
    }
}

#[test] //= check F8 test
fn a_key_that_was_invalidated_opens_nothing() {
    // Invalidated by its owner, or by the peer's SEND.
    for is_remote in [false, true] {
        let (mut pair, rkey) = bound(WindowType::Two, |_| ());
        assert_eq!(write_through(&mut pair, rkey, 0, 8), WcStatus::Success);
        if is_remote {
            pair.recv(B, 10);
            pair.post(A, SendOp::SendWithInvalidate { rkey }, &[]);
        } else {
            pair.post(B, SendOp::LocalInvalidate { rkey }, &[]);
        }
        pair.run();
        pair.take(A, Side::Send);
        assert_eq!(write_through(&mut pair, rkey, 8, 8), WcStatus::RemAccessErr);
        assert_refused(&pair, NakCode::RemoteAccessError);
        assert!(pair.is_untouched_from(B, OFFSET as u32 + 8));
    }
}

#[test] //= check F8 test
fn a_key_of_a_former_binding_opens_nothing() {
    let (mut pair, former) = bound(WindowType::Two, |_| ());
    pair.post(B, SendOp::LocalInvalidate { rkey: former }, &[]);
    let again = BindMw { rkey: former, new_rkey: Rkey(former.0 ^ 2), ..binding(&pair, former) };
    pair.post(B, again.into(), &[]);
    pair.run();
    let opcodes: Vec<WcOpcode> = pair.take(B, Side::Send).iter().map(|cqe| cqe.opcode).collect();
    assert_eq!(opcodes, [WcOpcode::LocalInv, WcOpcode::BindMw]);
    assert_eq!(write_through(&mut pair, again.new_rkey, 0, 8), WcStatus::Success);
    assert_eq!(write_through(&mut pair, former, 0, 8), WcStatus::RemAccessErr);
    assert_refused(&pair, NakCode::RemoteAccessError);
}

#[test] //= check F8 test
fn a_window_that_was_never_bound_opens_nothing() {
    for kind in KINDS {
        let mut pair = Pair::rts();
        let rkey = pair.world.node_mut(B as u16).memory.allocate_window(Pd(1), kind);
        assert_eq!(write_through(&mut pair, rkey, 0, 8), WcStatus::RemAccessErr);
        assert_refused(&pair, NakCode::RemoteAccessError);
    }
}

#[test] //= check F9 test
fn a_send_that_invalidates_another_key_fails_the_peer_and_invalidates_nothing() {
    // A region's key, a type 1 window's, another QP's window, an unknown one, a former one.
    for case in 0..5 {
        let kind = if case == 1 { WindowType::One } else { WindowType::Two };
        let (mut pair, rkey) = bound(kind, |_| ());
        let [other, other_peer] = pair.another();
        let bad = match case {
            0 => pair.remote(B).rkey(),
            1 | 2 => rkey,
            3 => Rkey(0x0bad_0bad),
            _ => Rkey(rkey.0 ^ 1),
        };
        // In case 2 the SEND arrives at a QP other than the one that bound the window.
        let (from, to) = if case == 2 { (other, other_peer) } else { (pair.at(A), pair.at(B)) };
        let recv = pair.recv(B, 100);
        let sge = pair.local(B).sge(0, 100);
        pair.world.post_recv(other_peer, &uroce_transport::RecvWr { wr_id: 900 }, &[sge]).unwrap();
        let wr = pair.send_wr(SendOp::SendWithInvalidate { rkey: bad });
        pair.world.post_send(from, &wr, &[]).unwrap();
        pair.run_for(SHORTLY);
        let cqes = pair.take_at(to, Side::Recv);
        let expected = if case == 2 { 900 } else { recv };
        assert_eq!(cqes.len(), 1);
        assert_eq!((cqes[0].wr_id, cqes[0].invalidated()), (expected, None), "case {case}");
        assert_eq!(cqes[0].status, WcStatus::RemInvReqErr, "case {case}");
        assert_eq!(pair.world.qp(to).state(), QpState::Err);
        // Nothing was invalidated: window and region still grant access.
        let by = uroce_transport::Accessor { pd: Pd(1), qpn: pair.qpn(B) };
        let memory = &pair.node(B).memory;
        for (key, va) in
            [(rkey, pair.remote(B).va(OFFSET)), (pair.remote(B).rkey(), pair.remote(B).va(0))]
        {
            let region =
                uroce_transport::Region { key: uroce_transport::Key::Remote(key), va, len: 8 };
            assert_eq!(memory.check(by, region, uroce_transport::AccessKind::Write), Ok(()));
        }
    }
}

#[test] //= check L6 test
fn a_completion_tells_which_key_the_peer_has_invalidated() {
    for len in [0, 10, 600] {
        let (mut pair, rkey) = bound(WindowType::Two, |_| ());
        pair.recv(B, 600);
        let send = pair.post(A, SendOp::SendWithInvalidate { rkey }, &[pair.local(A).sge(0, len)]);
        pair.run();
        let cqe = only_success(&mut pair, B, Side::Recv);
        assert_eq!(cqe.invalidated(), Some(rkey));
        assert_eq!((cqe.opcode, cqe.byte_len, cqe.imm), (WcOpcode::Recv, len, None));
        let opcode = if len > 256 {
            OpCode::RC_SEND_LAST_WITH_INVALIDATE
        } else {
            OpCode::RC_SEND_ONLY_WITH_INVALIDATE
        };
        let last = pair.seen(A).pop().unwrap();
        assert_eq!((last.bth.opcode, last.ext.ieth.rkey), (opcode, rkey));
        assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
    }
}

#[test]
fn a_bind_that_is_not_allowed_fails_the_send_queue() {
    let changes: [fn(&mut BindMw); 6] = [
        |bind| bind.lkey.0 ^= 1 << 20,
        |bind| bind.len = 1 << 40,
        |bind| bind.va = Va(0),
        |bind| bind.rkey.0 ^= 2,
        |bind| bind.new_rkey.0 ^= 1 << 8,
        |bind| bind.len = 0, // a type 2 window is invalidated, not unbound
    ];
    for change in changes {
        let mut pair = Pair::rts();
        let rkey = pair.world.node_mut(B as u16).memory.allocate_window(Pd(1), WindowType::Two);
        let mut bind = binding(&pair, rkey);
        change(&mut bind);
        let wr_id = pair.post(B, bind.into(), &[]);
        let behind = pair.write(B, 8);
        pair.run();
        let expected = [(wr_id, WcStatus::MwBindErr), (behind, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, B, Side::Send), expected, "{bind:?}");
        assert_eq!(pair.qp(B).state(), QpState::Err);
        assert_eq!(pair.take_events(B), [] as [AsyncEvent; 0]);
    }
}
