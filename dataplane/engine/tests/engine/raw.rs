//! Raw queue pairs: frames by flows, sniffers, and what stays with the host.

use crate::lab::{Buffer, CAPS, Lab, LabConfig, Node, QpWish, TestQp, eventually};
use std::time::{Duration, Instant};
use uroce_engine::{EngineCounter, FlowId, FlowKind};
use uroce_transport::{
    AccessFlags, DropReason, QpCaps, QpChange, QpState, QpType, SendOp, StaticRate, WcStatus,
};
use uroce_wire::flow::{FlowMatch, FlowSpec};
use uroce_wire::{EtherType, Frame, Mac};

/// A type that nothing else uses.
const KIND: EtherType = EtherType(0x88b5);
const FRAME: SendOp = SendOp::Frame { rate: StaticRate::MAX, checksums: false };
/// Bytes of the memory of one receive.
const ROOM: u32 = 4096;

/// A raw QP in RTS with registered memory.
struct Station {
    qp: TestQp,
    memory: Buffer,
}

fn station(node: &mut Node, qp_type: QpType, lcore: Option<usize>) -> Station {
    let caps = QpCaps { max_inline_data: 64, ..CAPS };
    let wish = QpWish { qp_type, caps, lcores: [lcore; 2], ..QpWish::default() };
    let qp = node.create_qp(&wish);
    let port = QpChange { port: Some(1), ..QpChange::to(QpState::Init) };
    for change in [port, QpChange::to(QpState::Rtr), QpChange::to(QpState::Rts)] {
        node.control.modify_qp(qp.qpn, &change).expect("Modify QP");
    }
    let memory = node.register(qp.pd, 32 * ROOM as usize, AccessFlags::LOCAL_WRITE);
    Station { qp, memory }
}

impl Station {
    /// Posts a receive into place `at` of the memory.
    fn receive(&mut self, at: u64) {
        self.qp.recv(at, &[self.memory.sge(at * u64::from(ROOM), ROOM)]);
    }

    /// Waits for the next completion, a receive, and returns its bytes.
    fn received(&self) -> Vec<u8> {
        let cqe = self.qp.completion();
        assert_eq!(cqe.status, WcStatus::Success);
        let from = cqe.wr_id as usize * ROOM as usize;
        self.memory.bytes()[from..from + cqe.byte_len as usize].to_vec()
    }

    /// Sends one frame from place 31 of the memory, and waits until it has left.
    fn send(&mut self, frame: &[u8]) -> WcStatus {
        self.send_by(FRAME, frame)
    }

    fn send_by(&mut self, op: SendOp, frame: &[u8]) -> WcStatus {
        let at = 31 * ROOM as usize;
        let mut all = self.memory.bytes();
        all[at..at + frame.len()].copy_from_slice(frame);
        self.memory.put(&all);
        self.qp.send(31, op, &[self.memory.sge(at as u64, frame.len() as u32)]);
        self.qp.completion().status
    }
}

fn flow(node: &mut Node, station: &Station, kind: FlowKind) -> FlowId {
    node.control.create_flow(station.qp.qpn, station.qp.pd, 1, kind).expect("a flow")
}

fn rule(specs: &[FlowSpec], priority: u16) -> FlowKind {
    FlowKind::Rule(FlowMatch::new(specs).expect("a rule"), priority)
}

fn frame(dst: Mac, src: Mac, kind: EtherType, payload: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &kind.0.to_be_bytes(), payload].concat()
}

fn dropped(node: &Node, reason: DropReason) -> u64 {
    node.engine.counters().dropped(reason)
}

#[test] //= check W10 test
fn a_frame_goes_to_the_qp_of_its_flow_and_not_to_the_host() {
    let mut lab = Lab::new(&LabConfig::default());
    let (a, b) = (lab.a.addresses.mac, lab.b.addresses.mac);
    let mut sender = station(&mut lab.a, QpType::RawPacket, None);
    let mut taker = station(&mut lab.b, QpType::RawPacket, None);
    let mut rest = station(&mut lab.b, QpType::RawPacket, None);
    (0..4).for_each(|at| taker.receive(at));
    (0..4).for_each(|at| rest.receive(at));
    let ours = frame(b, a, KIND, &[7; 100]);
    let arp = frame(Mac::BROADCAST, a, EtherType::ARP, &[1; 46]);
    let strange = frame(Mac([2, 9, 9, 9, 9, 9]), a, KIND, &[3; 60]);

    // Without flows the control plane gets what is for the host.
    assert_eq!(sender.send(&ours), WcStatus::Success);
    let mut found = None;
    eventually("a frame for the control plane", || {
        found = lab.b.control.recv_frame();
        found.is_some()
    });
    assert_eq!(found.expect("waited for").mbuf.as_slice(), ours);

    let own = flow(&mut lab.b, &taker, rule(&[FlowSpec::ether_type(KIND)], 1));
    let all = FlowMatch::new(&[]).expect("a rule");
    flow(&mut lab.b, &rest, FlowKind::Default(all));
    assert_eq!(sender.send(&ours), WcStatus::Success);
    assert_eq!(taker.received(), ours);
    // What the host needs stays with it, and the rest goes to the default flow.
    let other = frame(Mac([2, 9, 9, 9, 9, 9]), a, EtherType(0x88b6), &[3; 60]);
    sender.send(&arp);
    sender.send(&other);
    assert_eq!(rest.received(), other);
    let mut found = None;
    eventually("ARP for the control plane", || {
        found = lab.b.control.recv_frame();
        found.is_some()
    });
    assert_eq!(found.expect("waited for").mbuf.as_slice(), arp);
    // The rule is of any address: the port is promiscuous.
    sender.send(&strange);
    assert_eq!(taker.received(), strange);
    assert_eq!(lab.b.engine.counters().engine(EngineCounter::RxRaw), 3);
    assert_eq!(lab.a.engine.counters().engine(EngineCounter::TxRaw), 5);

    lab.b.control.destroy_flow(own).expect("destroys");
    sender.send(&ours);
    assert_eq!(rest.received(), ours, "no rule takes it now");
    lab.b.control.destroy_qp(rest.qp.qpn).expect("destroys");
    let before = dropped(&lab.b, DropReason::NotForUs);
    sender.send(&strange);
    eventually("a drop", || dropped(&lab.b, DropReason::NotForUs) > before);
    drop((sender, taker, rest));
    lab.finish();
}

#[test] //= check W11 test
//= check W12 test
fn roce_of_the_host_is_not_taken_and_a_sniffer_sees_both_directions() {
    let mut lab = Lab::new(&LabConfig::default());
    let (a, b) = lab.connect(&QpWish::default());
    let mut thief = station(&mut lab.b, QpType::RawPacket, None);
    let mut sniffer = station(&mut lab.b, QpType::RawPacket, None);
    (0..30).for_each(|at| thief.receive(at));
    (0..30).for_each(|at| sniffer.receive(at));
    flow(&mut lab.b, &thief, rule(&[], 0));
    flow(&mut lab.b, &thief, rule(&[FlowSpec::to_udp_port(4791)], 0));
    let sniffing = flow(&mut lab.b, &sniffer, FlowKind::Sniffer);
    let (local, remote) = (
        lab.a.register(a.pd, 4096, AccessFlags::all()),
        lab.b.register(b.pd, 4096, AccessFlags::all()),
    );
    let (mut a, b) = (a, b);
    local.fill(5);
    let write = |a: &mut TestQp| {
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(1, op, &[local.sge(0, 1000)]);
        assert_eq!(a.completion().status, WcStatus::Success);
    };
    write(&mut a);
    assert_eq!(remote.bytes()[..1000], local.bytes()[..1000]);
    // The request as it came, and the acknowledgement as it left.
    let (request, answer) = (sniffer.received(), sniffer.received());
    for (bytes, len) in [(&request, 1000), (&answer, 0)] {
        let Ok(Frame::Roce(datagram)) = Frame::parse(bytes) else { panic!("{bytes:?}") };
        let packet = datagram.packet().expect("a good ICRC");
        assert_eq!(packet.payload.len(), len);
    }
    assert!(thief.qp.cq.poll().expect("no overrun").is_none(), "nothing was taken");
    lab.b.control.destroy_flow(sniffing).expect("destroys");
    write(&mut a);
    // A frame that leaves and one that comes, so that the port's lcore has had more turns.
    for _ in 0..3 {
        write(&mut a);
    }
    assert!(sniffer.qp.cq.poll().expect("no overrun").is_none(), "no copies any more");
    drop((a, b, local, remote, thief, sniffer));
    lab.finish();
}

#[test] //= check W13 test
fn a_frame_to_the_own_address_is_received_as_from_the_wire() {
    let mut lab = Lab::new(&LabConfig::default());
    let mac = lab.a.addresses.mac;
    let mut raw = station(&mut lab.a, QpType::RawPacket, None);
    let mut other = station(&mut lab.a, QpType::RawPacket, None);
    (0..3).for_each(|at| other.receive(at));
    other.receive(4);
    flow(&mut lab.a, &other, rule(&[FlowSpec::ether_type(KIND)], 1));
    for dst in [mac, Mac::BROADCAST, Mac([2, 9, 9, 9, 9, 9])] {
        let sent = frame(dst, mac, KIND, &[4; 50]);
        raw.qp.sq.post_inline(&crate::lab::signaled(8, FRAME), &sent).expect("posts");
        assert_eq!(raw.qp.completion().status, WcStatus::Success);
        assert_eq!(other.received(), sent);
    }
    // A QP does not hear itself, but for what it sends to the port's own address.
    assert_eq!(other.send(&frame(Mac::BROADCAST, mac, KIND, &[6; 50])), WcStatus::Success);
    let to_own = frame(mac, mac, KIND, &[8; 50]);
    other.receive(3);
    other.qp.sq.post_inline(&crate::lab::signaled(31, FRAME), &to_own).expect("posts");
    assert_eq!(other.qp.completion().wr_id, 31);
    assert_eq!(other.received(), to_own);
    let sent = frame(mac, mac, KIND, &[7; 50]);
    raw.qp.sq.post_inline(&crate::lab::signaled(8, FRAME), &sent).expect("posts");
    assert_eq!(raw.qp.completion().status, WcStatus::Success);
    assert_eq!(other.received(), sent);
    // RoCE that a raw QP makes up is believed no more than a stranger's.
    let ip = lab.a.addresses.gids[0];
    let encap = uroce_wire::Encap {
        src_mac: mac,
        dst_mac: mac,
        src: ip,
        dst: ip,
        hop_limit: 64,
        src_port: 0xc000,
        ..Default::default()
    };
    let template = encap.template();
    let transport = [0; 12 + 4];
    let mut forged = vec![0; usize::from(template.len) + transport.len()];
    template.emit(&mut forged, transport.len());
    let before = dropped(&lab.a, DropReason::BadIcrc);
    assert_eq!(raw.send(&forged), WcStatus::Success);
    eventually("a drop for its ICRC", || dropped(&lab.a, DropReason::BadIcrc) > before);
    drop((raw, other));
    lab.finish();
}

#[test] //= check W13 test
fn no_qp_hears_its_domain_whatever_the_order_of_the_rules() {
    const FAR: Mac = Mac([2, 9, 9, 9, 9, 9]);
    let mut lab = Lab::new(&LabConfig { lcores: 2, queue_pairs: Some(1), ..LabConfig::default() });
    let mac = lab.a.addresses.mac;
    let mut sender = station(&mut lab.a, QpType::RawPacket, Some(0));
    let mut others = [0, 1].map(|lcore| station(&mut lab.a, QpType::RawPacket, Some(lcore)));
    sender.receive(0);
    others.iter_mut().for_each(|other| (0..8).for_each(|at| other.receive(at)));
    let kind = |priority| rule(&[FlowSpec::ether_type(KIND)], priority);
    let own = flow(&mut lab.a, &sender, kind(0));
    let all = FlowKind::Default(FlowMatch::new(&[]).expect("a rule"));
    for other in &others {
        flow(&mut lab.a, other, kind(5));
        flow(&mut lab.a, other, all);
    }
    let mut number = 0;
    let mut hear = |sender: &mut Station, dst, kind| {
        number += 1;
        let sent = frame(dst, mac, kind, &[number; 80]);
        assert_eq!(sender.send(&sent), WcStatus::Success);
        for other in &others {
            assert_eq!(other.received(), sent);
        }
    };
    hear(&mut sender, FAR, KIND);
    lab.a.control.destroy_flow(own).expect("destroys");
    flow(&mut lab.a, &sender, kind(5));
    hear(&mut sender, FAR, KIND);
    // A frame that the host needs is for no default flow, and does not come back to the host.
    let arp = frame(Mac::BROADCAST, mac, EtherType::ARP, &[1; 46]);
    assert_eq!(sender.send(&arp), WcStatus::Success);
    hear(&mut sender, Mac::BROADCAST, EtherType(0x88b6));
    hear(&mut sender, Mac::BROADCAST, KIND);
    assert!(lab.a.control.recv_frame().is_none());
    assert!(sender.qp.cq.poll().expect("no overrun").is_none(), "the sender hears nothing");
    drop((sender, others));
    lab.finish();
}

#[test] //= check W10 test
fn what_the_host_needs_reaches_it_unless_a_rule_names_its_kind() {
    let mut lab = Lab::new(&LabConfig::default());
    let (a, b) = (lab.a.addresses.mac, lab.b.addresses.mac);
    let mut sender = station(&mut lab.a, QpType::RawPacket, None);
    let mut taker = station(&mut lab.b, QpType::RawPacket, None);
    (0..8).for_each(|at| taker.receive(at));
    let arp = |number| frame(b, a, EtherType::ARP, &[number; 46]);
    let hosts = |node: &mut Node| {
        let mut found = None;
        eventually("ARP for the control plane", || {
            found = node.control.recv_frame();
            found.is_some()
        });
        found.expect("waited for").mbuf.as_slice().to_vec()
    };
    // As the rules of textbooks: what is to the own address.
    let own = flow(&mut lab.b, &taker, rule(&[FlowSpec::to_mac(b)], 0));
    sender.send(&arp(1));
    assert_eq!((taker.received(), hosts(&mut lab.b)), (arp(1), arp(1)));
    let named = flow(&mut lab.b, &taker, rule(&[FlowSpec::ether_type(EtherType::ARP)], 0));
    sender.send(&arp(2));
    assert_eq!((taker.received(), hosts(&mut lab.b)), (arp(2), arp(2)), "the older rule");
    lab.b.control.destroy_flow(own).expect("destroys");
    sender.send(&arp(3));
    assert_eq!(taker.received(), arp(3));
    lab.b.control.destroy_flow(named).expect("destroys");
    sender.send(&arp(4));
    assert_eq!(hosts(&mut lab.b), arp(4), "and not the one before it");
    // The port has no VLAN, so the host does not need what is in one; priority tags count not.
    let all = FlowKind::Default(FlowMatch::new(&[]).expect("a rule"));
    flow(&mut lab.b, &taker, all);
    let tagged = |tag: u8| {
        let arp = [&[0, tag, 8, 6][..], &[5; 46]].concat();
        frame(Mac::BROADCAST, a, EtherType::VLAN, &arp)
    };
    sender.send(&tagged(0));
    assert_eq!(hosts(&mut lab.b), tagged(0));
    sender.send(&tagged(7));
    assert_eq!(taker.received(), tagged(7));
    drop((sender, taker));
    lab.finish();
}

#[test] //= check W10 test
fn equal_rules_of_qps_on_two_lcores_share_the_frame() {
    let mut lab = Lab::new(&LabConfig { lcores: 2, queue_pairs: Some(1), ..LabConfig::default() });
    let (a, b) = (lab.a.addresses.mac, lab.b.addresses.mac);
    let mut sender = station(&mut lab.a, QpType::RawPacket, Some(0));
    let mut takers = [0, 1].map(|lcore| station(&mut lab.b, QpType::RawPacket, Some(lcore)));
    let mut sniffers = [0, 1].map(|lcore| station(&mut lab.b, QpType::RawPacket, Some(lcore)));
    for station in takers.iter_mut().chain(&mut sniffers) {
        station.receive(0);
        station.receive(1);
    }
    for taker in &takers {
        flow(&mut lab.b, taker, rule(&[FlowSpec::ether_type(KIND)], 3));
    }
    for sniffer in &sniffers {
        flow(&mut lab.b, sniffer, FlowKind::Sniffer);
    }
    let sent = frame(b, a, KIND, &[9; 300]);
    assert_eq!(sender.send(&sent), WcStatus::Success);
    for station in takers.iter().chain(&sniffers) {
        assert_eq!(station.received(), sent);
    }
    drop((sender, takers, sniffers));
    lab.finish();
}

/// A frame with random lengths and numbers in the places that the parsers look at.
fn hostile(seed: u64, to: Mac) -> Vec<u8> {
    let random = crate::lab::pattern(seed, 160);
    let len = 14 + usize::from(random[0]) % 140;
    let mut frame = [&to.0[..], &random[1..7]].concat();
    let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8], [8, 6]];
    for tag in 0..random[7] % 4 {
        frame.extend(kinds[2 + usize::from(tag % 2)]);
        frame.extend([random[8], random[9]]);
    }
    frame.extend(kinds[usize::from(random[10]) % kinds.len()]);
    frame.extend([[0x45, 0], [0x4f, 0], [0x60, 0], [0x40, 0]][usize::from(random[11]) % 4]);
    frame.extend(&random[12..]);
    // Often UDP to RoCE's port, and then no fragment.
    if random[13] > 100 && frame.len() > 40 {
        (frame[20], frame[21]) = (0x40, 0);
        (frame[23], frame[36], frame[37]) = (17, 0x12, 0xb7);
    }
    frame.truncate(len);
    frame
}

#[test] //= check W4 test
fn hostile_frames_harm_nothing_and_no_buffer_is_lost() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish::default());
    let to = lab.b.addresses.mac;
    let mut sender = station(&mut lab.a, QpType::RawPacket, None);
    let mut takers = [QpType::RawPacket, QpType::RawIpv6, QpType::RawPacket]
        .map(|qp_type| station(&mut lab.b, qp_type, None));
    takers.iter_mut().for_each(|taker| (0..30).for_each(|at| taker.receive(at)));
    flow(&mut lab.b, &takers[0], rule(&[FlowSpec::to_udp_port(4791)], 1));
    flow(&mut lab.b, &takers[1], FlowKind::Default(FlowMatch::new(&[]).expect("a rule")));
    flow(&mut lab.b, &takers[2], FlowKind::Sniffer);
    let mut received = [0; 3];
    for seed in 0..1000 {
        let to = if seed % 7 == 0 { Mac::BROADCAST } else { to };
        assert_eq!(sender.send(&hostile(seed, to)), WcStatus::Success);
        for (taker, received) in takers.iter_mut().zip(&mut received) {
            while let Some(cqe) = taker.qp.cq.poll().expect("no overrun") {
                assert_eq!(cqe.status, WcStatus::Success);
                taker.receive(cqe.wr_id);
                *received += 1;
            }
        }
        while lab.b.control.recv_frame().is_some() {}
    }
    assert!(received.iter().all(|&count| count > 0), "{received:?}");
    // The connection still works.
    let (local, remote) = (
        lab.a.register(a.pd, 4096, AccessFlags::all()),
        lab.b.register(b.pd, 4096, AccessFlags::all()),
    );
    local.fill(9);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 4096)]);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(remote.bytes(), local.bytes());
    drop((a, b, local, remote, sender, takers));
    lab.finish();
}

#[test] //= check W5 test
fn raw_ipv6_sends_and_receives_packets() {
    let mut lab = Lab::new(&LabConfig::default());
    let to = lab.b.addresses.mac;
    let mut sender = station(&mut lab.a, QpType::RawIpv6, None);
    let mut taker = station(&mut lab.b, QpType::RawIpv6, None);
    taker.receive(0);
    flow(&mut lab.b, &taker, rule(&[FlowSpec::ether_type(EtherType::IPV6)], 1));
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 59, 64];
    packet.extend([0x20; 32]);
    packet.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    let op = SendOp::Ipv6 { to, rate: StaticRate::MAX };
    assert_eq!(sender.send_by(op, &packet), WcStatus::Success);
    assert_eq!(taker.received(), packet);
    // The frame's padding is not the packet's, and what is no IPv6 packet is dropped.
    let mut whole = station(&mut lab.a, QpType::RawPacket, None);
    let all = FlowKind::Default(FlowMatch::new(&[]).expect("a rule"));
    flow(&mut lab.b, &taker, all);
    taker.receive(1);
    let own = lab.a.addresses.mac;
    let before = dropped(&lab.b, DropReason::WrongService);
    let other = frame(to, own, EtherType(0x88b6), &packet);
    assert_eq!(whole.send(&other), WcStatus::Success);
    let padded = frame(to, own, EtherType::IPV6, &[&packet[..], &[0; 6]].concat());
    assert_eq!(whole.send(&padded), WcStatus::Success);
    assert_eq!(taker.received(), packet);
    assert_eq!(dropped(&lab.b, DropReason::WrongService), before + 1);
    drop((sender, taker, whole));
    lab.finish();
}

#[test] //= check W7 test
fn a_raw_qp_receives_into_a_shared_queue() {
    let mut lab = Lab::new(&LabConfig::default());
    let mut sender = station(&mut lab.a, QpType::RawPacket, None);
    let pd = lab.b.engine.alloc_pd();
    let srq = lab.b.engine.create_srq(pd, 4, 1).expect("SRQ");
    let wish = QpWish { qp_type: QpType::RawPacket, ..QpWish::default() };
    let qp = lab.b.create_qp_with(pd, &wish, Some(&srq));
    let port = QpChange { port: Some(1), ..QpChange::to(QpState::Init) };
    for change in [port, QpChange::to(QpState::Rtr)] {
        lab.b.control.modify_qp(qp.qpn, &change).expect("Modify QP");
    }
    let memory = lab.b.register(pd, ROOM as usize, AccessFlags::LOCAL_WRITE);
    let kind = rule(&[FlowSpec::ether_type(KIND)], 0);
    lab.b.control.create_flow(qp.qpn, pd, 1, kind).expect("a flow");
    let sent = frame(lab.b.addresses.mac, lab.a.addresses.mac, KIND, &[3; 90]);
    let before = dropped(&lab.b, DropReason::NoReceiveWqe);
    assert_eq!(sender.send(&sent), WcStatus::Success);
    eventually("a drop", || dropped(&lab.b, DropReason::NoReceiveWqe) > before);
    srq.post_recv(&uroce_transport::RecvWr { wr_id: 6 }, &[memory.sge(0, ROOM)]).expect("posts");
    assert_eq!(sender.send(&sent), WcStatus::Success);
    let cqe = qp.completion();
    assert_eq!((cqe.status, cqe.wr_id), (WcStatus::Success, 6));
    assert_eq!(memory.bytes()[..cqe.byte_len as usize], sent);
    drop((sender, qp, memory, srq));
    lab.finish();
}

#[test] //= check W9 test
fn a_frame_of_a_wrong_length_is_a_local_error() {
    let mut lab = Lab::new(&LabConfig::default());
    // The ports' MTU is 4200.
    for (len, expected) in
        [(13, WcStatus::LocLenErr), (14, WcStatus::Success), (4095, WcStatus::Success)]
    {
        let mut raw = station(&mut lab.a, QpType::RawPacket, None);
        assert_eq!(raw.send(&vec![2; len]), expected, "{len}");
    }
    let mut raw = station(&mut lab.a, QpType::RawPacket, None);
    raw.qp.send(1, FRAME, &[raw.memory.sge(0, 4215)]);
    assert_eq!(raw.qp.completion().status, WcStatus::LocLenErr);
    drop(raw);
    let (to, rate) = (lab.b.addresses.mac, StaticRate::MAX);
    for (first, len, expected) in [
        (0x60, 40, WcStatus::Success),
        (0x60, 39, WcStatus::LocLenErr),
        (0x45, 60, WcStatus::LocLenErr),
    ] {
        let mut raw = station(&mut lab.a, QpType::RawIpv6, None);
        let packet = [&[first][..], &vec![0; len - 1]].concat();
        assert_eq!(raw.send_by(SendOp::Ipv6 { to, rate }, &packet), expected, "{first:x}, {len}");
    }
    lab.finish();
}

#[test] //= check W6 test
fn frames_leave_no_faster_than_their_rate() {
    let mut lab = Lab::new(&LabConfig::default());
    let mut raw = station(&mut lab.a, QpType::RawEtherType, None);
    let rate = StaticRate::from_mbps(2_500).expect("a rate");
    let begin = Instant::now();
    // 60 frames of 4000 bytes at 2.5 Gb/s take 768 µs.
    for at in 0..60 {
        raw.qp.send_when_room(
            at,
            SendOp::Frame { rate, checksums: false },
            &[raw.memory.sge(0, 4000)],
        );
    }
    for _ in 0..60 {
        assert_eq!(raw.qp.completion().status, WcStatus::Success);
    }
    let took = begin.elapsed();
    // The last frame leaves after the gaps of those before it.
    assert!(took >= Duration::from_micros(755), "{took:?}");
    drop(raw);
    lab.finish();
}
