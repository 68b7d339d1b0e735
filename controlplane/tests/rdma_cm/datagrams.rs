//! UD QPs that are looked up by port.

use std::time::Instant;

use uroce_controlplane::rdma_cm::{CmId, ConnEvent, ConnParam, ConnQp, ConnectSpec, PortSpace};
use uroce_transport::{QpState, QpType, SendOp, SendWr, WcStatus};
use uroce_wire::{ImmDt, Qkey};

use crate::lab::{Node, PORT, SOON, nodes};

fn ask(node: &Node, to: &Node, data: &[u8]) -> CmId {
    let param = ConnParam { private_data: data.to_vec(), ..ConnParam::default() };
    let spec = ConnectSpec::new(uroce_wire::Qpn::default(), to.socket(PORT));
    node.connect_with(ConnectSpec { space: PortSpace::Udp, qp: None, param, ..spec })
}

fn listen(node: &Node) {
    let address = node.socket(PORT);
    node.listen_at(PortSpace::Udp, address, 8).unwrap();
}

#[test]
//= check J12 test
fn a_ud_qp_is_found_by_its_port_and_takes_datagrams() {
    let (left, right) = nodes();
    listen(&right);
    let mut other = right.end_of(QpType::Ud);
    let mut one = left.end_of(QpType::Ud);
    let param = ConnParam { private_data: vec![5; 180], ..ConnParam::default() };
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let active = left.connect_with(ConnectSpec { space: PortSpace::Udp, param, ..spec });
    let (passive, request) = right.request();
    assert_eq!((request.space, request.private_data), (PortSpace::Udp, vec![5; 180]));
    let param = ConnParam { private_data: vec![6; 136], ..ConnParam::default() };
    right.device.cm_accept(passive, ConnQp::Driven(other.qp.qpn), param).unwrap();
    let ConnEvent::Resolved { datagrams, private_data } = left.kind(active) else { panic!() };
    assert_eq!((datagrams.qpn, datagrams.qkey), (other.qp.qpn, Qkey(0x0123_4567)));
    assert_eq!(private_data, [6; 136]);
    assert_eq!((left.state(&one), right.state(&other)), (QpState::Rts, QpState::Rts));

    let ah = left.device.create_ah(left.pd, datagrams.port, &datagrams.vector).unwrap();
    let op =
        SendOp::SendTo { ah, dest_qpn: datagrams.qpn, qkey: datagrams.qkey, imm: Some(ImmDt(3)) };
    other.post_recv();
    let wr = SendWr {
        wr_id: 2,
        op,
        signaled: true,
        solicited: false,
        fence: false,
        srqn: Default::default(),
    };
    one.qp.sq.post_send(&wr, &[]).unwrap();
    assert_eq!(one.completion().status, WcStatus::Success);
    // The receive has no room for the 40 bytes in front of a datagram, so that this one is dropped
    // and counted. The test needs only its arrival.
    let end = Instant::now() + SOON;
    while right.count("rx_receive_too_small") == 0 {
        assert!(Instant::now() < end, "the datagram comes");
        std::thread::yield_now();
    }
    left.device.cm_destroy(active).unwrap();
    right.device.cm_destroy(passive).unwrap();
}

#[test]
//= check J12 test
fn a_question_for_a_ud_qp_is_refused_with_the_status_that_says_why() {
    let (left, right) = nodes();
    let status = |kind| match kind {
        ConnEvent::Rejected { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let unknown = ask(&left, &right, &[]);
    assert_eq!(status(left.kind(unknown)), 1);
    listen(&right);
    let refused = ask(&left, &right, &[]);
    let (passive, _) = right.request();
    right.device.cm_reject(passive, &[]).unwrap();
    assert_eq!(status(left.kind(refused)), 2);
}
