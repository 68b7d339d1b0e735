//! Extended reliable connections in C programs. The claims are functions of tests/c/xrc.c.

mod common;

use common::claims;

claims! {
    "xrc.c":
    messages_reach_the_queue_that_they_name
    a_queue_of_another_domain_is_refused
    a_domain_is_opened_again_by_its_file
    another_process_cannot_open_the_domain_of_a_file
    a_target_is_opened_again_by_its_number
    work_requests_built_call_by_call_name_a_queue
    what_is_in_use_is_busy
    wrong_attributes_are_refused
}
