//! Static rate: one table of where each service gets it and what it is on the wire, in nanoseconds
//! of the simulator. (The rates of a raw QP's requests are measured in `checks/raw.rs`; those that
//! a REQ and a LAP carry are compared in the tests of the connection manager.)

use uroce_shared::time::rate::Pace;
use uroce_sim::{At, Pair, Rails};
use uroce_transport::{
    AltPath, Instant, PathAttr, PathMigState, QpChange, QpState, QpType, SendOp, Side, StaticRate,
};
use uroce_wire::PathMtu;

use super::{A, B, assert_flawless};

/// Where a rate is given.
#[derive(Clone, Copy, Debug)]
enum Given {
    /// Modify QP, or Modify EEC, to RTR.
    Path,
    /// Modify QP, or Modify EEC, in SQD, in place of another rate.
    Again,
    /// An alternate path loaded in RTS, which the QP migrates to from a slower one.
    Alternate,
    /// An alternate path given on the way to RTR, which the QP migrates to from a slower one.
    AlternateAtRtr,
    /// The address handle.
    Handle,
}

/// Frames of a row: enough for an address handle to use up the time before it was used.
const COUNT: usize = 12;
/// The last of them are measured: all of one length, and the last ends the measurement.
const GAPS: usize = 5;
/// Bytes of a frame without its check sequence. The frames of a reliable datagram are those of one
/// message, since an EEC waits for an acknowledgement after each: 256 bytes of payload, and 70 of
/// Ethernet, IPv4, UDP, BTH, RDETH, DETH and ICRC.
fn frame(service: QpType) -> usize {
    if service == QpType::Eec { 326 } else { 250 }
}

#[test] //= check S1 test
//= check S2 test
//= check S3 test
//= check R30 test
fn each_service_keeps_the_rate_that_it_is_given() {
    #[rustfmt::skip]
    let table = [
        // service     where given       Mb/s    nanoseconds for five frames
        (QpType::Rc, Given::Path,        2_500,  4_000),
        (QpType::Rc, Given::Path,       10_000,  1_000),
        (QpType::Rc, Given::Again,       5_000,  2_000),
        (QpType::Rc, Given::Alternate,  10_000,  1_000),
        (QpType::Rc, Given::AlternateAtRtr, 5_000, 2_000),
        (QpType::Uc, Given::Path,        2_500,  4_000),
        (QpType::Uc, Given::Again,       5_000,  2_000),
        (QpType::Uc, Given::Alternate,  10_000,  1_000),
        (QpType::Uc, Given::AlternateAtRtr, 5_000, 2_000),
        (QpType::Ud, Given::Handle,      2_500,  4_000),
        (QpType::Ud, Given::Handle,     10_000,  1_000),
        (QpType::Eec, Given::Path,       2_500,  5_216),
        (QpType::Eec, Given::Path,      10_000,  1_304),
        (QpType::Eec, Given::Again,      5_000,  2_608),
        (QpType::Eec, Given::Alternate, 10_000,  1_304),
        (QpType::Eec, Given::AlternateAtRtr, 5_000, 2_608),
    ];
    for (service, given, mbps, gap) in table {
        let rate = StaticRate::from_mbps(mbps).expect("a rate of the verbs");
        let name = format!("{service}, {given:?}, {rate}");
        assert_eq!(measured(service, given, rate, &name), gap, "{name}");
    }
}

/// The time that the last frames of a row take.
fn measured(service: QpType, given: Given, rate: StaticRate, name: &str) -> u64 {
    let slow = StaticRate::from_mbps(2_500).expect("a rate of the verbs");
    let mut pair = Pair::reset(|terms| {
        (terms.qp_type, terms.rails, terms.is_tapped) = (service, Rails::TwoPorts, true);
        (terms.settings.gbps, terms.mtu) = (400, PathMtu::B256);
    });
    let first = if matches!(given, Given::Path) { rate } else { slow };
    for end in [A, B] {
        for mut change in pair.changes(end) {
            change.path = change.path.map(|path| PathAttr { rate: first, ..path });
            if change.path.is_some() && matches!(given, Given::AlternateAtRtr) {
                change.alt_path = Some(alternate(&pair, end, rate));
            }
            pair.modify(end, &change).expect("a legal change");
        }
    }
    // The queues of an EEC are those of RD QPs.
    let queues = [A, B].map(|end| match service {
        QpType::Eec => pair.add_rd(end),
        _ => pair.at(end),
    });
    match given {
        Given::Path | Given::Handle => {}
        Given::Again => give_again(&mut pair, rate),
        Given::Alternate => {
            let paths = [A, B].map(|end| Some(alternate(&pair, end, rate)));
            migrate(&mut pair, queues, paths);
        }
        Given::AlternateAtRtr => migrate(&mut pair, queues, [None; 2]),
    }
    let begin = pair.world.now();
    let messages = send(&mut pair, queues, service, given, rate);
    pair.run();
    assert_eq!(pair.take_at(queues[A], Side::Send).len(), messages, "{name}");
    assert_flawless(&mut pair);
    let record = pair.world.record().expect("pairs record");
    let sent = record.sightings().filter(|frame| frame.from == A && frame.at >= begin);
    let sent: Vec<(Instant, usize)> = sent.map(|frame| (frame.at, frame.frame.len())).collect();
    let last = &sent[COUNT - GAPS - 1..];
    assert!(last.iter().all(|(_, len)| *len == frame(service)), "{name}: {sent:?}");
    let [(before, _), .., (end, _)] = last else { panic!("{name}: {sent:?}") };
    assert_eq!(last.len(), GAPS + 1, "{name}: {sent:?}");
    end.since(*before).as_nanos() as u64
}

/// Posts what makes as many frames as a row has; gives the number of messages.
fn send(
    pair: &mut Pair,
    [from, to]: [At; 2],
    service: QpType,
    given: Given,
    rate: StaticRate,
) -> usize {
    let frame = frame(service) as u32;
    match service {
        QpType::Ud => {
            assert!(matches!(given, Given::Handle));
            // Ethernet, IPv4, UDP, BTH, DETH and ICRC are 66 bytes.
            send_datagrams(pair, frame - 66, rate);
        }
        QpType::Eec => {
            pair.rd_write(from, to, COUNT as u32 * (frame - 70), None);
            return 1;
        }
        // With RETH in place of DETH.
        _ => (0..COUNT).for_each(|_| {
            pair.write(A, frame - 74);
        }),
    }
    COUNT
}

/// Posts datagrams by a paced address handle.
fn send_datagrams(pair: &mut Pair, len: u32, rate: StaticRate) {
    let (path, pace) = (pair.path(A), Pace::new(rate));
    let reserve = Box::new(move |bytes, now| pace.reserve(bytes, now));
    let ah = pair.world.node_mut(A as u16).create_paced_ah(path, reserve);
    for _ in 0..COUNT {
        let SendOp::SendTo { dest_qpn, qkey, imm, .. } = pair.send_to_op(A, None) else { panic!() };
        let op = SendOp::SendTo { ah, dest_qpn, qkey, imm };
        pair.recv(B, 4096);
        pair.post(A, op, &[pair.local(A).sge(0, len)]);
    }
}

/// Gives the QP's path another rate.
fn give_again(pair: &mut Pair, rate: StaticRate) {
    pair.modify(A, &QpChange::to(QpState::Sqd)).expect("a QP in RTS");
    pair.run();
    let path = Some(PathAttr { encap: pair.path(A), rate });
    let sqd = QpChange { path, ..QpChange::to(QpState::Sqd) };
    pair.modify(A, &sqd).expect("a QP in SQD");
    pair.modify(A, &QpChange::to(QpState::Rts)).expect("a QP in SQD");
}

/// The second rail as an alternate path of this rate.
fn alternate(pair: &Pair, end: usize, rate: StaticRate) -> AltPath {
    let mut alternate = pair.alternate(end, 1);
    alternate.path.rate = rate;
    alternate
}

/// Arms both ends, with these alternate paths or those that they have, and migrates.
fn migrate(pair: &mut Pair, queues: [At; 2], paths: [Option<AltPath>; 2]) {
    for (end, alt_path) in [A, B].into_iter().zip(paths) {
        let path_mig_state = Some(PathMigState::Rearm);
        let change = QpChange { alt_path, path_mig_state, ..QpChange::default() };
        pair.modify(end, &change).expect("a QP in RTS");
    }
    // Without acknowledgements each end has to send something.
    for end in [A, B] {
        match pair.qp(end).qp_type() {
            QpType::Eec => pair.rd_write(queues[end], queues[1 - end], 0, None),
            _ => pair.write(end, 0),
        };
    }
    pair.run();
    pair.take_at(queues[A], Side::Send);
    pair.migrate(A).expect("an armed QP");
}
