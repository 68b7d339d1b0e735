//! C layouts of the verbs interface, generated from the system's headers.
//!
//! Public structures have only grown at their end, and `verbs_context` at its front. A program that
//! was compiled against other headers passes the size of its structure in a field or an argument.
//! `tests/c/layout.c` compares sizes and offsets with the C compiler's.

#![expect(
    non_camel_case_types,
    non_snake_case,
    dead_code,
    unreachable_pub,
    reason = "C's names, all of them"
)]
#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::multiple_unsafe_ops_per_block,
    unsafe_op_in_unsafe_fn
)]

include!(concat!(env!("OUT_DIR"), "/layouts.rs"));

#[cfg(test)]
mod tests;
