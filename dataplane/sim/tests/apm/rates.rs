//! Static rate: one table of where each service gets it and what it is on the wire, in nanoseconds
//! of the simulator. (The rates of a raw QP's requests are measured in `checks/raw.rs`; those that
//! a REQ and a LAP carry are compared in the tests of the connection manager.)

use uroce_shared::time::rate::Pace;
use uroce_sim::{Pair, Rails};
use uroce_transport::{
    Instant, PathAttr, PathMigState, QpChange, QpState, QpType, SendOp, Side, StaticRate,
};

use super::{A, B, assert_flawless};

/// Where a rate is given.
#[derive(Clone, Copy, Debug)]
enum Given {
    /// Modify QP to RTR.
    Path,
    /// Modify QP in SQD, in place of another rate.
    Again,
    /// Modify QP with an alternate path, which the QP migrates to from a slower one.
    Alternate,
    /// The address handle.
    Handle,
}

/// Messages of a row: enough for an address handle to use up the time before it was used.
const COUNT: u32 = 12;
/// Bytes of a row's frames without their check sequence.
const FRAME: usize = 250;

#[test]
fn each_service_keeps_the_rate_that_it_is_given() {
    #[rustfmt::skip]
    let table = [
        // service     where given       Mb/s    nanoseconds from frame to frame
        (QpType::Rc, Given::Path,        2_500,  800),
        (QpType::Rc, Given::Path,       10_000,  200),
        (QpType::Rc, Given::Again,       5_000,  400),
        (QpType::Rc, Given::Alternate,  10_000,  200),
        (QpType::Uc, Given::Path,        2_500,  800),
        (QpType::Uc, Given::Again,       5_000,  400),
        (QpType::Uc, Given::Alternate,  10_000,  200),
        (QpType::Ud, Given::Handle,      2_500,  800),
        (QpType::Ud, Given::Handle,     10_000,  200),
    ];
    for (service, given, mbps, gap) in table {
        let rate = StaticRate::from_mbps(mbps).expect("a rate of the verbs");
        let name = format!("{service}, {given:?}, {rate}");
        assert_eq!(measured(service, given, rate, &name), gap, "{name}");
    }
}

/// The time between the last two frames of a row.
fn measured(service: QpType, given: Given, rate: StaticRate, name: &str) -> u64 {
    let slow = StaticRate::from_mbps(2_500).expect("a rate of the verbs");
    let mut pair = Pair::reset(|terms| {
        (terms.qp_type, terms.rails, terms.is_tapped) = (service, Rails::TwoPorts, true);
        terms.settings.gbps = 400;
    });
    let first = if matches!(given, Given::Path) { rate } else { slow };
    for end in [A, B] {
        for mut change in pair.changes(end) {
            change.path = change.path.map(|path| PathAttr { rate: first, ..path });
            pair.modify(end, &change).expect("a legal change");
        }
    }
    match given {
        Given::Path | Given::Handle => {}
        Given::Again => give_again(&mut pair, rate),
        Given::Alternate => migrate_to(&mut pair, rate),
    }
    let begin = pair.world.now();
    send(&mut pair, service, given, rate);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), COUNT as usize, "{name}");
    assert_flawless(&mut pair);
    let record = pair.world.record().expect("pairs record");
    let sent = record.sightings().filter(|frame| frame.from == A && frame.at >= begin);
    let sent: Vec<(Instant, usize)> = sent.map(|frame| (frame.at, frame.frame.len())).collect();
    assert!(sent.iter().all(|(_, len)| *len == FRAME), "{name}: {sent:?}");
    let [.., (before, _), (last, _)] = sent[..] else { panic!("{name}: {sent:?}") };
    last.since(before).as_nanos() as u64
}

/// Posts messages of one frame each.
fn send(pair: &mut Pair, service: QpType, given: Given, rate: StaticRate) {
    if service != QpType::Ud {
        // Ethernet, IPv4, UDP, BTH, RETH and ICRC are 74 bytes.
        return (0..COUNT).for_each(|_| {
            pair.write(A, FRAME as u32 - 74);
        });
    }
    assert!(matches!(given, Given::Handle));
    let (path, pace) = (pair.path(A), Pace::new(rate));
    let reserve = Box::new(move |bytes, now| pace.reserve(bytes, now));
    let ah = pair.world.node_mut(A as u16).create_paced_ah(path, reserve);
    for _ in 0..COUNT {
        let SendOp::SendTo { dest_qpn, qkey, imm, .. } = pair.send_to_op(A, None) else { panic!() };
        let op = SendOp::SendTo { ah, dest_qpn, qkey, imm };
        // DETH has half of RETH's 16 bytes.
        pair.recv(B, 4096);
        pair.post(A, op, &[pair.local(A).sge(0, FRAME as u32 - 66)]);
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

/// Arms both ends with an alternate path of this rate, and migrates.
fn migrate_to(pair: &mut Pair, rate: StaticRate) {
    for end in [A, B] {
        let mut alternate = pair.alternate(end, 1);
        alternate.path.rate = rate;
        let (alt_path, path_mig_state) = (Some(alternate), Some(PathMigState::Rearm));
        let change = QpChange { alt_path, path_mig_state, ..QpChange::default() };
        pair.modify(end, &change).expect("a QP in RTS");
    }
    // Without acknowledgements each end has to send something.
    [A, B].into_iter().for_each(|end| {
        pair.write(end, 0);
    });
    pair.run();
    pair.take(A, Side::Send);
    pair.migrate(A).expect("an armed QP");
}
