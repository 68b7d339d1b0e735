//! C layouts of the verbs interface, from the system's own headers.
//!
//! Public structures have only grown at their end in twenty years, `verbs_context` at its front; a
//! program compiled against other headers says by a size field or argument how much it knows.
//! `tests/c/layout.c` holds sizes and offsets against the C compiler's.

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
