//! DPDK as uroce uses it: a C shim, its bindings, and the layout of an mbuf.
//!
//! DPDK's data path is `static inline` C and macros, and its structs move between releases. So
//! Rust sees neither: `shim.h` is a face of plain C types with one call per burst, `shim.c`
//! compiles it against the installed release (21.11 to 25.11), and bindgen translates the face
//! when the crate is built. Nothing of DPDK is wrapped wholesale.
//!
//! Invariants
//! - This is the only crate that links DPDK (`links = "dpdk"`), against shared libraries; drivers
//!   are plugins that EAL loads. `librte_net_ring` alone is linked by name, for
//!   `rte_eth_from_rings`.
//! - The one DPDK struct that Rust reads and writes is the mbuf, through the overlay [`Mbuf`],
//!   whose offsets are asserted in C and here.
//! - A failing call returns a negative errno.
//!
//! Not here: safety. Every function is as unsafe as C; `uroce-engine` gives them owners.

#![allow(unsafe_code)]

/// The shim's face as bindgen reads it from `shim.h`, which documents each function.
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]
mod bindings {
    use super::Mbuf as rte_mbuf;
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
pub use bindings::*;

use std::ffi::c_void;

/// A packet buffer: the fields of `struct rte_mbuf` that uroce uses, at DPDK's offsets.
///
/// The field paths moved in 24.11, the layout has not since 21.11. `shim.c` asserts every offset
/// against the installed headers.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mbuf {
    /// First byte of the buffer, headroom included.
    pub buf_addr: *mut c_void,
    /// The same place as the device sees it.
    pub buf_iova: u64,
    /// Where the data begin, in bytes from `buf_addr`.
    pub data_off: u16,
    /// Owners of this mbuf. DPDK writes it atomically; uroce only ever holds mbufs where it is 1.
    pub refcnt: u16,
    /// Segments of the packet; 1 wherever Rust sees it.
    pub nb_segs: u16,
    /// The port it was received on.
    pub port: u16,
    /// Offload flags.
    pub ol_flags: u64,
    /// Layers the driver recognised.
    pub packet_type: u32,
    /// Bytes in all segments.
    pub pkt_len: u32,
    /// Bytes in this segment.
    pub data_len: u16,
    /// VLAN tag that the device stripped.
    pub vlan_tci: u16,
    /// RSS hash in the first four bytes.
    pub hash: [u32; 2],
    /// Outer VLAN tag that the device stripped.
    pub vlan_tci_outer: u16,
    /// Bytes from `buf_addr` on, headroom included.
    pub buf_len: u16,
    /// Where it returns to.
    pub pool: *mut rte_mempool,
    /// Next segment; null wherever Rust sees it.
    pub next: *mut Mbuf,
    /// Header lengths for transmit offloads.
    pub tx_offload: u64,
    /// Of external buffers, which uroce does not use.
    pub shinfo: *mut c_void,
    /// Private bytes between this struct and the buffer.
    pub priv_size: u16,
    /// Timestamping.
    pub timesync: u16,
    /// Registered at run time by libraries.
    pub dynfield: [u32; 9],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Mbuf>() == 128);
    assert!(offset_of!(Mbuf, data_off) == 16);
    assert!(offset_of!(Mbuf, refcnt) == 18);
    assert!(offset_of!(Mbuf, nb_segs) == 20);
    assert!(offset_of!(Mbuf, port) == 22);
    assert!(offset_of!(Mbuf, ol_flags) == 24);
    assert!(offset_of!(Mbuf, packet_type) == 32);
    assert!(offset_of!(Mbuf, pkt_len) == 36);
    assert!(offset_of!(Mbuf, data_len) == 40);
    assert!(offset_of!(Mbuf, vlan_tci) == 42);
    assert!(offset_of!(Mbuf, hash) == 44);
    assert!(offset_of!(Mbuf, vlan_tci_outer) == 52);
    assert!(offset_of!(Mbuf, buf_len) == 54);
    assert!(offset_of!(Mbuf, pool) == 56);
    assert!(offset_of!(Mbuf, next) == 64);
    assert!(offset_of!(Mbuf, tx_offload) == 72);
    assert!(offset_of!(Mbuf, shinfo) == 80);
    assert!(offset_of!(Mbuf, priv_size) == 88);
    assert!(offset_of!(Mbuf, timesync) == 90);
    assert!(offset_of!(Mbuf, dynfield) == 92);
};

/// Bytes that DPDK leaves free before the data of a fresh mbuf.
pub const HEADROOM: usize = RTE_PKTMBUF_HEADROOM as usize;
/// Largest per-lcore cache of a mempool, in mbufs.
pub const CACHE_MAX: u32 = RTE_MEMPOOL_CACHE_MAX_SIZE;
