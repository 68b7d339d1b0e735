//! Mempools, mbufs and batches of them.
//!
//! An [`Mbuf`] is one packet buffer with one owner: not `Clone`, freed when dropped, moved into a
//! [`MbufBatch`] to be sent. A batch is what `rx_burst` fills and `tx_burst` empties.
//!
//! Invariants
//! - The mbufs that Rust holds are direct, have one segment and reference count 1, and
//!   `data_off + data_len ≤ buf_len`, `pkt_len == data_len`.
//! - A mempool's memory is never unmapped: an mbuf on another thread may outlive every handle. A
//!   pool without handles is kept and given to the next [`Mempool::create`] of its geometry.
//!
//! Not here: the memory that an application registers. It never enters an mbuf but by copying.

#![allow(unsafe_code)]

mod batch;
mod pool;

pub use batch::{BATCH, MbufBatch};
pub(crate) use pool::RetiredPools;
pub use pool::{Mempool, PoolConfig, PoolEmpty, PoolError};

use crate::prefetch::{self, prefetch_write};
use std::ptr::NonNull;

/// One packet buffer and its only owner. Dropping it returns it to its mempool.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<dpdk_sys::Mbuf>);

// SAFETY: an mbuf is plain memory with one owner, and returning it to its mempool is thread-safe:
// pools are made without the single-producer flag.
unsafe impl Send for Mbuf {}

/// The length does not fit between the headroom and the end of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes do not fit into an mbuf of {capacity}")]
pub struct MbufTooSmall {
    /// The length asked for.
    pub len: usize,
    /// What fits.
    pub capacity: usize,
}

impl Mbuf {
    /// Takes over an mbuf from DPDK.
    ///
    /// # Safety
    ///
    /// `raw` is a live mbuf that nobody else will touch or free, with this module's invariants.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<dpdk_sys::Mbuf>) -> Self {
        Self(raw)
    }

    /// Hands the mbuf over: it is not freed here any more.
    #[inline]
    pub fn into_raw(self) -> NonNull<dpdk_sys::Mbuf> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    #[inline]
    fn header(&self) -> &dpdk_sys::Mbuf {
        // SAFETY: the pointer is to a live mbuf (from_raw's contract) whose layout is the overlay's
        // (asserted in dpdk-sys); we own it alone, so nobody writes it while `self` is borrowed.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn header_mut(&mut self) -> &mut dpdk_sys::Mbuf {
        // SAFETY: as in `header`, and `self` is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// Bytes of the packet.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.header().data_len)
    }

    /// Whether the packet has no bytes, as a fresh mbuf.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Free bytes before the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.header().data_off)
    }

    /// The most that [`set_len`](Self::set_len) takes.
    #[inline]
    pub fn capacity(&self) -> usize {
        let header = self.header();
        usize::from(header.buf_len).saturating_sub(usize::from(header.data_off))
    }

    /// The port it was received on; meaningless in a fresh mbuf.
    #[inline]
    pub fn port(&self) -> u16 {
        self.header().port
    }

    /// The packet.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` points at `len` bytes inside the buffer, which lives as long as the mbuf;
        // we own both, so nobody writes them while `self` is borrowed. Pool memory is zeroed by the
        // kernel or written since: initialized.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }

    /// The packet, to be written.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) }
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        let header = self.header();
        // SAFETY: `data_off ≤ buf_len` by the module's invariant, so the place is in the buffer or
        // one past its end.
        unsafe { header.buf_addr.cast::<u8>().add(usize::from(header.data_off)) }
    }

    /// Makes a packet of former use an empty one, behind the usual headroom.
    #[inline]
    pub(crate) fn reset(&mut self) {
        let header = self.header_mut();
        header.data_off = (dpdk_sys::HEADROOM as u16).min(header.buf_len);
        header.ol_flags = 0;
        header.data_len = 0;
        header.pkt_len = 0;
    }

    /// Hints that the header will be written soon, and the beginning of a packet where a mempool
    /// has it. Reads nothing of the header, which may be in another core's cache.
    #[inline]
    pub(crate) fn prefetch_start(&self) {
        let header = self.0.as_ptr().cast::<u8>();
        prefetch_write(header, prefetch::LINE);
        let packet = header.wrapping_add(size_of::<dpdk_sys::Mbuf>() + dpdk_sys::HEADROOM);
        prefetch_write(packet, 2 * prefetch::LINE);
    }

    /// Hints that the buffer's bytes up to `end` will be written soon. A packet's first two lines,
    /// behind the usual headroom, were hinted at before.
    #[inline]
    pub(crate) fn prefetch_rest(&self, end: usize) {
        let start = self.header().buf_addr.cast::<u8>();
        let hinted = dpdk_sys::HEADROOM + 2 * prefetch::LINE;
        prefetch_write(start.wrapping_add(hinted), end.saturating_sub(hinted));
    }

    /// Makes the mbuf a packet of `len` bytes of any value, where what follows the first `headers` of
    /// them begins a cache line, if it has room for that: it is copied and summed a line at a time.
    ///
    /// # Errors
    ///
    /// [`MbufTooSmall`] if `len` does not fit behind the usual headroom; the packet is then empty.
    #[inline]
    pub fn set_len_aligned(&mut self, headers: usize, len: usize) -> Result<(), MbufTooSmall> {
        self.reset();
        let start = (dpdk_sys::HEADROOM + headers).next_multiple_of(prefetch::LINE) - headers;
        let header = self.header_mut();
        if start + len <= usize::from(header.buf_len) {
            header.data_off = start as u16;
        }
        self.set_len(len)
    }

    /// Sets the length of the packet, which starts where it did. Bytes that are new to it have
    /// any value.
    ///
    /// # Errors
    ///
    /// [`MbufTooSmall`] if `len` exceeds [`capacity`](Self::capacity); nothing changes.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), MbufTooSmall> {
        let capacity = self.capacity();
        match u16::try_from(len) {
            Ok(short) if len <= capacity => {
                let header = self.header_mut();
                header.data_len = short;
                header.pkt_len = u32::from(short);
                Ok(())
            }
            _ => Err(MbufTooSmall { len, capacity }),
        }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: one live mbuf that we own and nobody uses after this.
        unsafe { dpdk_sys::uroce_mbuf_free(&mut raw, 1) }
    }
}
