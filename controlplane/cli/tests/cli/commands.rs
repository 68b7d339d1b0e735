//! What each command shows of a process in a known state.

use uroce::{AddressVector, QpInit, RemoteBuffer, Rkey, SendWr, WcStatus};
use uroce_command::Answer;
use uroce_command::tree::help;

use crate::capture::Folder;
use crate::lab::{Lab, SOON, answer, ask, ask_with, fails, made, says, text};

#[test]
fn every_command_of_the_tree_is_answered() {
    let _lab = Lab::new();
    let all = help(&["display".to_owned()]).expect("a section");
    let usages = all
        .lines()
        .filter(|line| ["show", "clear", "dump"].iter().any(|verb| line.starts_with(verb)));
    let mut count = 0;
    for usage in usages {
        // Without what may be left out.
        let line = usage.split(" [").next().unwrap_or_default().replace("PORT|all", "all");
        let line = line.replace("PORT QUEUE", "0 0");
        says(&line);
        answer(&line);
        count += 1;
    }
    assert!(count >= 18, "{count} commands");
}

#[test]
fn port_statistics_count_frames_and_can_be_cleared() {
    let mut lab = Lab::new();
    let stats = |line: &str| match answer(line) {
        Answer::PortStats(ports) => ports,
        other => panic!("{other:?}"),
    };
    lab.write(10);
    let ports = stats("show port stats all");
    assert_eq!(ports.len(), 2);
    // 64 KiB are 16 packets of 4096 bytes.
    assert!(ports[0].tx_packets >= 160 && ports[1].rx_packets >= 160, "{ports:?}");
    assert_eq!(ports[0].tx_pps, 0, "nothing was shown before");
    lab.write(10);
    let [one] = &stats(&format!("show port stats {}", ports[0].port))[..] else { panic!("one") };
    assert!(one.tx_packets >= 320 && one.tx_pps > 0, "{one:?}");
    says(&format!("clear port stats {}", one.port));
    let ports = stats("show port stats all");
    assert!(ports[0].tx_packets < 10, "{ports:?}");
    assert!(ports[1].rx_packets >= 320, "the other port is not cleared");
    let status = lab.left.context.port_status(1).expect("a port");
    assert!(status.stats.tx_packets >= 320, "other readers see all of it");
    assert!(says("show port stats 0").contains("NIC statistics for port 0 "));
}

#[test]
fn queue_pairs_are_shown_with_their_peers() {
    let lab = Lab::new();
    let [left, right] = [&lab.left.qp, &lab.right.qp].map(|qp| qp.qpn().value());
    let Answer::Qp(qps) = answer("show qp") else { panic!("QPs") };
    assert_eq!(qps.len(), 2);
    let qp = qps.iter().find(|qp| qp.device == "left").expect("its QP");
    assert_eq!((qp.qpn, qp.dest_qpn, qp.state.as_str()), (left, right, "RTS"));
    assert_eq!((qp.service.as_str(), qp.peer), ("RC", Some("192.0.2.2".parse().unwrap())));
    let detail = says(&format!("show qp {left:#x}"));
    assert!(detail.starts_with(&format!("QP {left:#08x} of left\n")), "{detail}");
    let Answer::QpDetail(one) = answer(&format!("show qp {left}")) else { panic!("details") };
    assert_eq!(one.iter().map(|qp| qp.qpn).collect::<Vec<_>>(), [left]);
    let Answer::Path(paths) = answer("show path") else { panic!("paths") };
    assert_eq!(paths.len(), 2);
    let Answer::Path(paths) = answer(&format!("show path {right}")) else { panic!("paths") };
    assert_eq!(paths[0].src.to_string(), "192.0.2.2");
    assert_eq!(paths[0].dst.to_string(), "192.0.2.1");
}

#[test]
fn many_queue_pairs_are_shown_once_each() {
    let lab = Lab::new();
    let make = |_| lab.left.pd.create_qp(&QpInit::new(&lab.left.cq)).expect("QPs are left");
    let qps: Vec<_> = (0..1500).map(make).collect();
    let Answer::Qp(shown) = answer("show qp all") else { panic!("QPs") };
    let mut numbers: Vec<u32> =
        shown.iter().filter(|qp| qp.device == "left").map(|qp| qp.qpn).collect();
    let mut made: Vec<u32> = qps.iter().chain([&lab.left.qp]).map(|qp| qp.qpn().value()).collect();
    numbers.sort_unstable();
    made.sort_unstable();
    assert_eq!(numbers, made);
    assert_eq!(says("show qp").lines().count(), 1 + 1501 + 1);
}

#[test]
fn objects_are_counted() {
    let lab = Lab::new();
    let count = |object: &str| {
        let Answer::Count(counts) = answer(&format!("show {object}")) else { panic!("counts") };
        counts.iter().find(|count| count.device == "left").expect("the device").count
    };
    let kinds = ["pd", "cq", "mr", "mw", "srq", "ah"];
    let before = kinds.map(count);
    assert_eq!(before, [1, 1, 1, 0, 0, 0]);
    let pd = &lab.left.pd;
    let queue = lab.left.context.create_cq(16).expect("a queue");
    let srq = pd.create_srq(16, 1).expect("a queue");
    let memory = pd.allocate(4096, uroce::AccessFlags::LOCAL_WRITE).expect("memory");
    let peer = AddressVector::to("192.0.2.2".parse::<std::net::IpAddr>().unwrap().into());
    let handle = pd.create_ah(1, &peer).expect("a neighbour");
    let window = pd.allocate_mw(uroce::MwType::Type2).expect("a window");
    let domain = lab.left.context.allocate_pd();
    assert_eq!(kinds.map(count), [2, 2, 3, 1, 1, 1]);
    drop((queue, srq, memory, handle, window, domain));
    assert_eq!(kinds.map(count), before);
    let by_command = made("create pd device left").number;
    assert_eq!(count("pd"), 2);
    says(&format!("destroy pd {by_command}"));
    assert_eq!(count("pd"), 1);
    let Answer::Device(devices) = answer("show device") else { panic!("devices") };
    let in_use = |count, max| uroce_command::answer::InUse { count, max };
    assert_eq!((devices[0].qps, devices[0].mrs), (in_use(1, 65536), in_use(1, 1 << 20)));
}

#[test]
fn all_capabilities_and_limits_of_devices_are_shown() {
    let lab = Lab::new();
    let limits = uroce::DeviceAttr::of(&crate::lab::config().devices[0]);
    let Answer::Device(devices) = answer("show device detail") else { panic!("devices") };
    let detail = devices[0].detail.as_ref().expect("detail");
    let value = |name: &str| {
        let found = detail.attributes.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value.as_str()).expect("an attribute")
    };
    for (name, limit) in [
        ("max_qp", limits.max_qps),
        ("max_qp_wr", limits.max_wr),
        ("max_sge", limits.max_sge),
        ("max_cqe", limits.max_cqe_of_c()),
        ("max_ah", limits.max_ahs),
        ("max_qp_rd_atom", limits.max_rd_atomic.into()),
    ] {
        assert_eq!(value(name), limit.to_string(), "{name}");
    }
    assert_eq!([value("max_cqe"), value("max_dm_size")], ["1048575", "1048576"]);
    assert_eq!(value("completion_timestamp_mask"), "0xffffffffffffffff");
    let gids = lab.left.context.ports()[0].gids.clone();
    let gid = (format!("GID[{}]", gids.len() - 1), format!("{}, RoCE v2", gids[gids.len() - 1]));
    assert!(detail.ports[0].attributes.contains(&gid), "{:?} lacks {gid:?}", detail.ports);
    let said = says("show device detail");
    assert!(said.contains("atomic_cap:                ATOMIC_GLOB (2)\n"), "{said}");
    assert!(said.contains("port 1   GID[0]:"), "{said}");
    assert!(!says("show device").contains("max_qp_wr"));
}

#[test]
fn dpdk_tells_its_memory_rings_and_threads() {
    let _lab = Lab::new();
    for (line, part) in [
        ("dump mempool", "mempool <"),
        ("dump memzone", "name:<"),
        ("dump physmem", "segment"),
        ("dump ring", "ring <"),
        ("dump lcores", "lcore"),
        ("dump log_types", "lib.eal"),
        ("dump socket_mem", "heap_size"),
    ] {
        let said = says(line);
        assert!(said.to_lowercase().contains(&part.to_lowercase()), "{line}: {said}");
        assert!(matches!(answer(line), Answer::Dump(text) if text.len() > 10), "{line}");
    }
}

#[test]
fn a_port_without_a_table_of_queues_names_its_driver() {
    let _lab = Lab::new();
    let Answer::PortReta(ports) = answer("show port 0 rss reta") else { panic!("a table") };
    assert_eq!((ports.len(), &ports[0].queues), (1, &None));
    assert!(says("show port rss reta all").contains("Port 1: the driver "));
    assert_eq!(text(&ask("show port 77 rss reta").stderr), "Invalid port 77\n");
}

#[test]
fn drops_are_shown_with_their_lcores_and_meanings() {
    let _lab = Lab::new();
    let Answer::Errors(drops) = answer("show errors") else { panic!("drops") };
    let unknown = drops.iter().find(|drop| drop.reason == "rx_unknown_qpn").expect("a reason");
    assert_eq!((unknown.lcores.as_slice(), unknown.total()), (&[0][..], 0));
    assert_eq!(unknown.meaning, "No QP has this number.");
    let Answer::Counters(counters) = answer("show counters") else { panic!("counters") };
    let named = |name: &str| counters.iter().filter(|counter| counter.name == name).count();
    assert_eq!((named("rdma_tx_packets"), named("slow_rx_frames")), (2, 2), "one of each device");
}

#[test]
fn the_configuration_is_shown() {
    let _lab = Lab::new();
    let Answer::Settings(rxtx) = answer("show config rxtx") else { panic!("settings") };
    let expected = ("port 1 rx_descriptors".to_owned(), "1024".to_owned());
    assert!(rxtx.len() == 2 && rxtx[0].settings.contains(&expected), "{rxtx:?}");
    let roce = says("show config roce");
    assert!(roce.starts_with("left\n    congestion.algorithm: "), "{roce}");
    let Answer::Cores(cores) = answer("show config cores") else { panic!("cores") };
    assert_eq!((cores.len(), cores[0].qps, cores[0].cpu), (2, 1, None));
    assert!(cores[0].turns > 0, "{cores:?}");
}

#[test]
fn the_configuration_is_saved_as_a_file_that_is_read_back() {
    let folder = Folder::new("config");
    let (path, other) = (folder.file("uroce.toml"), folder.file("other.toml"));
    let lab = Lab::new();
    assert_eq!(says(&format!("save config {path}")), "");
    let saved = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(says("show config file"), saved);
    assert_eq!(answer("show config file"), Answer::ConfigFile(saved));
    let read = uroce::Config::from_file(path.as_ref()).expect("it can be read");
    assert_eq!(read, crate::lab::config());
    let refused = fails(&format!("save config {path}"));
    assert!(refused.contains("exists already; choose another name"), "{refused}");
    assert!(fails("save config /nonexistent/x.toml").contains("/nonexistent/x.toml: "));
    let json = ask_with(&["-j"], &format!("save config {path}"));
    assert!(text(&json.stdout).starts_with("{\"error\":"), "{json:?}");
    // What is closed is not told.
    drop(lab.left);
    says(&format!("save config {other}"));
    let read = uroce::Config::from_file(other.as_ref()).expect("it can be read");
    assert_eq!(read.devices, crate::lab::config().devices[1..]);
}

#[test]
fn events_of_queue_pairs_and_ports_are_kept() {
    let mut lab = Lab::new();
    let target = lab.right.memory.remote();
    let forged = RemoteBuffer { rkey: Rkey(target.rkey.0 ^ 0x1234_0000), ..target };
    let source = [lab.left.memory.slice(..8).expect("in range")];
    lab.left.qp.post_send(&SendWr::write(&source, forged)).expect("room");
    let refused = lab.left.cq.wait(SOON).expect("no overrun").expect("in time");
    assert_eq!(refused.status, WcStatus::RemAccessErr);
    let events = |line: &str| match answer(line) {
        Answer::Events(events) => events,
        Answer::Done => Vec::new(),
        other => panic!("{other:?}"),
    };
    let qp = format!("QP {}", lab.right.qp.qpn());
    lab.left.context.set_link(1, false).expect("a port");
    crate::lab::eventually("both events", || {
        let events = events("show events");
        let has = |device: &str, object: &str, name: &str| {
            let is = |event: &uroce_command::answer::Event| {
                event.device == device && event.object == object && event.event == name
            };
            events.iter().any(is)
        };
        has("left", "port 1", "PortErr") && has("right", &qp, "QpAccessErr")
    });
    let last = events("show events 1");
    assert_eq!(last.len(), 2, "one of each device: {last:?}");
    assert!(says("show events").contains("A port's link has gone down."));
}

#[test]
fn neighbours_and_addresses_are_shown() {
    let lab = Lab::new();
    let Answer::Neigh(neighbours) = answer("show neigh") else { panic!("neighbours") };
    let of_left: Vec<_> = neighbours.iter().filter(|one| one.device == "left").collect();
    assert_eq!(of_left.len(), 1);
    assert_eq!(
        (of_left[0].address.to_string(), of_left[0].state.as_str()),
        ("192.0.2.2".into(), "REACHABLE")
    );
    let mac = lab.right.context.ports()[0].mac.to_string();
    assert_eq!(of_left[0].mac.as_ref(), Some(&mac));
    assert!(says("show gid").contains("::ffff:192.0.2.1"));
    let info = says("show port info 0");
    assert!(
        info.contains("Infos for port 0 ") && info.contains("IP address: 192.0.2.1\n"),
        "{info}"
    );
    assert!(info.contains("Link duplex: full-duplex\nAutoneg status: Off\n"), "{info}");
    assert!(says("show port summary all").starts_with("Number of available ports: 2\n"));
}

#[test]
fn connections_and_ways_to_peers_are_shown() {
    let lab = Lab::new();
    let listener =
        uroce::cm::Listener::bind(&lab.right.context, "192.0.2.2:18515".parse().unwrap(), 4);
    let listener = listener.expect("a free port");
    let Answer::Cm(ids) = answer("show cm listen") else { panic!("ids") };
    let [one] = &ids[..] else { panic!("{ids:?}") };
    assert_eq!((one.state.as_str(), one.waiting), ("LISTEN", Some(0)));
    assert_eq!(one.local.to_string(), "192.0.2.2:18515");
    assert!(says(&format!("show cm {}", one.id)).contains("LISTEN"));
    let failed = ask("show cm 4000000000");
    assert_eq!(text(&failed.stderr), "no connection 4000000000\n");
    drop(listener);
    assert!(matches!(answer("show cm"), Answer::Cm(ids) if ids.is_empty()));

    let qpn = lab.left.qp.qpn().value();
    let Answer::Migration(qps) = answer(&format!("show migration {qpn}")) else { panic!("QPs") };
    assert_eq!((qps[0].migration.as_str(), qps[0].migrations), ("MIGRATED", 0));
    assert_eq!((qps[0].alternate_peer, qps[0].port), (None, 1));
    let Answer::Rate(rates) = answer("show rate") else { panic!("rates") };
    assert!(rates.len() == 2 && rates.iter().all(|rate| rate.limit_kbps == 0), "{rates:?}");
    assert_eq!(text(&ask("show rate 0xfffffe").stderr), "no QP 0xfffffe\n");
    let Answer::Route(routes) = answer("show route") else { panic!("routes") };
    let to: Vec<_> = routes.iter().map(|route| (route.to.as_str(), route.via)).collect();
    assert_eq!(to, [("192.0.2.0/24", None), ("192.0.2.0/24", None)]);
    assert!(matches!(answer("show mcast"), Answer::Mcast(groups) if groups.is_empty()));
}

#[test]
fn a_refused_command_fails_and_wrong_usage_is_told_apart() {
    let _lab = Lab::new();
    let failed = ask("show port stats 77");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(text(&failed.stderr), "Invalid port 77\n");
    let failed = ask("show qp 0xfffffff");
    assert_eq!((failed.status.code(), text(&failed.stderr)), (Some(1), "no QP 0xfffffff\n".into()));
    let failed = ask_with(&["-j"], "show qp 1");
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(text(&failed.stdout), "{\"error\":\"no QP 0x000001\"}\n");
    let usage = ask("show prot stats 0");
    assert_eq!((usage.status.code(), text(&usage.stdout)), (Some(2), String::new()));
    let said = text(&usage.stderr);
    let begin =
        "show prot stats 0\nBad arguments\n     ^^^^ expected one of: port rxq txq process device ";
    assert!(said.starts_with(begin), "{said}");
    assert!(said.ends_with("\n     did you mean \"port\"?\n"), "{said}");
}
