use super::*;
use uroce_wire::Mac;
use uroce_wire::cm::CLASS_VERSION;

const NOW: Instant = Instant::ZERO;

fn pair() -> (Gsi, Gsi) {
    let gsi = |ports| Gsi::new(ports, Psn::new(ports as u32), false).unwrap();
    (gsi(1), gsi(2))
}

fn path() -> Encap {
    Encap {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        src: Gid::from(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        dst: Gid::from(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
        hop_limit: 64,
        src_port: 0xc001,
        ..Encap::default()
    }
}

const CM: MadHeader = MadHeader {
    base_version: 1,
    mgmt_class: MGMT_CLASS,
    class_version: CLASS_VERSION,
    method: MadHeader::SEND,
    status: 0,
    class_specific: 0,
    transaction_id: 99,
    attribute_id: 0x10,
    attribute_modifier: 0,
};

fn mad(header: MadHeader) -> Mad {
    let mut mad = [0x5a; MAD_LEN];
    header.emit(mad.first_chunk_mut().unwrap());
    mad
}

fn count(gsi: &Gsi, name: &str) -> u64 {
    gsi.counts().iter().find(|count| count.name == name).unwrap().value
}

#[test]
fn messages_of_connection_management_go_to_the_connection_manager() {
    let (mut left, mut right) = pair();
    let frame = left.frame(NOW, 1, &path(), GSI, &mad(CM)).unwrap().to_vec();
    let Some(Verdict::Connection(arrived)) = right.receive(NOW, 2, &frame) else {
        panic!("for the connection manager")
    };
    assert_eq!((arrived.port, arrived.src, arrived.dst), (2, path().src, path().dst));
    assert_eq!((arrived.src_qpn, arrived.mad), (GSI, mad(CM)));
    assert_eq!((count(&left, "gsi_tx_mads"), count(&right, "gsi_rx_mads")), (1, 1));
}

#[test]
//= check J11 test
fn unsupported_mads_are_answered_if_they_ask_for_it_and_else_counted() {
    let (mut left, mut right) = pair();
    let mut receive = |header| {
        let frame = left.frame(NOW, 1, &path(), GSI, &mad(header)).unwrap().to_vec();
        right.receive(NOW, 1, &frame)
    };
    for header in [
        MadHeader { method: GET, attribute_id: 1, ..CM },
        MadHeader { method: SET, mgmt_class: 0x03, ..CM },
        MadHeader { method: GET, mgmt_class: 0x04, class_version: 1, ..CM },
    ] {
        let Some(Verdict::Answer(Arrived { mad: answer, .. })) = receive(header) else {
            panic!("{header:?}")
        };
        let answered = MadHeader::parse(first(&answer));
        assert_eq!(answered, MadHeader { method: 0x81, status: 0x0c, ..header });
        assert_eq!(answer[MadHeader::LEN..], mad(header)[MadHeader::LEN..]);
    }
    for header in [
        MadHeader { base_version: 2, ..CM },
        MadHeader { base_version: 2, method: GET, ..CM },
        MadHeader { method: GET_RESP, ..CM },
        MadHeader { method: 0x12, ..CM },
        MadHeader { mgmt_class: 0x30, ..CM },
        MadHeader { mgmt_class: 0x04, method: GET_RESP, ..CM },
    ] {
        assert!(receive(header).is_none(), "{header:?}");
    }
    let faults = ["gsi_bad_version", "gsi_unknown_method", "gsi_unknown_class"];
    assert_eq!(faults.map(|name| count(&right, name)), [2, 2, 2]);
}

#[test]
fn frames_for_other_ports_and_frames_that_are_none_go_nowhere() {
    let (mut left, mut right) = pair();
    assert!(left.frame(NOW, 2, &path(), GSI, &mad(CM)).is_none(), "it has one port");
    let frame = left.frame(NOW, 1, &path(), GSI, &mad(CM)).unwrap().to_vec();
    assert!(right.receive(NOW, 3, &frame).is_none() && right.receive(NOW, 0, &frame).is_none());
    for len in 0..frame.len() {
        assert!(right.receive(NOW, 1, &frame[..len]).is_none(), "{len}");
    }
    assert_eq!(count(&right, "gsi_malformed"), 2 + frame.len() as u64);
}
