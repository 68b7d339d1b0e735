//! Connections by IP address and port between two devices. One process a test.

mod common;

use common::{eventually, exchange, join, nodes};
use uroce_controlplane::connect::CmEventKind;
use uroce_transport::QpState;

#[test]
fn two_qps_connect_by_address_and_port_and_talk() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let (active, passive) = join((&left, &one), (&right, &other));
    assert_eq!((left.state(&one), right.state(&other)), (QpState::Rts, QpState::Rts));
    exchange(&mut one, &mut other);

    left.device.cm_disconnect(active, b"bye").unwrap();
    assert_eq!(left.state(&one), QpState::Err);
    let CmEventKind::Disconnected { private_data } = right.kind(passive) else { panic!() };
    assert!(private_data.starts_with(b"bye\0"));
    assert_eq!(right.state(&other), QpState::Err);
    assert!(matches!(left.kind(active), CmEventKind::Disconnected { .. }));
    assert_eq!(left.kind(active), CmEventKind::TimewaitExit);
    assert_eq!(right.kind(passive), CmEventKind::TimewaitExit);
    eventually(|| left.count("cm_connections") == 1 && right.count("cm_connections") == 1);
    assert_eq!(
        (left.count("cm_active_established"), right.count("cm_passive_established")),
        (1, 1)
    );
}
