//! The objects from which a destroyed object was made can be destroyed, even while another thread
//! queries, changes or imports them or acknowledges their events. The claims are functions of
//! tests/c/parents.c.

mod common;

use common::claims;

claims! {
    "parents.c":
    the_parts_of_a_queue_pair_that_is_queried
    the_domain_of_a_shared_queue_that_is_queried
    the_parts_of_a_queue_pair_after_its_event_is_acknowledged
    the_channel_of_a_queue_after_its_event_is_acknowledged
    the_domain_of_a_region_that_is_changed
    the_domain_of_a_region_that_is_imported
    the_device_memory_of_a_region_that_is_changed
    the_region_and_domain_of_a_window_that_is_named
    the_domains_under_a_parent_domain_that_is_named
    the_domain_of_an_address_handle
    the_channel_of_an_id_that_is_looked_at
    a_whole_tree_in_any_order
}
