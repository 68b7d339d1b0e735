//! Packets of a peer that may cause a migration, and packets that may not.

use core::time::Duration;

use uroce_sim::{Pair, Rails};
use uroce_transport::{
    AsyncEvent, Counter, DropReason, Instant, PathMigState, QpChange, QpState, QpType, Side,
};
use uroce_wire::{Encap, Gid, OpCode, Pkey};

use super::{A, B, assert_flawless, migrations};

/// Sends a mixed stream from A to B and returns the time at which all of it is done.
fn stream(pair: &mut Pair) -> Instant {
    let begin = pair.world.now();
    for _ in 0..10 {
        pair.write(A, 3000);
        pair.read(A, 2000);
        pair.fetch_add(A, 1);
    }
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 30);
    Instant::ZERO + pair.world.now().since(begin)
}

#[test] //= check I2 test
fn a_peer_that_never_sets_mig_req_is_served_at_full_speed_and_moves_nothing() {
    let usual = stream(&mut Pair::rts());
    // B has been re-armed and receives only MigReq 1, so it sends MigReq 0 for ever.
    let mut pair = Pair::two_paths(|_| ());
    pair.rearm(B).expect("a QP in RTS");
    let took = stream(&mut pair);
    assert!(pair.seen(B).iter().all(|seen| !seen.bth.mig_req));
    assert_eq!(took, usual);
    assert_eq!(
        [A, B].map(|end| pair.path_mig_state(end)),
        [PathMigState::Migrated, PathMigState::Rearm]
    );
    for end in [A, B] {
        assert_eq!(migrations(&mut pair, end), []);
        assert_eq!(pair.count(end, Counter::LocalAckTimeoutErr), 0);
    }
    assert_flawless(&mut pair);
}

/// Delivers a request of B to A by this path with this MigReq.
fn deliver(pair: &mut Pair, path: &Encap, rail: usize, mig_req: bool, pkey: Pkey) {
    let psn = pair.psn(B, 0);
    let opcode = match pair.qp(B).qp_type() {
        QpType::Uc => OpCode::UC_RDMA_WRITE_ONLY,
        _ => OpCode::RC_RDMA_WRITE_ONLY,
    };
    let packet = pair.craft(B, opcode).psn(psn).payload(b"x");
    let packet = packet.ext(|ext| ext.reth.dma_len = 1);
    let packet = packet.bth(|bth| (bth.mig_req, bth.pkey) = (mig_req, pkey));
    let frame = pair.frame_by(path, &packet);
    pair.world.inject_by(rail, B as u16, A as u16, frame, Duration::ZERO);
    pair.run_for(Duration::ZERO);
}

/// Delivers a request to migrate by a path that is not the alternate one, and asserts that it is
/// dropped and told of, and that A goes on.
#[track_caller]
fn assert_refused(mut pair: Pair, path: &Encap, rail: usize, pkey: Pkey) {
    let what = format!("{}, {path:?} {pkey:?}", pair.qp(A).qp_type());
    let answers = pair.seen(A).len();
    deliver(&mut pair, path, rail, true, pkey);
    assert_eq!(migrations(&mut pair, A), [AsyncEvent::PathMigErr], "{what}");
    assert_eq!(pair.drops(A, DropReason::PathMigration), 1, "{what}");
    assert_eq!(pair.path_mig_state(A), PathMigState::Armed, "{what}");
    assert_eq!((pair.qp(A).state(), pair.rail(A)), (QpState::Rts, 0), "{what}");
    assert!(pair.is_untouched_from(A, 0), "{what}");
    assert_eq!(pair.seen(A).len(), answers, "{what}");
    // A continues on its path, and can still migrate to its alternate path.
    pair.write(A, 100);
    pair.run();
    pair.migrate(A).expect("an armed QP");
    pair.write(A, 200);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 2, "{what}");
    assert_eq!((pair.rail(A), pair.rail(B)), (1, 1), "{what}");
    assert_flawless(&mut pair);
}

#[test] //= check I7 test
fn a_request_to_migrate_to_any_other_path_is_dropped_and_told_of() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let armed = |rails| Pair::armed(|terms| (terms.qp_type, terms.rails) = (qp_type, rails));
        let [first, second] = [0, 1].map(|rail| armed(Rails::TwoPorts).path_on(B, rail));
        let mut stranger = second;
        stranger.src = Gid::from(core::net::Ipv4Addr::new(10, 1, 0, 99));
        let crossed = Encap { src: first.src, ..second };
        // A's primary path, a path half primary and half alternate, an unknown source, and a P_Key
        // that is not the alternate path's.
        for (path, rail, pkey) in [
            (first, 0, Pkey::DEFAULT),
            (crossed, 1, Pkey::DEFAULT),
            (stranger, 1, Pkey::DEFAULT),
            (second, 1, Pkey(0x8123)),
        ] {
            assert_refused(armed(Rails::TwoPorts), &path, rail, pkey);
        }
        // From the alternate address to the primary one: with both at one port, nothing but the QP
        // tells it from the alternate path.
        let pair = armed(Rails::OnePort);
        let crossed = Encap { dst: pair.path_on(B, 0).dst, ..pair.path_on(B, 1) };
        assert_refused(pair, &crossed, 0, Pkey::DEFAULT);
        // A request on the alternate path itself is followed.
        let mut pair = armed(Rails::TwoPorts);
        deliver(&mut pair, &second, 1, true, Pkey::DEFAULT);
        assert_eq!(migrations(&mut pair, A), [AsyncEvent::PathMig]);
        assert_eq!(pair.rail(A), 1);
    }
}

#[test] //= check I8 test
fn only_what_the_table_allows_is_granted_and_a_refusal_changes_nothing() {
    use PathMigState::{Armed, Migrated, Rearm};
    let mut pair = Pair::two_paths(|_| ());
    let want = |pair: &mut Pair, path_mig_state| {
        let before = pair.qp(A).attr();
        let wish = Some(path_mig_state);
        let result = pair.modify(A, &QpChange { path_mig_state: wish, ..QpChange::default() });
        assert_eq!(result.is_err(), pair.qp(A).attr() == before, "{result:?}");
        result.is_ok()
    };
    // State MIGRATED, without an alternate path.
    assert_eq!([Migrated, Rearm, Armed].map(|state| want(&mut pair, state)), [false; 3]);
    pair.rearm(A).expect("a QP in RTS");
    assert_eq!([Migrated, Rearm, Armed].map(|state| want(&mut pair, state)), [false; 3]);
    pair.rearm(B).expect("a QP in RTS");
    pair.write(A, 1);
    pair.run();
    assert_eq!(pair.path_mig_state(A), Armed);
    assert_eq!([Rearm, Armed].map(|state| want(&mut pair, state)), [false; 2]);
    assert!(want(&mut pair, Migrated));
    assert_eq!(pair.rail(A), 1);
    assert_eq!([Migrated, Rearm, Armed].map(|state| want(&mut pair, state)), [false; 3]);
    assert_flawless(&mut pair);
}
