//! Loopback and unspecified addresses in librdmacm, as a C program uses them. The claims are
//! functions of tests/c/addresses.c.

mod common;

use common::claims;

claims! {
    "addresses.c":
    loopback_addresses_are_bound_like_wildcards
    a_port_is_shared_as_linux_has_it
    an_address_is_reused_until_one_listens
    ports_of_the_privileged_are_theirs
    a_link_local_address_needs_its_link
    the_node_itself_is_resolved_at_once
    a_process_connects_to_itself
    a_port_that_nothing_listens_at_refuses
    a_forked_child_leaves_its_parents_connections_alone
    an_event_is_not_read_from_a_file_of_the_programs
}
