//! Registered memory that does not exist or is removed, and the signal handler that detects it, in
//! C programs. The claims are functions of tests/c/memory.c.

mod common;

use common::{ONE_DEVICE, Place, claims};

claims! {
    "memory.c":
    memory_that_is_gone_is_the_requests_fault
    a_window_onto_memory_that_is_gone_opens_nothing
    a_page_that_cannot_be_had_is_not_registered
    a_registration_changes_no_byte
    handlers_of_before_get_what_is_theirs
    handlers_of_later_get_what_is_theirs
    handlers_that_pass_on_to_each_other_end_somewhere
    what_nothing_handles_ends_the_process_as_ever
    a_stack_at_its_end_is_handled_on_another
    memory_comes_and_goes_at_random_under_traffic
}

#[test]
fn a_region_whose_memory_was_gone_stays_closed_and_is_named_once() {
    let place = Place::new();
    let program = place.compile("memory.c");
    let config = place.configure(ONE_DEVICE);
    let claim = "a_region_whose_memory_was_gone_stays_closed";
    let output = place.command(&program, &config).arg(claim).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    common::printed(output);
    assert_eq!(told.matches("is closed").count(), 1, "{told}");
    assert!(told.contains("uroce: memory region 0x") && told.contains("(1048576 bytes at 0x"));
}

#[test]
fn threads_that_block_all_signals_may_poll() {
    let place = Place::new();
    let program = place.compile("memory.c");
    let config = place.configure(&ONE_DEVICE.replace("idle =", "driver = \"poller\"\nidle ="));
    let run =
        place.command(&program, &config).arg("threads_that_block_all_signals_may_poll").output();
    common::printed(run.unwrap());
}
