//! Headers of RD packets.

use uroce_sim::Rule;
use uroce_transport::Side;
use uroce_wire::{
    Aeth, Bth, Deth, ExtHeaders, Msn, OpCode, Operation, Packet, Psn, Qkey, Qpn, Rdeth, Syndrome,
};

use crate::{A, B, Scene};

#[test] //= check R1 test
//= check R2 test
fn every_packet_names_eec_and_rd_qp_and_only_requests_have_a_q_key() {
    let mut scene = Scene::new();
    let (from, to) = (scene.here[0], scene.there[0]);
    let pair = &mut scene.pair;
    let recvs = [0; 3].map(|_| pair.rd_recv(to, 1000));
    let sends = [
        pair.rd_send(from, to, 700),
        pair.rd_send(from, to, 0),
        pair.rd_write(from, to, 700, None),
        pair.rd_write(from, to, 300, Some(6)),
        pair.rd_read(from, to, 700),
        pair.rd_fetch_add(from, to, 1),
        pair.rd_compare_swap(from, to, 0, 1),
    ];
    scene.run();
    scene.assert_succeeded(from, Side::Send, &sends);
    scene.assert_succeeded(to, Side::Recv, &recvs);
    let pair = &scene.pair;
    let [here, there] = [from, to].map(|at| pair.world.qp(at).qpn());
    let qkey = Qkey(0x1111_1111);
    for seen in pair.seen(A) {
        assert!(seen.bth.opcode.is_of_rd(), "{seen:?}");
        assert_eq!(seen.ext.rdeth.eecn, pair.qpn(B).value());
        assert_eq!((seen.bth.dest_qpn, seen.ext.deth), (there, Deth { qkey, src_qpn: here }));
    }
    let mut answers = Vec::new();
    for seen in pair.seen(B) {
        assert!(seen.bth.opcode.is_of_rd(), "{seen:?}");
        assert_eq!(seen.ext.rdeth.eecn, pair.qpn(A).value());
        assert_eq!((seen.bth.dest_qpn, seen.ext.deth), (here, Deth::default()));
        answers.extend(seen.bth.opcode.info().map(|info| info.operation));
    }
    for operation in [Operation::Acknowledge, Operation::ReadResponse, Operation::AtomicAcknowledge]
    {
        assert!(answers.contains(&operation), "{answers:?}");
    }
}

#[test] //= check R39 test
fn credits_of_the_peer_are_not_used() {
    let mut scene = Scene::untapped();
    let (from, to) = (scene.here[0], scene.there[0]);
    let own = scene.pair.world.qp(from).qpn();
    scene.pair.rule(Rule::drop().from(B).nth(1));
    let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 1000));
    let first = scene.pair.rd_send(from, to, 100);
    scene.pair.run_for(crate::SHORTLY);
    // No receive is left, it says.
    let ack = scene.pair.craft(B, OpCode::RD_ACKNOWLEDGE).bth(|bth| bth.dest_qpn = own);
    let none = Aeth { syndrome: Syndrome::Ack { credits: 0 }, msn: Msn::new(1) };
    let ack = ack.psn(scene.pair.psn(A, 0)).ext(|ext| ext.aeth = none);
    scene.pair.deliver(B, &ack);
    let before = scene.pair.seen(A).len();
    let second = scene.pair.rd_send(from, to, 700);
    scene.run();
    let asks: Vec<_> = scene.pair.seen(A)[before..].iter().map(|seen| seen.bth.ack_req).collect();
    assert_eq!(asks, [false, false, true]);
    scene.assert_succeeded(from, Side::Send, &[first, second]);
    scene.assert_succeeded(to, Side::Recv, &recvs);
}

/// A SEND Only of RD with four bytes: BTH, RDETH, DETH, payload.
const SEND_ONLY: [u8; 28] = [
    0x44, 0x40, 0xff, 0xff, 0x00, 0x00, 0x12, 0x34, 0x80, 0x00, 0x00, 0x07, // BTH
    0x00, 0x00, 0x56, 0x78, // RDETH
    0x11, 0x22, 0x33, 0x44, 0x00, 0x00, 0x9a, 0xbc, // DETH
    0xde, 0xad, 0xbe, 0xef,
];

#[test] //= check R2 test
fn a_packet_of_known_bytes() {
    let packet = Packet::parse(&SEND_ONLY).unwrap();
    let bth = Bth {
        opcode: OpCode::RD_SEND_ONLY,
        mig_req: true,
        dest_qpn: Qpn::new(0x1234),
        ack_req: true,
        psn: Psn::new(7),
        ..packet.bth
    };
    let ext = ExtHeaders {
        rdeth: Rdeth { eecn: 0x5678 },
        deth: Deth { qkey: Qkey(0x1122_3344), src_qpn: Qpn::new(0x9abc) },
        ..ExtHeaders::default()
    };
    assert_eq!((packet.bth, packet.ext), (bth, ext));
    assert_eq!(packet.payload, [0xde, 0xad, 0xbe, 0xef]);
    // RESYNC has the same headers and nothing else.
    let mut resync = SEND_ONLY[..24].to_vec();
    resync[0] = 0x55;
    let packet = Packet::parse(&resync).unwrap();
    assert_eq!((packet.op.operation, packet.ext), (Operation::Resync, ext));
    resync.extend([0; 4]);
    assert!(Packet::parse(&resync).is_err(), "a RESYNC has no payload");
}

#[test] //= check R4 test
fn a_q_key_with_its_high_bit_set_is_replaced_by_the_qp_s_own() {
    let mut scene = Scene::new();
    let (from, to) = (scene.here[0], scene.there[0]);
    let recv = scene.pair.rd_recv(to, 100);
    let mut address = scene.pair.rd_address(A, to);
    address.qkey = Qkey(0x8000_0000);
    let op = uroce_transport::SendOp::Send { imm: None };
    let send = scene.pair.post_rd_as(from, &address, op, &[], |_| ());
    scene.run();
    scene.assert_succeeded(from, Side::Send, &[send]);
    scene.assert_succeeded(to, Side::Recv, &[recv]);
    assert_eq!(scene.pair.seen(A)[0].ext.deth.qkey, Qkey(0x1111_1111));
}
