//! Ports over the kernel's UDP sockets: several lcores, and marks of congestion that cross the
//! kernel.

use crate::common::{self, Side, post};
use crate::netdev::{ip, namespace};
use uroce::config::{
    Algorithm, BottleneckConfig, CongestionConfig, DeviceConfig, Lcores, PortConfig,
};
use uroce::{Config, ConnectOptions, Context, SendWr};

/// Addresses of two devices.
type Addresses = [&'static str; 2];

const IPV4: Addresses = ["192.0.2.1/24", "192.0.2.2/24"];
const IPV6: Addresses = ["2001:db8::1/64", "2001:db8::2/64"];

/// Opens two devices over sockets of one interface, in a network namespace of the test's own.
fn devices(addresses: Addresses, device: impl Fn(DeviceConfig) -> DeviceConfig) -> [Context; 2] {
    let named = |name: &str, address: &str| {
        let port = PortConfig::udp("lo").mtu(4200).ip(address).expect("an address");
        device(DeviceConfig::new(name)).port(port)
    };
    namespace();
    ip("link set lo up");
    addresses.iter().for_each(|address| ip(&format!("addr add {address} dev lo nodad")));
    let [left, right] = addresses;
    let config = Config::new().device(named("left", left)).device(named("right", right));
    ["left", "right"].map(|name| Context::open(&config, name).expect("sockets need no privilege"))
}

fn join([left, right]: &[Context; 2]) -> (Side, Side) {
    let (mut left, mut right) = (Side::new(left), Side::new(right));
    common::join(&mut left, &mut right, &ConnectOptions::default());
    (left, right)
}

/// Writes 16 messages from the left to the right end, and compares what has come.
fn write(left: &mut Side, right: &Side) {
    let bytes = common::pattern(7, 65536);
    left.memory.write_at(0, &bytes).expect("in range");
    for _ in 0..16 {
        let payload = [left.memory.slice(..bytes.len()).expect("in range")];
        post(&mut left.qp, SendWr::write(&payload, right.memory.remote()));
    }
    (0..16).for_each(|_| {
        left.done();
    });
    assert!(right.bytes(0, bytes.len()) == bytes, "other bytes");
}

#[test]
#[ignore = "needs root and ip: makes a network namespace"]
fn lcores_have_a_socket_each_and_hand_over_what_is_not_theirs() {
    let contexts = devices(IPV4, |of| of.lcores(Lcores::Count(2)));
    // QPs are spread over the lcores. All packets of a peer have one flow, so one socket.
    let mut pairs = [(); 4].map(|()| join(&contexts));
    for (left, right) in &mut pairs {
        write(left, right);
        write(right, left);
    }
    let (left, right) = &pairs[0];
    assert!(left.counter("rx_handed_over") > 0 && right.counter("rx_handed_over") > 0);
}

/// A sender with DCQCN behind a queue that marks each packet: the kernel carries the marks to the
/// peer, and the CNPs back.
fn marks_slow_the_sender(addresses: Addresses) {
    let dcqcn = CongestionConfig { algorithm: Algorithm::Dcqcn, ..CongestionConfig::default() };
    let contexts = devices(addresses, |of| of.congestion(dcqcn));
    let (mut left, right) = join(&contexts);
    let slow = BottleneckConfig { kmin: 0, kmax: 0, ..BottleneckConfig::new(1000, 4 << 20) };
    left.context.set_bottleneck(1, Some(slow)).expect("a bottleneck");
    write(&mut left, &right);
    let marked = left.counter("bottleneck_marked");
    assert!(marked > 0);
    // Those that the kernel has lost, if any, are not among them.
    let seen = right.counter("np_ecn_marked_roce_packets");
    assert!((marked / 2..=marked).contains(&seen), "{seen} of {marked} marks");
    let [sent, handled] = [right.counter("np_cnp_sent"), left.counter("rp_cnp_handled")];
    assert!(0 < handled && handled <= sent, "{handled} of {sent} CNPs");
}

#[test]
#[ignore = "needs root and ip: makes a network namespace"]
fn marks_cross_the_kernel_in_ipv4_packets() {
    marks_slow_the_sender(IPV4);
}

#[test]
#[ignore = "needs root and ip: makes a network namespace"]
fn marks_cross_the_kernel_in_ipv6_packets() {
    marks_slow_the_sender(IPV6);
}
