use super::*;
use uroce_transport::{Congestion, DcqcnParams, Notification};

const DEVICE: &str = "[[device]]\nname = \"a\"\n";
const PORT: &str = "[[device.port]]\nethdev = { ring = \"pair\" }\n";

fn error(text: &str) -> String {
    Config::from_toml(text).expect_err(text).to_string()
}

#[test]
fn the_least_configuration_is_the_default_one() {
    let config = Config::from_toml(&format!("{DEVICE}{PORT}")).unwrap();
    let built = DeviceConfig::new("a").port(PortConfig::ring("pair"));
    assert_eq!(config, Config::new().device(built));
    assert_eq!(config.find("a").unwrap().lcores.count(), 1);
    assert!(matches!(config.find("b"), Err(ConfigError::UnknownDevice(_))));
}

/// A configuration with a value other than the default in each field.
const EVERY_FIELD: &str = r#"
        [eal]
        huge = true
        memory_mb = 2048
        file_prefix = "x"
        control_cpus = [0]
        log = "info"
        args = ["--legacy-mem"]
        [[device]]
        name = "a"
        lcores = 2
        control_cpu = 0
        idle = "sleep"
        driver = "poller"
        max_qps = 16
        max_mrs = 16
        max_ahs = 16
        [device.congestion]
        algorithm = "dcqcn"
        cnp_dscp = 46
        cnp_802p_prio = 5
        min_time_between_cnps = 10
        dcqcn = { rpg_gd = 12, roce_slow_restart_en = true }
        delay = { target_delay_us = 50 }
        [[device.port]]
        ethdev = { vdev = "net_null0" }
        ip = ["192.0.2.1/24"]
        netdev = "eth0"
        link_local = true
        mtu = 9000
        vlan = 7
        dscp_prio = { 26 = 3, 48 = 6 }
        pfc = [3, 6]
        gateway = ["192.0.2.9"]
        routes = [{ to = "198.51.100.0/24", via = "192.0.2.8" }]
        migrate_on_link_down = false
        mac = "02:00:00:00:00:07"
        twin = "02:00:00:00:00:08"
        rx_descriptors = 512
        tx_descriptors = 512
        mbufs = 4095
        loss = { rx = 0.01, tx = 0.02, seed = 3 }
        bottleneck = { rate = "10G", queue = "1MB", kmin = "100KB", kmax = "400KB", pmax = 0.1, seed = 4 }
    "#;

#[test]
fn every_field_can_be_written() {
    let config = Config::from_toml(EVERY_FIELD).unwrap();
    let device = &config.devices[0];
    assert_eq!((device.lcores.clone(), device.idle), (Lcores::Count(2), Idle::Sleep));
    assert_eq!(device.driver, Driver::Poller);
    assert_eq!(device.ports[0].mac, Some(Mac([2, 0, 0, 0, 0, 7])));
    assert_eq!(device.ports[0].twin, Some(Mac([2, 0, 0, 0, 0, 8])));
    assert_eq!(device.ports[0].loss, LossConfig { rx: 0.01, tx: 0.02, seed: 3 });
    let bottleneck = BottleneckConfig {
        kmin: 100_000,
        kmax: 400_000,
        pmax: 0.1,
        seed: 4,
        ..BottleneckConfig::new(10_000, 1_000_000)
    };
    assert_eq!(device.ports[0].bottleneck, Some(bottleneck));
    let route = StaticRoute { to: "198.51.100.0/24".parse().unwrap(), via: [192, 0, 2, 8].into() };
    assert_eq!(device.ports[0].routes, [route]);
    assert_eq!(device.ports[0].netdev_name(), Some("eth0"));
    assert!(!device.ports[0].migrate_on_link_down);
    assert_eq!(device.ports[0].dscp_prio, [(26, 3), (48, 6)].into());
    let flow_control = FlowControl { pause: None, pfc: 0b0100_1000 };
    assert_eq!(device.ports[0].flow_control(), flow_control);
    assert_eq!(config.eal.log, LogLevel::Info);
    let dcqcn = DcqcnParams { rpg_gd: 12, roce_slow_restart_en: true, ..DcqcnParams::default() };
    assert_eq!(device.congestion.congestion(), Congestion::Dcqcn(dcqcn));
    let notification =
        Notification { min_time_between_cnps_us: 10, cnp_dscp: 46, cnp_802p_prio: 5 };
    assert_eq!(device.congestion.notification(), notification);
    assert_eq!(device.congestion.delay.target_delay_us, 50);
    let written = config.to_toml().unwrap();
    assert_eq!(Config::from_toml(&written).unwrap(), config, "{written}");
}

#[test]
fn the_idle_time_of_keepalives_is_a_number_of_milliseconds() {
    let of = |key: &str| {
        let config = Config::from_toml(&format!("{DEVICE}{key}{PORT}"));
        config.map(|config| config.devices[0].keepalive_ms)
    };
    assert_eq!(of("").unwrap(), None);
    assert_eq!(of("keepalive_ms = 0\n").unwrap(), Some(0));
    assert_eq!(of("keepalive_ms = 10000\n").unwrap(), Some(10_000));
    for wrong in ["-1", "4294967296", "\"10s\"", "0.5"] {
        assert!(of(&format!("keepalive_ms = {wrong}\n")).is_err(), "{wrong}");
    }
}

#[test]
fn selective_repeat_is_agreed_on_unless_configured() {
    let of = |key: &str| {
        let config = Config::from_toml(&format!("{DEVICE}{key}{PORT}")).unwrap();
        config.devices[0].selective_repeat
    };
    assert_eq!(of(""), SelectiveRepeat::Agreed);
    assert_eq!(of("selective_repeat = \"agreed\"\n"), SelectiveRepeat::Agreed);
    assert_eq!(of("selective_repeat = \"always\"\n"), SelectiveRepeat::Always);
    assert_eq!(of("selective_repeat = \"never\"\n"), SelectiveRepeat::Never);
    let ports = |key: &str| {
        let config = Config::from_toml(&format!("{DEVICE}{key}{PORT}")).unwrap();
        config.devices[0].udp_source_ports
    };
    assert_eq!([ports(""), ports("udp_source_ports = 16\n")], [1, 16]);
}

#[test]
fn failover_needs_a_second_port_and_failback_needs_failover() {
    let second = "[[device.port]]\nethdev = { ring = \"second\" }\n";
    let of = |keys: &str, ports: &str| {
        let config = Config::from_toml(&format!("{DEVICE}{keys}{ports}"))?;
        Ok::<_, ConfigError>((config.devices[0].failover, config.devices[0].failback))
    };
    let two = format!("{PORT}{second}");
    assert_eq!(of("", &two).unwrap(), (Failover::Never, Failback::Never));
    let auto = "failover = \"auto\"\n";
    assert_eq!(of(auto, &two).unwrap(), (Failover::Auto, Failback::Never));
    let back = format!("{auto}failback = \"after:30\"\n");
    assert_eq!(of(&back, &two).unwrap(), (Failover::Auto, Failback::After(30)));
    let error = |keys: &str, ports: &str| of(keys, ports).unwrap_err().to_string();
    assert!(error(auto, PORT).contains("`auto` needs a second port"));
    assert!(error("failback = \"after:30\"\n", &two).contains("needs `failover = \"auto\"`"));
    assert!(error("failback = \"after:0\"\n", &two).contains("1 to 86400 seconds"));
    assert!(error("failover = \"on\"\n", &two).contains("`never`"));
}

/// A configuration with a bottleneck of these keys.
fn bottleneck(keys: &str) -> String {
    format!("{DEVICE}{PORT}bottleneck = {{ {keys} }}\n")
}

#[test]
fn thresholds_of_a_bottleneck_have_defaults_by_each_other() {
    let of = |keys: &str| {
        let text = bottleneck(&format!("rate = \"2.5G\", queue = \"9KB\"{keys}"));
        let config = Config::from_toml(&text).unwrap();
        let BottleneckConfig { rate_mbps, queue, kmin, kmax, pmax, .. } =
            config.devices[0].ports[0].bottleneck.unwrap();
        assert_eq!((rate_mbps, queue), (2500, 9000));
        (kmin, kmax, pmax)
    };
    assert_eq!(of(""), (9000, 9000, 1.0));
    assert_eq!(of(", kmin = \"1KB\""), (1000, 9000, 1.0));
    assert_eq!(of(", kmax = \"3KB\", pmax = 0.2"), (3000, 3000, 0.2));
}

#[test]
fn unknown_keys_are_errors_and_named() {
    let cases = [
        ("colour = 1\n".to_owned() + DEVICE + PORT, "colour"),
        (format!("[eal]\nhugepages = true\n{DEVICE}{PORT}"), "hugepages"),
        (format!("{DEVICE}lcore = 1\n{PORT}"), "lcore"),
        (format!("{DEVICE}congestion = {{ algorithm = \"bbr\" }}\n{PORT}"), "bbr"),
        (format!("{DEVICE}congestion = {{ dcqcn = {{ rpg_rate = 1 }} }}\n{PORT}"), "rpg_rate"),
        (
            format!("{DEVICE}congestion = {{ dcqcn = {{ roce_slow_restart_en = 2 }} }}\n{PORT}"),
            "expected a boolean",
        ),
        (format!("{DEVICE}selective_repeat = \"on\"\n{PORT}"), "`agreed`, `always`, `never`"),
        (format!("{DEVICE}{PORT}ipv4 = []\n"), "ipv4"),
        (format!("{DEVICE}{PORT}routes = [{{ to = \"::/0\", by = \"::1\" }}]\n"), "by"),
        (format!("{DEVICE}{PORT}loss = {{ rate = 1.0 }}\n"), "rate"),
        (bottleneck("rate = \"1G\", queue = \"1MB\", delay = 1"), "delay"),
        (bottleneck("rate = \"1G\""), "queue"),
        (format!("{DEVICE}[[device.port]]\nethdev = {{ usb = \"1\" }}\n"), "usb"),
    ];
    for (text, key) in cases {
        assert!(error(&text).contains(key), "{}", error(&text));
    }
}

#[test]
fn pause_frames_are_those_of_every_priority_or_of_some() {
    let of = |keys: &str| {
        let nic = "[[device.port]]\nethdev = { pci = \"0000:01:00.0\" }\n";
        let config = Config::from_toml(&format!("{DEVICE}{nic}{keys}"));
        config.map(|config| config.devices[0].ports[0].flow_control())
    };
    for (word, rx, tx) in
        [("off", false, false), ("rx", true, false), ("tx", false, true), ("on", true, true)]
    {
        let expected = FlowControl { pause: Some(port::Pause { rx, tx }), pfc: 0 };
        assert_eq!(of(&format!("pause = \"{word}\"\n")).unwrap(), expected);
    }
    assert_eq!(of("").unwrap(), FlowControl::default());
    let both = of("pause = \"off\"\npfc = [3]\n").unwrap_err().to_string();
    assert!(both.starts_with("device.a.port.1.pfc: excludes `pause`"), "{both}");
}

#[test]
fn values_out_of_their_limits_name_the_field_and_the_reason() {
    let cases = [
        ("[eal]\nmemory_mb = 1\n", "", "", "eal.memory_mb: 1 is not within 64 to 1048576"),
        ("[eal]\nfile_prefix = \"a/b\"\n", "", "", "eal.file_prefix: is not 1 to 64"),
        ("", "lcores = 0\n", "", "device.a.lcores: 0 is not within 1 to 16"),
        ("", "lcores = [1, 1]\n", "", "device.a.lcores: a CPU is listed twice"),
        ("", "lcores = [1024]\n", "", "device.a.lcores: 1024 is not within 0 to 1023"),
        ("", "control_cpu = 1024\n", "", "device.a.control_cpu: 1024 is not within 0 to 1023"),
        ("", "max_qps = 0\n", "", "device.a.max_qps"),
        ("", "congestion = { cnp_802p_prio = 8 }\n", "", "device.a.congestion.cnp_802p_prio: 8"),
        ("", "congestion = { cnp_dscp = 64 }\n", "", "device.a.congestion.cnp_dscp: 64 is"),
        (
            "",
            "congestion = { dcqcn = { rpg_min_rate = 0 } }\n",
            "",
            "device.a.congestion.dcqcn.rpg_min_rate: 0 is not within 1 to 4000000",
        ),
        ("", "max_ahs = 0\n", "", "device.a.max_ahs"),
        ("", "udp_source_ports = 3\n", "", "device.a.udp_source_ports: 3 is not 1, 2, 4, 8 or 16"),
        ("", "udp_source_ports = 32\n", "", "device.a.udp_source_ports: 32 is not 1"),
        ("", "max_mrs = 1048577\n", "", "device.a.max_mrs"),
        ("", "", "mtu = 500\n", "device.a.port.1.mtu: 500 is not within 576 to 9000"),
        ("", "", "mtu = 1000\nlink_local = true\n", "device.a.port.1.mtu: is less than 1280"),
        ("", "", "vlan = 4095\n", "device.a.port.1.vlan: 4095 is not within 1 to 4094"),
        ("", "", "vlan = 1\ndscp_prio = { 64 = 1 }\n", "device.a.port.1.dscp_prio: 64 is not"),
        ("", "", "vlan = 1\ndscp_prio = { 26 = 8 }\n", "device.a.port.1.dscp_prio.26: 8 is not"),
        ("", "", "dscp_prio = { 26 = 3 }\n", "device.a.port.1.dscp_prio: needs `vlan`"),
        ("", "", "pause = \"on\"\n", "device.a.port.1.pause: needs a NIC"),
        ("", "", "pfc = [3]\n", "device.a.port.1.pfc: needs a NIC"),
        ("", "", "pfc = [8]\n", "device.a.port.1.pfc: 8 is not within 0 to 7"),
        ("", "", "gateway = [\"192.0.2.1\"]\n", "device.a.port.1.gateway: 192.0.2.1 is not"),
        ("", "", "netdev = \"eth 0\"\n", "device.a.port.1.netdev: is not 1 to 15"),
        (
            "",
            "",
            "routes = [{ to = \"::/0\", via = \"fe80::1\" }]\n",
            "device.a.port.1.routes: fe80::1 is",
        ),
        (
            "",
            "",
            "ip = [\"192.0.2.1/24\"]\nroutes = [{ to = \"::/0\", via = \"192.0.2.2\" }]\n",
            "device.a.port.1.routes: ::/0 and 192.0.2.2 have different IP versions",
        ),
        ("", "", "mac = \"01:00:00:00:00:00\"\n", "device.a.port.1.mac"),
        ("", "", "twin = \"00:00:00:00:00:00\"\n", "device.a.port.1.twin"),
        ("", "", "rx_descriptors = 0\n", "device.a.port.1.rx_descriptors"),
        ("", "", "mbufs = 1\n", "device.a.port.1.mbufs"),
        ("", "", "loss = { rx = 1.5 }\n", "device.a.port.1.loss.rx: is not from 0.0 to 1.0"),
        ("", "", "loss = { tx = nan }\n", "device.a.port.1.loss.tx"),
        (
            "",
            "",
            "bottleneck = { rate = \"0M\", queue = \"1MB\" }\n",
            "device.a.port.1.bottleneck.rate: 0 Mb/s is not from 1 Mb/s to 400 Gb/s",
        ),
        (
            "",
            "",
            "bottleneck = { rate = \"1G\", queue = \"1MB\", kmax = \"2MB\" }\n",
            "device.a.port.1.bottleneck.kmax: 2000000 bytes are more than the queue has",
        ),
        ("", "", "ip = [\"10.0.0.1/8\", \"10.0.0.1/8\"]\n", "device.a.port.ip: 10.0.0.1 is used"),
    ];
    for (eal, device, port, expected) in cases {
        let text = format!("{eal}{DEVICE}{device}{PORT}{port}");
        assert!(error(&text).starts_with(expected), "{}", error(&text));
    }
}

#[test]
fn values_of_a_wrong_form_name_the_line() {
    let cases = [
        (format!("{DEVICE}{PORT}ip = [\"192.0.2.1\"]\n"), "192.0.2.1/24"),
        (format!("{DEVICE}{PORT}mac = \"no\"\n"), "02:00:5e:10:00:01"),
        (
            format!("{DEVICE}{PORT}routes = [{{ to = \"10.0.0.1/8\", via = \"10.0.0.2\" }}]\n"),
            "10.0.0.1/8 has bits behind its prefix",
        ),
        (format!("{DEVICE}{PORT}dscp_prio = {{ AF31 = 3 }}\n"), "\"AF31\" is no DSCP from 0 to 63"),
        (format!("{DEVICE}{PORT}pause = \"full\"\n"), "`off`, `rx`, `tx`, `on`"),
        (bottleneck("rate = \"1\", queue = \"1MB\""), "such as \"10G\" or \"100M\""),
        (bottleneck("rate = \"1G\", queue = \"1\""), "\"1\" is not a length such as \"1MB\""),
        (bottleneck("rate = \"1G\", queue = \"1MB\", pmax = 0.1"), "without kmin or kmax"),
        (format!("{DEVICE}idle = \"never\"\n{PORT}"), "never"),
        (format!("{DEVICE}lcores = \"all\"\n{PORT}"), "a number of lcores or a list of CPUs"),
        (format!("[eal]\nlog = \"loud\"\n{DEVICE}{PORT}"), "loud"),
        (DEVICE.to_owned(), "port"),
        (format!("[[device]]\n{PORT}"), "name"),
    ];
    for (text, expected) in cases {
        assert!(error(&text).contains(expected), "{}", error(&text));
        assert!(error(&text).contains("line"), "{}", error(&text));
    }
}

#[test]
fn devices_and_ethdevs_are_checked() {
    let twice = format!("{DEVICE}{PORT}{DEVICE}{PORT}");
    assert_eq!(error(&twice), "device.name: \"a\" is used twice");
    assert!(error("device = []\n").contains("device: is missing"));
    for ethdev in [
        "ring = \"\"",
        "ring = \"longer than sixteen\"",
        "vdev = \"\"",
        "pci = \"x\"",
        "udp = \"\"",
        "udp = \"eth 0\"",
    ] {
        let text = format!("{DEVICE}[[device.port]]\nethdev = {{ {ethdev} }}\n");
        assert!(error(&text).starts_with("device.a.port.1.ethdev: "), "{}", error(&text));
    }
}

#[test]
fn a_file_without_an_end_is_not_read_to_it() {
    let error = Config::from_file(Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::from_file(Path::new("/nonexistent/uroce.toml")).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/uroce.toml: "), "{error}");
}

#[test]
fn a_port_follows_the_netdev_that_its_device_shares_with_the_kernel() {
    let cases = [
        ("net_af_packet0,iface=eth0,qpairs=2", Some("eth0")),
        ("net_af_xdp1,start_queue=0,iface=eth1", Some("eth1")),
        ("net_tap0,iface=tap0", None),
        ("net_af_packet0", None),
    ];
    for (devargs, netdev) in cases {
        let port = PortConfig::vdev(devargs);
        assert_eq!((port.netdev_name(), port.follows_addresses()), (netdev, netdev.is_some()));
        assert!(!port.ip("192.0.2.1/24").unwrap().follows_addresses());
    }
    let pci = PortConfig::pci("0000:01:00.0").netdev("eth2");
    assert!(pci.netdev_name() == Some("eth2") && pci.follows_addresses());
    assert!(!PortConfig { link_local: true, ..pci }.follows_addresses());
}

#[test]
fn a_port_over_udp_sockets_leaves_frames_and_routes_to_the_kernel() {
    let text = format!("{DEVICE}[[device.port]]\nethdev = {{ udp = \"eth0\" }}\n");
    let port = &Config::from_toml(&text).unwrap().devices[0].ports[0];
    assert_eq!(*port, PortConfig::udp("eth0"));
    assert!(port.netdev_name() == Some("eth0") && port.follows_addresses());
    for (more, expected) in [
        ("vlan = 7\n", "vlan: needs an interface of the VLAN"),
        ("gateway = [\"192.0.2.1\"]\n", "gateway: is the kernel's"),
        ("routes = [{ to = \"10.0.0.0/8\", via = \"192.0.2.1\" }]\n", "routes: is the kernel's"),
        ("twin = \"02:00:00:00:00:01\"\n", "twin: needs a port of another kind"),
        ("link_local = true\n", "link_local: is the kernel's"),
        ("netdev = \"eth1\"\n", "netdev: is that of `udp`"),
    ] {
        let said = error(&format!("{text}{more}"));
        assert!(said.starts_with(&format!("device.a.port.1.{expected}")), "{said}");
    }
    assert!(
        Config::from_toml(&format!("{text}netdev = \"eth0\"\nip = [\"10.0.0.1/8\"]\n")).is_ok()
    );
}

#[test]
fn routers_of_a_port_that_follows_need_not_be_on_its_link_yet() {
    let port = "ethdev = { vdev = \"net_af_packet0,iface=eth0\" }\ngateway = [\"192.0.2.254\"]\n";
    let text = format!("{DEVICE}[[device.port]]\n{port}");
    assert!(Config::from_toml(&text).is_ok());
    assert!(error(&format!("{text}ip = [\"10.0.0.1/8\"]\n")).contains("192.0.2.254 is not"));
}

#[test]
fn the_configuration_in_readme_is_accepted() {
    let readme = include_str!("../../../README.md");
    let example = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let config = Config::from_toml(example.expect("README has one")).unwrap();
    config.check().unwrap();
    let device = &config.devices[0];
    assert_eq!((device.idle, device.ports[0].mtu), (Idle::Sleep, 4200));
    assert_eq!(device.lcores, Lcores::Cpus(vec![2, 3]));
}
