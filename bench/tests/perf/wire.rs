//! Header fields that options set, as they are in the frames that a port has sent.

use super::common::{Memif, Run};
use std::path::Path;
use std::time::{Duration, Instant};

const ETHERNET: usize = 14;
const ROCE: u16 = 4791;

/// Returns the RoCE frames of a capture file in pcap's format, from the IP header on.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).expect("a capture");
    let mut rest = bytes.get(24..).unwrap_or_default();
    let mut found = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
        let Some((frame, tail)) = tail.split_at_checked(len) else { break };
        rest = tail;
        let ip = &frame[ETHERNET..];
        let udp = if ip[0] >> 4 == 4 { 20 } else { 40 };
        let is_roce = ip.get(udp + 2..udp + 4) == Some(&ROCE.to_be_bytes()[..]);
        if is_roce {
            found.push(ip.to_vec());
        }
    }
    found
}

/// Sends datagrams to a group, from a port that only captures them, to an end that receives none.
fn sent(name: &str, options: &str, address: &str) -> Vec<Vec<u8>> {
    let place = Memif::new(name);
    let file = place.folder().join("sent.pcap");
    let run = |more: &[&str]| {
        let mut words: Vec<&str> = options.split(' ').collect();
        words.extend(["-p", place.port()]);
        words.extend(more);
        Run::start(&words)
    };
    let mut server = run(&["--vdev", "net_null0", "--ip", address]);
    server.until("Waiting for client");
    let vdev = format!("net_pcap0,tx_pcap={}", file.display());
    let sender = address.replace("1/", "2/");
    let client = run(&["--vdev", &vdev, "--ip", &sender, "localhost"]);
    let output = client.finish().succeeded();
    assert!(output.stdout.contains(" 20 messages did not arrive"), "{output:?}");
    server.finish().succeeded();
    // The driver writes the file when the port is closed.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let packets = packets(&file);
        if packets.len() == 20 {
            return packets;
        }
        assert!(Instant::now() < end, "{} packets of 20 are in the file", packets.len());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_byte_of_dscp_and_ecn_and_the_hop_limit_reach_the_packets() {
    for (name, option) in [("tos", "-T 0x68"), ("tclass", "--tclass 104")] {
        let options = format!("send_bw -g -n 20 -s 64 {option} -L 9");
        for packet in sent(name, &options, "192.0.2.1/24") {
            assert_eq!((packet[0], packet[1], packet[8]), (0x45, 0x68, 9), "{packet:x?}");
        }
    }
    for packet in sent("unset", "send_bw -g -n 20 -s 64", "192.0.2.1/24") {
        assert_eq!((packet[1], packet[8]), (0, 64), "{packet:x?}");
    }
}

#[test]
fn the_flow_label_reaches_the_packets_and_chooses_the_source_port() {
    let options = "send_bw -g -n 20 -s 64 --tclass 0x68 --flow_label 0x12345 -L 9";
    let packets = sent("label", options, "2001:db8::1/64");
    for packet in &packets {
        let first = u32::from_be_bytes(packet[..4].try_into().expect("four bytes"));
        assert_eq!((first, packet[7]), (0x6681_2345, 9), "{packet:x?}");
    }
    let port = |packet: &Vec<u8>| u16::from_be_bytes([packet[40], packet[41]]);
    let ports: Vec<u16> = packets.iter().map(port).collect();
    assert!(ports[0] >= 0xc000 && ports.iter().all(|port| *port == ports[0]), "{ports:x?}");
    let others = sent("other", "send_bw -g -n 20 -s 64 --flow_label 7", "2001:db8::1/64");
    assert_ne!(port(&others[0]), ports[0]);
}

#[test]
fn the_service_level_is_the_priority_of_a_tag() {
    let place = Memif::new("priority");
    let file = place.folder().join("sent.pcap");
    let config = |name: &str, vdev: &str, address: &str| {
        let path = place.folder().join(name);
        let text = format!(
            "[[device]]\nname = \"d\"\n[[device.port]]\nethdev = {{ vdev = \"{vdev}\" }}\nip = \
             [\"{address}\"]\nvlan = 5\n"
        );
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("plain text").to_owned()
    };
    let server = config("server.toml", "net_null0", "192.0.2.1/24");
    let vdev = format!("net_pcap0,tx_pcap={}", file.display());
    let client = config("client.toml", &vdev, "192.0.2.2/24");
    let words = ["send_bw", "-g", "-n", "20", "-s", "64", "-S", "6", "-p", place.port()];
    let mut serving = Run::start(&[&words[..], &["--config", &server]].concat());
    serving.until("Waiting for client");
    Run::start(&[&words[..], &["--config", &client, "localhost"]].concat()).finish().succeeded();
    serving.finish().succeeded();
    let bytes = std::fs::read(&file).expect("a capture");
    // Ethertype of the tag, its priority 6 and its VLAN 5, and the ethertype of IPv4.
    let tag = [0x81, 0x00, 0xc0, 0x05, 0x08, 0x00];
    let tags = bytes.windows(tag.len()).filter(|window| *window == tag).count();
    assert!(tags >= 20, "{tags} frames have the priority");
}
