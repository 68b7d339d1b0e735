use super::*;

fn files(name: &str, texts: &[&str]) -> (PathBuf, Vec<PathBuf>) {
    let base = std::env::temp_dir().join(format!("uroce-config-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    let write = |(at, text): (usize, &&str)| {
        let file = base.join(format!("{at}.toml"));
        std::fs::write(&file, text).unwrap();
        file
    };
    let files = texts.iter().enumerate().map(write).collect();
    (base, files)
}

fn identities_of(name: &str, texts: &[&str]) -> Result<Vec<Identity>, Problem> {
    let (base, files) = files(name, texts);
    let identities = read(files.into_iter());
    std::fs::remove_dir_all(base).unwrap();
    identities
}

const LEFT: &str = "[[device]]\nname = \"uroce0\"\n[[device.port]]\n\
    ethdev = { vdev = \"net_memif0,role=server,socket=/a,socket-abstract=no\" }\n\
    ip = [\"198.51.100.1/24\"]";

#[test]
fn alternatives_are_read_in_their_order() {
    let right = LEFT.replace("100.1", "100.2").replace("server", "client");
    let identities = identities_of("order", &[LEFT, &right]).unwrap();
    let macs = identities.iter().map(|one| one.config.devices[0].ports[0].mac.unwrap().0);
    assert_eq!(macs.collect::<Vec<_>>(), [[2, 0, 198, 51, 100, 1], [2, 0, 198, 51, 100, 2]]);
}

#[test]
fn an_error_of_a_file_is_reported_with_its_name() {
    let text = |texts: &[&str]| identities_of("wrong", texts).unwrap_err().to_string();
    let unknown = text(&[&LEFT.replace("ip =", "ips =")]);
    assert!(unknown.contains("0.toml") && unknown.contains("ips"), "{unknown}");
    let value = text(&[LEFT, &format!("{LEFT}\nmtu = 5")]);
    assert!(value.contains("1.toml: device.uroce0.port.1.mtu"), "{value}");
    let other = text(&[LEFT, &LEFT.replace("uroce0", "uroce1")]);
    assert!(other.contains("0.toml") && other.contains("1.toml"), "{other}");
    let none = read([PathBuf::from("/nonexistent/x.toml")].into_iter()).unwrap_err();
    assert!(none.to_string().starts_with("/nonexistent/x.toml: "), "{none}");
    assert!(matches!(read(std::iter::empty()), Err(Problem::NoFile)));
}

#[test]
fn the_built_in_identity_is_any_member_of_one_fabric() {
    let Identity { mut config, .. } = embedded().unwrap();
    assert!(is_open(&config));
    assert_eq!(resources(&config), Vec::<String>::new());
    let member = |text: &str| member_at(&config, text.parse().unwrap());
    assert_eq!(member("192.0.2.1"), Some(1));
    assert_eq!(member("2001:db8::40"), Some(64));
    assert_eq!([member("192.0.2.65"), member("192.0.2.0"), member("198.51.100.1")], [None; 3]);
    let port = &mut config.devices[0].ports[0];
    *port = port.clone().as_member(2);
    assert!(!is_open(&config));
    assert_eq!(resources(&config), Vec::<String>::new());
    let preview = uroce::Context::preview(&config, "uroce0").unwrap().unwrap();
    assert_eq!(preview[0].max_path_mtu.unwrap().bytes(), 4096);
    assert_eq!(preview[0].mac, Mac([2, 0x75, 0x72, 0x6f, 0x63, 2]));
}

#[test]
fn members_with_one_configured_address_exclude_each_other() {
    let text = "[[device]]\nname = \"d\"\n[[device.port]]\nethdev = { local = \"/f\" }\n\
        ip = [\"198.51.100.7/24\"]";
    let identities = identities_of("address", &[text]).unwrap();
    assert_eq!(resources(&identities[0].config), ["198.51.100.7 /f"]);
    let member = |ip: &str| member_at(&identities[0].config, ip.parse().unwrap());
    assert_eq!([member("198.51.100.7"), member("192.0.2.1")], [None; 2]);
    let known = identities_of("known", &[&format!("{text}\nmember = 9")]).unwrap();
    assert_eq!(known[0].config.devices[0].ports[0].mac.unwrap().0[5], 9);
    assert_eq!(known.len(), 1);
}

#[test]
fn the_ends_of_a_memif_link_are_joined() {
    let right = LEFT.replace("100.1", "100.2").replace("server", "client");
    let identities = identities_of("joined", &[LEFT, &right]).unwrap();
    let ports = [0, 1].map(|at| identities[at].config.devices[0].ports[0].clone());
    assert!(are_joined(&ports[0], &ports[1]) && !are_joined(&ports[0], &ports[0]));
    let Ethdev::Vdev(client) = &ports[1].ethdev else { panic!("memif") };
    let elsewhere = PortConfig::vdev(client.replace("socket=/a", "socket=/b"));
    assert!(!are_joined(&ports[0], &elsewhere));
}

#[test]
fn an_address_of_its_own_is_left_to_the_device() {
    let ports = [
        ("ethdev = { vdev = \"net_af_packet0,iface=eth0\" }", false),
        ("ethdev = { vdev = \"net_tap0,iface=t0\" }", false),
        ("ethdev = { pci = \"0000:01:00.0\" }", false),
        ("ethdev = { ring = \"r\" }", true),
        ("ethdev = { vdev = \"net_virtio_user0,path=/s\" }", true),
        ("ethdev = { ring = \"r\" }\nmac = \"02:00:00:00:00:09\"", true),
    ];
    for (port, known) in ports {
        let text = format!("[[device]]\nname = \"d\"\n[[device.port]]\n{port}");
        let config = with_macs(Config::from_toml(&text).unwrap());
        assert_eq!(config.devices[0].ports[0].mac.is_some(), known, "{port}");
    }
}

#[test]
fn a_guid_is_there_even_where_only_the_port_knows_its_address() {
    let device = DeviceConfig::new("d").port(PortConfig::pci("0000:01:00.0"));
    let other = DeviceConfig::new("d").port(PortConfig::pci("0000:01:00.1"));
    let none = Mac([0; 6]);
    assert_ne!(guid(none, &device), 0);
    assert_ne!(guid(none, &device), guid(none, &other));
    assert_eq!(guid(Mac([2, 1, 2, 3, 4, 5]), &device), 0x0001_02ff_fe03_0405);
}

#[test]
fn devices_on_one_interface_differ_by_address_and_devices_on_one_link_do_not() {
    let port = |vdev: &str, ip: &str| resource(&PortConfig::vdev(vdev).ip(ip).unwrap());
    let packet = "net_af_packet0,iface=eth0";
    assert_ne!(port(packet, "192.0.2.1/24"), port(packet, "192.0.2.2/24"));
    let (one, other) = ("net_memif0,socket=/a,rsize=9", "net_memif1,role=server,socket=/a");
    assert_eq!(port(one, "192.0.2.1/24"), port(other, "192.0.2.2/24"));
    let (one, other) = ("net_virtio_user0,path=/p1", "net_virtio_user1,queues=2,path=/p1");
    assert_eq!(port(one, "192.0.2.1/24"), port(other, "192.0.2.2/24"));
    let kernel = "net_virtio_user0,path=/dev/vhost-net,iface=t0";
    assert_ne!(port(kernel, "192.0.2.1/24"), port(kernel, "192.0.2.2/24"));
}

#[test]
fn the_port_of_a_switch_is_what_two_identities_dispute() {
    let port = "ethdev = { vdev = \"net_virtio_user0,path=/s\" }\nip = [\"192.0.2.1/24\"]";
    let text = format!("[[device]]\nname = \"d\"\n[[device.port]]\n{port}");
    assert_eq!(title(&identities_of("switch", &[&text]).unwrap()[0]), "port /s of a switch");
    assert_eq!(title(&identities_of("title", &[LEFT]).unwrap()[0]), "198.51.100.1");
}

#[test]
fn interfaces_of_two_network_namespaces_are_two_and_sockets_in_the_file_system_are_one() {
    let differs = |vdev: &str| {
        let port = PortConfig::vdev(vdev);
        let key = |number| in_namespace(resource(&port), &port, Some(number));
        key(1) != key(2)
    };
    assert!(differs("net_af_packet0,iface=eth0"));
    assert!(differs("net_tap0"));
    assert!(differs("net_memif0,role=server,socket=x"));
    assert!(!differs("net_memif0,role=server,socket=/run/x,socket-abstract=no"));
    assert!(!differs("net_vhost0,iface=/run/x"));
    let port = PortConfig::vdev("net_af_packet0,iface=eth0");
    assert_eq!(in_namespace("x".into(), &port, None), "x");
    assert!(
        resources(&Config::new().device(DeviceConfig::new("d").port(port)))[0]
            .contains("namespace")
    );
}

#[test]
fn a_variable_for_failover_that_is_no_word_of_it_is_an_error_and_not_ignored() {
    let read = |value: &str| word::<Failback>(FAILBACK, Some(value.into()));
    assert_eq!(read("after:5").unwrap(), Some(Failback::After(5)));
    assert_eq!(read("").unwrap(), None);
    let error = read("5").unwrap_err().to_string();
    assert_eq!(
        error,
        "UROCE_FAILBACK is \"5\": it is `never` or `after:SECONDS`, with 1 to 86400 seconds."
    );
    let error = word::<Failover>(FAILOVER, Some("on".into())).unwrap_err().to_string();
    assert_eq!(error, "UROCE_FAILOVER is \"on\": it is `never` or `auto`.");
}

#[test]
fn variables_for_failover_apply_to_devices_with_two_ports_and_are_named_if_there_is_none() {
    let device = |ports| {
        let device = DeviceConfig::new("uroce0");
        (0..ports).fold(device, |device, _| device.port(PortConfig::ring("any")))
    };
    let set = |devices: &mut [DeviceConfig], failover, failback| {
        let mut devices: Vec<_> = devices.iter_mut().collect();
        set_failover(&mut devices, failover, failback)
    };
    let (auto, after) = (Some(Failover::Auto), Some(Failback::After(5)));
    let mut devices = [device(1), device(2)];
    set(&mut devices, auto, after).unwrap();
    let is = devices.clone().map(|device| (device.failover, device.failback));
    assert_eq!(is[0], (Failover::Never, Failback::Never));
    assert_eq!(is[1], (Failover::Auto, Failback::After(5)));
    set(&mut devices, Some(Failover::Never), None).unwrap();
    assert_eq!(devices[1].failback, Failback::Never, "what the file has needs failover");
    let error = set(&mut devices[..1], auto, None).unwrap_err().to_string();
    assert_eq!(
        error,
        "UROCE_FAILOVER is set, but no device of the configuration has a second port."
    );
    let error = set(&mut devices, None, after).unwrap_err().to_string();
    assert_eq!(
        error,
        "UROCE_FAILBACK is set, but no device has failover: set UROCE_FAILOVER=auto too."
    );
    set(&mut devices, None, Some(Failback::Never)).unwrap();
}
