//! Completion queues and channels, queue pairs, posting and events: use and misuse in C programs.
//! The claims are functions of tests/c/queues.c.

mod common;

use common::claims;

claims! {
    "queues.c":
    completions_describe_their_messages
    reads_writes_and_atomics_reach_the_peers_memory
    datagrams_need_an_address_handle
    a_datagrams_service_level_is_the_kind_of_its_header
    a_list_ends_at_the_first_that_is_refused
    queues_are_full_at_their_size_and_not_before
    a_place_is_free_when_its_completion_has_been_polled
    unsignaled_requests_have_their_places_back_with_an_error_too
    a_receives_place_is_free_when_its_completion_has_been_polled
    queues_are_rounded_up_and_their_sizes_reported
    a_queue_that_overruns_says_so
    a_forked_child_posts_nothing_and_takes_nothing
    a_file_of_the_programs_that_got_a_descriptors_number_is_not_written_to
    an_event_is_not_read_from_a_file_of_the_programs
    inline_data_are_copied_by_the_post
    changes_that_are_refused_change_nothing
    a_reset_takes_completions_along
    queue_pairs_come_in_the_kinds_that_there_are
    work_requests_built_call_by_call_go_all_or_none
    atomic_writes_and_flushes_are_built_call_by_call
    an_armed_queue_gives_one_event
    destroying_a_queue_waits_for_acknowledgements
    queues_are_at_least_as_long_as_asked_for
    completions_are_read_field_by_field
    receives_come_from_a_shared_queue
    receives_are_of_the_shared_queues_domain
    a_datagram_too_long_for_its_receive_is_dropped
    a_windows_key_has_its_low_byte_from_the_program
    a_sends_completion_comes_before_the_answer
    asynchronous_events_name_their_object
    an_event_is_withdrawn_with_its_object
    an_event_under_way_keeps_nothing_busy
    threads_may_post_to_one_queue_pair
    queue_pairs_may_go_in_the_middle_of_traffic
    strangers_and_the_dead_are_refused_everywhere
}
