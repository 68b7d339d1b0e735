//! Paths to peers that do not answer, and requests that the stack answers itself.

use crate::common;
use std::time::{Duration, Instant};

use crate::common::{Setup, Side};
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{
    AddressVector, Config, ConnectOptions, Context, Endpoint, EventKind, EventSource, Gid,
    PathError, Psn, QpState, Qpn, RequestError, SendWr,
};
use uroce_controlplane::device::ring::{RingSpec, claim};
use uroce_engine::eal::Eal;
use uroce_engine::mbuf::{MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::QueuePair as PortQueue;

fn gid(text: &str) -> Gid {
    text.parse::<std::net::IpAddr>().unwrap().into()
}

fn silent_peer(address: &str) -> Endpoint {
    Endpoint { gid: gid(address), qpn: Qpn::new(77), psn: Psn::new(1) }
}

/// A device, and the other end of its link, on which the test reads and writes frames.
struct Wire {
    context: Context,
    queue: PortQueue,
    pool: Mempool,
    // Dropped last.
    _lease: uroce_controlplane::device::ring::RingLease,
}

impl Wire {
    fn new() -> Wire {
        Wire::on(None)
    }

    fn on(vlan: Option<u16>) -> Wire {
        let port = PortConfig::ring("wire").ip("192.0.2.1/24").unwrap().ip("2001:db8::1/64");
        let port = PortConfig { mac: Some(uroce::Mac([2, 0, 0, 0, 0, 1])), vlan, ..port.unwrap() };
        let config = Config::new().device(DeviceConfig::new("left").port(port));
        let context = Context::open(&config, "left").unwrap();
        let eal = Eal::running().expect("the context runs");
        let pool = PoolConfig { count: 4095, cache: 32, room: 2048, ..PoolConfig::default() };
        let pool = Mempool::create(eal, &pool).unwrap();
        let spec = RingSpec { name: "wire".into(), queue_pairs: 1, frames: 1024, mtu: 1500 };
        let (port, lease) = claim(eal, &spec, &pool).unwrap();
        let queue = port.queue_pair(0).unwrap();
        Wire { context, queue, pool, _lease: lease }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut batch = MbufBatch::new();
        self.pool.alloc_burst(&mut batch, 1).unwrap();
        let mbuf = &mut batch.as_mut_slice()[0];
        mbuf.set_len(frame.len()).unwrap();
        mbuf.as_mut_slice().copy_from_slice(frame);
        let end = Instant::now() + common::SOON;
        while self.queue.tx_burst(&mut batch) == 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(batch.is_empty(), "the link takes frames");
    }

    /// Reads frames until one fits.
    fn expect(&mut self, fits: impl Fn(&[u8]) -> bool) {
        self.comes(common::SOON, fits).expect("such a frame comes");
    }

    fn comes(&mut self, within: Duration, fits: impl Fn(&[u8]) -> bool) -> Option<()> {
        let end = Instant::now() + within;
        let mut batch = MbufBatch::new();
        while Instant::now() < end {
            self.queue.rx_burst(&mut batch);
            if batch.drain().any(|mbuf| fits(mbuf.as_slice())) {
                return Some(());
            }
            std::thread::yield_now();
        }
        None
    }
}

/// A frame of the control plane's golden file.
fn golden(name: &str) -> Vec<u8> {
    let lines = include_str!("../../../../controlplane/tests/golden/neighbour.hex").lines();
    let mut named = lines.filter_map(|line| line.split_once(' '));
    let (_, hex) = named.find(|(n, _)| *n == name).expect("the golden frame exists");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The frame with a VLAN tag.
fn tagged(frame: &[u8], vlan: Option<u16>) -> Vec<u8> {
    let tag = vlan.map(|vid| [&[0x81, 0][..], &vid.to_be_bytes()].concat()).unwrap_or_default();
    [&frame[..12], &tag, &frame[12..]].concat()
}

#[test]
fn a_peer_that_does_not_answer_is_a_named_error_in_bounded_time() {
    let (left, _right) = Setup::default().contexts();
    let mut left = Side::new(&left);
    let begin = Instant::now();
    let error =
        left.qp.connect(&silent_peer("192.0.2.77"), &ConnectOptions::default()).unwrap_err();
    let took = begin.elapsed();
    let address = "192.0.2.77".parse().unwrap();
    let expected = PathError::NoAnswer { dst: address, next_hop: address };
    assert_eq!(error, RequestError::Path(expected));
    assert!((Duration::from_secs(2)..Duration::from_secs(6)).contains(&took), "{took:?}");
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Init);
    assert!(left.counter("slow_unresolved") == 1);
}

#[test]
fn other_requests_are_served_while_a_peer_is_being_resolved() {
    let (left, right) = Setup::default().contexts();
    let (mut first, mut second) = (Side::new(&left), Side::new(&left));
    let right = Side::new(&right);
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| {
            first.qp.connect(&silent_peer("192.0.2.77"), &ConnectOptions::default()).unwrap_err()
        });
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        let peer = right.qp.endpoint(1, 0).unwrap();
        second.qp.connect(&peer, &ConnectOptions::default()).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(1) && !slow.is_finished());
        slow.join().unwrap();
    });
}

#[test]
fn destinations_without_a_path_are_refused_at_once() {
    let (left, _right) = Setup::default().contexts();
    let resolve = |to: &str| left.resolve(1, &AddressVector::to(gid(to))).unwrap_err().to_string();
    assert!(resolve("127.0.0.1").contains("not an address of a port"));
    assert!(resolve("198.51.100.1").contains("no gateway"));
    assert!(resolve("224.0.0.1").contains("not the address of one host"));
    assert!(resolve("2001:db8::2").contains("different IP versions"));
    let peer = AddressVector::to(gid("192.0.2.2"));
    assert_eq!(left.resolve(9, &peer), Err(RequestError::Path(PathError::NoPort(9))));
}

#[test]
fn peers_of_both_ip_versions_are_resolved() {
    for addresses in [Setup::default().addresses, ["2001:db8::1/64", "2001:db8::2/64"]] {
        let (left, right) = Setup { addresses, ..Setup::default() }.contexts();
        let peer = right.ports()[0].gids[0];
        let mac = left.resolve(1, &AddressVector::to(peer)).unwrap();
        assert_eq!(mac, right.ports()[0].mac);
    }
}

#[test]
fn arp_neighbour_discovery_and_ping_are_answered() {
    let mut wire = Wire::new();
    let pairs = [
        ("arp_request_of_peer", "arp_reply_of_ours"),
        ("ns_of_peer", "na_of_ours"),
        ("echo4_request", "echo4_reply"),
        ("echo6_request", "echo6_reply"),
    ];
    for (request, reply) in pairs {
        let expected = golden(reply);
        wire.send(&golden(request));
        wire.expect(|frame| frame == expected);
    }
}

#[test]
fn ping_is_answered_while_a_peer_is_being_resolved() {
    let mut wire = Wire::new();
    let context = wire.context.clone();
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| context.resolve(1, &AddressVector::to(gid("192.0.2.77"))));
        std::thread::sleep(Duration::from_millis(50));
        wire.send(&golden("echo4_request"));
        let expected = golden("echo4_reply");
        wire.expect(|frame| frame == expected);
        assert!(!slow.is_finished());
        assert!(slow.join().unwrap().is_err());
    });
}

#[test]
fn a_port_announces_its_addresses_and_asks_its_neighbours() {
    let mut wire = Wire::new();
    let announced = [golden("arp_announcement_of_ours"), golden("na_probe_of_ours")];
    wire.expect(|frame| frame == announced[0]);
    let context = wire.context.clone();
    std::thread::scope(|threads| {
        let peer = AddressVector { sgid_index: 1, ..AddressVector::to(gid("2001:db8::2")) };
        let resolved = threads.spawn(move || context.resolve(1, &peer));
        let question = golden("ns_of_ours");
        wire.expect(|frame| frame == question);
        wire.send(&golden("na_of_peer"));
        assert_eq!(resolved.join().unwrap(), Ok(uroce::Mac([2, 0, 0, 0, 0, 2])));
    });
}

#[test]
fn a_flood_of_junk_leaves_the_control_plane_alive() {
    let mut wire = Wire::new();
    let mut request = golden("arp_request_of_peer");
    for n in 0..20_000u32 {
        // Each request has another sender: 192.0.2.x first, then addresses outside the link. Some
        // requests are corrupted.
        request[28..32].copy_from_slice(&(0xc000_0200 + n).to_be_bytes());
        let broken = n as usize % 28;
        request[broken] ^= 0x10;
        wire.send(&request);
        request[broken] ^= 0x10;
        wire.queue.rx_burst(&mut MbufBatch::new());
    }
    // More frames may be dropped like those of the flood, so ping until there is an answer.
    let expected = golden("echo4_reply");
    let answered = (0..100).any(|_| {
        wire.send(&golden("echo4_request"));
        wire.comes(Duration::from_millis(200), |frame| frame == expected).is_some()
    });
    assert!(answered);
}

#[test] //= check H13 test
fn the_fields_of_the_address_vector_are_on_the_wire() {
    what_the_vector_says(None);
}

#[test] //= check H13 test
fn a_port_in_a_vlan_tags_its_packets_with_the_service_level() {
    what_the_vector_says(Some(7));
}

fn what_the_vector_says(vlan: Option<u16>) {
    let mut wire = Wire::on(vlan);
    let pd = wire.context.allocate_pd();
    let cq = wire.context.create_cq(16).unwrap();
    let memory = pd.allocate(64, uroce::AccessFlags::LOCAL_WRITE).unwrap();
    let mut qp = pd.create_qp(&uroce::QpInit::new(&cq)).unwrap();
    let options = ConnectOptions {
        sgid_index: 1,
        traffic_class: 0x68,
        flow_label: 0x12345,
        hop_limit: 17,
        service_level: 5,
        ..ConnectOptions::default()
    };
    let psn = qp.endpoint(1, 1).unwrap().psn;
    // The peer is resolved before it is connected to.
    wire.send(&tagged(&golden("ns_of_peer"), vlan));
    let mut qp = std::thread::scope(|threads| {
        let connecting = threads.spawn(move || {
            qp.connect(&silent_peer("2001:db8::2"), &options).unwrap();
            qp
        });
        let question = tagged(&golden("ns_confirm_of_ours"), vlan);
        wire.expect(|frame| frame == question);
        wire.send(&tagged(&golden("na_of_peer"), vlan));
        connecting.join().unwrap()
    });
    let slice = [memory.slice(..5).unwrap()];
    qp.post_send(&uroce::SendWr::send(&slice)).unwrap();
    let own = qp.qpn();
    wire.expect(|frame| {
        let Ok(uroce_wire::Frame::Roce(datagram)) = uroce_wire::Frame::parse(frame) else {
            return false;
        };
        let packet = datagram.packet().expect("its invariant CRC is right");
        assert_eq!(datagram.src_mac, uroce::Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(datagram.dst_mac, uroce::Mac([2, 0, 0, 0, 0, 2]));
        let tag = datagram.vlan.map(|tag| (tag.vid, tag.pcp));
        assert_eq!(tag, vlan.map(|vid| (vid, 5)));
        assert_eq!((datagram.src, datagram.dst), (gid("2001:db8::1"), gid("2001:db8::2")));
        assert_eq!((datagram.traffic_class, datagram.hop_limit), (0x68, 17));
        let src_port = uroce_wire::udp_source_port(0x12345, own, Qpn::new(77));
        assert_eq!(datagram.src_port, src_port);
        assert_eq!((packet.bth.dest_qpn, packet.bth.psn), (Qpn::new(77), psn));
        assert_eq!(packet.payload, [0; 5]);
        true
    });
}

/// Two devices with two ports each, joined by two links.
fn two_ports(addresses: [[&str; 2]; 2]) -> (Context, Context) {
    let device = |name: &str, own: [&str; 2]| {
        let port = |link: &str, own| PortConfig::ring(link).mtu(4200).ip(own).expect("an address");
        DeviceConfig::new(name).port(port("first", own[0])).port(port("second", own[1]))
    };
    let config =
        Config::new().device(device("left", addresses[0])).device(device("right", addresses[1]));
    let open = |name| Context::open(&config, name).expect("a ring link needs no privilege");
    (open("left"), open("right"))
}

fn packets(context: &Context, port: u8) -> u64 {
    context.port_status(port).unwrap().stats.rx_packets
}

#[test]
fn each_port_of_a_device_carries_the_connections_that_name_it() {
    let one_network = [["192.0.2.1/24", "192.0.2.3/24"], ["192.0.2.2/24", "192.0.2.4/24"]];
    let two_networks = [["192.0.2.1/24", "2001:db8::1/64"], ["192.0.2.2/24", "2001:db8::2/64"]];
    for addresses in [one_network, two_networks] {
        let (left, right) = two_ports(addresses);
        for port in [1, 2] {
            let (mut a, mut b) = (Side::new(&left), Side::new(&right));
            let options = ConnectOptions { port, ..ConnectOptions::default() };
            let ends = [&a.qp, &b.qp].map(|qp| qp.endpoint(port, 0).unwrap());
            b.qp.connect(&ends[0], &options).unwrap();
            a.qp.connect(&ends[1], &options).unwrap();
            a.memory.write_at(0, &common::pattern(port, 9000)).unwrap();
            let before = [packets(&right, 1), packets(&right, 2)];
            let slice = [a.memory.slice(..9000).unwrap()];
            common::post(&mut a.qp, uroce::SendWr::write(&slice, b.memory.remote()));
            a.done();
            assert_eq!(b.bytes(0, 9000), common::pattern(port, 9000));
            let came = [packets(&right, 1) - before[0], packets(&right, 2) - before[1]];
            let other = came[usize::from(2 - port)];
            assert!(came[usize::from(port) - 1] >= 3 && other <= 1, "port {port}: {came:?}");
        }
    }
}

#[test]
fn a_peer_of_the_other_ports_network_is_not_reached() {
    let networks = [["192.0.2.1/24", "198.51.100.1/24"], ["192.0.2.2/24", "198.51.100.2/24"]];
    let (left, right) = two_ports(networks);
    for (port, peer) in [(1, 0), (2, 1)] {
        let peers = right.ports();
        let to = |at: usize| AddressVector::to(peers[at].gids[0]);
        assert_eq!(left.resolve(port, &to(peer)), Ok(peers[peer].mac));
        assert!(left.resolve(port, &to(1 - peer)).unwrap_err().to_string().contains("no gateway"));
    }
}

#[test]
fn a_port_reports_that_its_link_goes_down_and_comes_up() {
    let (left, right) =
        two_ports([["192.0.2.1/24", "192.0.2.3/24"], ["192.0.2.2/24", "192.0.2.4/24"]]);
    let next = |context: &Context| {
        let event = context.next_async_event(Some(common::SOON)).expect("an event in time");
        (event.source, event.kind)
    };
    // A link that is up from the start causes no event.
    for port in [2, 1] {
        right.set_link(port, false).unwrap();
        assert_eq!(next(&left), (EventSource::Port(port), EventKind::PortErr));
        assert_eq!(next(&right), (EventSource::Port(port), EventKind::PortErr));
        assert!(!left.port_status(port).unwrap().link.up);
        right.set_link(port, true).unwrap();
        assert_eq!(next(&left), (EventSource::Port(port), EventKind::PortActive));
        assert_eq!(next(&right), (EventSource::Port(port), EventKind::PortActive));
    }
    assert!(left.poll_async_event().unwrap().is_none());
}

#[test]
fn twins_are_one_host_to_each_other() {
    let mut config = Setup { addresses: ["192.0.2.1/24"; 2], ..Setup::default() }.config();
    let macs = [1, 2].map(|end| uroce::Mac([2, 0, 0, 0, 0, end]));
    for (device, end) in config.devices.iter_mut().zip(0..) {
        let port = &mut device.ports[0];
        (port.mac, port.twin) = (Some(macs[end]), Some(macs[1 - end]));
    }
    let open = |name| Side::new(&Context::open(&config, name).unwrap());
    let (mut left, mut right) = (open("left"), open("right"));
    let own = AddressVector::to(gid("192.0.2.1"));
    assert_eq!(left.context.resolve(1, &own).unwrap(), macs[1]);
    common::join(&mut left, &mut right, &ConnectOptions::default());
    left.memory.write_at(0, b"to my own address").unwrap();
    let source = [left.memory.slice(..17).unwrap()];
    common::post(&mut left.qp, SendWr::write(&source, right.memory.remote()));
    left.done();
    assert_eq!(right.bytes(0, 17), b"to my own address");
}
