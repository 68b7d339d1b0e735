use super::*;
use crate::answer::{
    Device, DeviceDetail, FeatureBy, InUse, PortDetail, PortInfo, PortStats, ProcessDevice, Qp,
};

fn port() -> PortInfo {
    PortInfo {
        tx_rate_mbps: Some(2500),
        port: 0,
        device: "uroce0".into(),
        number: 1,
        mac: "02:00:c0:00:02:01".into(),
        name: "net_null0".into(),
        driver: "net_null".into(),
        numa_node: None,
        up: true,
        speed_mbps: Some(10_000),
        full_duplex: Some(true),
        autoneg: Some(false),
        fec: Some("rs".into()),
        pause: Some((true, false)),
        mtu: 4200,
        path_mtu: Some(4096),
        vlan: None,
        queue_pairs: 1,
        max_queue_pairs: 16,
        addresses: vec!["192.0.2.1".parse().unwrap()],
    }
}

#[test]
fn port_statistics_are_testpmds() {
    let stats = PortStats { rx_packets: 1824, tx_bytes: 7, rx_pps: 12, ..PortStats::default() };
    let golden = "
  ######################## NIC statistics for port 0  ########################
  RX-packets: 1824       RX-missed: 0          RX-bytes:  0
  RX-errors: 0
  RX-nombuf:  0         \n  TX-packets: 0          TX-errors: 0          TX-bytes:  7

  Throughput (since last show)
  Rx-pps:           12          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ############################################################################
";
    assert_eq!(text(&Answer::PortStats(vec![stats])), golden);
}

#[test]
fn an_rss_table_is_testpmds_and_a_driver_without_one_is_named() {
    let of = |port, queues| {
        let driver = format!("net_{port}");
        crate::answer::PortReta { port, driver, queues }
    };
    let golden = "\
Port 0, 2 entries
RSS RETA configuration: hash index=0, queue=1
RSS RETA configuration: hash index=1, queue=0
Port 1: the driver net_1 has no RSS redirection table, or does not tell it
";
    assert_eq!(text(&Answer::PortReta(vec![of(0, Some(vec![1, 0])), of(1, None)])), golden);
}

#[test]
fn what_a_port_lacks_is_named_as_done_in_software() {
    let feature = |name: &str, by, device_could, why: &str| crate::answer::PortFeature {
        name: name.into(),
        by,
        device_could,
        why: why.into(),
    };
    let cap = crate::answer::PortCap {
        port: 0,
        max_mtu: Some(9000),
        max_queue_pairs: 1,
        rss: true,
        rx_checksum: true,
        tx_checksum: false,
        link_interrupt: false,
        features: vec![
            feature("RSS", FeatureBy::Device, true, ""),
            feature("RX checksum", FeatureBy::Software, true, ""),
            feature("TX checksum", FeatureBy::Software, false, ""),
            feature("Flow rules", FeatureBy::Nothing, false, "no such rule"),
        ],
    };
    let golden = "
************ Port 0 supported features: ************
Max MTU:            9000
Max queue pairs:    1
RSS:                supported
RX checksum:        in software, though supported
TX checksum:        in software
Flow rules:         not used: no such rule
";
    assert_eq!(text(&Answer::PortCap(vec![cap])), golden);
}

#[test]
fn a_port_summary_is_testpmds() {
    let golden = "\
Number of available ports: 1
Port MAC Address       Name         Driver         Status   Link
0    02:00:c0:00:02:01 net_null0    net_null       up       10 Gbps
";
    assert_eq!(text(&Answer::PortSummary(vec![port()])), golden);
}

#[test]
fn a_port_tells_how_its_link_was_negotiated_if_its_driver_does() {
    let told = text(&Answer::PortInfo(vec![port()]));
    let golden = "Link speed: 10 Gbps\nLink duplex: full-duplex\nAutoneg status: Off\nFEC mode: rs\n\
         Flow control: Rx pause: on, Tx pause: off\nMTU";
    assert!(told.contains(golden), "{told}");
    let silent = PortInfo { full_duplex: None, autoneg: None, fec: None, pause: None, ..port() };
    let told = text(&Answer::PortInfo(vec![silent]));
    assert!(told.contains("Link speed: 10 Gbps\nMTU"), "{told}");
}

#[test]
fn a_table_is_as_wide_as_its_texts() {
    let drops = DropCount {
        device: "uroce0".into(),
        reason: "rx_unknown_qpn".into(),
        lcores: vec![0, 3],
        meaning: "No QP has this number.".into(),
    };
    let golden = "\
Device  Reason          Count  Lcores  Meaning
uroce0  rx_unknown_qpn  3      1:3     No QP has this number.
";
    assert_eq!(text(&Answer::Errors(vec![drops])), golden);
}

#[test]
fn a_hostile_process_writes_no_control_characters() {
    let process = Process {
        pid: 1,
        program: "a\u{1b}[2Jb\u{7}\r".into(),
        uid: 0,
        version: "\u{9b}x".into(),
        devices: vec![ProcessDevice {
            name: "\0".into(),
            addresses: vec![],
            qps: 0,
            running: false,
        }],
    };
    let text = text(&Answer::Process(process));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(text.starts_with("a?[2Jb?? (process 1"), "{text}");
}

#[test]
fn json_for_a_terminal_has_no_control_characters_and_the_same_value() {
    let value = "a\u{1b}\u{7f}\u{9b}2J\u{202e}\n\u{e9}";
    let text = json(&value).unwrap();
    assert_eq!(text, "\"a\\u001b\\u007f\\u009b2J\\u202e\\n\u{e9}\"");
    assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
}

#[test]
fn a_qp_has_a_line_or_all_its_attributes() {
    let qp = Qp {
        device: "uroce0".into(),
        qpn: 0x1234,
        service: "RC".into(),
        state: "RTS".into(),
        port: 1,
        lcore: 0,
        dest_qpn: 0xabcdef,
        peer: Some("192.0.2.2".parse().unwrap()),
        sq_psn: 1,
        rq_psn: 2,
        path_mtu: 4096,
        pkey: 0xffff,
        qkey: 0,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        rate_limit: 0,
        selective_repeat: false,
        udp_source_ports: 1,
        sends: 3,
        max_send_wr: 128,
        max_recv_wr: 128,
        srq: false,
        migration: "MIGRATED".into(),
        migrations: 0,
        failover_us: None,
        auto: false,
    };
    let line = text(&Answer::Qp(vec![qp.clone()]));
    let golden = "\
Device    QPN       Type  State  Peer       DestQPN   SqPSN     RqPSN     MTU   Sends  Lcore
uroce0/1  0x001234  RC    RTS    192.0.2.2  0xabcdef  0x000001  0x000002  4096  3      0
";
    assert_eq!(line, golden);
    let detail = text(&Answer::QpDetail(vec![qp]));
    assert!(detail.starts_with("QP 0x001234 of uroce0\n    type:               RC\n"), "{detail}");
    assert!(detail.contains("    sends:              3 of 128\n"), "{detail}");
}

#[test]
fn a_device_reads_as_ibv_devinfo() {
    let device = Device {
        name: "uroce0".into(),
        guid: "0000:c0ff:fe00:0201".into(),
        lcores: 1,
        running: true,
        qps: InUse { count: 2, max: 65536 },
        mrs: InUse { count: 1, max: 1 << 20 },
        ahs: InUse { count: 0, max: 65536 },
        ports: vec![port()],
        detail: None,
    };
    let text = text(&Answer::Device(vec![device.clone()]));
    assert!(text.starts_with("hca_id: uroce0\n    node_guid:     0000:c0ff:fe00:0201\n"), "{text}");
    assert!(text.contains("    qps:           2 of 65536\n"), "{text}");
    assert!(text.contains("        port 1   state:       PORT_ACTIVE (4)\n"), "{text}");
    let of = |name: &str| vec![(name.to_owned(), "7".to_owned())];
    let ports = vec![PortDetail { number: 1, attributes: of("GID[0]") }];
    let detail = Some(DeviceDetail { attributes: of("max_sge"), ports });
    let text = super::text(&Answer::Device(vec![Device { detail, ..device }]));
    for line in ["    max_sge:       7\n    state:", "        port 1   GID[0]:      7\n"] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}
