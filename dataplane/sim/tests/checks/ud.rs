//! Checks L3 to L6 and E13 on UD: datagrams, their Q_Key, and multicast.

use core::net::Ipv4Addr;

use uroce_sim::{At, Pair};
use uroce_transport::{
    Ah, DropReason, Pd, QpChange, QpInit, QpState, QpType, RecvWr, SendOp, Sge, Side, WcOpcode,
    WcStatus,
};
use uroce_wire::{Encap, Gid, ImmDt, Lkey, OpCode, Pkey, Psn, Qkey, Qpn};

use crate::frames::L3;
use crate::scene::*;

/// A pair of UD QPs.
fn ud() -> Pair {
    Pair::with(|terms| terms.qp_type = QpType::Ud)
}

/// Length of the GRH area before each message.
const GRH: u32 = 40;

#[test] //= check L3 test
fn a_datagram_comes_with_its_addresses_its_sender_and_its_length() {
    for is_ipv6 in [false, true] {
        for len in [0, 1, 255, 256] {
            let mut pair = Pair::with(|terms| {
                terms.qp_type = QpType::Ud;
                terms.is_ipv6 = is_ipv6;
            });
            let recv = pair.recv(B, GRH + 256);
            let send = pair.send_to(A, len, None);
            pair.run();
            let cqe = only_success(&mut pair, B, Side::Recv);
            assert_eq!((cqe.wr_id, cqe.byte_len), (recv, GRH + len));
            assert!(cqe.grh.is_some());
            assert_eq!((cqe.src_qpn, cqe.qpn), (pair.qpn(A), pair.qpn(B)));
            let got = pair.received_bytes(B, GRH + len);
            let frame = &pair.world.record().unwrap().sightings().next().unwrap().frame;
            let (area, payload) = got.split_at(GRH as usize);
            match is_ipv6 {
                true => assert_eq!(area, &frame[L3..L3 + 40]),
                false => assert_eq!(area[20..], frame[L3..L3 + 20]),
            }
            assert_eq!(payload, pair.source(A, len));
            assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
            assert_eq!(pair.seen(B), [], "no answer");
            assert_counted(&pair, A, &[("rdma_sends", 1)]);
            assert_counted(&pair, B, &[("rdma_recvs", 1)]);
        }
    }
}

#[test] //= check L4 test
fn a_datagram_longer_than_the_mtu_is_a_local_error() {
    for len in [257, 1000] {
        let mut pair = ud();
        pair.recv(B, 2000);
        let good = pair.send_to(A, 256, None);
        let bad = pair.send_to(A, len, None);
        pair.run();
        assert_eq!(pair.seen(A).len(), 1, "the bad one is not on the wire");
        let expected = [(good, WcStatus::Success), (bad, WcStatus::LocLenErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected);
        assert_eq!(pair.qp(A).state(), QpState::Sqe);
    }
}

#[test] //= check L4 test
fn without_a_receive_a_datagram_is_dropped_and_counted_and_never_refused() {
    let mut pair = ud();
    let sends = [pair.send_to(A, 10, None), pair.send_to(A, 20, None)];
    pair.run();
    assert_eq!(pair.seen(B), [], "no RNR NAK");
    assert_counted(&pair, B, &[("out_of_buffer", 2), ("rx_no_receive_wqe", 2)]);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    pair.recv(B, 100);
    pair.send_to(A, 30, None);
    pair.run();
    assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, GRH + 30);
}

#[test] //= check L4 test
fn a_datagram_longer_than_the_oldest_receive_is_dropped_and_the_receive_waits() {
    for uses_srq in [false, true] {
        for (room, len) in [(0, 0), (39, 0), (40, 1), (GRH + 99, 100)] {
            let mut pair = Pair::with(|terms| {
                terms.qp_type = QpType::Ud;
                terms.half[B].srq = uses_srq.then_some(Pd(1));
            });
            let buffer = pair.local(B);
            let before = pair.bytes(B, buffer).to_vec();
            let post = |pair: &mut Pair, room| match uses_srq {
                true => pair.shared_recv(B, room),
                false => pair.recv(B, room),
            };
            let recvs = [post(&mut pair, room), post(&mut pair, GRH + 100)];
            let mut sends = vec![pair.send_to(A, len, None)];
            pair.run();
            assert_eq!(statuses(&mut pair, B, Side::Recv), [], "the receive stays");
            assert_eq!(pair.bytes(B, buffer), before, "nothing is written");
            let expected = [("resp_local_length_error", 1), ("rx_receive_too_small", 1)];
            assert_counted(&pair, B, &expected);
            assert_eq!(pair.seen(B), [], "no answer");
            assert_eq!(pair.qp(B).state(), QpState::Rts);
            let waiting = if uses_srq { (2, 0) } else { (0, 2) };
            let found = (pair.node(B).srq.len(), pair.qp(B).recv_wrs());
            assert_eq!(found, waiting, "no QP keeps a shared receive that others may need");
            // A datagram that fits the receive is placed into it.
            if room >= GRH {
                sends.push(pair.send_to(A, room - GRH, None));
                sends.push(pair.send_to(A, 100, None));
                pair.run();
                assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
            }
            assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        }
    }
}

#[test]
fn a_receive_without_a_right_to_its_memory_fails_and_the_qp_goes_on() {
    for uses_srq in [false, true] {
        let mut pair = Pair::with(|terms| {
            terms.qp_type = QpType::Ud;
            terms.half[B].srq = uses_srq.then_some(Pd(1));
        });
        let good = pair.local(B).sge(0, GRH + 100);
        let bad = Sge { lkey: Lkey(77), ..good };
        for (wr_id, sge) in [(1, bad), (2, good)] {
            match uses_srq {
                true => {
                    let srq = &mut pair.world.node_mut(B as u16).srq;
                    srq.push_back((RecvWr { wr_id }, vec![sge]));
                }
                false => pair.world.post_recv(pair.at(B), &RecvWr { wr_id }, &[sge]).unwrap(),
            }
        }
        pair.send_to(A, 100, None);
        pair.send_to(A, 100, None);
        pair.run();
        let expected = [(1, WcStatus::LocProtErr), (2, WcStatus::Success)];
        assert_eq!(statuses(&mut pair, B, Side::Recv), expected);
        assert_eq!(pair.qp(B).state(), QpState::Rts);
        assert_counted(&pair, B, &[("resp_cqe_error", 1), ("rdma_recvs", 1)]);
    }
}

#[test] //= check E13 test
fn a_wrong_qkey_is_dropped_in_silence_and_counted() {
    let mut pair = ud();
    pair.recv(B, 100);
    let wrong = [0, 0x1111_1110, 0x9111_1111, 0x8001_0000, u32::MAX];
    for (index, qkey) in (0_u32..).zip(wrong) {
        let packet = pair.craft(A, OpCode::UD_SEND_ONLY).psn(pair.psn(A, index)).payload(&[1; 8]);
        pair.deliver(A, &packet.ext(|ext| ext.deth.qkey = Qkey(qkey)));
    }
    assert_counted(&pair, B, &[("qkey_viol", wrong.len() as u64)]);
    assert_eq!(pair.seen(B), []);
    assert_eq!(pair.qp(B).recv_wrs(), 1);
    let right = pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 8]);
    pair.deliver(A, &right);
    only_success(&mut pair, B, Side::Recv);
}

/// Q_Key of every QP 1.
const GSI_QKEY: Qkey = Qkey(0x8001_0000);

#[test] //= check E13 test
fn a_new_qkey_counts_from_then_on() {
    for state in [QpState::Rtr, QpState::Rts] {
        let mut pair = Pair::reset(|terms| terms.qp_type = QpType::Ud);
        let (old, new) = (Qkey(0x1111_1111), Qkey(0x77));
        let [init, rtr, rts] = pair.changes(B);
        let changes = match state {
            QpState::Rtr => vec![init, QpChange { qkey: Some(new), ..rtr }],
            _ => vec![init, rtr, rts, QpChange { qkey: Some(new), ..QpChange::default() }],
        };
        for change in changes {
            pair.modify(B, &change).unwrap();
        }
        let recv = pair.recv(B, 100);
        for (index, qkey) in [(0, old), (1, new)] {
            let packet = pair.craft(A, OpCode::UD_SEND_ONLY).psn(pair.psn(A, index));
            pair.deliver(A, &packet.payload(&[1; 8]).ext(|ext| ext.deth.qkey = qkey));
            assert_eq!(pair.drops(B, DropReason::BadQkey), 1, "{state} {qkey:?}");
        }
        assert_eq!(only_success(&mut pair, B, Side::Recv).wr_id, recv);
    }
}

#[test] //= check E13 test
fn queue_pair_1_takes_its_well_known_qkey_alone() {
    let mut pair = ud();
    // The second QP of node B, with tag 0, has number 1.
    let gsi = another_ud(&mut pair, B, 0, GSI_QKEY, Pkey::DEFAULT);
    assert_eq!(pair.world.qp(gsi).qpn(), Qpn::GSI);
    let to_gsi = |pair: &Pair, qkey| {
        let packet = pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 8]);
        packet.bth(|bth| bth.dest_qpn = Qpn::GSI).ext(|ext| ext.deth.qkey = qkey)
    };
    for qkey in [Qkey(0), Qkey(0x0001_0000), Qkey(0x1111_1111), Qkey(0x8001_0001)] {
        let packet = to_gsi(&pair, qkey);
        pair.deliver(A, &packet);
    }
    assert_counted(&pair, B, &[("qkey_viol", 4)]);
    let packet = to_gsi(&pair, GSI_QKEY);
    pair.deliver(A, &packet);
    assert_eq!(pair.take_at(gsi, Side::Recv).len(), 1);
}

#[test]
fn a_qkey_with_the_high_bit_is_replaced_by_the_qps_own() {
    let mut pair = ud();
    for (posted, sent) in [(0x1234, 0x1234), (0x8000_0000, 0x1111_1111)] {
        let mut op = pair.send_to_op(A, None);
        if let SendOp::SendTo { qkey, .. } = &mut op {
            *qkey = Qkey(posted);
        }
        pair.post(A, op, &[]);
        pair.run();
        assert_eq!(pair.seen(A).last().unwrap().ext.deth.qkey, Qkey(sent));
    }
}

/// Adds a UD QP in RTS with a receive of 500 bytes in the inbox of its end.
fn another_ud(pair: &mut Pair, end: usize, tag: u32, qkey: Qkey, pkey: Pkey) -> At {
    let caps = uroce_sim::Terms::default().caps;
    let init = QpInit::new(QpType::Ud, caps);
    let at = pair.world.add_qp(end as u16, tag, Pd(1), &init);
    let [init, rtr, rts] = QpChange::datagram_steps(1, qkey, Psn::new(1));
    for change in [QpChange { pkey: Some(pkey), ..init }, rtr, rts] {
        pair.world.modify(at, &change).unwrap();
    }
    let inbox = pair.local(end).len() / 4 * 3;
    let sge = pair.local(end).sge(inbox + u32::from(at.qp) * 1000, 500);
    pair.world.post_recv(at, &RecvWr { wr_id: u64::from(at.qp) }, &[sge]).unwrap();
    at
}

/// An address handle of end A for a multicast group.
fn group_handle(pair: &mut Pair, group: Gid) -> Ah {
    let path = Encap { dst: group, ..pair.path(A) };
    pair.world.node_mut(A as u16).create_ah(path)
}

#[test] //= check L5 test
fn a_multicast_datagram_comes_to_every_qp_of_the_group_that_may_have_it() {
    let group = Gid::from(Ipv4Addr::new(239, 1, 2, 3));
    let mut pair = ud();
    let qkey = Qkey(0x1111_1111);
    let members = [
        (another_ud(&mut pair, B, 21, qkey, Pkey::DEFAULT), None),
        (another_ud(&mut pair, B, 22, Qkey(5), Pkey::DEFAULT), Some(DropReason::BadQkey)),
        (another_ud(&mut pair, B, 23, qkey, Pkey::DEFAULT), None),
        (another_ud(&mut pair, B, 24, qkey, Pkey(0x8001)), Some(DropReason::BadPkey)),
        (another_ud(&mut pair, B, 25, qkey, Pkey::DEFAULT), None),
    ];
    let outside = another_ud(&mut pair, B, 26, qkey, Pkey::DEFAULT);
    for (at, _) in members {
        pair.world.node_mut(B as u16).groups.push((group, at));
    }
    let ah = group_handle(&mut pair, group);
    let op = SendOp::SendTo { ah, dest_qpn: Qpn::MULTICAST, qkey, imm: Some(ImmDt(7)) };
    let send = pair.post(A, op, &[pair.local(A).sge(0, 100)]);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
    for (at, refused) in members {
        let cqes = pair.take_at(at, Side::Recv);
        assert_eq!(cqes.len(), usize::from(refused.is_none()));
        let inbox = pair.local(B).len() / 4 * 3 + u32::from(at.qp) * 1000;
        let got = pair.slice(B, pair.local(B), inbox + GRH, 100);
        match refused {
            None => {
                assert_eq!((cqes[0].byte_len, cqes[0].imm), (GRH + 100, Some(ImmDt(7))));
                assert_eq!(got, pair.source(A, 100));
            }
            Some(reason) => {
                assert_eq!(pair.drops(B, reason), 1);
                assert_ne!(got, pair.source(A, 100), "nothing of the refused copy leaks");
            }
        }
    }
    assert_eq!(pair.take_at(outside, Side::Recv), []);
    assert_counted(&pair, B, &[("rdma_recvs", 3), ("qkey_viol", 1), ("bad_pkey", 1)]);
}

#[test] //= check L5 test
fn a_datagram_to_a_group_without_members_is_dropped() {
    let group = Gid::from(Ipv4Addr::new(239, 1, 2, 3));
    let mut pair = ud();
    pair.recv(B, 100);
    let ah = group_handle(&mut pair, group);
    let qkey = Qkey(0x1111_1111);
    pair.post(A, SendOp::SendTo { ah, dest_qpn: Qpn::MULTICAST, qkey, imm: None }, &[]);
    pair.run();
    assert_counted(&pair, B, &[("rx_unknown_qpn", 1)]);
    assert_eq!(pair.qp(B).recv_wrs(), 1);
}

#[test] //= check L6 test
fn immediate_data_of_a_datagram_stands_big_endian_on_the_wire() {
    let mut pair = ud();
    pair.recv(B, 100);
    pair.send_to(A, 0, Some(0x0102_0304));
    pair.run();
    let frame = pair.world.record().unwrap().sightings().next().unwrap().frame.clone();
    let imm = frame.len() - 8;
    assert_eq!(frame[imm..imm + 4], [1, 2, 3, 4]);
    let cqe = only_success(&mut pair, B, Side::Recv);
    assert_eq!((cqe.opcode, cqe.imm), (WcOpcode::Recv, Some(ImmDt(0x0102_0304))));
    assert_eq!((cqe.byte_len, cqe.invalidated()), (GRH, None));
}
