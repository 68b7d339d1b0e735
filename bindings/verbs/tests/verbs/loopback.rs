//! Queue pairs of one device that communicate through the device's own addresses.

use crate::common::{SOON, Setup, Side, join, pattern, post};
use std::time::Duration;
use uroce::config::LossConfig;
use uroce::{
    AddressVector, ConnectOptions, Context, Gid, ImmDt, QpInit, QpType, RecvWr, SendWr, WcStatus,
};

/// Sizes around multiples of a packet, and 0.
const SIZES: [usize; 8] = [0, 1, 255, 4095, 4096, 4097, 65_536, 300_001];

/// Opens the only device; its links have no other end.
fn alone(setup: &Setup) -> Context {
    Context::open(&setup.config(), "left").expect("a ring link needs no privilege")
}

/// Two connected QPs of one device, on two lcores if it has two.
fn connected(setup: &Setup, qp_type: QpType) -> (Side, Side) {
    let context = alone(setup);
    let (mut left, mut right) = (Side::new(&context), Side::new(&context));
    let last = usize::from(setup.lcores) - 1;
    for (side, lcore) in [(&mut left, 0), (&mut right, last)] {
        let init = QpInit { lcore: Some(lcore), ..QpInit::new(&side.cq) };
        side.qp = side.pd.create_qp(&init.qp_type(qp_type)).unwrap();
    }
    join(&mut left, &mut right, &setup.options);
    (left, right)
}

/// Sends WRITE, READ, SEND and both atomics from `left` to `right` and checks every byte.
fn talk(left: &mut Side, right: &mut Side, len: usize) {
    let message = pattern(len as u8, len);
    left.memory.write_at(0, &message).unwrap();
    right.memory.fill(.., 0xee).unwrap();
    let target = right.memory.remote();
    let room = [right.memory.slice(500_000..500_000 + len + 1).unwrap()];
    right.qp.post_recv(&RecvWr::new(&room).id(7)).unwrap();
    let source = [left.memory.slice(..len).unwrap()];
    let sink = [left.memory.slice(500_000..500_000 + len).unwrap()];
    post(&mut left.qp, SendWr::write(&source, target).id(1));
    post(&mut left.qp, SendWr::read(&sink, target).id(2));
    post(&mut left.qp, SendWr::send_with_imm(&source, ImmDt(9)).id(3));
    assert_eq!((left.done(), left.done(), left.done()), (1, 2, 3));
    let received = right.completion();
    assert_eq!((received.wr_id, received.byte_len), (7, len as u32));
    assert_eq!((received.status, received.imm), (WcStatus::Success, Some(ImmDt(9))));
    for (side, at) in [(&*right, 0), (&*left, 500_000), (&*right, 500_000)] {
        assert_eq!(side.bytes(at, len), message);
    }
    assert_eq!(right.bytes(len, 8), [0xee; 8], "nothing beyond the message");

    right.memory.store_u64(900_000, 40).unwrap();
    let word = target.slice(900_000, 8).unwrap();
    let sink = [left.memory.slice(900_000..900_008).unwrap()];
    post(&mut left.qp, SendWr::fetch_add(&sink, word, 2));
    post(&mut left.qp, SendWr::compare_swap(&sink, word, 42, 43));
    left.done();
    left.done();
    assert_eq!(left.memory.load_u64(900_000).unwrap(), 42);
    assert_eq!(right.memory.load_u64(900_000).unwrap(), 43);
}

#[test]
fn every_operation_of_rc_between_queue_pairs_of_one_device() {
    let v6 = ["2001:db8::1/64", "2001:db8::2/64"];
    let plain = Setup::default();
    for (lcores, vlan, addresses) in
        [(1, None, plain.addresses), (2, None, plain.addresses), (1, Some(100), v6), (2, None, v6)]
    {
        let setup = Setup { lcores, vlan, addresses, ..Setup::default() };
        let (mut left, mut right) = connected(&setup, QpType::Rc);
        let apart = left.qp.control().lcore() != right.qp.control().lcore();
        assert_eq!(apart, lcores == 2);
        for len in SIZES {
            talk(&mut left, &mut right, len);
            talk(&mut right, &mut left, len);
        }
        let [sent, looped] = ["rdma_tx_packets", "looped_packets"].map(|name| left.counter(name));
        assert_eq!(sent, looped, "nothing has left");
        assert_eq!(left.counter("rdma_rx_packets"), sent);
        assert_eq!(left.counter("packet_seq_err"), 0);
    }
}

#[test]
fn a_queue_pair_may_be_connected_to_itself() {
    let mut only = Side::new(&alone(&Setup::default()));
    let own = only.qp.endpoint(1, 0).unwrap();
    only.qp.connect(&own, &ConnectOptions::default()).unwrap();
    for len in SIZES {
        let message = pattern(len as u8, len);
        only.memory.write_at(0, &message).unwrap();
        let room = [only.memory.slice(500_000..900_000).unwrap()];
        only.qp.post_recv(&RecvWr::new(&room).id(1)).unwrap();
        let source = [only.memory.slice(..len).unwrap()];
        post(&mut only.qp, SendWr::send(&source).id(2));
        let mut ids = [only.done(), only.done()];
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        assert_eq!(only.bytes(500_000, len), message);
    }
}

#[test]
fn the_ports_of_a_device_reach_each_other_whatever_their_links() {
    let setup = Setup { vlan: Some(7), ..Setup::two_links() };
    let context = alone(&setup);
    let (mut left, mut right) = (Side::new(&context), Side::new(&context));
    let ends = [left.qp.endpoint(1, 0).unwrap(), right.qp.endpoint(2, 0).unwrap()];
    let by_second = ConnectOptions { port: 2, ..ConnectOptions::default() };
    left.qp.connect(&ends[1], &ConnectOptions::default()).unwrap();
    right.qp.connect(&ends[0], &by_second).unwrap();
    talk(&mut left, &mut right, 100_000);
    talk(&mut right, &mut left, 100_000);
    assert_eq!(left.counter("rdma_tx_packets"), left.counter("looped_packets"));
}

#[test]
fn lost_packets_are_repeated_on_the_way_back_too() {
    for (lcores, rx, tx) in [(1, 0.02, 0.0), (2, 0.0, 0.02)] {
        let loss = LossConfig { rx, tx, seed: 5 };
        let (mut left, mut right) =
            connected(&Setup { loss, lcores, ..Setup::default() }, QpType::Rc);
        for _ in 0..4 {
            talk(&mut left, &mut right, 300_001);
        }
        let lost = left.counter("rx_injected_loss") + left.counter("tx_injected_loss");
        assert!(lost > 0);
    }
}

#[test] //= check M1 test
fn a_link_that_is_down_does_not_affect_loopback_traffic() {
    let (mut left, mut right) = connected(&Setup::default(), QpType::Rc);
    left.context.set_link(1, false).unwrap();
    let begin = std::time::Instant::now();
    while left.context.port_status(1).unwrap().link.up {
        assert!(begin.elapsed() < SOON);
        std::thread::yield_now();
    }
    talk(&mut left, &mut right, 100_000);
    // New paths are not affected either.
    let (mut left, mut right) = (Side::new(&left.context), Side::new(&right.context));
    join(&mut left, &mut right, &ConnectOptions::default());
    talk(&mut left, &mut right, 10);
    assert_eq!(left.counter("looped_packets"), left.counter("rdma_tx_packets"));
}

#[test]
fn messages_of_uc_arrive_whole() {
    for lcores in [1, 2] {
        let (mut left, mut right) = connected(&Setup { lcores, ..Setup::default() }, QpType::Uc);
        for len in SIZES {
            let message = pattern(len as u8, len);
            left.memory.write_at(0, &message).unwrap();
            let room = [right.memory.slice(500_000..900_000).unwrap()];
            right.qp.post_recvs(&[RecvWr::new(&room).id(1), RecvWr::new(&[]).id(2)]).unwrap();
            let source = [left.memory.slice(..len).unwrap()];
            post(&mut left.qp, SendWr::send(&source));
            post(&mut left.qp, SendWr::write_with_imm(&source, right.memory.remote(), ImmDt(1)));
            left.done();
            left.done();
            assert_eq!((right.done(), right.done()), (1, 2));
            assert_eq!(right.bytes(500_000, len), message);
            assert_eq!(right.bytes(0, len), message);
        }
    }
}

#[test]
fn a_sender_to_the_network_gets_its_turn_while_loopback_is_full() {
    let (outside, peer) = Setup::default().contexts();
    let (mut far, mut near) = (Side::new(&peer), Side::new(&outside));
    join(&mut near, &mut far, &ConnectOptions::default());
    let mut loops: Vec<_> = (0..4)
        .map(|_| {
            let (mut left, mut right) = (Side::new(&outside), Side::new(&outside));
            join(&mut left, &mut right, &ConnectOptions::default());
            (left, right)
        })
        .collect();
    let whole = |side: &Side| side.memory.remote();
    for (left, right) in &mut loops {
        for id in 0..64 {
            let source = [left.memory.slice(..Side::MEMORY).unwrap()];
            post(&mut left.qp, SendWr::write(&source, whole(right)).id(id));
        }
    }
    let source = [near.memory.slice(..Side::MEMORY / 4).unwrap()];
    post(&mut near.qp, SendWr::write(&source, whole(&far)).id(99));
    assert_eq!(near.done(), 99);
    let count =
        |(left, _): &(Side, Side)| std::iter::from_fn(|| left.cq.poll_one().unwrap()).count();
    let through: usize = loops.iter().map(count).sum();
    assert!(through < 4 * 64 / 2, "{through} of them came first");
}

#[test]
fn a_full_port_does_not_hold_up_loopback_traffic() {
    // The link has no other end, so no frame leaves the port.
    let (mut left, mut right) = connected(&Setup::default(), QpType::Rc);
    let context = left.context.clone();
    let cq = context.create_cq(4096).unwrap();
    let mut init = QpInit::new(&cq).qp_type(QpType::Ud);
    init.caps.max_send_wr = 4096;
    let mut flood = left.pd.create_qp(&init).unwrap();
    flood.start_datagrams(uroce::Qkey(1), &ConnectOptions::default()).unwrap();
    let way = left.pd.create_ah(1, &AddressVector::to(gid("239.1.1.1"))).unwrap();
    for _ in 0..4096 {
        let wr = SendWr::send_to(&[], &way, uroce::Qpn::MULTICAST, uroce::Qkey(1));
        post(&mut flood, wr);
    }
    let begin = std::time::Instant::now();
    while left.counter("tx_full") == 0 {
        assert!(begin.elapsed() < SOON);
    }
    talk(&mut left, &mut right, 300_001);
    talk(&mut right, &mut left, 300_001);
    let sent = std::iter::from_fn(|| cq.poll_one().unwrap()).count();
    assert!(sent < 4096, "the port has taken everything");
}

#[test]
fn queue_pairs_may_go_in_the_middle_of_anything() {
    let setup = Setup { lcores: 2, ..Setup::default() };
    let context = alone(&setup);
    let impatient = ConnectOptions { timeout: 8, retry_cnt: 3, ..ConnectOptions::default() };
    for round in 0..30u64 {
        let (mut left, mut right) = (Side::new(&context), Side::new(&context));
        join(&mut left, &mut right, &impatient);
        let target = right.memory.remote();
        for id in 0..16 {
            let source = [left.memory.slice(..100_000).unwrap()];
            post(&mut left.qp, SendWr::write(&source, target).id(id));
            let source = [right.memory.slice(..100_000).unwrap()];
            post(&mut right.qp, SendWr::write(&source, left.memory.remote()).id(id));
        }
        std::thread::sleep(Duration::from_micros(37 * round));
        let (gone, stays) = if round % 2 == 0 { (left, right) } else { (right, left) };
        drop(gone);
        // The QP completes its requests or ends with an error.
        for _ in 0..16 {
            let status = stays.completion().status;
            let ended = [
                WcStatus::Success,
                WcStatus::RetryExcErr,
                WcStatus::WrFlushErr,
                WcStatus::RemAccessErr,
            ];
            assert!(ended.contains(&status), "{status:?}");
            if status != WcStatus::Success {
                break;
            }
        }
    }
    let (mut left, mut right) = (Side::new(&context), Side::new(&context));
    join(&mut left, &mut right, &ConnectOptions::default());
    talk(&mut left, &mut right, 10_000);
}

#[test]
fn the_next_hop_to_an_own_address_is_the_ports_own() {
    let context = alone(&Setup::two_links());
    let ports = context.ports();
    for from in [1, 2] {
        for to in &ports {
            let mac = context.resolve(from, &AddressVector::to(to.gids[0])).unwrap();
            assert_eq!(mac, to.mac);
        }
    }
    let absent = context.resolve(1, &AddressVector::to(gid("127.0.0.1"))).unwrap_err();
    assert!(absent.to_string().contains("127.0.0.1 is not an address of a port"), "{absent}");
}

fn gid(text: &str) -> Gid {
    text.parse::<std::net::IpAddr>().expect("an address").into()
}
