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
    earlier_handlers_get_their_own_faults
    later_handlers_get_their_own_faults
    handlers_that_pass_on_to_each_other_end_somewhere
    a_fault_without_a_handler_ends_the_process_as_ever
    a_handler_installed_after_the_last_registration_is_stood_before_in_time
    a_stack_at_its_end_is_handled_on_another
    memory_comes_and_goes_at_random_under_traffic
}

#[test]
fn a_region_that_has_lost_its_memory_stays_closed_and_is_named_once() {
    let place = Place::new();
    let program = place.compile("memory.c");
    let config = place.configure(ONE_DEVICE);
    let claim = "a_region_that_has_lost_its_memory_stays_closed";
    let output = place.command(&program, &config).arg(claim).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    common::printed(output);
    assert_eq!(told.matches("is closed").count(), 1, "{told}");
    assert!(told.contains("uroce: memory region 0x") && told.contains("(1048576 bytes at 0x"));
}

claims! {
    "memory.c", common::POLLED_DEVICE =>
    threads_that_block_all_signals_may_poll
    handlers_run_on_the_alternate_stack_of_a_thread_that_has_one
}

/// Each process takes pages of its own memory away, under the other one's requests. A failure
/// prints the seed, as UROCE_SEED=N.
#[test]
fn processes_that_lose_memory_at_random_under_each_others_traffic_live() {
    let place = Place::new();
    let program = place.compile("churn.c");
    let mut command = place.command(&program, "none".as_ref());
    println!("{}", common::printed(command.env_remove("UROCE_CONFIG").output().unwrap()));
}

/// AddressSanitizer has a handler of its own before the program starts, stands between the program
/// and `sigaction`, and gives each thread an alternate stack.
#[test]
fn programs_under_address_sanitizer_lose_memory_and_have_their_faults_reported() {
    let place = Place::new();
    let program = place.compile_with("memory.c", &["-fsanitize=address"]);
    let config = place.configure(ONE_DEVICE);
    // What the library keeps until the end of the process is no leak of the program's.
    let run = |claim: &str, options: &str| {
        let mut command = place.command(&program, &config);
        let options = format!("detect_leaks=0{options}");
        command.arg(claim).env("ASAN_OPTIONS", options).output().unwrap()
    };
    for claim in [
        "memory_that_is_gone_is_the_requests_fault",
        "earlier_handlers_get_their_own_faults",
        "later_handlers_get_their_own_faults",
        "handlers_that_pass_on_to_each_other_end_somewhere",
    ] {
        common::printed(run(claim, ""));
    }
    for options in ["", ":use_sigaltstack=0"] {
        let output = run("a_fault_of_the_programs_own_is_reported", options);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(
            told.contains("AddressSanitizer: SEGV on unknown address 0x000000000008"),
            "{told}"
        );
        assert!(told.contains("in fault "), "{told}");
        assert_eq!(told.matches("is closed").count(), 1, "{told}");
    }
}
