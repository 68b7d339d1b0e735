//! Connections of EE contexts by the connection manager.

use std::net::{IpAddr, SocketAddr};

use crate::common::{SOON, Setup, Side, eventually, pattern};
use uroce::cm::{
    CmError, ConnEvent, ConnectParam, ConnectRequest, Connection, Destination, Listener, PathSpec,
    PeerRdQp, RejectReason,
};
use uroce::config::LossConfig;
use uroce::rd::{Address, Eec, RdQp, Rdd};
use uroce::{
    ConnectOptions, PathMigState, Qkey, QpAttr, QpInit, QpState, QpType, Qpn, RecvWr, SendWr,
    StaticRate, WcStatus,
};

const SERVER: &str = "192.0.2.2:7471";

/// One end: a domain with an EE context and an RD queue pair.
struct End {
    side: Side,
    domain: Rdd,
    eec: Eec,
    qp: RdQp,
    qkey: Qkey,
}

impl End {
    fn new(side: Side, qkey: Qkey) -> End {
        let domain = side.context.open_rd_domain().unwrap();
        let eec = domain.create_eec().unwrap();
        let mut qp = side.pd.create_rd_qp(&domain, &QpInit::new(&side.cq)).unwrap();
        qp.start(qkey, &ConnectOptions::default()).unwrap();
        End { side, domain, eec, qp, qkey }
    }

    /// Parameters that name the RD queue pair to the peer.
    fn param(&self) -> ConnectParam {
        ConnectParam { rd_qp: Some(self.qp.qpn()), ..ConnectParam::default() }
    }

    fn named(&self) -> PeerRdQp {
        PeerRdQp { qpn: self.qp.qpn(), qkey: self.qkey }
    }

    fn attr(&self) -> QpAttr {
        self.eec.query().unwrap().attr
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address with a port")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two ends, and a listener of the second for EE contexts.
fn ends(setup: &Setup) -> (End, End, Listener) {
    let (left, right) = setup.contexts();
    let listener = Listener::bind_rd(&right, address(SERVER), 4).unwrap();
    let end = |context, key| End::new(Side::new(context), Qkey(key));
    (end(&left, 17), end(&right, 18), listener)
}

fn next(listener: &Listener) -> ConnectRequest {
    listener.next(SOON).expect("a request in time")
}

fn event(connection: &Connection) -> ConnEvent {
    connection.next_event(SOON).expect("an event in time")
}

/// Connects both ends to each other.
fn connect(
    left: &End,
    right: &End,
    to: impl Into<Destination>,
    listener: &Listener,
) -> (Connection, Connection) {
    let active = Connection::begin(&left.eec, to, &left.param()).unwrap();
    let passive = next(listener).accept(&right.eec, &right.param()).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    (active, passive)
}

/// Sends a message to the RD queue pair that the peer has named.
fn tell(from: &mut End, to: &mut End, by: &Connection) {
    let message = pattern(7, 9000);
    to.qp.post_recv(&RecvWr::new(&[to.side.memory.slice(20_000..40_000).unwrap()])).unwrap();
    from.side.memory.write_at(0, &message).unwrap();
    let all = [from.side.memory.slice(..message.len()).unwrap()];
    from.qp
        .post_send(&SendWr::send(&all).signaled(), &by.rd_peer().expect("one is named"))
        .unwrap();
    from.side.done();
    let received = to.side.completion();
    received.ok().unwrap();
    assert_eq!((received.qpn, received.src_qpn), (to.qp.qpn(), from.qp.qpn()));
    assert_eq!(received.eecn, Some(to.eec.eecn()));
    assert_eq!(to.side.bytes(20_000, message.len()), message);
}

fn refusal(attempt: &Connection) -> RejectReason {
    match attempt.wait_established(SOON) {
        Err(CmError::Rejected { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test] //= check R44 test
fn two_ee_contexts_connect_name_rd_queue_pairs_and_disconnect() {
    let (mut left, mut right, listener) = ends(&Setup::default());
    let param = ConnectParam { private_data: b"hello".to_vec(), ..left.param() };
    let active = Connection::begin(&left.eec, address(SERVER), &param).unwrap();
    let request = next(&listener);
    assert_eq!((request.qp_type(), request.peer_qpn()), (QpType::Eec, left.eec.eecn()));
    assert_eq!(request.peer_rd_qp(), Some(left.named()));
    assert_eq!(request.private_data()[..5], *b"hello");
    let passive = request.accept(&right.eec, &right.param()).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    let (ours, theirs) = (active.agreed().unwrap(), passive.agreed().unwrap());
    assert_eq!((ours.peer_qpn, theirs.peer_qpn), (right.eec.eecn(), left.eec.eecn()));
    assert_eq!((ours.sq_psn, ours.rq_psn), (theirs.rq_psn, theirs.sq_psn));
    let PeerRdQp { qpn: dest_qpn, qkey } = right.named();
    assert_eq!(active.rd_peer(), Some(Address { eecn: left.eec.eecn(), dest_qpn, qkey }));
    assert_eq!((left.attr().state, right.attr().state), (QpState::Rts, QpState::Rts));
    for _ in 0..3 {
        tell(&mut left, &mut right, &active);
        tell(&mut right, &mut left, &passive);
    }

    active.disconnect_with(b"bye").unwrap();
    assert_eq!(left.attr().state, QpState::Err);
    match event(&passive) {
        ConnEvent::Disconnected { private_data } => assert_eq!(private_data[..3], *b"bye"),
        other => panic!("{other:?}"),
    }
    assert_eq!(right.attr().state, QpState::Err);
    assert!(matches!(event(&active), ConnEvent::Disconnected { .. }));
    // The RD queue pair is as it was, and its next request finds that the EE context is not.
    let to = active.rd_peer().unwrap();
    left.qp.post_send(&SendWr::send(&[]), &to).unwrap();
    assert_eq!(left.side.completion().status, WcStatus::InvEecStateErr);
    for connection in [&active, &passive] {
        assert!(matches!(event(connection), ConnEvent::TimewaitExit));
    }

    // Other EE contexts of the same domains.
    left.qp.recover().unwrap();
    (left.eec, right.eec) = (left.domain.create_eec().unwrap(), right.domain.create_eec().unwrap());
    let (active, _passive) = connect(&left, &right, address(SERVER), &listener);
    tell(&mut left, &mut right, &active);
}

#[test] //= check R44 test
fn ee_contexts_connect_without_naming_a_queue_pair_and_within_one_device() {
    let (left, _right, listener) = ends(&Setup::default());
    let other = left.domain.create_eec().unwrap();
    let own = Listener::bind_rd(&left.side.context, address("192.0.2.1:0"), 4).unwrap();
    let param = ConnectParam::default();
    let active = Connection::begin(&left.eec, own.local_addr(), &param).unwrap();
    let request = next(&own);
    assert_eq!(request.peer_rd_qp(), None);
    let passive = request.accept(&other, &param).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    assert_eq!((active.rd_peer(), passive.rd_peer()), (None, None));
    // The ends have exchanged the numbers in another way.
    let mut left = left;
    left.qp.post_recv(&RecvWr::new(&[])).unwrap();
    let to = Address { eecn: left.eec.eecn(), dest_qpn: left.qp.qpn(), qkey: left.qkey };
    left.qp.post_send(&SendWr::send(&[]).signaled(), &to).unwrap();
    let done = [(); 2].map(|()| left.side.completion());
    assert_eq!(done.each_ref().map(|it| it.ok()), [Ok(()); 2]);
    assert!(done.iter().any(|it| it.eecn == Some(other.eecn())));
    // An EE context has one connection.
    let again = Connection::begin(&left.eec, listener.local_addr(), &param);
    assert!(matches!(again, Err(CmError::Refused(_))), "{again:?}");
}

#[test] //= check R45 test
fn a_listener_is_for_queue_pairs_or_for_ee_contexts() {
    let (left, right, listener) = ends(&Setup::default());
    let of_qps = Listener::bind(&right.side.context, address("192.0.2.2:7472"), 4).unwrap();
    let param = ConnectParam::default();
    let wrong = Connection::begin(&left.side.qp, listener.local_addr(), &param).unwrap();
    assert_eq!(refusal(&wrong), RejectReason::INVALID_TRANSPORT_TYPE);
    let wrong = Connection::begin(&left.eec, of_qps.local_addr(), &left.param()).unwrap();
    assert_eq!(refusal(&wrong), RejectReason::INVALID_TRANSPORT_TYPE);
    assert_eq!(left.attr().state, QpState::Err);

    // The application's no.
    let eec = left.domain.create_eec().unwrap();
    let attempt = Connection::begin(&eec, listener.local_addr(), &left.param()).unwrap();
    next(&listener).reject(b"not today").unwrap();
    assert_eq!(refusal(&attempt), RejectReason::CONSUMER);

    // A queue pair cannot accept for an EE context, nor the other way round.
    let eec = left.domain.create_eec().unwrap();
    let attempt = Connection::begin(&eec, listener.local_addr(), &left.param()).unwrap();
    let refused = next(&listener).accept(&right.side.qp, &param);
    assert!(matches!(refused, Err(CmError::Refused(_))), "{refused:?}");
    assert_eq!(refusal(&attempt), RejectReason::CONSUMER);
    let qp = left.side.pd.create_qp(&QpInit::new(&left.side.cq)).unwrap();
    let attempt = Connection::begin(&qp, of_qps.local_addr(), &param).unwrap();
    let refused = next(&of_qps).accept(&right.eec, &right.param());
    assert!(matches!(refused, Err(CmError::Refused(_))), "{refused:?}");
    assert_eq!(refusal(&attempt), RejectReason::CONSUMER);
    assert_eq!((right.side.qp.state(), right.attr().state), (QpState::Reset, QpState::Reset));
}

#[test] //= check R44 test
fn only_an_rd_queue_pair_with_a_q_key_can_be_named_and_only_with_an_ee_context() {
    let (left, _right, listener) = ends(&Setup::default());
    let to = listener.local_addr();
    let naming = |qpn| ConnectParam { rd_qp: Some(qpn), ..ConnectParam::default() };
    let fresh = left.side.pd.create_rd_qp(&left.domain, &QpInit::new(&left.side.cq)).unwrap();
    for qpn in [left.side.qp.qpn(), left.eec.eecn(), fresh.qpn(), Qpn::new(7)] {
        let refused = Connection::begin(&left.eec, to, &naming(qpn)).map(|_| ());
        assert!(refused.is_err(), "{qpn:?}");
    }
    let refused = Connection::begin(&left.side.qp, to, &left.param());
    assert!(matches!(refused, Err(CmError::Refused(_))), "{refused:?}");
    assert_eq!((left.attr().state, left.side.qp.state()), (QpState::Reset, QpState::Reset));
}

#[test] //= check R44 test
fn a_connection_whose_ee_context_uses_up_its_retries_is_disconnected() {
    let (mut left, right, listener) = ends(&Setup::default());
    let param = ConnectParam { ack_timeout: 8, retry_count: 1, ..left.param() };
    let active = Connection::begin(&left.eec, address(SERVER), &param).unwrap();
    let _passive = next(&listener).accept(&right.eec, &right.param()).unwrap();
    active.wait_established(SOON).unwrap();
    right.side.context.set_loss(1, LossConfig { rx: 1.0, tx: 1.0, seed: 1 }).unwrap();
    let peer = active.rd_peer().expect("one is named");
    left.qp.post_send(&SendWr::send(&[]).signaled(), &peer).unwrap();
    assert_eq!(left.side.completion().status, WcStatus::RetryExcErr);
    assert!(matches!(event(&active), ConnEvent::Disconnected { .. }));
    assert_eq!(left.attr().state, QpState::Err);
}

/// Sends messages until both ends are armed.
fn arm(left: &mut End, right: &mut End, by: [&Connection; 2]) {
    eventually("ARMED", || {
        tell(left, right, by[0]);
        tell(right, left, by[1]);
        [&*left, &*right].iter().all(|end| end.attr().path_mig_state == PathMigState::Armed)
    });
}

#[test] //= check R42 test
fn an_ee_context_migrates_and_takes_another_path_with_a_new_static_rate() {
    let (mut left, mut right, listener) = ends(&Setup::two_links());
    let [first, second, third] =
        [5_000, 10_000, 20_000].map(|it| StaticRate::from_mbps(it).unwrap());
    let mut to = Destination::to(address(SERVER)).alternate(ip("198.51.100.1"), ip("198.51.100.2"));
    to.path.vector.static_rate = first;
    to.alternate.as_mut().unwrap().vector.static_rate = second;
    let (active, passive) = connect(&left, &right, to, &listener);
    for attr in [left.attr(), right.attr()] {
        assert_eq!((attr.path.rate, attr.alt_path.unwrap().path.rate), (first, second));
    }
    arm(&mut left, &mut right, [&active, &passive]);
    active.migrate().unwrap();
    tell(&mut left, &mut right, &active);
    for attr in [left.attr(), right.attr()] {
        assert_eq!((attr.port, attr.path.rate), (2, second));
    }

    // Back to the first link, at another rate.
    let mut path = PathSpec { source: Some(ip("192.0.2.1")), ..PathSpec::to(ip("192.0.2.2")) };
    path.vector.static_rate = third;
    active.load_alternate_path(&path).unwrap();
    assert_eq!(event(&active), ConnEvent::AlternateLoaded(Ok(())));
    assert!(matches!(event(&passive), ConnEvent::AlternateChanged(_)));
    arm(&mut left, &mut right, [&active, &passive]);
    passive.migrate().unwrap();
    tell(&mut right, &mut left, &passive);
    for attr in [left.attr(), right.attr()] {
        assert_eq!((attr.port, attr.path.rate), (1, third));
    }
    // The messages of the connection follow.
    right.side.context.set_link(2, false).unwrap();
    active.disconnect().unwrap();
    assert!(matches!(event(&passive), ConnEvent::Disconnected { .. }));
}
