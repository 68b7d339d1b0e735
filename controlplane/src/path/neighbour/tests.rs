//! Compares frames with those of scapy (`tests/golden/neighbour.py`), and tests what is learned.

use super::*;
use crate::path::gid_table::GidTable;

const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 3]);

pub(super) fn golden(name: &str) -> Vec<u8> {
    let lines = include_str!("../../../tests/golden/neighbour.hex").lines();
    let mut named = lines.filter_map(|line| line.split_once(' '));
    let (_, hex) = named.find(|(n, _)| *n == name).expect("the golden frame exists");
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("hexadecimal") as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn port_on(vlan: Option<u16>) -> Neighbours {
    let own = ["192.0.2.1/24", "2001:db8::1/64"].map(|text| text.parse().unwrap());
    Neighbours::new(Mac([2, 0, 0, 0, 0, 1]), vlan, Routes::new(GidTable::new(&own), vec![]))
}

pub(super) fn port() -> Neighbours {
    port_on(None)
}

/// Passes in a frame and returns the frames to be sent.
pub(super) fn handle(
    port: &mut Neighbours,
    now: Instant,
    frame: &[u8],
) -> Result<Vec<Vec<u8>>, Ignored> {
    let mut out = Vec::new();
    port.handle_frame(now, frame, &mut |frame| out.push(frame.to_vec()))?;
    Ok(out)
}

pub(super) fn asked(port: &mut Neighbours, now: Instant) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    port.handle_timeout(now, &mut |frame| out.push(frame.to_vec()));
    out
}

#[test]
fn requests_for_our_addresses_are_answered() {
    let pairs = [
        ("arp_request_of_peer", "arp_reply_of_ours"),
        ("arp_probe_of_peer", "arp_probe_reply_of_ours"),
        ("ns_of_peer", "na_of_ours"),
        ("ns_probe_of_peer", "na_probe_of_ours"),
        ("echo4_request", "echo4_reply"),
        ("echo6_request", "echo6_reply"),
    ];
    for (request, reply) in pairs {
        let out = handle(&mut port(), at(0), &golden(request));
        assert_eq!(out, Ok(vec![golden(reply)]), "{request}");
    }
}

#[test]
fn a_port_on_a_vlan_hears_and_speaks_tagged_frames_only() {
    let mut port = port_on(Some(100));
    let out = handle(&mut port, at(0), &golden("tagged_arp_request_of_peer"));
    assert_eq!(out, Ok(vec![golden("tagged_arp_reply_of_ours")]));
    let untagged = handle(&mut port, at(0), &golden("arp_request_of_peer"));
    assert_eq!(untagged, Err(Ignored::WrongVlan));
    let tagged = handle(&mut super::tests::port(), at(0), &golden("tagged_arp_request_of_peer"));
    assert_eq!(tagged, Err(Ignored::WrongVlan));
}

#[test]
fn a_priority_tag_is_not_a_vlan() {
    let mut frame = golden("tagged_arp_request_of_peer");
    frame[14..16].copy_from_slice(&[0xa0, 0]);
    assert_eq!(handle(&mut port(), at(0), &frame), Ok(vec![golden("arp_reply_of_ours")]));
}

#[test]
fn our_addresses_are_announced() {
    let mut out = Vec::new();
    port().announce(&mut |frame| out.push(frame.to_vec()));
    assert_eq!(out, [golden("arp_announcement_of_ours"), golden("na_probe_of_ours")]);
}

#[test]
fn a_neighbour_is_asked_for_and_its_answer_resolves_it() {
    let cases = [
        ("192.0.2.2", "arp_request_of_ours", "arp_reply_of_peer", "arp_confirm_of_ours"),
        ("2001:db8::2", "ns_of_ours", "na_of_peer", "ns_confirm_of_ours"),
    ];
    for (peer, question, answer, confirm) in cases {
        let mut port = port();
        assert_eq!(port.resolve(at(0), ip(peer)), Resolution::Pending);
        assert_eq!(asked(&mut port, at(0)), [golden(question)]);
        assert_eq!(port.next_timeout(), Some(at(100)));
        assert_eq!(handle(&mut port, at(1), &golden(answer)), Ok(vec![]));
        assert_eq!(port.resolve(at(1), ip(peer)), Resolution::Ready(PEER));
        // Once the address is unconfirmed, the request goes to the neighbour itself.
        assert_eq!(port.resolve(at(40_000), ip(peer)), Resolution::Pending);
        assert_eq!(asked(&mut port, at(40_000)), [golden(confirm)]);
    }
}

#[test]
fn the_sender_of_a_request_is_remembered_and_confirmed_before_use() {
    let cases = [
        ("192.0.2.2", "arp_request_of_peer", "arp_confirm_of_ours"),
        ("2001:db8::2", "ns_of_peer", "ns_confirm_of_ours"),
    ];
    for (peer, request, confirm) in cases {
        let mut port = port();
        handle(&mut port, at(0), &golden(request)).unwrap();
        assert_eq!(port.resolve(at(1), ip(peer)), Resolution::Pending);
        assert_eq!(asked(&mut port, at(1)), [golden(confirm)]);
    }
}

#[test]
fn an_unasked_for_answer_creates_no_neighbour() {
    for name in ["arp_reply_of_peer", "na_of_peer", "na_unsolicited_of_peer", "arp_probe_of_peer"] {
        let mut port = port();
        handle(&mut port, at(0), &golden(name)).unwrap();
        assert_eq!(port.known(), 0, "{name}");
    }
}

#[test]
fn an_unasked_for_answer_never_makes_an_address_sure() {
    for (peer, name) in [("192.0.2.2", "arp_reply_of_peer"), ("2001:db8::2", "na_of_peer")] {
        let mut port = port();
        port.resolve(at(0), ip(peer));
        handle(&mut port, at(1), &golden(name)).unwrap();
        // An equal answer from another station is ignored at first, and is later a hint at most.
        let mut spoof = golden(name);
        let at_mac = if peer.contains(':') { 80 } else { 22 };
        spoof[at_mac..at_mac + 6].copy_from_slice(&OTHER.0);
        if peer.contains(':') {
            // Our checksum covers the option: the difference of 3 and 2 in its last word.
            spoof[57] -= 1;
        }
        handle(&mut port, at(500), &spoof).unwrap();
        assert_eq!(port.resolve(at(500), ip(peer)), Resolution::Ready(PEER));
        handle(&mut port, at(2000), &spoof).unwrap();
        assert_eq!(port.resolve(at(2000), ip(peer)), Resolution::Pending, "{name}");
    }
}

#[test]
fn our_own_address_is_never_learned_from_others() {
    let mut port = port();
    assert_eq!(handle(&mut port, at(0), &golden("arp_conflict")), Err(Ignored::AddressConflict));
    assert_eq!(port.known(), 0);
    assert_eq!(port.ignored(Ignored::AddressConflict), 1);
}

#[test]
fn frames_for_others_are_not_answered() {
    // The last byte of ARP's target address, or of the frame's destination.
    for (name, last) in [("arp_request_of_peer", 41), ("echo4_request", 5), ("echo6_request", 5)] {
        let mut frame = golden(name);
        frame[last] ^= 0x40;
        assert_eq!(handle(&mut port(), at(0), &frame), Err(Ignored::NotForUs), "{name}");
    }
    let mut multicast = golden("echo4_request");
    multicast[..6].copy_from_slice(&Mac::BROADCAST.0);
    assert_eq!(handle(&mut port(), at(0), &multicast), Err(Ignored::NotForUs));
}

#[test]
fn our_own_frames_coming_back_teach_nothing_and_are_not_answered() {
    let names = [
        "arp_announcement_of_ours",
        "arp_request_of_ours",
        "ns_of_ours",
        "na_probe_of_ours",
        "echo4_reply",
        "echo6_reply",
    ];
    for name in names {
        let mut port = port();
        assert!(handle(&mut port, at(0), &golden(name)).is_err(), "{name}");
        assert_eq!(port.known(), 0, "{name}");
    }
}

#[test]
fn neighbour_discovery_from_beyond_a_router_is_refused() {
    let mut frame = golden("ns_of_peer");
    frame[21] = 254;
    assert_eq!(handle(&mut port(), at(0), &frame), Err(Ignored::Malformed));
}

#[test]
fn a_wrong_checksum_is_refused() {
    for name in ["ns_of_peer", "na_of_peer", "echo4_request", "echo6_request"] {
        let mut frame = golden(name);
        let last = frame.len() - 1;
        frame[last] ^= 1;
        let result = handle(&mut port(), at(0), &frame);
        assert!(matches!(result, Err(Ignored::Malformed | Ignored::Unsupported)), "{name}");
    }
}

#[test]
fn no_bytes_make_it_panic_and_at_most_one_frame_comes_out() {
    let names = [
        "arp_request_of_peer",
        "arp_reply_of_peer",
        "ns_of_peer",
        "na_of_peer",
        "echo4_request",
        "echo6_request",
        "tagged_arp_request_of_peer",
    ];
    let mut random = fastrand::Rng::with_seed(1);
    let mut port = port();
    for turn in 0..200_000u64 {
        let mut frame = golden(names[random.usize(..names.len())]);
        for _ in 0..random.usize(..6) {
            let at = random.usize(..frame.len());
            frame[at] = random.u8(..);
        }
        frame.truncate(random.usize(..=frame.len()));
        let out = handle(&mut port, at(turn), &frame).unwrap_or_default();
        assert!(out.len() <= 1 && port.known() <= ASKED_MAX + HINTED_MAX);
    }
}
