//! DPDK as uroce uses it: a C shim, its bindings, and the layout of an mbuf.
//!
//! DPDK's data path consists of `static inline` functions and macros in C, and its structs change
//! between releases. So Rust uses neither. `shim.h` declares an interface of plain C types with one
//! call per burst, `shim.c` implements it for the installed release (21.11 to 25.11), and bindgen
//! translates the interface when the crate is built. Only functions that uroce needs are wrapped.
//!
//! Invariants
//! - This is the only crate that links DPDK (`links = "dpdk"`), against shared libraries. Drivers
//!   are plugins that EAL loads; only `librte_net_ring` is linked by name, for
//!   `rte_eth_from_rings`.
//! - Rust reads and writes one DPDK struct, the mbuf, through the overlay [`Mbuf`]. Its offsets are
//!   asserted in C and here.
//! - A failing call returns a negative errno.
//!
//! Not here: safety. Every function is as unsafe as in C; `uroce-engine` wraps them in owning
//! types.

#![allow(unsafe_code)]

/// The shim's functions and types, as bindgen translates them from `shim.h`, which documents them.
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
/// The names of some fields changed in 24.11, but their offsets are the same since 21.11. `shim.c`
/// asserts every offset against the installed headers.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mbuf {
    /// Address of the first byte of the buffer, headroom included.
    pub buf_addr: *mut c_void,
    /// Address of the first byte of the buffer for the device (IOVA).
    pub buf_iova: u64,
    /// Offset of the data in bytes from `buf_addr`.
    pub data_off: u16,
    /// Reference count. DPDK writes it atomically; it is 1 in all mbufs that uroce holds.
    pub refcnt: u16,
    /// Number of segments of the packet; 1 in all mbufs that shim.c returns.
    pub nb_segs: u16,
    /// The port on which the packet was received.
    pub port: u16,
    /// Offload flags.
    pub ol_flags: u64,
    /// Protocol layers that the driver recognised.
    pub packet_type: u32,
    /// Bytes in all segments.
    pub pkt_len: u32,
    /// Bytes in this segment.
    pub data_len: u16,
    /// VLAN tag that the device has stripped.
    pub vlan_tci: u16,
    /// RSS hash in the first four bytes.
    pub hash: [u32; 2],
    /// Outer VLAN tag that the device has stripped.
    pub vlan_tci_outer: u16,
    /// Bytes of the buffer from `buf_addr`, headroom included.
    pub buf_len: u16,
    /// The mempool to which the mbuf returns when it is freed.
    pub pool: *mut rte_mempool,
    /// Next segment; null in all mbufs that shim.c returns.
    pub next: *mut Mbuf,
    /// Header lengths for transmit offloads.
    pub tx_offload: u64,
    /// Data of external buffers, which uroce does not use.
    pub shinfo: *mut c_void,
    /// Private bytes between this struct and the buffer.
    pub priv_size: u16,
    /// Data for timestamping.
    pub timesync: u16,
    /// Fields that libraries register at run time.
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

/// Bytes that DPDK leaves free before the data of a new mbuf.
pub const HEADROOM: usize = RTE_PKTMBUF_HEADROOM as usize;
/// Largest per-lcore cache of a mempool, in mbufs.
pub const CACHE_MAX: u32 = RTE_MEMPOOL_CACHE_MAX_SIZE;
