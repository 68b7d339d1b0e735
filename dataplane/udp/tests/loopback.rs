//! Two endpoints at addresses of the loopback interface, which needs no privilege.

use nix::sys::socket::{setsockopt, sockopt};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use uroce_udp::{Endpoint, EndpointConfig, OpenError, Queue, QueueError, mac_of};
use uroce_wire::{Bth, Encap, Frame, OpCode, Qpn, seal};

/// Returns an address that no other test of this machine uses.
fn address() -> IpAddr {
    static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, next).into()
}

fn endpoint(addresses: &[IpAddr], queues: u16) -> Result<Endpoint, OpenError> {
    let mac = mac_of(addresses.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into()));
    let addresses = addresses.to_vec();
    Endpoint::open(EndpointConfig { interface: "lo".to_owned(), addresses, mac, queues, mtu: 9000 })
}

fn queue(address: IpAddr) -> Queue {
    endpoint(&[address], 1).expect("opens").queue(0).expect("free")
}

/// Returns a packet with a payload of `payload` bytes.
fn packet(from: IpAddr, to: IpAddr, payload: usize, number: u32) -> Vec<u8> {
    let encap = Encap {
        src_mac: mac_of(from),
        dst_mac: mac_of(to),
        src: from.into(),
        dst: to.into(),
        traffic_class: 0x6a,
        hop_limit: 17,
        src_port: 0xc000 + number as u16,
        ..Encap::default()
    };
    let template = encap.template();
    let transport = Bth::LEN + payload + 4;
    let mut frame = vec![number as u8; usize::from(template.len) + transport];
    let len = template.emit(&mut frame, transport);
    let dest_qpn = Qpn::new(number);
    let bth = Bth { opcode: OpCode::RC_RDMA_WRITE_MIDDLE, dest_qpn, ..Bth::default() };
    bth.emit(frame[len..].first_chunk_mut().expect("room"));
    seal(&mut frame[usize::from(template.l3_offset)..]).expect("a packet");
    frame
}

fn receive(queue: &mut Queue, count: usize) -> Vec<Vec<u8>> {
    let (mut got, begin) = (Vec::new(), Instant::now());
    while got.len() < count && begin.elapsed() < Duration::from_secs(10) {
        queue.receive(7, |frame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(&mut bytes);
            got.push(bytes);
            true
        });
    }
    got
}

/// Returns whether a frame is a RoCEv2 packet with a right CRC.
fn is_right(frame: &[u8]) -> bool {
    matches!(Frame::parse(frame), Ok(Frame::Roce(packet)) if packet.icrc_ok())
}

#[test]
fn packets_come_whole_however_they_were_gathered() {
    for addresses in [[address(), address()], [IpAddr::V6(std::net::Ipv6Addr::LOCALHOST); 2]] {
        let [one, other] = addresses;
        let mut sender = queue(one);
        let mut receiver = if one == other { None } else { Some(queue(other)) };
        // A peer that has sent something may be sent messages.
        let first = packet(other, one, 8, 0);
        let of = receiver.as_mut().unwrap_or(&mut sender);
        assert_eq!(of.send([&first[..]].into_iter()), 1);
        assert_eq!(receive(&mut sender, 1).len(), 1);
        let lens = [1024, 1024, 1024, 512, 512, 0, 4096, 4096, 8, 16, 16];
        let sent: Vec<_> =
            (0..100).map(|at| packet(one, other, lens[at % lens.len()], at as u32)).collect();
        assert_eq!(sender.send(sent.iter().map(Vec::as_slice)), 100);
        let got = receive(receiver.as_mut().unwrap_or(&mut sender), 100);
        assert_eq!(got.len(), 100);
        for (sent, got) in sent.iter().zip(&got) {
            let (Ok(Frame::Roce(sent)), Ok(Frame::Roce(got))) =
                (Frame::parse(sent), Frame::parse(got))
            else {
                panic!("packets");
            };
            assert!(got.icrc_ok(), "{got:?}");
            assert_eq!(got.transport, sent.transport);
            assert_eq!((got.src, got.dst), (sent.src, sent.dst));
            assert_eq!((got.src_mac, got.dst_mac), (mac_of(one), mac_of(other)));
            assert_eq!((got.traffic_class, got.src_port), (0x6a, 4791));
        }
    }
}

/// A socket that reads messages shows what an interface in between, or a packet socket, would see.
#[test]
fn datagrams_are_one_message_only_to_a_peer_that_receives_by_sockets() {
    let [one, other] = [address(), address()];
    let mut sender = queue(one);
    let peer = UdpSocket::bind((other, 4791)).expect("binds");
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("takes it");
    setsockopt(&peer, sockopt::UdpGroSegment, &true).expect("Linux has it");
    let dpdk = UdpSocket::bind((other, 0)).expect("binds");
    let frames: Vec<_> = (0..3).map(|number| packet(one, other, 1024, number)).collect();
    let datagram = Bth::LEN + 1024 + 4;
    for (last, lens) in [(None, [1; 3].as_slice()), (Some(&peer), &[3]), (Some(&dpdk), &[1; 3])] {
        if let Some(from) = last {
            from.send_to(&[7; 20], (one, 4791)).expect("sends");
            assert_eq!(receive(&mut sender, 1).len(), 1);
        }
        assert_eq!(sender.send(frames.iter().map(Vec::as_slice)), 3);
        let mut buffer = [0; 9000];
        for len in lens {
            assert_eq!(peer.recv(&mut buffer).expect("comes"), len * datagram, "{last:?}");
        }
    }
}

#[test]
fn a_wrong_crc_stays_wrong() {
    let [one, other] = [address(), address()];
    let (mut sender, mut receiver) = (queue(one), queue(other));
    let mut sent: Vec<_> = (0..3).map(|number| packet(one, other, 1024, number)).collect();
    sent[1][600] ^= 4;
    assert_eq!(sender.send(sent.iter().map(Vec::as_slice)), 3);
    let got = receive(&mut receiver, 3);
    let are_ok: Vec<_> = got.iter().map(|frame| is_right(frame)).collect();
    assert_eq!(are_ok, [true, false, true]);
}

#[test]
fn what_cannot_be_sent_is_counted_and_holds_nothing_up() {
    let [one, other, stranger] = [address(), address(), address()];
    let endpoint = endpoint(&[one], 1).expect("opens");
    let (mut sender, mut receiver) = (endpoint.queue(0).expect("free"), queue(other));
    let nowhere: IpAddr = Ipv4Addr::new(255, 255, 255, 255).into();
    let frames = [
        vec![0; 60],
        packet(stranger, other, 8, 1),
        packet(one, nowhere, 8, 2),
        vec![0xff; 3],
        packet(one, other, 8, 3),
    ];
    assert_eq!(sender.send(frames.iter().map(Vec::as_slice)), 5);
    assert_eq!(receive(&mut receiver, 1).len(), 1);
    let counters = endpoint.counters();
    assert_eq!((counters.tx_unsendable.get(), counters.tx_unreachable.get()), (3, 1));
    assert_eq!(counters.tx_datagrams.get(), 1);
}

#[test]
fn rubbish_from_any_program_is_given_on_as_it_is() {
    let own = address();
    let endpoint = endpoint(&[own], 1).expect("opens");
    let mut receiver = endpoint.queue(0).expect("free");
    let stranger = UdpSocket::bind((address(), 0)).expect("binds");
    for len in [0, 1, 4, 8976, 15, 65_000, 16, 17, 8972] {
        stranger.send_to(&vec![0x5a; len], (own, 4791)).expect("sends");
    }
    let got = receive(&mut receiver, 6);
    let lens: Vec<_> = got.iter().map(|frame| frame.len() - 42).collect();
    assert_eq!(lens, [1, 4, 15, 16, 17, 8972], "an empty one is nothing");
    assert_eq!(endpoint.counters().rx_too_long.get(), 2);
    assert!(!got.iter().any(|frame| is_right(frame)));
}

#[test]
fn empty_datagrams_hide_nothing_from_a_sleeper() {
    let own = address();
    let mut receiver = queue(own);
    let stranger = UdpSocket::bind((address(), 0)).expect("binds");
    let flood = |count: usize| {
        for _ in 0..count {
            stranger.send_to(&[], (own, 4791)).expect("sends");
        }
        stranger.send_to(&[7; 20], (own, 4791)).expect("sends");
    };
    // Descriptors report a change only once, so the first look has to find the frame.
    flood(3);
    assert_eq!((receiver.receive(9, |_| true), receiver.has_frames()), (1, false));
    // More empty datagrams end the look early; `has_frames` looks again.
    flood(70);
    assert_eq!((receiver.receive(9, |_| true), receiver.has_frames()), (0, true));
    assert_eq!((receiver.receive(9, |_| true), receiver.has_frames()), (1, false));
}

#[test]
fn an_address_with_traffic_hides_nothing_of_the_others() {
    let [busy, rare] = [address(), address()];
    let endpoint = endpoint(&[busy, rare], 1).expect("opens");
    let mut receiver = endpoint.queue(0).expect("free");
    let stranger = UdpSocket::bind((address(), 0)).expect("binds");
    let send = |to, len: usize| stranger.send_to(&vec![7; len], (to, 4791)).expect("sends");
    // Different lengths, so that the kernel does not make one message of them.
    for len in 20..50 {
        send(busy, len);
    }
    send(rare, 1000);
    let mut lens = Vec::new();
    receiver.receive(12, |frame| {
        lens.push(frame.len());
        true
    });
    assert!(lens.iter().any(|len| *len > 1000), "{lens:?}");
    let mut calls = 0;
    while receiver.has_frames() {
        receiver.receive(64, |_| true);
        calls += 1;
        assert!(calls < 20);
    }
    send(rare, 1000);
    let taken: usize = (0..8).map(|_| receiver.receive(9, |_| true)).sum();
    assert_eq!(taken, 1);
}

#[test]
fn a_message_at_another_address_does_not_hold_up_the_next_one() {
    let [busy, rare] = [address(), address()];
    let endpoint = endpoint(&[busy, rare], 1).expect("opens");
    let mut receiver = endpoint.queue(0).expect("free");
    let stranger = UdpSocket::bind((address(), 0)).expect("binds");
    for to in [busy, rare] {
        stranger.send_to(&[7; 20], (to, 4791)).expect("sends");
        let calls = (0..20).take_while(|_| receiver.receive(9, |_| true) == 0);
        assert!(calls.count() < 8);
    }
    for _ in 0..9 {
        assert_eq!(receiver.receive(9, |_| true), 0);
    }
    stranger.send_to(&[7; 20], (busy, 4791)).expect("sends");
    let taken: usize = (0..2).map(|_| receiver.receive(9, |_| true)).sum();
    assert_eq!(taken, 1);
}

#[test]
fn one_who_lies_down_to_sleep_looks_at_all_addresses() {
    let [busy, rare] = [address(), address()];
    let endpoint = endpoint(&[busy, rare], 1).expect("opens");
    let mut receiver = endpoint.queue(0).expect("free");
    let stranger = UdpSocket::bind((address(), 0)).expect("binds");
    for looks in 0..9 {
        // After any number of looks at nothing, the first question finds nothing.
        (0..looks).for_each(|_| assert_eq!(receiver.receive(9, |_| true), 0));
        assert!(!receiver.has_frames(), "{looks}");
        for to in [rare, busy] {
            stranger.send_to(&[7; 20], (to, 4791)).expect("sends");
            assert!(receiver.has_frames(), "{looks}");
            assert_eq!(receiver.receive(9, |_| true), 1, "{looks}");
        }
    }
}

#[test]
fn a_flood_of_datagrams_that_are_too_long_ends_a_look_and_hides_nothing_from_a_sleeper() {
    let own = address();
    let endpoint = endpoint(&[own], 1).expect("opens");
    let mut receiver = endpoint.queue(0).expect("free");
    let stranger = UdpSocket::bind((address(), 0)).expect("binds");
    for len in [9000, 20, 9000, 9000, 9000, 20] {
        stranger.send_to(&vec![7; len], (own, 4791)).expect("sends");
    }
    let counters = endpoint.counters();
    for expected in [(1, true, 1), (0, true, 3), (1, false, 4), (0, false, 4)] {
        let taken = receiver.receive(2, |_| true);
        assert_eq!((taken, receiver.has_frames(), counters.rx_too_long.get()), expected);
    }
}

#[test]
fn a_frame_that_was_refused_comes_again() {
    let [one, other] = [address(), address()];
    let (mut sender, mut receiver) = (queue(one), queue(other));
    let sent: Vec<_> = (0..5).map(|number| packet(one, other, 64, number)).collect();
    assert_eq!(sender.send(sent.iter().map(Vec::as_slice)), 5);
    let begin = Instant::now();
    while receiver.receive(9, |_| false) == 0 && !receiver.has_frames() {
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(receive(&mut receiver, 5).len(), 5);
    assert!(!receiver.has_frames());
}

#[test]
fn an_address_has_one_endpoint_and_must_be_the_machines() {
    let own = address();
    let first = endpoint(&[own], 2).expect("opens");
    for queues in [1, 2] {
        let second = endpoint(&[address(), own], queues);
        assert!(matches!(second, Err(OpenError::Taken(ip)) if ip == own));
    }
    assert_eq!(first.queue(2).expect_err("two"), QueueError::OutOfRange { index: 2, queues: 2 });
    let queues = [first.queue(0).expect("free"), first.queue(1).expect("free")];
    assert_eq!(first.queue(1).expect_err("taken"), QueueError::Taken { index: 1 });
    drop(queues);
    assert!(first.queue(1).is_ok(), "it came back");
    drop(first);
    let again = endpoint(&[own], 1);
    assert!(again.is_ok(), "{again:?}");

    let foreign: IpAddr = Ipv4Addr::new(203, 0, 113, 77).into();
    assert!(matches!(endpoint(&[foreign], 1), Err(OpenError::NoSuchAddress(ip)) if ip == foreign));
    assert!(matches!(endpoint(&[], 1), Err(OpenError::NoAddress(of)) if of == "lo"));
    for queues in [0, 17] {
        assert!(matches!(endpoint(&[own], queues), Err(OpenError::Queues(of)) if of == queues));
    }
}
