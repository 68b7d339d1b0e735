//! Extended reliable connections: one connection, several shared receive queues.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{SOON, Setup, Side, join, pattern, post};
use uroce::cm::{ConnectParam, Connection, Listener};
use uroce::config::SelectiveRepeat;
use uroce::{
    AccessFlags, CompletionQueue, ConnectOptions, Context, ControlError, ImmDt, MemoryWindow,
    MwType, PostError, QpControl, QpInit, QpState, QpType, QueuePair, RecvWr, RequestError, SendWr,
    SharedReceiveQueue, SrqError, Srqn, WcOpcode, WcStatus, WorkCompletion, XrcDomain,
};

const SLOT: usize = 4096;

/// A connection from left to right, with an XRC domain at the right.
struct Lab {
    left: Side,
    right: Side,
    domain: XrcDomain,
    initiator: QueuePair,
    target: QueuePair,
}

impl Lab {
    fn new(lcores: u16) -> Lab {
        let (left, right) = Setup { lcores, ..Setup::default() }.contexts();
        let (left, right) = (Side::new(&left), Side::new(&right));
        let domain = right.context.open_xrc_domain().unwrap();
        let (initiator, target) = connection(&left, &domain);
        Lab { left, right, domain, initiator, target }
    }

    /// A queue of the domain with a completion queue of its own, and its number.
    fn queue(&self) -> (SharedReceiveQueue, CompletionQueue, Srqn) {
        let cq = self.right.context.create_cq(128).unwrap();
        let srq = self.right.pd.create_xrc_srq(&self.domain, &cq, 64, 1).unwrap();
        let number = srq.xrc_number().expect("a number");
        (srq, cq, number)
    }

    fn receive(&self, srq: &SharedReceiveQueue, id: u64) {
        let at = id as usize * SLOT;
        let room = [self.right.memory.slice(at..at + SLOT).unwrap()];
        srq.post_recv(&RecvWr::new(&room).id(id)).expect("room");
    }

    /// The status of the next request of the initiator, which then is in ERR.
    fn failure(&self) -> WcStatus {
        self.left.completion().status
    }
}

fn connection(left: &Side, domain: &XrcDomain) -> (QueuePair, QueuePair) {
    let options = ConnectOptions::default();
    let target = domain.create_target().unwrap();
    let mut initiator = left.pd.create_qp(&QpInit::new(&left.cq).qp_type(QpType::XrcSend)).unwrap();
    target.control().connect(&initiator.endpoint(1, 0).unwrap(), &options).unwrap();
    initiator.connect(&target.endpoint(1, 0).unwrap(), &options).unwrap();
    (initiator, target)
}

fn next(cq: &CompletionQueue) -> WorkCompletion {
    cq.wait(SOON).expect("no overrun").expect("a completion in time")
}

#[test] //= check X2 test
fn messages_of_one_connection_complete_in_the_queue_s_own_completion_queue() {
    let mut lab = Lab::new(1);
    let queues = [lab.queue(), lab.queue(), lab.queue()];
    for round in 0..20 {
        for (at, (srq, cq, number)) in queues.iter().enumerate() {
            let (id, len) = (at as u64, 300 + 1000 * at);
            lab.receive(srq, id);
            lab.left.memory.write_at(0, &pattern(round, len)).unwrap();
            let message = [lab.left.memory.slice(..len).unwrap()];
            post(&mut lab.initiator, SendWr::send(&message).to_srq(*number).id(7));
            let received = next(cq);
            received.ok().unwrap();
            assert_eq!((received.wr_id, received.byte_len as usize), (id, len));
            assert_eq!((received.opcode, received.qpn), (WcOpcode::Recv, lab.target.qpn()));
            assert_eq!(lab.right.bytes(at * SLOT, len), pattern(round, len));
            assert_eq!(lab.left.done(), 7);
        }
    }
    assert!(queues.iter().all(|(srq, ..)| srq.is_empty()));
}

#[test] //= check X8 test
fn targets_on_several_lcores_take_from_one_queue() {
    const EACH: u64 = 200;
    let mut lab = Lab::new(2);
    let (srq, cq, number) = lab.queue();
    let mut others: Vec<_> = (0..3).map(|_| connection(&lab.left, &lab.domain)).collect();
    let message = [lab.left.memory.slice(..100).unwrap()];
    for round in 0..EACH {
        (0..4).for_each(|id| lab.receive(&srq, id));
        let wr = SendWr::send(&message).to_srq(number).id(round);
        post(&mut lab.initiator, wr);
        others.iter_mut().for_each(|(initiator, _)| post(initiator, wr));
        let mut qpns: Vec<_> = (0..4).map(|_| next(&cq)).map(|it| (it.ok(), it.qpn)).collect();
        let mut expected = vec![(Ok(()), lab.target.qpn())];
        expected.extend(others.iter().map(|(_, target)| (Ok(()), target.qpn())));
        qpns.sort_by_key(|it| it.1);
        expected.sort_by_key(|it| it.1);
        assert_eq!(qpns, expected);
        (0..4).for_each(|_| assert_eq!(lab.left.done(), round));
    }
}

#[test] //= check X2 test
fn every_operation_reaches_memory_of_the_queue_s_domain() {
    let mut lab = Lab::new(1);
    let (srq, cq, number) = lab.queue();
    let target = lab.right.memory.remote();
    lab.left.memory.write_at(0, &pattern(3, 9000)).unwrap();
    let message = [lab.left.memory.slice(..9000).unwrap()];
    let sink = [lab.left.memory.slice(500_000..509_000).unwrap()];
    let word = [lab.left.memory.slice(600_000..600_008).unwrap()];
    let far = target.slice(800_000, 8).unwrap();
    lab.receive(&srq, 5);
    let wrs = [
        SendWr::write(&message, target),
        SendWr::write_with_imm(&message, target, ImmDt(17)),
        SendWr::read(&sink, target),
        SendWr::fetch_add(&word, far, 5),
        SendWr::compare_swap(&word, far, 5, 9),
    ];
    for wr in wrs {
        post(&mut lab.initiator, wr.to_srq(number));
        lab.left.done();
    }
    assert_eq!(lab.left.bytes(500_000, 9000), pattern(3, 9000));
    assert_eq!(lab.left.bytes(600_000, 8), 5_u64.to_ne_bytes());
    assert_eq!(lab.right.bytes(800_000, 8), 9_u64.to_ne_bytes());
    let received = next(&cq);
    assert_eq!((received.opcode, received.imm), (WcOpcode::RecvRdmaWithImm, Some(ImmDt(17))));
}

#[test] //= check X3 test
fn a_queue_that_is_unknown_or_gone_or_of_another_domain_is_refused() {
    for case in 0..3 {
        let mut lab = Lab::new(1);
        let (_srq, _cq, number) = lab.queue();
        let other = lab.right.context.open_xrc_domain().unwrap();
        let cq = lab.right.context.create_cq(16).unwrap();
        let foreign = lab.right.pd.create_xrc_srq(&other, &cq, 4, 1).unwrap();
        let named = match case {
            0 => Srqn::new(number.value() ^ 1 << 22),
            1 => foreign.xrc_number().unwrap(),
            _ => {
                let (srq, _, number) = lab.queue();
                drop(srq);
                number
            }
        };
        post(&mut lab.initiator, SendWr::send(&[]).to_srq(named));
        assert_eq!(lab.failure(), WcStatus::RemInvRdReqErr, "case {case}");
        assert_eq!(lab.right.counter("resp_xrc_violations"), 1);
        let query = lab.target.control().query().unwrap();
        assert_eq!(query.attr.state, QpState::Err);
    }
}

#[test] //= check X5 test
fn each_end_refuses_what_the_other_is_for() {
    let mut lab = Lab::new(1);
    let (srq, _, number) = lab.queue();
    assert_eq!(lab.initiator.post_recv(&RecvWr::new(&[])), Err(PostError::HasSrq));
    assert_eq!(lab.target.post_recv(&RecvWr::new(&[])), Err(PostError::HasSrq));
    let send = SendWr::send(&[]).to_srq(number);
    assert_eq!(lab.target.post_send(&send), Err(PostError::WrongOperation));
    let plain = lab.right.pd.create_srq(4, 1).unwrap();
    assert_eq!(plain.xrc_number(), None);
    for init in [
        QpInit::new(&lab.right.cq).qp_type(QpType::XrcRecv),
        QpInit::new(&lab.right.cq).qp_type(QpType::XrcSend).srq(&srq),
        QpInit::new(&lab.right.cq).srq(&srq),
        QpInit::new(&lab.right.cq).qp_type(QpType::Ud).srq(&srq),
    ] {
        let refused = lab.right.pd.create_qp(&init).map(|_| ());
        let is_named = matches!(refused, Err(RequestError::Control(ControlError::XrcDomain)));
        assert!(is_named, "{refused:?}");
    }
}

#[test] //= check X3 test
fn a_queue_and_its_domain_are_of_one_device() {
    let lab = Lab::new(1);
    let cqs = [&lab.left, &lab.right].map(|side| side.context.create_cq(4).unwrap());
    for (pd, cq) in [(&lab.left.pd, &cqs[0]), (&lab.right.pd, &cqs[0])] {
        let refused = pd.create_xrc_srq(&lab.domain, cq, 4, 1).map(|_| ());
        assert_eq!(refused, Err(SrqError::OtherDevice));
    }
    lab.right.pd.create_xrc_srq(&lab.domain, &cqs[1], 4, 1).unwrap();
}

#[test] //= check X10 test
fn the_connection_manager_connects_an_initiator_to_a_target() {
    let (left, right) = Setup::default().contexts();
    let (left, right) = (Side::new(&left), Side::new(&right));
    let server: SocketAddr = "192.0.2.2:7471".parse().unwrap();
    let listener = Listener::bind(&right.context, server, 4).unwrap();
    let domain = right.context.open_xrc_domain().unwrap();
    let cq = right.context.create_cq(4).unwrap();
    let srq = right.pd.create_xrc_srq(&domain, &cq, 4, 1).unwrap();
    let target = domain.create_target().unwrap();
    let mut initiator = left.pd.create_qp(&QpInit::new(&left.cq).qp_type(QpType::XrcSend)).unwrap();

    let param = ConnectParam::default();
    let refused = Connection::begin(&target, server, &param).map(|_| ());
    assert!(refused.is_err(), "a target does not connect");
    let active = Connection::begin(&initiator, server, &param).unwrap();
    let request = listener.next(SOON).expect("a request in time");
    assert_eq!((request.qp_type(), request.peer_qpn()), (QpType::XrcRecv, initiator.qpn()));
    let passive = request.accept(&target, &param).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    assert_eq!(active.agreed().unwrap().peer_qpn, target.qpn());

    srq.post_recv(&RecvWr::new(&[right.memory.slice(..SLOT).unwrap()])).unwrap();
    left.memory.write_at(0, &pattern(9, 3000)).unwrap();
    let message = [left.memory.slice(..3000).unwrap()];
    post(&mut initiator, SendWr::send(&message).to_srq(srq.xrc_number().unwrap()));
    next(&cq).ok().unwrap();
    assert_eq!(right.bytes(0, 3000), pattern(9, 3000));
    left.done();
    active.disconnect_with(b"").unwrap();
    assert_eq!(initiator.state(), QpState::Err);
}

/// A message of many packets to a queue that is destroyed, with its completion queue, meanwhile.
#[test] //= check X3 test
fn a_queue_is_destroyed_in_the_middle_of_a_message() {
    const LEN: usize = 64 << 10;
    let lab = Lab::new(2);
    let message = [lab.left.memory.slice(..LEN).unwrap()];
    let room = [lab.right.memory.slice(..LEN).unwrap()];
    let (kept, kept_cq, kept_number) = lab.queue();
    let mut ends = [0; 2];
    for round in 0..200_u64 {
        let (mut initiator, target) = connection(&lab.left, &lab.domain);
        let (srq, cq, number) = lab.queue();
        srq.post_recv(&RecvWr::new(&room).id(round)).unwrap();
        post(&mut initiator, SendWr::send(&message).to_srq(number).id(round));
        // From before the first packet to after the last one.
        std::thread::sleep(Duration::from_micros(round % 40 * 5));
        drop(srq);
        drop(cq);
        let status = lab.left.completion().status;
        let is_refused = status == WcStatus::RemInvRdReqErr;
        assert!(is_refused || status == WcStatus::Success, "round {round}: {status:?}");
        ends[usize::from(is_refused)] += 1;
        if !is_refused {
            // The target still has the queue that is gone, and takes another one.
            lab.receive(&kept, 1);
            post(&mut initiator, SendWr::send(&[]).to_srq(kept_number));
            assert_eq!(next(&kept_cq).qpn, target.qpn());
            lab.left.completion().ok().unwrap();
        }
    }
    assert!(ends[1] > 0, "never in the middle: {ends:?}");
}

/// A window that an RC QP of the right side has bound to 64 bytes.
fn window(lab: &mut Lab, kind: MwType) -> MemoryWindow {
    let mut window = lab.right.pd.allocate_mw(kind).unwrap();
    let slice = lab.right.memory.slice(1000..1064).unwrap();
    post(&mut lab.right.qp, SendWr::bind_mw(&mut window, &slice, AccessFlags::REMOTE_WRITE));
    lab.right.done();
    window
}

#[test] //= check F8 test
fn a_window_of_the_queue_s_domain_is_reached_unless_it_is_another_qp_s_own() {
    let mut lab = Lab::new(1);
    join(&mut lab.left, &mut lab.right, &ConnectOptions::default());
    let (_srq, _cq, number) = lab.queue();
    for (kind, expected) in
        [(MwType::Type1, WcStatus::Success), (MwType::Type2, WcStatus::RemAccessErr)]
    {
        let window = window(&mut lab, kind);
        let (mut initiator, _target) = connection(&lab.left, &lab.domain);
        let message = [lab.left.memory.slice(..18).unwrap()];
        post(&mut initiator, SendWr::write(&message, window.remote()).to_srq(number));
        assert_eq!(lab.left.completion().status, expected, "{kind:?}");
    }
}

#[test] //= check F9 test
fn a_send_that_may_not_invalidate_fails_its_receive_and_invalidates_nothing() {
    let mut lab = Lab::new(1);
    join(&mut lab.left, &mut lab.right, &ConnectOptions::default());
    let window = window(&mut lab, MwType::Type2);
    let (srq, cq, number) = lab.queue();
    lab.receive(&srq, 1);
    let send = SendWr::send_with_invalidate(&[], window.rkey()).to_srq(number);
    post(&mut lab.initiator, send);
    let received = next(&cq);
    assert_eq!(received.wr_id, 1);
    assert_ne!(received.status, WcStatus::Success);
    assert_eq!(lab.target.control().query().unwrap().attr.state, QpState::Err);
    let message = [lab.left.memory.slice(..18).unwrap()];
    post(&mut lab.left.qp, SendWr::write(&message, window.remote()).id(9));
    // The initiator fails too.
    let all = std::iter::repeat_with(|| lab.left.completion());
    let written = all.take(2).find(|completion| completion.wr_id == 9);
    assert_eq!(written.map(|completion| completion.status), Some(WcStatus::Success));
}

#[test]
fn a_target_connects_where_selective_repeat_is_always_used_and_does_without() {
    let mut config = Setup::default().config();
    for device in &mut config.devices {
        device.selective_repeat = SelectiveRepeat::Always;
    }
    let [left, right] = ["left", "right"].map(|name| Context::open(&config, name).unwrap());
    let [mut left, mut right] = [Side::new(&left), Side::new(&right)];
    join(&mut left, &mut right, &ConnectOptions::default());
    let (_initiator, target) = connection(&left, &right.context.open_xrc_domain().unwrap());
    let uses = |control: &QpControl| control.query().unwrap().attr.selective_repeat;
    assert_eq!([uses(right.qp.control()), uses(target.control())], [true, false]);
}
