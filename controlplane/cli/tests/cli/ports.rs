//! Ports while the process runs, and the settings of testpmd's habits.

use std::time::{Duration, Instant};

use uroce::config::{DeviceConfig, Lcores, PortConfig};
use uroce::{Config, Context, EventSource};
use uroce_command::Answer;
use uroce_command::answer::PortInfo;

use crate::lab::{Lab, answer, eventually, fails, says, text};
use crate::own::run;

fn infos(line: &str) -> Vec<PortInfo> {
    match answer(line) {
        Answer::PortInfo(ports) => ports,
        other => panic!("{line}: {other:?}"),
    }
}

/// Returns the sum of counters of this name.
fn count(name: &str) -> u64 {
    let Answer::Counters(counters) = answer("show counters") else { panic!("counters") };
    counters.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum()
}

#[test]
fn ports_are_stopped_and_started_and_a_program_keeps_its_own() {
    let mut lab = Lab::new();
    let refused = fails("port stop 0");
    let expected = "left serves a program, which would get no packet (EPERM)\nadd --force";
    assert!(refused.contains(expected), "{refused}");
    assert!(infos("show port info all").iter().all(|port| port.up));
    assert_eq!(says("port stop 0 --force"), "Stopping ports...\nDone\n");
    eventually("a link that is down", || !infos("show port info 0")[0].up);
    assert_eq!(says("port start all"), "Done\n");
    eventually("links that are up", || infos("show port info all").iter().all(|port| port.up));
    lab.write(1);
    assert!(fails("port stop 7 --force").contains("no port 7 (ENOENT)\n"));
    assert!(fails("port start 70000").contains("no port 70000 (ENOENT)\n"));
}

#[test]
fn what_is_set_at_the_start_says_so() {
    let _lab = Lab::new();
    for (line, remedy) in [
        ("port config 0 mtu 9000", "start again with --mtu"),
        ("port config all rxq 4", "start again with --mtu"),
        ("set burst 64", "up to 64 frames"),
        ("set idle sleep", "`idle` of the device"),
        ("set promisc all off", "frames for others are dropped"),
    ] {
        let refused = fails(line);
        let is_told = refused.contains("not while the process runs (EOPNOTSUPP)\n");
        assert!(is_told && refused.contains(remedy), "{line}: {refused}");
    }
}

#[test]
fn what_is_no_nic_is_neither_reset_nor_closed() {
    let mut lab = Lab::new();
    for line in ["port reset 0", "port close all", "port detach 0"] {
        assert!(fails(line).contains("left serves a program, which would get no packet (EPERM)\n"));
        let refused = fails(&format!("{line} --force"));
        let cause = "port 1 is no NIC: there is no hardware to be reset, removed or replaced (EOPNOTSUPP)\n";
        assert!(refused.contains(cause) && refused.contains("`port stop`"), "{line}: {refused}");
    }
    let refused = fails("port attach net_null9 0");
    assert!(refused.contains("or replaced (EOPNOTSUPP)\nname a port that was"), "{refused}");
    lab.write(1);
}

/// Opens a device of two lcores and two ports that receive frames without end.
fn nulls() -> Context {
    let null = |at: u8| {
        let port = PortConfig::vdev(format!("net_null{at},size=128"));
        port.ip(&format!("192.0.{at}.1/24")).expect("an address")
    };
    let device = DeviceConfig::new("nulls").lcores(Lcores::Count(2)).port(null(2)).port(null(3));
    Context::open(&Config::new().device(device), "nulls").expect("no privilege")
}

fn received(port: usize) -> u64 {
    match answer("show port stats all") {
        Answer::PortStats(ports) => ports[port].rx_packets,
        other => panic!("{other:?}"),
    }
}

fn receives(port: usize) {
    let before = received(port);
    eventually("frames", || received(port) > before);
}

#[test]
fn a_device_is_reset_and_closed_while_lcores_poll_it() {
    let context = nulls();
    receives(0);
    assert!(fails("port reset all").contains("serves a program"));
    says("clear events");
    for _ in 0..3 {
        assert_eq!(says("port reset 0 --force"), "Resetting ports...\nDone\n");
        receives(0);
        receives(1);
    }
    eventually("a link that is up", || infos("show port info 0")[0].up);
    let events = says("show events");
    assert_eq!(events.matches("PortErr").count(), 3, "{events}");

    assert_eq!(says("port close 0 --force"), "Closing ports...\nDone\n");
    receives(1);
    assert!(!infos("show port info 0")[0].up);
    assert_eq!(received(0), 0);
    for line in ["port reset 0 --force", "port detach 0 --force"] {
        let refused = fails(line);
        assert!(refused.contains("\"net_null2\" is gone"), "{refused}");
        assert!(refused.contains("(ENODEV)\n"), "{refused}");
    }
    // The port that is left.
    assert_eq!(says("port reset all --force"), "Resetting ports...\nDone\n");
    receives(1);
    assert!(!says("show events").contains("DeviceFatal"));
    assert_eq!(says("port detach 1 --force"), "Closing ports...\nDone\n");
    assert!(says("show events").contains("device  DeviceFatal"));
    let told = std::iter::from_fn(|| context.poll_async_event().expect("events"));
    assert_eq!(told.filter(|event| event.source == EventSource::Device).count(), 1);
}

#[test]
fn a_device_is_attached_in_place_of_a_closed_one() {
    let _context = nulls();
    assert_eq!(says("port close 0 --force"), "Closing ports...\nDone\n");
    let socket = format!("/tmp/uroce-attach-{}", std::process::id());
    let vhost = |queues| format!("port attach net_vhost4,iface={socket},queues={queues}");
    let mac = || infos("show port info 0")[0].mac.clone();
    let before = mac();
    for (line, cause, remedy) in [
        ("port attach net_null3 0", "\"net_null3\" is already open (EBUSY)\n", "port detach"),
        ("port attach net_null4 1", "\"net_null3\" is already open (EBUSY)\n", "port detach"),
        ("port attach net_nothing0", "no device \"net_nothing0\"", "a driver's name"),
        ("port attach class=eth", "no device \"class=eth\"", "a driver's name"),
        (&vhost(1), "2 queue pairs asked for, the device has 1", "as many"),
        (&vhost(2), "\"net_vhost4\" is no NIC, and only", "name a NIC"),
        (&vhost(2), "\"net_vhost4\" is no NIC, and only", "name a NIC"),
        ("port attach net_null4 9", "no port 9 (ENOENT)\n", "show port"),
    ] {
        let refused = fails(line);
        assert!(refused.contains(cause) && refused.contains(remedy), "{line}: {refused}");
    }
    let attached = "Attaching a new port...\nPort 0 is attached. Now total ports is 2\nDone\n";
    assert_eq!(says("port attach net_null4,size=128"), attached);
    receives(0);
    receives(1);
    eventually("a link that is up", || infos("show port info 0")[0].up);
    assert_eq!((mac(), infos("show port info 0")[0].name.as_str()), (before, "net_null4"));
    assert!(fails("port attach net_null5").contains("no port is without a device, and an RDMA"));
    says("set port 0 link-down");
    assert_eq!(says("port detach 0 --force"), "Closing ports...\nDone\n");
    assert_eq!(says("port attach net_null4,size=128 0"), attached);
    receives(1);
    assert!(!infos("show port info 0")[0].up, "an administrator's wish outlives the device");
    says("set port 0 link-up");
    eventually("a link that is up", || infos("show port info 0")[0].up);
    assert_eq!(says("port detach 0 --force"), "Closing ports...\nDone\n");
    assert_eq!(says("port detach 1 --force"), "Closing ports...\nDone\n");
    // After the fatal event of the RDMA device.
    assert!(says("show events").contains("device  DeviceFatal"));
    assert_eq!(says("port attach net_null6,size=128"), attached);
    receives(0);
}

#[test]
fn queues_are_shown_with_their_lcores() {
    let _lab = Lab::new();
    let shown = says("show rxq info 1 0");
    assert!(shown.contains("Infos for port 1 , RX queue 0 "), "{shown}");
    assert!(shown.contains("Number of RXDs: 1024\nLcore: 0\n"), "{shown}");
    let Answer::QueueInfo(queue) = answer("show txq info 0 0") else { panic!("a queue") };
    assert_eq!((queue.port, queue.queue, queue.is_tx, queue.descriptors), (0, 0, true, Some(512)));
    assert!(fails("show txq info 0 1").contains("no TX queue 1 (ENOENT)\n"));
    assert!(fails("show rxq info 9 0").contains("no port 9 (ENOENT)\n"));
}

#[test]
fn a_port_has_as_many_queues_as_queue_pairs_and_descriptors_only_in_dpdk() {
    let socket = format!("/tmp/uroce-queues-{}", std::process::id());
    let vhost = PortConfig::vdev(format!("net_vhost0,iface={socket},queues=1"));
    let vhost = vhost.ip("192.0.2.1/24").expect("an address");
    let fabric = format!("{socket}-fabric");
    let local = PortConfig::local(&fabric);
    let device = DeviceConfig::new("both").lcores(Lcores::Count(2)).port(vhost).port(local);
    let context = Context::open(&Config::new().device(device), "both").expect("no privilege");
    assert!(says("show rxq info 0 0").contains("Number of RXDs: 1024\nLcore: 0\n"));
    for line in ["show rxq info 0 1", "show txq info 0 1"] {
        assert!(fails(line).contains(" queue 1 (ENOENT)\n"));
    }
    let shown = says("show txq info 1 1");
    assert!(shown.contains("Number of TXDs: none\nLcore: 1\n"), "{shown}");
    drop(context);
    std::fs::remove_dir_all(fabric).expect("the fabric's directory");
}

#[test]
fn a_port_sends_at_the_rate_that_is_set() {
    let mut lab = Lab::new();
    says("set port 0 rate 0.1");
    assert_eq!(infos("show port info 0")[0].tx_rate_mbps, Some(100));
    assert!(says("show port info 0").contains("TX rate limit: 100 Mbps\n"));
    let begin = Instant::now();
    // 64 KiB take 5 ms at the rate.
    lab.write(20);
    let time = begin.elapsed();
    assert!(time > Duration::from_millis(95), "{time:?}");
    assert!(count("bottleneck_served") >= 20 * 16);
    assert_eq!(count("bottleneck_dropped"), 0, "what does not leave at once waits");
    says("set port 0 rate off link-up");
    assert_eq!(infos("show port info 0")[0].tx_rate_mbps, None);
    lab.write(20);
    assert!(fails("set port 0 rate 401").contains("bottleneck.rate"));
    let refused = fails("set port 0 rate 0.0004");
    assert!(refused.contains("this is 400 kbit/s (EINVAL)\nchoose 0.001 Gbit/s"), "{refused}");
    says("set port 0 rate 0.0996");
    assert_eq!(infos("show port info 0")[0].tx_rate_mbps, Some(100), "rounded");
    says("set port 0 rate off");
    assert!(fails("set port 0").contains("add link-up, link-down or rate"));
}

#[test]
fn drivers_counters_are_cleared_and_zeros_left_out() {
    let mut lab = Lab::new();
    lab.write(2);
    let xstats = || match answer("show port xstats 0") {
        Answer::PortXstats(mut ports) => ports.remove(0).xstats,
        other => panic!("{other:?}"),
    };
    let value = |name: &str| {
        let found = xstats().into_iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value)
    };
    let name = "tx_good_packets";
    assert!(value(name).expect("a counter") >= 32);
    says("clear port xstats 0");
    assert_eq!(value(name), Some(0));
    says("set xstats-hide-zero on");
    assert_eq!(value(name), None);
    lab.write(2);
    assert!(value(name).expect("it is not zero") >= 32);
    says("set xstats-hide-zero off");
    assert!(xstats().iter().any(|(_, value)| *value == 0));
}

#[test]
fn events_are_cleared() {
    let _lab = Lab::new();
    let count = || match answer("show events") {
        Answer::Events(events) => events.len(),
        Answer::Done => 0,
        other => panic!("{other:?}"),
    };
    let links = |up: bool| eventually("links", || infos("show port info 0")[0].up == up);
    says("set port 0 link-down");
    eventually("an event", || count() > 0);
    links(false);
    says("set port 0 link-up");
    links(true);
    // Both ends have told of it.
    eventually("four events", || count() == 4);
    says("clear events");
    assert_eq!(count(), 0);
    says("set port 0 link-down");
    eventually("an event", || count() > 0);
}

#[test]
fn the_log_is_turned_up_while_the_process_runs() {
    let lines = "port stop 0\nsleep 600\nset verbose 1\nport start 0\nsleep 600\nset log rdma_cm debug\n\
                 set log uroce_controlplane::device trace\nset log rdma_cm info\nset verbose 0\n\
                 port stop 0\nsleep 600\n";
    let output = run(&["--vdev=net_null0,no-rx=1", "--", "-i"], &format!("{lines}quit\n"));
    let (said, log) = (text(&output.stdout), text(&output.stderr));
    for line in [
        "log: info\n",
        "log: info,uroce_controlplane::rdma_cm=debug\n",
        "log: info,uroce_controlplane::device=trace,uroce_controlplane::rdma_cm=info\n",
        "log: off\n",
    ] {
        assert!(said.contains(line), "no {line:?} in {said}");
    }
    let links = log.lines().filter(|line| line.contains("INFO") && line.contains(": link"));
    assert_eq!(links.count(), 1, "only the second change of the link was logged: {log}");
    let wrong = "set log rdmacm debug\nquit\n";
    let output = run(&["--vdev=net_null0,no-rx=1", "--", "-i"], wrong);
    let refused =
        "\"rdmacm\" is no part of the log (EINVAL)\nthe parts are: global, control_socket,";
    assert!(text(&output.stderr).contains(refused));
}

#[test]
fn a_log_of_the_program_is_left_to_it() {
    // The test's own process has a subscriber.
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::OFF).init();
    let _lab = Lab::new();
    for line in ["set log rdma_cm debug", "set verbose 2"] {
        let refused = fails(line);
        let expected = "or has closed its stderr (EOPNOTSUPP)\nset the level of uroce_controlplane";
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn addresses_are_added_and_removed() {
    let mut lab = Lab::new();
    let has = |address: &str| says("show gid").contains(&format!(" {address} "));
    says("ip add 0 198.51.100.1/24");
    says("ip add 1 198.51.100.2/24");
    assert!(has("198.51.100.1"));
    assert!(says("show events").contains("GidChange"));
    let ends = ["left", "right"].map(|name| format!("device {name}"));
    says(&format!("listen 7471 address 198.51.100.2 {}", ends[1]));
    says(&format!("connect 198.51.100.2 7471 {}", ends[0]));
    for (line, error) in [
        ("ip add 0 198.51.100.1/24", "port 0: it has 198.51.100.1/24 already (EEXIST)"),
        (
            "ip del 0 198.51.100.1/24",
            "left serves a program, which gets no answers to 198.51.100.1 any more (EPERM)\nadd --force",
        ),
        ("ip del 0 198.51.100.9/24 --force", "port 0: it has no 198.51.100.9 (ENOENT)"),
        ("ip del 0 198.51.100.1/8 --force", "prefix length (ENOENT)\nname it as 198.51.100.1/24"),
        ("ip add 0 198.51.100.9/33", "(EINVAL)\ngive it as"),
        ("ip add 7 198.51.100.9/24", "no port 7 (ENOENT)"),
    ] {
        let refused = fails(line);
        assert!(refused.contains(error), "{line}: {refused}");
    }
    let rest: String = (2..40).map(|n| format!("ip add 0 198.51.100.{n}/24\n")).collect();
    let lines = format!("ip add 0 198.51.100.1/24\nip add 1 198.51.100.1/24\n{rest}");
    let own = run(&["--vdev=net_null0", "--vdev=net_null1", "--", "-i"], &lines);
    for error in [
        "port 1: another port of its device has 198.51.100.1/24 (EEXIST)\n\
         remove 198.51.100.1 from port 0 first: ip del\n",
        "port 0: it has 32 addresses, and a port has no more (ENOSPC)\nremove one first",
    ] {
        assert!(text(&own.stderr).contains(error), "{}", text(&own.stderr));
    }
    says("ip del 0 198.51.100.1/24 --force");
    assert!(!has("198.51.100.1") && has("198.51.100.2") && has("192.0.2.1"));
    lab.write(1);
}
