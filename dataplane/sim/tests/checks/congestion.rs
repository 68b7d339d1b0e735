//! Marks of congested switches, and the notifications that answer them.

use core::time::Duration;

use uroce_sim::{Pair, Rule, Seen, Terms};
use uroce_transport::{
    Congestion, Counter, DcqcnParams, DropReason, QpChange, QpState, QpType, Side,
};
use uroce_wire::{Encap, Frame, Gid, OpCode, Pkey, Psn, Qpn, Vlan};

use super::scene::{A, B, SHORTLY, assert_counted};

/// CNPs that an end has sent.
fn cnps(pair: &Pair, from: usize) -> Vec<Seen> {
    let mut seen = pair.seen(from);
    seen.retain(|seen| seen.bth.opcode == OpCode::CNP);
    seen
}

/// Terms under which each marked packet is answered.
fn eager(terms: &mut Terms) {
    terms.is_tapped = true;
    terms.notification.min_time_between_cnps_us = 0;
}

/// Terms under which both ends use DCQCN.
fn dcqcn(terms: &mut Terms) {
    terms.congestion = Congestion::Dcqcn(DcqcnParams::default());
    terms.settings.gbps = 400;
}

#[track_caller]
fn assert_flawless(pair: &mut Pair) {
    let flaw = pair.world.take_flaw();
    assert_eq!(flaw, None, "{:#?}", pair.trace(40));
}

#[test] //= check K1 test
//= check K6 test
fn each_marked_packet_is_answered_by_a_notification_if_no_time_between_them_is_asked_for() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        for is_ipv6 in [false, true] {
            let mut pair = Pair::with(|terms| {
                eager(terms);
                (terms.qp_type, terms.is_ipv6) = (qp_type, is_ipv6);
            });
            pair.rule(Rule::mark().from(A));
            pair.write(A, 5 * 256);
            pair.run();
            let sent = cnps(&pair, B);
            assert_eq!(sent.len(), 5, "{qp_type}: {:#?}", pair.trace(40));
            for cnp in &sent {
                assert!(cnp.bth.becn && !cnp.bth.mig_req && !cnp.bth.ack_req);
                assert_eq!((cnp.bth.dest_qpn, cnp.bth.pkey), (pair.qpn(A), Pkey::DEFAULT));
                assert_eq!((cnp.bth.psn, &cnp.payload[..]), (Psn::new(0), &[0; 16][..]));
            }
            assert_eq!(pair.count(B, Counter::NpEcnMarkedRocePackets), 5);
            assert_eq!(pair.count(B, Counter::NpCnpSent), 5);
            assert_eq!(pair.count(A, Counter::RpCnpIgnored), 5, "no algorithm is chosen");
            assert_eq!(pair.take(A, Side::Send).len(), 1);
            assert_flawless(&mut pair);
        }
    }
}

#[test] //= check K1 test
fn a_notification_has_the_bytes_of_the_sample() {
    let mut pair = Pair::with(|terms| terms.notification.cnp_dscp = 46);
    pair.rule(Rule::mark().from(A));
    pair.write(A, 8);
    pair.run();
    let record = pair.world.record().expect("pairs record");
    let frame = &record
        .sightings()
        .find(|sighting| sighting.packet().bth.opcode == OpCode::CNP)
        .expect("one was sent")
        .frame;
    assert_eq!(frame[15], 46 << 2, "its DSCP, and not ECN-capable");
    let mut sample = vec![0x81, 0x00, 0xff, 0xff, 0x40];
    sample.extend(&pair.qpn(A).value().to_be_bytes()[1..]);
    sample.extend([0; 4 + 16]);
    assert_eq!(frame[42..42 + 28], sample);
    assert_eq!(frame.len(), 42 + 28 + 4);
}

#[test] //= check K1 test
fn a_notification_has_its_own_priority_in_the_vlan_of_its_connection() {
    let mut pair = Pair::reset(|terms| terms.notification.cnp_802p_prio = 5);
    for end in [A, B] {
        for mut change in pair.changes(end) {
            if let Some(path) = &mut change.path {
                path.encap.vlan = Some(Vlan { vid: 7, pcp: 3 });
            }
            pair.modify(end, &change).expect("a legal change");
        }
    }
    pair.rule(Rule::mark().from(A));
    pair.write(A, 8);
    pair.run();
    let record = pair.world.record().expect("pairs record");
    let of_b = record.sightings().filter(|sighting| sighting.from == B);
    let tags: Vec<_> = of_b.map(|sighting| [sighting.frame[14], sighting.frame[15]]).collect();
    assert_eq!(tags, [[5 << 5, 7], [3 << 5, 7]], "the CNP, then the acknowledgement");
}

#[test] //= check K2 test
fn marks_in_a_row_are_answered_once_in_the_time_between_notifications() {
    for gap in [1, 4, 20] {
        let mut pair = Pair::with(|terms| {
            terms.is_tapped = true;
            terms.notification.min_time_between_cnps_us = gap;
            // A frame of 256 bytes takes 2.5 µs.
            terms.settings.gbps = 1;
        });
        pair.rule(Rule::mark().from(A));
        pair.write(A, 40 * 256);
        pair.run();
        let sent = cnps(&pair, B);
        let gap = Duration::from_micros(gap.into());
        assert!(sent.windows(2).all(|two| two[1].at.since(two[0].at) >= gap));
        let span = sent[sent.len() - 1].at.since(sent[0].at);
        assert!(span + gap + Duration::from_micros(3) > Duration::from_micros(95), "{span:?}");
        assert_eq!(pair.count(B, Counter::NpEcnMarkedRocePackets), 40);
        assert_eq!(pair.count(B, Counter::NpCnpSent), sent.len() as u64);
        assert_flawless(&mut pair);
    }
}

#[test] //= check K2 test
fn each_qp_counts_its_own_time() {
    let mut pair = Pair::rts();
    let [other, _] = pair.another();
    pair.rule(Rule::mark().from(A));
    pair.write(A, 8);
    pair.run_for(Duration::ZERO);
    let wr = pair.send_wr(pair.write_op(A, 0, None));
    let sge = pair.local(A).sge(0, 8);
    pair.world.post_send(other, &wr, &[sge]).expect("room in the queue");
    pair.run();
    assert_eq!(cnps(&pair, B).len(), 2);
}

#[test] //= check K3 test
fn a_packet_that_is_dropped_for_its_headers_makes_no_notification() {
    let mut pair = Pair::with(eager);
    // The byte 60 is in the payload, which the ICRC covers; 15 is the traffic class.
    let packet = pair.craft(A, OpCode::RC_SEND_ONLY).payload(&[1; 64]);
    let path = Encap { traffic_class: 3, ..pair.path(A) };
    let mut frame = pair.frame_by(&path, &packet);
    frame[60] ^= 1;
    pair.world.stop_tap();
    pair.deliver_frame(A, frame);
    let stranger = Encap { src: Gid::from(core::net::Ipv4Addr::new(10, 0, 0, 99)), ..path };
    let frame = pair.frame_by(&stranger, &packet);
    pair.deliver_frame(A, frame);
    let other = packet.clone().bth(|bth| bth.pkey = Pkey(0x8123));
    let frame = pair.frame_by(&path, &other);
    pair.deliver_frame(A, frame);
    let unknown = packet.bth(|bth| bth.dest_qpn = Qpn::new(0x77_7777));
    let frame = pair.frame_by(&path, &unknown);
    pair.deliver_frame(A, frame);
    pair.run();
    assert_eq!(cnps(&pair, B), []);
    let dropped = ["rx_icrc_errors", "rx_wrong_source", "bad_pkey", "rx_unknown_qpn"];
    assert_counted(&pair, B, &dropped.map(|name| (name, 1)));
}

#[test] //= check K4 test
fn a_notification_is_never_answered_and_one_for_nobody_is_dropped() {
    let mut pair = Pair::with(|terms| {
        eager(terms);
        dcqcn(terms);
    });
    pair.world.stop_tap();
    pair.write(A, 8);
    pair.run();
    let path = Encap { traffic_class: 3, ..pair.path(B) };
    let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]);
    let frame = pair.frame_by(&path, &cnp);
    pair.deliver_frame(B, frame);
    pair.run_for(SHORTLY);
    assert_eq!(pair.count(A, Counter::RpCnpHandled), 1);
    let nobody = cnp.bth(|bth| bth.dest_qpn = Qpn::new(0x77_7777));
    let frame = pair.frame_by(&path, &nobody);
    pair.deliver_frame(B, frame);
    pair.run();
    assert_eq!(pair.drops(A, DropReason::UnknownQpn), 1);
    assert_eq!(cnps(&pair, A), []);
    assert_eq!(pair.count(A, Counter::NpEcnMarkedRocePackets), 0);
}

#[test] //= check K4 test
fn a_notification_counts_only_from_the_peer_and_for_what_was_sent_lately() {
    let mut pair = Pair::with(dcqcn);
    let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]).bth(|bth| bth.mig_req = false);
    pair.deliver(B, &cnp);
    assert_eq!(pair.drops(A, DropReason::Congestion), 1, "nothing was sent");
    pair.write(A, 8);
    pair.run();
    let path = pair.path(B);
    let stranger = Encap { src: Gid::from(core::net::Ipv4Addr::new(10, 0, 0, 99)), ..path };
    let frame = pair.frame_by(&stranger, &cnp);
    pair.deliver_frame(B, frame);
    assert_eq!(pair.drops(A, DropReason::WrongSource), 1);
    assert_eq!(pair.count(A, Counter::RpCnpIgnored), 2);
    pair.deliver(B, &cnp);
    assert_eq!(pair.count(A, Counter::RpCnpHandled), 1);
    pair.run_for(Duration::from_millis(101));
    pair.deliver(B, &cnp);
    assert_eq!(pair.count(A, Counter::RpCnpIgnored), 3, "that was long ago");
    pair.modify(A, &QpChange::to(QpState::Err)).expect("always legal");
    pair.deliver(B, &cnp);
    assert_eq!(pair.drops(A, DropReason::QpNotReady), 1);
}

#[test] //= check K9 test
fn packets_are_ecn_capable_with_dcqcn_and_the_user_reads_what_he_has_set() {
    for is_ipv6 in [false, true] {
        for algorithm in [Congestion::None, Congestion::Dcqcn(DcqcnParams::default())] {
            let mut pair = Pair::reset(|terms| {
                (terms.is_ipv6, terms.congestion) = (is_ipv6, algorithm);
            });
            for end in [A, B] {
                for mut change in pair.changes(end) {
                    if let Some(path) = &mut change.path {
                        path.encap.traffic_class = 0x69;
                        path.encap.flow_label = 0xa_bcde;
                    }
                    pair.modify(end, &change).expect("a legal change");
                }
            }
            pair.write(A, 2000);
            pair.run();
            let record = pair.world.record().expect("pairs record");
            let ecn = if algorithm == Congestion::None { 0x69 } else { 0x6a };
            for sighting in record.sightings() {
                let Ok(Frame::Roce(datagram)) = Frame::parse(&sighting.frame) else {
                    panic!("a QP sends RoCE datagrams only");
                };
                assert_eq!(datagram.traffic_class, ecn);
            }
            let encap = pair.qp(A).attr().path.encap;
            assert_eq!((encap.traffic_class, encap.flow_label), (0x69, 0xa_bcde));
        }
    }
}

#[test] //= check K1 test
fn a_marked_datagram_is_answered_to_its_source() {
    let mut pair = Pair::with(|terms| {
        terms.is_tapped = true;
        terms.qp_type = QpType::Ud;
    });
    pair.rule(Rule::mark().from(A));
    for _ in 0..3 {
        pair.recv(B, 300);
        pair.send_to(A, 200, None);
    }
    pair.run();
    // Its Q_Key is a header too.
    pair.world.clear_rules();
    let stray = pair.craft(A, OpCode::UD_SEND_ONLY).payload(&[1; 8]);
    let stray = stray.ext(|ext| ext.deth.qkey.0 ^= 1);
    let frame = pair.frame_by(&Encap { traffic_class: 3, ..pair.path(A) }, &stray);
    pair.deliver_frame(A, frame);
    assert_eq!(pair.drops(B, DropReason::BadQkey), 1);
    let sent = cnps(&pair, B);
    assert_eq!(sent.len(), 1, "{:#?}", pair.trace(40));
    assert_eq!(sent[0].bth.dest_qpn, pair.qpn(A));
    assert_eq!(pair.count(B, Counter::NpEcnMarkedRocePackets), 3);
    assert_eq!(pair.count(A, Counter::RpCnpIgnored), 1, "a datagram QP has no rate");
    assert_flawless(&mut pair);
}
