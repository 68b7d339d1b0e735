//! Ports over drivers with a kernel, a vhost or a chaining peer behind them.

use crate::common::{
    LONG, check_passed, eal, eventually, only, pool, read_frame, send, socket_path,
};
use std::process::{Command, Stdio};
use std::time::Duration;
use uroce_engine::mbuf::{MbufBatch, Mempool};
use uroce_engine::port::vdev::{self, MemifRole};
use uroce_engine::port::{By, Port, PortConfig, PortError, QueuePair};

fn open(device: String, mtu: u16, pool: &Mempool) -> Port {
    let config = PortConfig { mtu, ..PortConfig::new(device) };
    Port::open(eal(), &config, pool).expect("the driver is installed")
}

/// Sends frames of `len` bytes from one port to the other and checks each.
fn cross(from: &Port, to: &Port, pool: &Mempool, len: usize) {
    const FRAMES: u64 = 500;
    let (mut tx, mut rx) = (from.queue_pair(0).expect("free"), to.queue_pair(0).expect("free"));
    let (mut batch, mut expected) = (MbufBatch::new(), 0);
    assert!(eventually(|| from.link().up && to.link().up), "no link");
    let mut poll = || {
        rx.rx_burst(&mut batch);
        for mbuf in batch.drain() {
            // Kernels also send frames by themselves.
            if mbuf.len() == len {
                assert_eq!(read_frame(mbuf.as_slice()), expected);
                expected += 1;
            }
        }
        expected
    };
    // A memif client offers its buffers in its first burst.
    assert_eq!(poll(), 0);
    // A few at a time: a kernel silently drops frames for which there is no room.
    for round in 1..=FRAMES / 10 {
        let sent = send(&mut tx, pool, round * 10 - 10, len, 10, Duration::from_secs(5));
        assert_eq!(sent, 10);
        assert!(eventually(|| poll() == 10 * round), "{} of {}", poll(), 10 * round);
    }
    assert_eq!(rx.multi_segment_drops(), 0);
}

#[test]
fn long_frames_cross_vhost_and_virtio_user() {
    let pool = pool(eal(), 4095, 9216);
    let socket = socket_path("vhost");
    let switch = open(vdev::vhost(0, &socket, 1), LONG as u16, &pool);
    let guest = open(vdev::virtio_user(0, &socket, 1, 1024, None), LONG as u16, &pool);
    cross(&guest, &switch, &pool, LONG);
    cross(&switch, &guest, &pool, LONG);
}

#[test]
fn a_frame_in_several_memif_buffers_arrives_in_one_segment() {
    let pool = pool(eal(), 4095, 9216);
    let socket = socket_path("chained");
    let short = |device: String| device.replace("bsize=4352", "bsize=2048");
    let server = short(vdev::memif(0, MemifRole::Server, &socket, LONG as u16, 512));
    let client = short(vdev::memif(1, MemifRole::Client, &socket, LONG as u16, 512));
    assert!(server.contains("bsize=2048"));
    let server = open(server, LONG as u16, &pool);
    let client = open(client, LONG as u16, &pool);
    cross(&client, &server, &pool, LONG);
    cross(&server, &client, &pool, LONG);
}

#[test]
fn a_frame_longer_than_an_mbuf_is_dropped_and_counted() {
    let (long, short) = (pool(eal(), 2047, 9216), pool(eal(), 2047, 1600));
    let socket = socket_path("longer");
    let server = vdev::memif(0, MemifRole::Server, &socket, 1500, 512);
    let server = open(server, 1500, &short);
    let client = vdev::memif(1, MemifRole::Client, &socket, LONG as u16, 512);
    let client = open(client, LONG as u16, &long);
    let (mut tx, mut rx) =
        (client.queue_pair(0).expect("free"), server.queue_pair(0).expect("free"));
    assert!(eventually(|| client.link().up && server.link().up), "no link");
    assert_eq!(send(&mut tx, &long, 0, LONG, 3, Duration::from_secs(5)), 3);
    assert_eq!(send(&mut tx, &long, 3, 1500, 1, Duration::from_secs(5)), 1);
    let mut batch = MbufBatch::new();
    assert!(eventually(|| rx.rx_burst(&mut batch) == 1));
    assert_eq!(read_frame(batch.as_slice()[0].as_slice()), 3);
    assert_eq!(rx.multi_segment_drops(), 3);
    drop(batch);
    assert_eq!(short.available(), short.count());
}

/// Runs the calling test in its own network namespace. Returns true inside.
fn in_a_namespace(test: &str) -> bool {
    if std::env::var_os("UROCE_TEST_NAMESPACE").is_some() {
        return true;
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount"])
        .arg(std::env::current_exe().expect("we are running"))
        .args(only(module_path!(), test))
        .env("UROCE_TEST_NAMESPACE", "1")
        .stderr(Stdio::inherit())
        .output()
        .expect("util-linux is installed");
    assert!(output.status.success());
    check_passed(&String::from_utf8_lossy(&output.stdout));
    false
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2");
    assert!(status.success(), "ip {arguments}");
}

#[test]
#[ignore = "needs root: makes network interfaces in a namespace of its own"]
fn long_frames_cross_a_veth_pair_by_af_packet() {
    if !in_a_namespace("long_frames_cross_a_veth_pair_by_af_packet") {
        return;
    }
    ip("link add ua mtu 4200 type veth peer name ub mtu 4200");
    ip("link set ua up");
    ip("link set ub up");
    let pool = pool(eal(), 4095, 9216);
    let a = open(vdev::af_packet(0, "ua", LONG as u16, 1, 512), LONG as u16, &pool);
    let b = open(vdev::af_packet(1, "ub", LONG as u16, 1, 512), LONG as u16, &pool);
    cross(&a, &b, &pool, LONG);
    cross(&b, &a, &pool, LONG);
}

fn is_promiscuous(interface: &str) -> bool {
    let flags = std::fs::read_to_string(format!("/sys/class/net/{interface}/flags"));
    let flags = flags.expect("sysfs of the namespace");
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).expect("a number");
    flags & 0x100 != 0
}

/// Runs the calling test with CAP_NET_RAW as its only privilege. Returns true inside.
fn unprivileged_port(test: &str) -> bool {
    if std::env::var_os("UROCE_TEST_NET_RAW").is_some() {
        return true;
    }
    let raw = ["--bounding-set", "-all,+net_raw", "--inh-caps", "-all,+net_raw"];
    let output = Command::new("setpriv")
        .args(raw)
        .arg(std::env::current_exe().expect("we are running"))
        .args(only(module_path!(), test))
        .env("UROCE_TEST_NET_RAW", "1")
        .stderr(Stdio::inherit())
        .output()
        .expect("util-linux is installed");
    assert!(output.status.success());
    check_passed(&String::from_utf8_lossy(&output.stdout));
    false
}

#[test]
#[ignore = "needs root: makes network interfaces in a namespace of its own"]
fn af_packet_needs_no_more_than_cap_net_raw_and_leaves_the_interface_alone() {
    const NAME: &str = "af_packet_needs_no_more_than_cap_net_raw_and_leaves_the_interface_alone";
    if !in_a_namespace(NAME) {
        return;
    }
    if std::env::var_os("UROCE_TEST_NET_RAW").is_none() {
        ip("link add ua mtu 4200 type veth peer name ub mtu 4200");
        ip("link set ua up promisc on");
        ip("link set ub up");
        let mount = Command::new("mount").args(["-t", "sysfs", "none", "/sys"]).status();
        assert!(mount.expect("mount is installed").success());
    }
    if !unprivileged_port(NAME) {
        return;
    }
    let pool = pool(eal(), 4095, 9216);
    // The driver's default rings have too short slots.
    let a = open("net_af_packet0,iface=ua".into(), LONG as u16, &pool);
    let b = open("net_af_packet1,iface=ub".into(), LONG as u16, &pool);
    cross(&a, &b, &pool, LONG);
    cross(&b, &a, &pool, LONG);
    // The administrator's setting is kept; the port's own socket requests the frames to other
    // addresses.
    assert!(is_promiscuous("ua"));
    drop((a, b));
    assert!(is_promiscuous("ua"));
    // The driver has one pair unless its arguments say otherwise.
    let config = PortConfig { queue_pairs: 4, ..PortConfig::new("net_af_packet2,iface=ua") };
    assert_eq!(Port::open(eal(), &config, &pool).expect("opens").queue_pairs(), 1);
}

/// Returns the number of frames that the kernel has received from an interface of this namespace.
fn received(interface: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/net/dev").expect("a kernel with networks");
    let of = |line: &str| line.trim().strip_prefix(interface)?.strip_prefix(':').map(str::to_owned);
    let counts = all.lines().find_map(of).expect("the interface exists");
    counts.split_whitespace().nth(1).and_then(|count| count.parse().ok()).expect("a number")
}

/// Takes the frames that wait in all rings of a port; returns how many.
fn drain(queues: &mut [QueuePair]) -> u64 {
    let mut batch = MbufBatch::new();
    let mut frames = 0;
    for queue in queues {
        while queue.rx_burst(&mut batch) > 0 {
            frames += batch.drain().count() as u64;
        }
    }
    frames
}

/// Floods a port of this device, asked for `pairs`, while its frames are not taken, and checks that
/// each frame is received or counted as missed.
fn check_losses_are_counted(device: &str, pairs: u16, pool: &Mempool) {
    const FRAMES: u64 = 200;
    let config = PortConfig { queue_pairs: pairs, ..PortConfig::new(device) };
    let port = Port::open(eal(), &config, pool).expect("the driver is installed");
    let mut queues: Vec<_> =
        (0..port.queue_pairs()).map(|at| port.queue_pair(at).expect("free")).collect();
    let sender = open("net_af_packet9,iface=ub".into(), 1500, pool);
    let mut tx = sender.queue_pair(0).expect("free");
    assert!(eventually(|| port.link().up && sender.link().up), "no link");
    let (before, mut polled) = (received("ua"), 0);
    for round in 1..=2 {
        for sent in (10..=FRAMES).step_by(10) {
            send(&mut tx, pool, sent, 100, 10, Duration::from_secs(5));
            let arrived = (round - 1) * FRAMES + sent;
            assert!(eventually(|| received("ua") - before == arrived), "the veth pair lost some");
        }
        polled += drain(&mut queues);
        assert!(polled < round * FRAMES, "{device}: all {polled} frames fit in its rings");
        // Twice, since the kernel reports each loss only once.
        for _ in 0..2 {
            let stats = port.stats();
            assert_eq!(stats.rx_packets, polled, "{device}");
            assert_eq!(stats.rx_missed, round * FRAMES - polled, "{device}");
        }
    }
}

#[test]
#[ignore = "needs root: makes network interfaces in a namespace of its own"]
fn frames_that_the_kernel_drops_at_full_rings_of_af_packet_are_counted_as_missed() {
    const NAME: &str =
        "frames_that_the_kernel_drops_at_full_rings_of_af_packet_are_counted_as_missed";
    if !in_a_namespace(NAME) {
        return;
    }
    ip("link add ua type veth peer name ub");
    for interface in ["ua", "ub"] {
        // No frames of the kernel's own.
        ip(&format!("link set {interface} addrgenmode none"));
        ip(&format!("link set {interface} up"));
    }
    let pool = pool(eal(), 4095, 9216);
    check_losses_are_counted("net_af_packet0,iface=ua,framecnt=32", 1, &pool);
    check_losses_are_counted("net_af_packet1,iface=ua,framecnt=32,qpairs=2", 2, &pool);
    // A device is asked for more queues than it has: one for each lcore.
    check_losses_are_counted("net_af_packet2,iface=ua,framecnt=32", 4, &pool);
}

#[test]
fn af_packet_is_refused_rings_that_are_too_short_with_the_argument_to_give() {
    let pool = pool(eal(), 511, 9216);
    let config =
        PortConfig { mtu: 4200, ..PortConfig::new("net_af_packet0,iface=lo,framesz=2048") };
    let said = Port::open(eal(), &config, &pool).expect_err("refused").to_string();
    assert!(said.contains("give framesz=5120"), "{said}");
}

#[test]
#[ignore = "needs root: makes network interfaces in a namespace of its own"]
fn frames_cross_a_veth_pair_by_af_xdp() {
    if !in_a_namespace("frames_cross_a_veth_pair_by_af_xdp") {
        return;
    }
    ip("link add ua type veth peer name ub");
    ip("link set ua up");
    ip("link set ub up");
    let device = "net_af_xdp0,iface=ua";
    let room = vdev::mbuf_room(device).expect("mbufs of one size");
    let own = pool(eal(), u32::from(vdev::mbufs_held(device)) + 2047, room);
    let other = pool(eal(), 4095, 9216);
    let a = open(device.into(), 1500, &own);
    let b = open(vdev::af_packet(1, "ub", 1500, 1, 512), 1500, &other);
    cross(&a, &b, &own, 1514);
    cross(&b, &a, &other, 1514);
    // Where veth has zero-copy, it is used.
    let features = a.features();
    let mode = features.iter().find(|feature| feature.name == "AF_XDP zero-copy");
    let mode = mode.expect("a kernel since Linux 5.3 tells it");
    assert!(mode.by == By::Device || mode.why.starts_with("copy mode, as the"), "{mode:?}");
    drop(a);
    // A chunk of the socket's memory is a page at most.
    let long = PortConfig { mtu: 4200, ..PortConfig::new(device) };
    let refused = Port::open(eal(), &long, &other).expect_err("refused");
    assert!(matches!(refused, PortError::Mtu { max: 3434, .. }), "{refused}");
}

#[test]
#[ignore = "needs root: makes network interfaces in a namespace of its own"]
fn frames_cross_a_tap() {
    if !in_a_namespace("frames_cross_a_tap") {
        return;
    }
    let pool = pool(eal(), 8191, 9216);
    let device = vdev::tap(0, "utap");
    let refused = Port::open(eal(), &PortConfig { mtu: 4200, ..PortConfig::new(&device) }, &pool);
    assert!(matches!(refused, Err(PortError::Mtu { max: 1504, .. })), "{refused:?}");
    let tap = open(device, 1500, &pool);
    ip("link set utap up");
    let kernel = open(vdev::af_packet(0, "utap", 1500, 1, 512), 1500, &pool);
    cross(&kernel, &tap, &pool, 1500);
    cross(&tap, &kernel, &pool, 1500);
}
