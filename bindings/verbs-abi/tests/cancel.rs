//! Threads that wait for events and are cancelled (`pthread_cancel`), in C programs. The claims are
//! functions of tests/c/cancel.c.

mod common;

use common::claims;

claims! {
    "cancel.c":
    a_thread_that_waits_for_an_asynchronous_event_can_be_cancelled
    a_thread_that_waits_for_a_completion_event_can_be_cancelled
    a_thread_that_waits_for_a_connection_event_can_be_cancelled
}
