//! Extended reliable connections in C programs. The claims are functions of tests/c/xrc.c.

mod common;

use common::claims;

claims! {
    "xrc.c":
    messages_reach_the_queue_that_they_name
    a_queue_of_another_domain_is_refused
    a_domain_is_opened_again_by_its_file
    flags_matter_for_a_file_only_and_others_are_ignored
    a_domain_keeps_its_file_when_the_program_does_not
    a_domain_leaves_the_locks_on_its_file
    each_process_has_its_own_domain_of_a_file
    a_target_is_opened_again_from_another_context
    wrong_attributes_open_no_target
    each_handle_of_a_target_gets_its_events
    a_target_is_opened_while_it_is_destroyed
    a_forked_child_destroys_without_waiting_and_makes_nothing
    a_completion_queue_goes_with_its_shared_receive_queue
    both_ends_show_their_attributes
    work_requests_built_call_by_call_name_a_queue
    what_is_in_use_is_busy
    wrong_attributes_are_refused
}

#[test]
fn what_needs_several_processes_on_one_domain_says_so() {
    let said = common::said("xrc.c", "each_process_has_its_own_domain_of_a_file");
    assert!(said.contains("cannot open those of other processes"), "{said}");
    let said = common::said("xrc.c", "wrong_attributes_open_no_target");
    assert!(said.contains("Targets of other processes cannot be opened"), "{said}");
}
