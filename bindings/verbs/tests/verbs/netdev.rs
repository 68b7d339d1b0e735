//! Ports that follow the kernel interface behind them: veth pairs, with a network namespace for
//! each test.

use crate::common;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::Side;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{
    AddressVector, Config, ConnectOptions, Context, EventKind, EventSource, Gid, PathError,
    PortAttr, RequestError, SendWr, WcStatus,
};

/// Runs `ip` with these arguments.
pub(crate) fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves this thread, and threads that it starts later, to a new network namespace, which ends with
/// the process.
pub(crate) fn namespace() {
    // SAFETY: a new network namespace does not unshare memory, and the thread has no sockets.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root");
}

fn gid(text: &str) -> Gid {
    text.parse::<IpAddr>().unwrap().into()
}

/// Adds two joined interfaces without IPv6 link-local addresses.
fn veth(left: &str, right: &str) {
    ip(&format!("link add {left} type veth peer name {right}"));
    for name in [left, right] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} up"));
    }
}

fn follower(name: &str) -> DeviceConfig {
    DeviceConfig::new(name).port(af_packet(name))
}

/// Waits until `fits` is true for the first port.
fn until(context: &Context, what: &str, fits: impl Fn(&PortAttr) -> bool) {
    let end = Instant::now() + common::SOON;
    while !fits(&context.ports()[0]) {
        assert!(Instant::now() < end, "{what}: {:?}", context.ports());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next event, which must be of the first port.
fn event(context: &Context) -> EventKind {
    let event = context.next_async_event(Some(common::SOON)).expect("an event in time");
    assert_eq!(event.source, EventSource::Port(1));
    event.kind
}

fn until_link(context: &Context, up: bool) {
    let end = Instant::now() + common::SOON;
    while context.port_status(1).unwrap().link.up != up {
        assert!(Instant::now() < end, "the link is not {up}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs root and ip: makes a network namespace with interfaces"]
fn a_port_has_the_addresses_that_its_netdev_has() {
    namespace();
    veth("a0", "a1");
    ip("addr add 192.0.2.1/24 dev a0");
    ip("addr add 2001:db8::1/64 dev a0 nodad");
    let config = Config::new().device(follower("a0"));
    let context = Context::open(&config, "a0").unwrap();
    let gids = |expected: &'static [&'static str]| {
        let expected: Vec<Gid> = expected.iter().map(|text| gid(text)).collect();
        until(&context, "addresses", |port| port.gids == expected);
    };
    gids(&["192.0.2.1", "2001:db8::1"]);

    ip("addr add 192.0.2.7/25 dev a0");
    assert_eq!(event(&context), EventKind::GidChange);
    gids(&["192.0.2.1", "2001:db8::1", "192.0.2.7"]);
    ip("addr del 192.0.2.1/24 dev a0");
    gids(&["::", "2001:db8::1", "192.0.2.7"]);
    let from_the_gone_one = AddressVector::to(gid("192.0.2.9"));
    let refused = context.resolve(1, &from_the_gone_one);
    assert_eq!(refused, Err(RequestError::Path(PathError::NoGid { port: 1, index: 0 })));
    ip("addr add 198.51.100.1/24 dev a0");
    gids(&["198.51.100.1", "2001:db8::1", "192.0.2.7"]);

    assert_eq!(event(&context), EventKind::GidChange);
    ip("link set a0 mtu 1400");
    until(&context, "MTU", |port| port.mtu == 1400);
    ip("link set a0 address 02:00:00:00:00:aa");
    until(&context, "MAC", |port| port.mac == uroce::Mac([2, 0, 0, 0, 0, 0xaa]));
    ip("link set a0 mtu 9000");
    until(&context, "MTU", |port| port.mtu == 1500);
}

#[test]
#[ignore = "needs root and ip: makes a network namespace with interfaces"]
fn a_port_is_down_while_its_cable_is_out_or_its_interface_gone() {
    namespace();
    veth("b0", "b1");
    let config = Config::new().device(follower("b0"));
    let context = Context::open(&config, "b0").unwrap();
    until_link(&context, true);
    for name in ["b1", "b0"] {
        ip(&format!("link set {name} down"));
        assert_eq!(event(&context), EventKind::PortErr);
        until_link(&context, false);
        ip(&format!("link set {name} up"));
        assert_eq!(event(&context), EventKind::PortActive);
        until_link(&context, true);
    }
    ip("link del b1");
    until_link(&context, false);
    until(&context, "no addresses", |port| port.gids.iter().all(|gid| *gid == Gid::default()));
}

#[test]
fn an_interface_that_does_not_exist_is_named() {
    let port = PortConfig::ring("nowhere").netdev("uroce-none");
    let config = Config::new().device(DeviceConfig::new("none").port(port));
    let error = Context::open(&config, "none").unwrap_err().to_string();
    assert!(error.contains("port 1: there is no network interface \"uroce-none\""), "{error}");
}

/// Connects two QPs over the GIDs with this index and sends some packets.
fn write_between(left: &Context, right: &Context, sgid_index: u8) {
    let (mut a, mut b) = (Side::new(left), Side::new(right));
    let options = ConnectOptions { sgid_index, ..ConnectOptions::default() };
    let ends = [&a.qp, &b.qp].map(|qp| qp.endpoint(1, sgid_index).unwrap());
    b.qp.connect(&ends[0], &options).unwrap();
    a.qp.connect(&ends[1], &options).unwrap();
    let sent = common::pattern(sgid_index, 9000);
    a.memory.write_at(0, &sent).unwrap();
    let slice = [a.memory.slice(..9000).unwrap()];
    common::post(&mut a.qp, SendWr::write(&slice, b.memory.remote()));
    a.done();
    assert_eq!(b.bytes(0, 9000), sent);
}

fn af_packet(name: &str) -> PortConfig {
    PortConfig::vdev(format!("net_af_packet_{name},iface={name}"))
}

#[test]
#[ignore = "needs root and ip: makes a network namespace with interfaces"]
fn networks_are_joined_by_a_router() {
    namespace();
    veth("g0", "g1");
    veth("h0", "h1");
    for address in ["192.0.2.254/24 dev g1", "198.51.100.254/24 dev h1"] {
        ip(&format!("addr add {address}"));
    }
    for address in ["2001:db8:1::254/64 dev g1", "2001:db8:2::254/64 dev h1"] {
        ip(&format!("addr add {address} nodad"));
    }
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{switch}"), "1").expect("the namespace is ours");
    }
    let left = af_packet("g0").ip("192.0.2.1/24").unwrap().ip("2001:db8:1::1/64").unwrap();
    let left = left.route("198.51.100.0/24", [192, 0, 2, 254].into()).unwrap();
    let gateway = vec!["2001:db8:1::254".parse().unwrap()];
    let left = PortConfig { gateway, ..left };
    let right = af_packet("h0").ip("198.51.100.1/24").unwrap().ip("2001:db8:2::1/64").unwrap();
    let right = right.route("2001:db8:1::/48", "2001:db8:2::254".parse().unwrap()).unwrap();
    let right = PortConfig { gateway: vec![[198, 51, 100, 254].into()], ..right };
    let config = Config::new()
        .device(DeviceConfig::new("left").port(left))
        .device(DeviceConfig::new("right").port(right));
    let open = |name| Context::open(&config, name).unwrap();
    let (left, right) = (open("left"), open("right"));
    write_between(&left, &right, 0);
    write_between(&left, &right, 1);
    let far = AddressVector::to(gid("203.0.113.1"));
    assert!(left.resolve(1, &far).unwrap_err().to_string().contains("no gateway"));
}

#[test]
#[ignore = "needs root and ip: makes a network namespace with interfaces"]
fn tagged_packets_pass_the_kernels_interfaces() {
    namespace();
    veth("v0", "v1");
    let device = |name, address| {
        let port = PortConfig { vlan: Some(7), ..af_packet(name) };
        DeviceConfig::new(name).port(port.ip(address).unwrap())
    };
    let left = device("v0", "192.0.2.1/24");
    let config = Config::new().device(left).device(device("v1", "192.0.2.2/24"));
    let open = |name| Context::open(&config, name).unwrap();
    write_between(&open("v0"), &open("v1"), 0);
}

#[test]
#[ignore = "needs root and ip: makes a network namespace with interfaces"]
fn a_connection_survives_a_temporary_loss_of_its_address() {
    namespace();
    veth("w0", "w1");
    ip("addr add 192.0.2.1/24 dev w0");
    let config = Config::new()
        .device(follower("w0"))
        .device(DeviceConfig::new("w1").port(af_packet("w1").ip("192.0.2.2/24").unwrap()));
    let open = |name| Context::open(&config, name).unwrap();
    let (left, right) = (open("w0"), open("w1"));
    let (mut a, mut b) = (Side::new(&left), Side::new(&right));
    // Eight timeouts of 33 ms.
    let options = ConnectOptions { timeout: 13, retry_cnt: 7, ..ConnectOptions::default() };
    common::join(&mut a, &mut b, &options);
    for back_in_time in [true, false] {
        ip("addr del 192.0.2.1/24 dev w0");
        assert_eq!(event(&left), EventKind::GidChange);
        let before = a.counter("local_ack_timeout_err");
        let slice = [a.memory.slice(..8).unwrap()];
        common::post(&mut a.qp, SendWr::write(&slice, b.memory.remote()));
        while a.counter("local_ack_timeout_err") < before + 2 {
            std::thread::yield_now();
        }
        if back_in_time {
            ip("addr add 192.0.2.1/24 dev w0");
            a.done();
            assert_eq!(event(&left), EventKind::GidChange);
        } else {
            assert_eq!(a.completion().status, WcStatus::RetryExcErr);
        }
    }
    // The packets were sent and answered, but the port no longer had the address of the answers.
    assert!(a.counter("rx_not_for_us") >= 2);
}
