//! Ports that follow the kernel's interface behind them: veth pairs in a network namespace.
//!
//! `unshare -n cargo nextest run -p uroce --run-ignored all netdev`

mod common;

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use uroce::config::{DeviceConfig, PortConfig};
use uroce::{AddressVector, Config, Context, Gid, PathError, PortAttr, RequestError};

/// Runs `ip` with these words.
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip is installed");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn gid(text: &str) -> Gid {
    text.parse::<IpAddr>().unwrap().into()
}

/// Two interfaces joined by a cable, without IPv6 of their own making. Named after the test, since
/// tests may share the namespace; gone with it.
fn veth(left: &str, right: &str) {
    ip(&format!("link add {left} type veth peer name {right}"));
    for name in [left, right] {
        ip(&format!("link set {name} addrgenmode none"));
        ip(&format!("link set {name} up"));
    }
}

fn follower(name: &str) -> DeviceConfig {
    DeviceConfig::new(name).port(PortConfig::vdev(format!("net_af_packet_{name},iface={name}")))
}

/// Waits until the first port is as wanted.
fn until(context: &Context, what: &str, fits: impl Fn(&PortAttr) -> bool) {
    let end = Instant::now() + common::SOON;
    while !fits(&context.ports()[0]) {
        assert!(Instant::now() < end, "{what}: {:?}", context.ports());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn until_link(context: &Context, up: bool) {
    let end = Instant::now() + common::SOON;
    while context.port_status(1).unwrap().link.up != up {
        assert!(Instant::now() < end, "the link is not {up}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs root and ip: makes interfaces in this network namespace"]
fn a_port_has_the_addresses_that_its_netdev_has() {
    veth("uroce-a0", "uroce-a1");
    ip("addr add 192.0.2.1/24 dev uroce-a0");
    ip("addr add 2001:db8::1/64 dev uroce-a0 nodad");
    let config = Config::new().device(follower("uroce-a0"));
    let context = Context::open(&config, "uroce-a0").unwrap();
    let gids = |expected: &'static [&'static str]| {
        let expected: Vec<Gid> = expected.iter().map(|text| gid(text)).collect();
        until(&context, "addresses", |port| port.gids == expected);
    };
    gids(&["192.0.2.1", "2001:db8::1"]);

    ip("addr add 192.0.2.7/25 dev uroce-a0");
    gids(&["192.0.2.1", "2001:db8::1", "192.0.2.7"]);
    ip("addr del 192.0.2.1/24 dev uroce-a0");
    gids(&["::", "2001:db8::1", "192.0.2.7"]);
    let from_the_gone_one = AddressVector::to(gid("192.0.2.9"));
    let refused = context.resolve(1, &from_the_gone_one);
    assert_eq!(refused, Err(RequestError::Path(PathError::NoGid { port: 1, index: 0 })));
    ip("addr add 198.51.100.1/24 dev uroce-a0");
    gids(&["198.51.100.1", "2001:db8::1", "192.0.2.7"]);

    ip("link set uroce-a0 mtu 1400");
    until(&context, "MTU", |port| port.mtu == 1400);
    ip("link set uroce-a0 address 02:00:00:00:00:aa");
    until(&context, "MAC", |port| port.mac == uroce::Mac([2, 0, 0, 0, 0, 0xaa]));
    ip("link set uroce-a0 mtu 9000");
    until(&context, "MTU", |port| port.mtu == 1500);
}

#[test]
#[ignore = "needs root and ip: makes interfaces in this network namespace"]
fn a_port_is_down_while_its_cable_is_out_or_its_interface_gone() {
    veth("uroce-b0", "uroce-b1");
    let config = Config::new().device(follower("uroce-b0"));
    let context = Context::open(&config, "uroce-b0").unwrap();
    until_link(&context, true);
    for name in ["uroce-b1", "uroce-b0"] {
        ip(&format!("link set {name} down"));
        until_link(&context, false);
        ip(&format!("link set {name} up"));
        until_link(&context, true);
    }
    ip("link del uroce-b1");
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
