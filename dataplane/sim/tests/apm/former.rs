//! Packets that arrive by the former path after a migration.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{DropReason, Side};
use uroce_wire::OpCode;

use super::{A, B, SHORTLY, TIMEOUT, assert_flawless};

#[test] //= check I11 test
fn late_copies_from_the_former_path_are_never_executed_again() {
    // Within the timeout of the former path they are duplicates; later they have a wrong source.
    for late in [SHORTLY, TIMEOUT / 2, 2 * TIMEOUT, 20 * TIMEOUT] {
        let mut pair = Pair::armed(|_| ());
        pair.set_word(B, 100);
        let opcodes = [OpCode::RC_FETCH_ADD, OpCode::RC_SEND_ONLY, OpCode::RC_RDMA_WRITE_ONLY];
        for opcode in opcodes {
            pair.rule(Rule::duplicate(late).from(A).opcode(opcode).on(0));
        }
        for _ in 0..4 {
            pair.recv(B, 50);
        }
        pair.fetch_add(A, 1);
        pair.send(A, 50);
        pair.write_far(A, 60);
        pair.run_for(Duration::from_nanos(500));
        pair.migrate(A).expect("an armed QP");
        pair.fetch_add(A, 10);
        pair.send(A, 50);
        pair.run_for(late / 2);
        // A second execution of the copy would overwrite these bytes again.
        let remote = pair.remote(B);
        let half = pair.bytes(B, remote).len() / 2;
        pair.bytes_mut(B, remote)[half..half + 60].fill(9);
        pair.run();
        assert_eq!(pair.word(B), 111, "{late:?}");
        assert_eq!(pair.take(A, Side::Send).len(), 5, "{late:?}");
        assert_eq!(pair.take(B, Side::Recv).len(), 2, "{late:?}");
        assert!(pair.bytes(B, remote)[half..half + 60].iter().all(|byte| *byte == 9), "{late:?}");
        assert_eq!((pair.rail(A), pair.rail(B)), (1, 1));
        let strangers = pair.drops(B, DropReason::WrongSource);
        assert_eq!(strangers, if late > TIMEOUT { 3 } else { 0 }, "{late:?}");
        assert_flawless(&mut pair);
    }
}

#[test] //= check I11 test
fn what_was_under_way_by_the_former_path_is_taken_for_one_timeout() {
    // A migrates while B's answers are still in flight on the former path.
    let mut pair = Pair::armed(|_| ());
    pair.rule(Rule::delay(TIMEOUT / 4).from(B).on(0));
    pair.write(A, 600);
    pair.read(A, 600);
    pair.run_for(SHORTLY);
    pair.migrate(A).expect("an armed QP");
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 2);
    assert_eq!(pair.drops(A, DropReason::WrongSource), 0);
    assert_flawless(&mut pair);
}
