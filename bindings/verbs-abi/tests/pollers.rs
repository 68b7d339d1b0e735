//! Threads that poll and thereby drive the lcore, in C programs. The claims are functions of
//! tests/c/pollers.c.

mod common;

use common::{Place, claims, printed};

claims! {
    "pollers.c", common::POLLED_DEVICE =>
    threads_that_outnumber_the_processors_give_way_to_each_other
    a_lock_that_is_held_during_polls_is_got_by_another_thread_of_the_processor
}

#[test]
fn writes_one_after_the_other_wake_a_target_that_sleeps() {
    let place = Place::new();
    let program = place.compile("sync_writes.c");
    let mut command = place.command(&program, "none".as_ref());
    let threads_and_rounds = ["2", "3"];
    let output = command.env_remove("UROCE_CONFIG").args(threads_and_rounds).output();
    print!("{}", printed(output.expect("it was compiled")));
}
