//! Protection domains, regions, windows, device memory, address handles and queries: use and misuse
//! in C programs. The claims are functions of tests/c/objects.c.

mod common;

use common::claims;

claims! {
    "objects.c":
    devices_are_listed_without_starting_anything
    contexts_close_once
    device_attributes_fit_the_programs_structure
    port_attributes_fit_the_programs_structure
    gids_name_the_interface_that_is_shown
    all_queries_return_the_same_gids
    domains_are_busy_while_something_is_made_of_them
    regions_need_memory_that_is_there
    regions_need_rights_that_make_sense
    a_gibibyte_registers_in_less_than_a_millisecond
    regions_change_and_keep_their_keys
    windows_have_two_types
    device_memory_is_reached_by_copies
    regions_of_device_memory_keep_it
    address_handles_need_an_address
    the_way_back_is_found_in_a_received_header
    domains_have_other_names
    imports_find_the_objects_of_the_file
    regions_may_go_while_they_are_imported
    buffers_are_registered_where_they_were_made
    small_files_are_read_without_their_line_feed
    strangers_and_the_dead_are_refused_everywhere
}

#[test]
fn a_refusal_of_persistence_names_its_remedy() {
    let said = common::said("objects.c", "regions_need_rights_that_make_sense");
    assert_eq!(said.matches("IBV_ACCESS_FLUSH_PERSISTENT is refused").count(), 1, "{said}");
    assert!(said.contains("Register without it"), "{said}");
}
