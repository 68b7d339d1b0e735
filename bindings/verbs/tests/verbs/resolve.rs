//! Service ID resolution: UD queue pairs by IP address and port.

use crate::common::{SOON, Setup, Side, pattern, post};
use std::net::SocketAddr;
use uroce::cm::{CmError, DatagramListener, SidrStatus, resolve_datagram};
use uroce::{ConnectOptions, GRH_LEN, Qkey, QpInit, QpState, QpType, RecvWr, SendWr};

/// The default Q_Key of `rdma_cm`.
const RDMA_CM: Qkey = Qkey(0x0123_4567);

fn datagrams(side: &mut Side) {
    let init = QpInit::new(&side.cq).qp_type(QpType::Ud);
    side.qp = side.pd.create_qp(&init).expect("QPs are left");
}

fn sides() -> (Side, Side, DatagramListener, SocketAddr) {
    let (left, right) = Setup::default().contexts();
    let address = "192.0.2.2:7174".parse().expect("an address");
    let listener = DatagramListener::bind(&right, address, 4).expect("the address is free");
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    datagrams(&mut left);
    datagrams(&mut right);
    (left, right, listener, address)
}

#[test]
fn a_datagram_finds_its_way_by_address_and_port() {
    let (mut left, mut right, listener, address) = sides();
    left.qp.start_datagrams(RDMA_CM, &ConnectOptions::default()).unwrap();
    let peer = std::thread::scope(|threads| {
        let asking = threads.spawn(|| resolve_datagram(&left.pd, address, b"who", SOON).unwrap());
        let request = listener.next(SOON).expect("a question in time");
        assert_eq!(request.private_data()[..3], *b"who");
        assert_eq!(request.local_addr(), address);
        request.answer(&right.qp, b"me").unwrap();
        asking.join().expect("no panic")
    });
    assert_eq!((peer.qpn, peer.qkey), (right.qp.qpn(), RDMA_CM));
    assert_eq!(peer.private_data[..2], *b"me");
    assert_eq!(right.qp.query().unwrap().attr.state, QpState::Rts);

    let message = pattern(9, 1000);
    right.qp.post_recv(&RecvWr::new(&[right.memory.slice(..2000).unwrap()])).unwrap();
    left.memory.write_at(0, &message).unwrap();
    let source = [left.memory.slice(..1000).unwrap()];
    post(&mut left.qp, SendWr::send_to(&source, &peer.ah, peer.qpn, peer.qkey));
    left.done();
    assert_eq!(right.completion().byte_len as usize, GRH_LEN + 1000);
    assert_eq!(right.bytes(GRH_LEN, 1000), message);
}

#[test] //= check J12 test
fn datagram_requests_are_refused_by_the_application_or_without_a_listener() {
    let (left, _right, listener, address) = sides();
    let ask = |address: SocketAddr| resolve_datagram(&left.pd, address, b"", SOON);
    std::thread::scope(|threads| {
        let asking = threads.spawn(|| ask(address));
        listener.next(SOON).expect("a question in time").refuse(b"no").unwrap();
        match asking.join().expect("no panic") {
            Err(CmError::NotResolved { status, private_data }) => {
                assert_eq!(status, SidrStatus::REJECTED);
                assert_eq!(private_data[..2], *b"no");
            }
            other => panic!("{other:?}"),
        }
    });
    match ask("192.0.2.2:9".parse().unwrap()) {
        Err(CmError::NotResolved { status, .. }) => assert_eq!(status, SidrStatus::UNSUPPORTED),
        other => panic!("{other:?}"),
    }
}
