//! The parser, applied to packets of other implementations: scapy's, of every opcode in each
//! encapsulation, and those of two Linux kernels' Soft-RoCE.

use std::path::Path;

use uroce_wirecheck::{Flaw, Rule, read};

const SCAPY: [&str; 4] = ["ipv4", "ipv4-vlan", "ipv6", "ipv6-vlan"];

const RXE: [&str; 11] = [
    "rxe-rc-cmp-swap-v6",
    "rxe-rc-fetch-add-v4",
    "rxe-rc-placement-v4",
    "rxe-rc-placement-v6",
    "rxe-rc-read-v6",
    "rxe-rc-send-lossy-v4",
    "rxe-rc-send-v4",
    "rxe-rc-send-v6",
    "rxe-rc-write-v4",
    "rxe-uc-send-v4",
    "rxe-ud-send-v6",
];

/// The frames of a classic capture file with little-endian headers.
fn frames(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/tests/vectors");
    let file = std::fs::read(dir.join(name).with_extension("pcap")).expect("a stored capture");
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

#[test]
fn every_packet_scapy_builds_of_our_services_is_read() {
    for name in SCAPY {
        let mut opcodes = Vec::new();
        for frame in frames(name) {
            match read(&frame) {
                Ok(seen) => opcodes.push(seen.opcode),
                // Its CNP has a PSN and an AckReq, to test their layout.
                Err(Flaw { rule: Rule::UnknownOpcode | Rule::CnpHeader, .. }) => {}
                Err(flaw) => panic!("{name}: {flaw}"),
            }
        }
        let reliable = (0..=0x14).chain([0x16, 0x17]);
        let extended = reliable.clone().map(|opcode| 0xa0 | opcode);
        let unreliable = (0x20..=0x2b).chain([0x64, 0x65]);
        let datagrams = 0x40..=0x55;
        let mut expected: Vec<u8> = reliable.chain(unreliable).chain(extended).collect();
        expected.extend(datagrams);
        expected.sort_unstable();
        assert_eq!(opcodes, expected, "{name}");
    }
}

#[test]
fn what_linux_kernels_sent_each_other_is_read() {
    for name in RXE {
        let mut count = 0;
        for frame in frames(name) {
            match read(&frame) {
                Ok(_) => count += 1,
                // Linux computes the CRC of a FLUSH over its headers twice.
                Err(flaw) if flaw.rule == Rule::Icrc => assert!(is_flush(&frame), "{name}"),
                // ARP and neighbour discovery.
                Err(flaw) => assert_eq!(flaw.rule, Rule::NotRoce, "{name}: {flaw}"),
            }
        }
        assert!(count > 1, "{name}");
    }
}

/// Tells whether a frame of RoCE has the opcode of a FLUSH.
fn is_flush(frame: &[u8]) -> bool {
    let ip_len = if frame[14] >> 4 == 4 { 20 } else { 40 };
    frame[14 + ip_len + 8] == 0x1c
}

#[test]
fn a_flipped_bit_is_found_unless_a_router_may_flip_it() {
    for name in SCAPY {
        let all = frames(name);
        let frame = all.iter().find(|frame| read(frame).is_ok_and(|seen| seen.opcode == 0x0b));
        let frame = frame.expect("a WRITE with immediate");
        let l3 = if name.ends_with("vlan") { 18 } else { 14 };
        let udp = if frame[l3] >> 4 == 4 { l3 + 20 } else { l3 + 40 };
        for bit in l3 * 8..frame.len() * 8 {
            let mut bytes = frame.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (at, mask) = (bit / 8, 1_u8 << (bit % 8));
            let is_free = match at {
                _ if udp == l3 + 20 => matches!(at - l3, 1 | 8 | 10 | 11),
                _ => at == l3 && mask < 0x10 || matches!(at - l3, 1..=3 | 7),
            };
            let is_free = is_free || at == udp + 6 || at == udp + 7 || at == udp + 12;
            assert!(is_free || read(&bytes).is_err(), "{name} byte {at} mask {mask:#x}");
        }
    }
}
