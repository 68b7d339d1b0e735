//! ARP, neighbour discovery and echo with Linux, over a tap in a network namespace.
//!
//! `unshare -n cargo nextest run -p uroce --run-ignored all linux`

use crate::common;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{AddressVector, Config, Context};

fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let program = words.next().expect("a program");
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

/// Sends an echo request through the kernel and waits for the reply with the same payload.
fn ping(address: IpAddr, payload: &[u8]) -> bool {
    let (family, protocol, request, reply) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::RAW, flags, Some(protocol)).expect("root");
    let mut message = [&[request, 0, 0, 0, 0, 7, 0, 9], payload].concat();
    // The kernel computes the checksum of ICMPv6.
    let sum: u32 = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    message[2..4].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let to = SocketAddr::new(address, 0);
    sendto(&socket, &message, SendFlags::empty(), &to).expect("a route");

    let header = if address.is_ipv4() { 20 } else { 0 };
    let end = Instant::now() + common::SOON;
    let mut buffer = [0; 4096];
    while Instant::now() < end {
        let len = recv(&socket, &mut buffer[..], RecvFlags::empty()).map_or(0, |(len, _)| len);
        let is_reply = len > header + 8 && buffer[header] == reply;
        if is_reply && buffer[header + 8..len] == *payload {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
#[ignore = "needs root, /dev/net/tun and ip: makes a tap in this network namespace"]
fn linux_and_the_stack_find_and_ping_each_other() {
    let port = PortConfig::vdev("net_tap0,iface=uroce-t0").ip("192.0.2.1/24").unwrap();
    let port = port.ip("2001:db8::1/64").unwrap();
    let config = Config::new().device(DeviceConfig::new("tap").port(port));
    let context = Context::open(&config, "tap").unwrap();
    for command in [
        "ip link set uroce-t0 up",
        "ip addr add 192.0.2.2/24 dev uroce-t0",
        "ip addr add 2001:db8::2/64 dev uroce-t0 nodad",
    ] {
        assert!(run(command), "{command}");
    }
    for (index, address) in [(0, "192.0.2.2"), (1, "2001:db8::2")] {
        let gid = address.parse::<IpAddr>().unwrap().into();
        let peer = AddressVector { sgid_index: index, ..AddressVector::to(gid) };
        let end = Instant::now() + common::SOON;
        while let Err(error) = context.resolve(1, &peer) {
            assert!(Instant::now() < end, "{address}: {error}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    // The kernel resolves our address too, and we answer its echo requests.
    assert!(run("ip neigh flush dev uroce-t0"));
    for address in ["192.0.2.1", "2001:db8::1"] {
        for len in [2, 56, 1400] {
            assert!(ping(address.parse().unwrap(), &vec![len as u8; len]), "{address}, {len} B");
        }
    }
}
