//! libibverbs.so.1 and librdmacm.so.1 without kernel RDMA: the C interface of RDMA programs,
//! implemented with [`uroce`].
//!
//! ```text
//!   perftest, rping, UCX, MPI …
//!      │ symbols (symbols.txt)            │ function pointers in ibv_context, ibv_qp_ex, ibv_cq_ex
//!      v                                  v
//!   entry ─────────── ibv, rdma ──> uroce (bindings/verbs) ──> engine
//!                         v
//!   handle ────────── objects: what the calls are about
//!                         v
//!                     runtime: one engine device per process, started on demand
//! ```
//!
//! Invariants
//! - No decision about the protocol is made here. Calls are translated, and their errors too.
//! - No panic leaves an entry. No pointer of the caller is followed unchecked: handles are looked
//!   up (module `handle`), other pointers are compared with NULL.
//! - A call that fails changes nothing but `errno`.
//! - A destroyed object stays readable for ever, so a program that still uses it gets an error.
//!
//! Not here: the safe interface ([`uroce`]), which Rust programs use directly.

#![cfg_attr(
    test,
    allow(clippy::multiple_unsafe_ops_per_block, reason = "a test of C's calls is a row of them"),
    allow(dead_code, reason = "tests are built without the exports")
)]

mod abi;
mod acks;
mod entry;
mod errno;
mod event_queue;
#[cfg(test)]
mod fuzz;
mod handle;
mod ibv;
mod objects;
mod quota;
mod rdma;
mod room;
mod runtime;
mod stub;

/// Exports a function under a versioned symbol.
macro_rules! export {
    ($function:path, $tag:literal, $symbol:literal) => {
        #[cfg(not(test))]
        core::arch::global_asm!(
            concat!(".pushsection .text.", $tag, ",\"ax\",@progbits"),
            concat!(".globl ", $tag),
            concat!(".type ", $tag, ",@function"),
            concat!($tag, ":"),
            JUMP!(),
            concat!(".size ", $tag, ", . - ", $tag),
            concat!(".symver ", $tag, ", ", $symbol),
            ".popsection",
            function = sym $function,
        );
    };
}

/// Exports one zero byte under a versioned symbol.
macro_rules! export_byte {
    ($tag:literal, $symbol:literal) => {
        #[cfg(not(test))]
        core::arch::global_asm!(
            concat!(".pushsection .bss.", $tag, ",\"aw\",@nobits"),
            concat!(".globl ", $tag),
            concat!(".type ", $tag, ",@object"),
            concat!($tag, ": .zero 1"),
            concat!(".size ", $tag, ", 1"),
            concat!(".symver ", $tag, ", ", $symbol),
            ".popsection",
        );
    };
}

#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! JUMP {
    () => {
        "jmp {function}"
    };
}

#[cfg(all(target_arch = "aarch64", not(test)))]
macro_rules! JUMP {
    () => {
        "b {function}"
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
