//! Raw queue pairs: frames, receives, rates and errors.

use crate::bare::Bare;
use uroce_transport::{
    AsyncEvent, DropReason, FrameError, Framing, InboundFrame, Instant, MemoryFault, PostError,
    Progress, QpChange, QpState, QpType, RecvWr, SendOp, SendWr, Sge, Side, StaticRate, WcOpcode,
    WcStatus,
};
use uroce_wire::{Lkey, Mac, OpCode, Psn, Srqn, Va};

const TYPES: [QpType; 3] = [QpType::RawPacket, QpType::RawEtherType, QpType::RawIpv6];
const TO: Mac = Mac([2, 0, 0, 0, 0, 7]);

fn sge(len: u32) -> Sge {
    Sge { va: Va(0), len, lkey: Lkey(1) }
}

/// The operation that sends one message of a type at a rate.
fn op_of(qp_type: QpType, rate: StaticRate) -> SendOp {
    match qp_type {
        QpType::RawIpv6 => SendOp::Ipv6 { to: TO, rate },
        _ => SendOp::Frame { rate, checksums: false },
    }
}

fn try_post(bare: &mut Bare, op: SendOp, len: u32) -> Result<(), PostError> {
    let srqn = Srqn::default();
    let wr = SendWr { wr_id: 7, op, signaled: true, solicited: false, fence: false, srqn };
    bare.qp.post_send(&wr, &[sge(len)], &mut bare.env)
}

fn post(bare: &mut Bare, mbps: u32, len: u32) {
    let rate = StaticRate::from_mbps(mbps).unwrap_or(StaticRate::MAX);
    let op = op_of(bare.qp.qp_type(), rate);
    try_post(bare, op, len).expect("posts");
}

fn receive(bare: &mut Bare, len: u32) {
    bare.qp.post_recv(&RecvWr { wr_id: 3 }, &[sge(len)], &mut bare.env).expect("posts");
}

fn arrive(bare: &mut Bare, port: u8, bytes: &[u8]) -> Result<(), DropReason> {
    let frame = InboundFrame { port, bytes, ipv6: bytes.get(18..) };
    bare.qp.handle_frame(Instant::ZERO, &frame, &mut bare.env)
}

#[test] //= check W5 test
fn a_message_is_a_frame_or_an_ipv6_packet() {
    for qp_type in TYPES {
        let mut bare = Bare::raw(qp_type);
        post(&mut bare, 0, 100);
        bare.send();
        let framing = match qp_type {
            QpType::RawIpv6 => Framing::Ipv6 { to: TO },
            _ => Framing::Whole { checksums: false },
        };
        assert_eq!(bare.env.frames, [(framing, 100)]);
        receive(&mut bare, 200);
        assert_eq!(arrive(&mut bare, 1, &[5; 118]), Ok(()));
        let (side, sent) = bare.env.completed[0];
        assert_eq!(
            (side, sent.status, sent.opcode),
            (Side::Send, WcStatus::Success, WcOpcode::Send)
        );
        let (side, cqe) = bare.env.completed[1];
        assert_eq!((side, cqe.status, cqe.wr_id), (Side::Recv, WcStatus::Success, 3));
        // Without the Ethernet header with its tag.
        let expected = if qp_type == QpType::RawIpv6 { 100 } else { 118 };
        assert_eq!((cqe.byte_len, bare.env.written), (expected, u64::from(expected)));
        assert_eq!(cqe.grh, None);
    }
}

#[test] //= check W5 test
fn a_frame_without_an_ipv6_packet_is_for_raw_ipv6_none() {
    for qp_type in TYPES {
        let mut bare = Bare::raw(qp_type);
        receive(&mut bare, 200);
        let frame = InboundFrame { port: 1, bytes: &[5; 60], ipv6: None };
        let result = bare.qp.handle_frame(Instant::ZERO, &frame, &mut bare.env);
        let refused = Err(DropReason::WrongService);
        assert_eq!(result, if qp_type == QpType::RawIpv6 { refused } else { Ok(()) });
        // The receive stays.
        assert_eq!(bare.env.completed.len(), usize::from(qp_type != QpType::RawIpv6));
    }
}

#[test] //= check W5 test
fn each_type_takes_its_own_operation_only() {
    let rate = StaticRate::MAX;
    let (frame, packet) = (SendOp::Frame { rate, checksums: true }, SendOp::Ipv6 { to: TO, rate });
    for qp_type in TYPES {
        let mut bare = Bare::raw(qp_type);
        let is_ipv6 = qp_type == QpType::RawIpv6;
        assert_eq!(try_post(&mut bare, frame, 60).is_ok(), !is_ipv6);
        assert_eq!(try_post(&mut bare, packet, 60).is_ok(), is_ipv6);
        let send = SendOp::Send { imm: None };
        assert_eq!(try_post(&mut bare, send, 60), Err(PostError::WrongOperation));
    }
    let mut datagrams = Bare::datagram(QpType::Ud, uroce_wire::Qkey(1), None);
    assert_eq!(try_post(&mut datagrams, frame, 60), Err(PostError::WrongOperation));
    let frame = InboundFrame { port: 1, bytes: &[0; 60], ipv6: None };
    let refused = datagrams.qp.handle_frame(Instant::ZERO, &frame, &mut datagrams.env);
    assert_eq!(refused, Err(DropReason::WrongService));
}

#[test] //= check W7 test
fn a_frame_without_a_receive_or_too_long_is_dropped_and_the_receive_stays() {
    let mut bare = Bare::raw(QpType::RawPacket);
    assert_eq!(arrive(&mut bare, 1, &[0; 60]), Err(DropReason::NoReceiveWqe));
    receive(&mut bare, 60);
    assert_eq!(arrive(&mut bare, 1, &[0; 61]), Err(DropReason::ReceiveTooSmall));
    assert_eq!(arrive(&mut bare, 2, &[0; 60]), Err(DropReason::WrongSource), "another port");
    assert_eq!(arrive(&mut bare, 1, &[0; 60]), Ok(()));
    assert_eq!(bare.env.completed.len(), 1);
    // A packet is not for a raw QP, whatever it says.
    let packet = crate::bare::request(OpCode::UD_SEND_ONLY, Psn::new(1));
    assert_eq!(bare.receive(&packet), Err(DropReason::WrongService));
    let cnp = crate::bare::request(OpCode::CNP, Psn::new(1));
    assert_eq!(bare.receive(&cnp), Err(DropReason::Congestion));
    assert_eq!(bare.qp.state(), QpState::Rts);
}

#[test] //= check W8 test
fn frames_are_taken_from_rtr_on_and_not_in_err() {
    let mut bare = Bare::raw(QpType::RawPacket);
    let Bare { qp, env } = &mut bare;
    qp.modify(Instant::ZERO, &QpChange::to(QpState::Reset), env).unwrap();
    assert_eq!(arrive(&mut bare, 1, &[0; 60]), Err(DropReason::QpNotReady));
    let Bare { qp, env } = &mut bare;
    let init = QpChange { port: Some(1), ..QpChange::to(QpState::Init) };
    qp.modify(Instant::ZERO, &init, env).unwrap();
    receive(&mut bare, 100);
    assert_eq!(arrive(&mut bare, 1, &[0; 60]), Err(DropReason::QpNotReady));
    let Bare { qp, env } = &mut bare;
    qp.modify(Instant::ZERO, &QpChange::to(QpState::Rtr), env).unwrap();
    assert_eq!(arrive(&mut bare, 1, &[0; 60]), Ok(()));
    bare.qp.fail(&mut bare.env);
    assert_eq!(arrive(&mut bare, 1, &[0; 60]), Err(DropReason::QpNotReady));
}

#[test] //= check W9 test
fn a_send_that_fails_takes_the_qp_to_sqe_and_receives_work() {
    let rows = [
        (FrameError::Length, WcStatus::LocLenErr),
        (FrameError::Memory(MemoryFault::UnknownKey), WcStatus::LocProtErr),
        (FrameError::NoLink, WcStatus::LocQpOpErr),
    ];
    for (refusal, status) in rows {
        let mut bare = Bare::raw(QpType::RawPacket);
        bare.env.refusal = Some(FrameError::Full);
        post(&mut bare, 0, 60);
        post(&mut bare, 0, 60);
        let Bare { qp, env } = &mut bare;
        assert_eq!(qp.poll_transmit(Instant::ZERO, 8, env), Progress::Blocked);
        assert_eq!(qp.state(), QpState::Rts, "a full port is no error");
        env.refusal = Some(refusal);
        qp.poll_transmit(Instant::ZERO, 8, env);
        assert_eq!(qp.state(), QpState::Sqe);
        let statuses: Vec<_> = env.completed.iter().map(|(_, cqe)| cqe.status).collect();
        assert_eq!(statuses, [status, WcStatus::WrFlushErr]);
        env.refusal = None;
        receive(&mut bare, 100);
        assert_eq!(arrive(&mut bare, 1, &[0; 60]), Ok(()));
        let Bare { qp, env } = &mut bare;
        qp.modify(Instant::ZERO, &QpChange::to(QpState::Rts), env).unwrap();
        post(&mut bare, 0, 60);
        bare.send();
        assert_eq!(bare.env.frames.len(), 1);
    }
}

/// Sends frames of these rates (Mb/s) and lengths as early as the QP allows, and returns when each
/// has left, in nanoseconds.
fn departures(qp_type: QpType, frames: &[(u32, u32)]) -> Vec<u64> {
    let mut bare = Bare::raw(qp_type);
    frames.iter().for_each(|(mbps, len)| post(&mut bare, *mbps, *len));
    let Bare { qp, env } = &mut bare;
    let (mut now, mut left) = (Instant::from_nanos(1_000_000_000), Vec::new());
    while env.frames.len() < frames.len() {
        qp.handle_timeout(now, env);
        let before = env.frames.len();
        assert_eq!(qp.poll_transmit(now, 64, env), Progress::Idle);
        let count = env.frames.len() - before;
        left.extend(std::iter::repeat_n(now.as_nanos() - 1_000_000_000, count));
        if env.frames.len() < frames.len() {
            now = qp.next_timeout().expect("a frame that waits has a time");
        }
    }
    left
}

#[test] //= check W6 test
fn each_frame_is_followed_by_the_gap_of_its_own_rate() {
    // 1000 bytes at 10 Gb/s take 800 ns, at 2.5 Gb/s 3200 ns.
    type Row<'a> = (&'a [(u32, u32)], &'a [u64]);
    let rows: &[Row<'_>] = &[
        (&[(10_000, 1000), (10_000, 1000), (10_000, 1000)], &[0, 800, 1600]),
        (&[(2_500, 1000), (10_000, 1000), (2_500, 1000)], &[0, 3200, 4000]),
        (&[(0, 1000), (0, 1000), (0, 1000)], &[0, 0, 0]),
        (&[(0, 1000), (10_000, 1000), (0, 1000), (0, 1000)], &[0, 0, 800, 800]),
        // 64 bytes at 2.5 Gb/s take 204.8 ns: fractions add up.
        (&[(2_500, 64); 6], &[0, 204, 409, 614, 819, 1024]),
    ];
    for (frames, expected) in rows {
        for qp_type in TYPES {
            assert_eq!(departures(qp_type, frames), *expected, "{qp_type}: {frames:?}");
        }
    }
}

#[test] //= check G2 test
fn queues_take_work_only_in_the_states_that_allow_it() {
    for qp_type in TYPES {
        let mut bare = Bare::raw(qp_type);
        for state in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
            let port = (state == QpState::Init).then_some(1);
            let change = QpChange { port, ..QpChange::to(state) };
            bare.qp.modify(Instant::ZERO, &change, &mut bare.env).unwrap();
            let recv = bare.qp.post_recv(&RecvWr { wr_id: 3 }, &[sge(100)], &mut bare.env);
            let send = try_post(&mut bare, op_of(qp_type, StaticRate::MAX), 60);
            let expected = |may| if may { Ok(()) } else { Err(PostError::InvalidState) };
            assert_eq!(recv, expected(state != QpState::Reset), "{qp_type} {state}");
            assert_eq!(send, expected(state == QpState::Rts), "{qp_type} {state}");
        }
        bare.send();
        assert_eq!((bare.env.frames.len(), bare.qp.recv_wrs()), (1, 3));
    }
}

#[test] //= check H4 test
fn a_drained_send_queue_is_told_of_once() {
    for (qp_type, notify) in TYPES.map(|one| [(one, false), (one, true)]).concat() {
        let mut bare = Bare::raw(qp_type);
        (0..3).for_each(|_| post(&mut bare, 2_500, 1000));
        let Bare { qp, env } = &mut bare;
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        qp.poll_transmit(at(0), 64, env);
        let sqd = QpChange { en_sqd_async_notify: Some(notify), ..QpChange::to(QpState::Sqd) };
        qp.modify(at(1), &sqd, env).unwrap();
        for micros in [4, 8, 12] {
            qp.handle_timeout(at(micros), env);
            qp.poll_transmit(at(micros), 64, env);
        }
        let expected = if notify { vec![AsyncEvent::SqDrained] } else { vec![] };
        assert_eq!((env.frames.len(), &env.events), (1, &expected), "{qp_type}");
        qp.modify(at(20), &QpChange::to(QpState::Rts), env).unwrap();
        for micros in [20, 24] {
            qp.handle_timeout(at(micros), env);
            qp.poll_transmit(at(micros), 64, env);
        }
        assert_eq!((env.frames.len(), &env.events), (3, &expected), "{qp_type}");
    }
}

#[test] //= check W6 test
fn the_time_in_sqd_is_not_made_up_for() {
    let mut bare = Bare::raw(QpType::RawPacket);
    (0..4).for_each(|_| post(&mut bare, 2_500, 1000));
    let Bare { qp, env } = &mut bare;
    let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
    qp.poll_transmit(at(0), 64, env);
    assert_eq!(env.frames.len(), 1, "the others wait for 3.2 µs each");
    qp.modify(at(1), &QpChange::to(QpState::Sqd), env).unwrap();
    qp.handle_timeout(at(4), env);
    qp.poll_transmit(at(4), 64, env);
    assert_eq!(env.frames.len(), 1, "no message starts");
    qp.modify(at(900), &QpChange::to(QpState::Rts), env).unwrap();
    for (micros, sent) in [(900, 2), (903, 2), (904, 3), (906, 3), (907, 4)] {
        qp.handle_timeout(at(micros), env);
        qp.poll_transmit(at(micros), 64, env);
        assert_eq!(env.frames.len(), sent, "after {micros} µs");
    }
}
