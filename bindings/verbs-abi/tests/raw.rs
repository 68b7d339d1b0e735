//! Raw packet queue pairs and flows in C programs. The claims are functions of tests/c/raw.c.

mod common;

use common::claims;

claims! {
    "raw.c":
    a_frame_reaches_the_queue_pair_of_its_flow
    each_specification_chooses_its_frames
    default_flows_take_what_is_left
    a_sniffer_sees_what_others_get
    checksums_are_filled_in
    a_frame_of_a_wrong_length_fails_and_the_queue_pair_recovers
    work_requests_built_call_by_call_send_frames
    what_is_in_use_is_busy
    wrong_attributes_are_refused
    without_the_capability_it_is_not_permitted
}
