//! Misuse and exhausted resources in C programs. The claims are functions of tests/c/misuse.c.

mod common;

use common::claims;

claims! {
    "misuse.c":
    attributes_of_older_headers_have_an_end
    a_queue_pair_that_an_id_is_refused_leaves_nothing_open
    without_memory_there_is_an_error
}
