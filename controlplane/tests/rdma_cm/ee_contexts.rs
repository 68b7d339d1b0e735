//! Connections of EE contexts: a lost RTU, REQs that cross, and EE contexts in use or destroyed.

use std::sync::Arc;

use uroce_controlplane::RequestError;
use uroce_controlplane::rdma_cm::{
    BindOptions, CmId, ConnError, ConnEvent, ConnParam, ConnQp, ConnectSpec, PeerRdQp, PortSpace,
};
use uroce_engine::{ControlError, SendData};
use uroce_transport::{
    AccessFlags, QpChange, QpState, QpType, RdAddress, RdAttr, SendOp, SendWr, WcStatus,
};
use uroce_wire::cm::RejectReason;
use uroce_wire::{Psn, Qkey, Qpn};

use crate::lab::{End, Node, PORT, eventually, nodes};

const QKEY: Qkey = Qkey(17);

/// An EE context, and an RD QP in RTS of the same domain.
struct Side {
    eec: End,
    qp: End,
}

impl Side {
    fn new(node: &Node) -> Side {
        let domain = Arc::new(node.device.engine().open_rd_domain());
        let [eec, qp] = [QpType::Eec, QpType::Rd].map(|kind| node.end_in(Some(&domain), kind));
        let (access, max_dest_rd_atomic, min_rnr_timer) = (AccessFlags::empty(), 1, 12);
        let attr = RdAttr { access, max_dest_rd_atomic, min_rnr_timer };
        for change in QpChange::reliable_datagram_steps(QKEY, &attr) {
            node.device.modify_qp(qp.qp.qpn, &change, None, None).unwrap();
        }
        Side { eec, qp }
    }

    fn eecn(&self) -> Qpn {
        self.eec.qp.qpn
    }

    /// Parameters that name the RD QP to the peer.
    fn param(&self) -> ConnParam {
        ConnParam { rd_qp: Some(self.qp.qp.qpn), ..ConnParam::default() }
    }

    fn spec(&self, to: &Node) -> ConnectSpec {
        ConnectSpec { param: self.param(), ..ConnectSpec::new(self.eecn(), to.socket(PORT)) }
    }

    /// Arguments to connect an EE context that the application modifies.
    fn foreign_spec(&self, to: &Node) -> ConnectSpec {
        let (qpn, qp_type, psn) = (self.eecn(), QpType::Eec, Psn::new(77));
        let foreign = ConnQp::Foreign { qpn, qp_type, psn, has_srq: false, stops_with_peer: false };
        ConnectSpec { qp: Some(foreign), ..self.spec(to) }
    }

    fn named(&self) -> Option<PeerRdQp> {
        Some(PeerRdQp { qpn: self.qp.qp.qpn, qkey: QKEY })
    }

    fn accept_on(&self, node: &Node, id: CmId) {
        node.device.cm_accept(id, ConnQp::Driven(self.eecn()), self.param()).unwrap();
    }

    fn post_to(&mut self, to: &Side) {
        let to = RdAddress { eecn: self.eecn(), dest_qpn: to.qp.qp.qpn, qkey: QKEY };
        let wr = SendWr {
            wr_id: 2,
            op: SendOp::Send { imm: None },
            signaled: true,
            solicited: false,
            fence: false,
            srqn: Default::default(),
        };
        let mut batch = self.qp.qp.sq.batch().unwrap();
        batch.push_datagram(&wr, &to, SendData::Sges(&[])).unwrap();
    }

    /// Waits until a message to another side has arrived there.
    fn assert_sent_to(&self, to: &Side) {
        let (sent, received) = (self.qp.completion(), to.qp.completion());
        assert_eq!((sent.status, received.status), (WcStatus::Success, WcStatus::Success));
        assert_eq!((sent.wr_id, received.wr_id), (2, 1));
    }
}

/// Sends a message each way.
fn exchange(left: &mut Side, right: &mut Side) {
    for _ in 0..2 {
        right.qp.post_recv();
        left.post_to(right);
        left.assert_sent_to(right);
        std::mem::swap(left, right);
    }
}

fn listen(node: &Node) {
    let eecs = BindOptions { eecs: true, ..BindOptions::default() };
    let address = node.socket(PORT);
    node.device.cm_listen(&node.channel, PortSpace::Tcp, address, eecs, 16).unwrap();
}

fn is_disconnected(event: &ConnEvent) -> bool {
    matches!(event, ConnEvent::Disconnected { .. })
}

#[test]
//= check R44 test
//= check H11 test
//= check J3 test
fn a_packet_before_the_rtu_establishes_the_connection_of_its_ee_context() {
    let (left, right) = nodes();
    let (mut one, mut other) = (Side::new(&left), Side::new(&right));
    listen(&right);
    left.device.modify_qp(one.eecn(), &QpChange::to_init(1), None, None).unwrap();
    let active = left.connect_with(one.foreign_spec(&right));
    let (passive, _) = right.request();
    other.accept_on(&right, passive);
    let ConnEvent::ConnectResponse { agreed, .. } = left.kind(active) else { panic!() };
    assert_eq!((agreed.peer_qpn, agreed.peer_rd_qp), (other.eecn(), other.named()));
    assert_eq!(right.state(&other.eec), QpState::Rtr, "no RTU yet");
    left.take_to_rts(one.eecn(), &agreed, None);
    other.qp.post_recv();
    one.post_to(&other);
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
    assert_eq!(right.state(&other.eec), QpState::Rts);
    assert_eq!(right.count("cm_comm_est"), 1);
    one.assert_sent_to(&other);
    exchange(&mut one, &mut other);
    // The RTU, late.
    left.device.cm_establish(active).unwrap();
    exchange(&mut one, &mut other);
    assert_eq!(right.channel.try_next(), None, "one event");
}

#[test]
//= check R44 test
//= check J10 test
fn two_ee_contexts_that_connect_to_each_other_get_one_connection() {
    let (left, right) = nodes();
    let (mut one, mut other) = (Side::new(&left), Side::new(&right));
    let to_peer = |side: &Side, to: &Node| {
        let spec = side.spec(to);
        ConnectSpec { param: ConnParam { peer_to_peer: true, ..spec.param }, ..spec }
    };
    let first = left.connect_with(to_peer(&one, &right));
    let second = right.connect_with(to_peer(&other, &left));
    for (node, id, peer) in [(&left, first, &other), (&right, second, &one)] {
        let ConnEvent::Established { agreed, .. } = node.kind(id) else { panic!() };
        assert_eq!((agreed.peer_qpn, agreed.peer_rd_qp), (peer.eecn(), peer.named()));
    }
    exchange(&mut one, &mut other);
    left.device.cm_disconnect(first, &[]).unwrap();
    assert!(is_disconnected(&right.kind(second)));
    assert!(is_disconnected(&left.kind(first)));
    assert_eq!([left.state(&one.eec), right.state(&other.eec)], [QpState::Err; 2]);
}

/// Asserts that connecting is refused for this reason.
#[track_caller]
fn assert_refused(node: &Node, spec: ConnectSpec, expected: RequestError) {
    let refused = node.device.cm_connect(&node.channel, spec).expect_err("refused");
    assert_eq!(format!("{refused:?}"), format!("{expected:?}"));
}

/// Asserts that an EE context cannot be connected, since it has a connection.
#[track_caller]
fn assert_in_use(node: &Node, side: &Side, to: &Node) {
    assert_refused(node, side.spec(to), ConnError::QpInUse(side.eecn()).into());
}

#[test]
//= check R44 test
//= check J9 test
fn an_ee_context_is_in_use_from_its_request_until_its_connection_is_released() {
    let (left, right) = nodes();
    let (mut one, mut other) = (Side::new(&left), Side::new(&right));
    listen(&right);
    let mut spec = one.spec(&right);
    // A TimeWait of seconds.
    spec.param.ack_timeout = 19;
    let active = left.connect_with(spec);
    let (passive, _) = right.request();
    assert_eq!(left.state(&one.eec), QpState::Init);
    assert_in_use(&left, &one, &right);
    other.accept_on(&right, passive);
    assert!(matches!(left.kind(active), ConnEvent::Established { .. }));
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
    left.device.cm_disconnect(active, &[]).unwrap();
    assert!(is_disconnected(&right.kind(passive)));
    assert!(is_disconnected(&left.kind(active)));
    for (node, side, to) in [(&left, &one, &right), (&right, &other, &left)] {
        let reset = QpChange::to(QpState::Reset);
        node.device.modify_qp(side.eecn(), &reset, None, None).unwrap();
        assert_in_use(node, side, to);
    }
    assert_eq!(left.kind(active), ConnEvent::TimewaitExit);
    assert_eq!(right.kind(passive), ConnEvent::TimewaitExit);
    let active = left.connect_with(one.spec(&right));
    let (passive, _) = right.request();
    other.accept_on(&right, passive);
    assert!(matches!(left.kind(active), ConnEvent::Established { .. }));
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
    exchange(&mut one, &mut other);
}

#[test]
//= check R44 test
//= check J10 test
fn an_ee_context_destroyed_while_it_is_connected_ends_the_attempt() {
    let (left, right) = nodes();
    listen(&right);
    // The active one, before and after the request is read.
    for is_read in [false, true] {
        let one = Side::new(&left);
        let active = left.connect_with(one.spec(&right));
        eventually(|| right.count("cm_connections") == 1);
        let request = is_read.then(|| right.request());
        left.device.destroy_qp(one.eecn()).unwrap();
        assert!(is_disconnected(&left.kind(active)));
        if let Some((passive, _)) = request {
            let ConnEvent::Rejected { reason, .. } = right.kind(passive) else { panic!() };
            assert_eq!(reason, RejectReason::TIMEOUT.0, "as for any request that is given up");
            let other = Side::new(&right);
            let qp = ConnQp::Driven(other.eecn());
            assert!(right.device.cm_accept(passive, qp, other.param()).is_err());
            assert_eq!(right.state(&other.eec), QpState::Reset);
            right.device.cm_destroy(passive).unwrap();
        }
        eventually(|| right.count("cm_connections") == 0);
        assert_eq!(right.channel.try_next(), None);
        assert_eq!(left.kind(active), ConnEvent::TimewaitExit);
        left.device.cm_destroy(active).unwrap();
    }
    // The passive one, before the RTU.
    let (one, other) = (Side::new(&left), Side::new(&right));
    let active = left.connect_with(one.foreign_spec(&right));
    let (passive, _) = right.request();
    other.accept_on(&right, passive);
    assert!(matches!(left.kind(active), ConnEvent::ConnectResponse { .. }));
    right.device.destroy_qp(other.eecn()).unwrap();
    assert!(is_disconnected(&right.kind(passive)));
    let ConnEvent::Rejected { reason, .. } = left.kind(active) else { panic!() };
    assert_eq!(reason, RejectReason::NO_EEC.0);
    for (node, id) in [(&left, active), (&right, passive)] {
        assert_eq!(node.kind(id), ConnEvent::TimewaitExit);
        assert_eq!(node.channel.try_next(), None);
        node.device.cm_destroy(id).unwrap();
        eventually(|| node.count("cm_connections") == 0);
    }
}

#[test]
//= check R44 test
fn what_cannot_be_named_to_the_peer_is_refused_with_the_reason() {
    let (left, right) = nodes();
    let side = Side::new(&left);
    let domain = Arc::new(left.device.engine().open_rd_domain());
    let fresh = left.end_in(Some(&domain), QpType::Rd);
    let rc = left.end();
    let naming = |rd_qp| {
        let param = ConnParam { rd_qp: Some(rd_qp), ..ConnParam::default() };
        ConnectSpec { param, ..side.spec(&right) }
    };
    for other in [rc.qp.qpn, side.eecn()] {
        assert_refused(&left, naming(other), ConnError::WrongService(other).into());
    }
    assert_refused(&left, naming(fresh.qp.qpn), ConnError::WrongState.into());
    let none = Qpn::new(7);
    assert_refused(&left, naming(none), ControlError::UnknownQp(none).into());
    // A queue pair of another service names none.
    let spec = ConnectSpec { qp: Some(ConnQp::Driven(rc.qp.qpn)), ..side.spec(&right) };
    assert_refused(&left, spec, ConnError::WrongService(side.qp.qp.qpn).into());
    assert_eq!([left.state(&side.eec), left.state(&rc)], [QpState::Reset; 2]);
    assert_eq!(left.count("cm_connections"), 0);
}
