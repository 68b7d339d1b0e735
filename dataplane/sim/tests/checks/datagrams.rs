//! Datagrams that wait for the rate of their path, and datagrams of QP 1.

use uroce_transport::{
    Ah, DropReason, Instant, Progress, QpState, QpType, RecvWr, SendOp, SendWr, Sge, Side, WcStatus,
};
use uroce_wire::{Deth, ExtHeaders, Lkey, OpCode, Psn, Qkey, Qpn, Va};

use super::bare::{Bare, request};

/// Q_Key of every QP 1.
const GSI_QKEY: Qkey = Qkey(0x8001_0000);

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Posts a datagram of eight bytes.
fn post(bare: &mut Bare, wr_id: u64) {
    let op = SendOp::SendTo { ah: Ah(0), dest_qpn: Qpn::new(1), qkey: Qkey(1 << 31), imm: None };
    let wr = SendWr {
        wr_id,
        op,
        signaled: true,
        solicited: false,
        fence: false,
        srqn: Default::default(),
    };
    bare.qp.post_inline(&wr, &[7; 8], &mut bare.env).unwrap();
}

#[test]
fn a_datagram_waits_for_its_way_and_then_goes() {
    for qp_type in [QpType::Ud, QpType::Gsi] {
        let mut bare = Bare::datagram(qp_type, GSI_QKEY, None);
        bare.env.free_at = Some(at(5000));
        post(&mut bare, 1);
        let Bare { qp, env } = &mut bare;
        assert_eq!(qp.poll_transmit(at(1000), 8, env), Progress::Idle);
        assert_eq!(qp.next_timeout(), Some(at(5000)));
        assert_eq!(env.completed.len() + env.sent.len(), 0);
        // A poll before that time changes nothing.
        qp.handle_timeout(at(4999), env);
        assert_eq!(qp.poll_transmit(at(4999), 8, env), Progress::Idle);
        assert_eq!(qp.next_timeout(), Some(at(5000)));
        env.free_at = None;
        qp.handle_timeout(at(5000), env);
        assert_eq!(qp.next_timeout(), None);
        assert_eq!(qp.poll_transmit(at(5000), 8, env), Progress::Idle);
        assert_eq!(env.completed.len(), 1);
        assert_eq!(
            env.sent[0].ext.deth.qkey, GSI_QKEY,
            "the QP's own, as the request's top bit says"
        );
    }
}

#[test]
fn a_datagram_qp_keeps_to_its_own_limit() {
    // The environment reports frames of eight bytes: 64 µs each at 1 Mb/s.
    let mut bare = Bare::datagram(QpType::Ud, GSI_QKEY, Some(1000));
    for wr_id in 0..3 {
        post(&mut bare, wr_id);
    }
    let Bare { qp, env } = &mut bare;
    for sent in 1..=3 {
        let now = at(64_000 * (sent - 1));
        qp.handle_timeout(now, env);
        assert_eq!(qp.poll_transmit(now, 8, env), Progress::Idle);
        assert_eq!(env.sent.len() as u64, sent);
        assert_eq!(qp.next_timeout(), Some(at(64_000 * sent)));
    }
    // In ERR nothing waits any longer.
    post(&mut bare, 3);
    let Bare { qp, env } = &mut bare;
    qp.fail(env);
    assert_eq!(env.completed.last().unwrap().1.status, WcStatus::WrFlushErr);
    qp.handle_timeout(at(192_000), env);
    assert_eq!(qp.next_timeout(), None);
}

#[test]
fn the_general_services_interface_takes_what_brings_its_q_key() {
    let mut bare = Bare::datagram(QpType::Gsi, GSI_QKEY, None);
    assert_eq!(bare.qp.qp_type(), QpType::Gsi);
    assert_eq!(bare.qp.state(), QpState::Rts);
    let sge = Sge { va: Va(0), len: 300, lkey: Lkey(1) };
    bare.qp.post_recv(&RecvWr { wr_id: 9 }, &[sge], &mut bare.env).unwrap();
    let mad = |qkey| {
        let mut sent = request(OpCode::UD_SEND_ONLY, Psn::new(1));
        let deth = Deth { qkey, src_qpn: Qpn::new(1) };
        sent.ext = ExtHeaders { deth, ..ExtHeaders::default() };
        sent.len = 256;
        sent
    };
    assert_eq!(bare.receive(&mad(Qkey(0x1_1111))), Err(DropReason::BadQkey));
    assert_eq!(bare.receive(&mad(GSI_QKEY)), Ok(()));
    let (side, cqe) = bare.env.completed[0];
    assert_eq!((side, cqe.status, cqe.byte_len), (Side::Recv, WcStatus::Success, 296));
    assert_eq!((cqe.wr_id, cqe.src_qpn), (9, Qpn::new(1)));
}
