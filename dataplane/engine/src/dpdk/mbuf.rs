//! Mempools, mbufs and batches of them.
//!
//! An [`Mbuf`] is one packet buffer with one owner: not `Clone`, freed when dropped, and moved into
//! an [`MbufBatch`] to be sent. `rx_burst` fills a batch, and `tx_burst` empties it.
//!
//! Invariants
//! - The mbufs that Rust holds are direct, have one segment and reference count 1, and
//!   `data_off + data_len ≤ buf_len`, `pkt_len == data_len`.
//! - A mempool's memory is never unmapped: an mbuf on another thread may outlive all handles. A
//!   pool without handles is kept and given to the next [`Mempool::create`] with the same geometry.
//!
//! Not here: memory that an application registers, which enters an mbuf only by copying.

#![allow(unsafe_code)]

mod batch;
mod pool;

pub use batch::{BATCH, MbufBatch};
pub(crate) use pool::RetiredPools;
pub use pool::{Mempool, PoolConfig, PoolEmpty, PoolError};

use std::ptr::NonNull;
use uroce_shared::copy::prefetch::{self, prefetch_write};

/// Flag of a frame of which the port has verified the invariant CRC: the last bit that DPDK leaves
/// to applications, `RTE_MBUF_F_LAST_FREE`.
const ICRC_GOOD: u64 = 1 << 40;

/// A packet buffer, and its only owner. Dropping it returns it to its mempool.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<dpdk_sys::Mbuf>);

// SAFETY: an mbuf is plain memory with one owner, and returning it to its mempool is thread-safe,
// since pools are made without the single-producer flag.
unsafe impl Send for Mbuf {}

/// The length does not fit between the headroom and the end of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes do not fit into an mbuf of {capacity}")]
pub struct MbufTooSmall {
    /// The requested length.
    pub len: usize,
    /// The largest length that fits.
    pub capacity: usize,
}

impl Mbuf {
    /// Takes over an mbuf from DPDK.
    ///
    /// # Safety
    ///
    /// `raw` is a live mbuf that satisfies this module's invariants and that no other code uses or
    /// frees.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<dpdk_sys::Mbuf>) -> Self {
        Self(raw)
    }

    /// Gives up the mbuf: it is not freed here any more.
    #[inline]
    pub fn into_raw(self) -> NonNull<dpdk_sys::Mbuf> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    #[inline]
    fn header(&self) -> &dpdk_sys::Mbuf {
        // SAFETY: the pointer is to a live mbuf (`from_raw`) with the layout of the overlay
        // (asserted in dpdk-sys). `self` is its only owner, so nothing writes it while `self` is
        // borrowed.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn header_mut(&mut self) -> &mut dpdk_sys::Mbuf {
        // SAFETY: the pointer is to a live mbuf; `self` is its only owner and is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// Returns the bytes of the packet.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.header().data_len)
    }

    /// Returns whether the packet has no bytes, as in a new mbuf.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the free bytes before the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.header().data_off)
    }

    /// Returns the largest length that [`set_len`](Self::set_len) accepts.
    #[inline]
    pub fn capacity(&self) -> usize {
        let header = self.header();
        usize::from(header.buf_len).saturating_sub(usize::from(header.data_off))
    }

    /// Returns the port that received the packet; without meaning in a new mbuf.
    #[inline]
    pub fn port(&self) -> u16 {
        self.header().port
    }

    /// Returns the packet.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` points to `len` bytes inside the buffer, which lives as long as the mbuf.
        // `self` owns both, so nothing writes them while it is borrowed. The kernel has zeroed the
        // pool's memory, so it is initialized.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }

    /// Returns whether the port has verified the invariant CRC of the packet, and no byte of it was
    /// borrowed for writing since.
    #[inline]
    pub(crate) fn has_good_icrc(&self) -> bool {
        self.header().ol_flags & ICRC_GOOD != 0
    }

    /// Notes that the invariant CRC of the packet is right.
    #[inline]
    pub(crate) fn set_good_icrc(&mut self) {
        self.header_mut().ol_flags |= ICRC_GOOD;
    }

    /// Returns the packet, for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.header_mut().ol_flags &= !ICRC_GOOD;
        // SAFETY: `start` points to `len` initialized bytes inside the buffer; its only owner is
        // `self`, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) }
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        let header = self.header();
        // SAFETY: `data_off ≤ buf_len` by the module's invariant, so the result is in the buffer or
        // one past its end.
        unsafe { header.buf_addr.cast::<u8>().add(usize::from(header.data_off)) }
    }

    /// Makes the packet empty, behind the usual headroom, whatever an earlier use has left.
    #[inline]
    pub(crate) fn reset(&mut self) {
        let header = self.header_mut();
        header.data_off = (dpdk_sys::HEADROOM as u16).min(header.buf_len);
        header.ol_flags = 0;
        header.data_len = 0;
        header.pkt_len = 0;
    }

    /// Hints that the header, and the beginning of a packet at the mempool's usual place, will be
    /// written soon. Does not read the header, which may be in another core's cache.
    #[inline]
    pub(crate) fn prefetch_start(&self) {
        let header = self.0.as_ptr().cast::<u8>();
        prefetch_write(header, prefetch::LINE);
        let packet = header.wrapping_add(size_of::<dpdk_sys::Mbuf>() + dpdk_sys::HEADROOM);
        prefetch_write(packet, 2 * prefetch::LINE);
    }

    /// Hints that the buffer's bytes up to `end` will be written soon. The first two lines of a
    /// packet, behind the usual headroom, are left out: [`prefetch_start`](Self::prefetch_start)
    /// has hinted at them.
    #[inline]
    pub(crate) fn prefetch_rest(&self, end: usize) {
        let start = self.header().buf_addr.cast::<u8>();
        let hinted = dpdk_sys::HEADROOM + 2 * prefetch::LINE;
        prefetch_write(start.wrapping_add(hinted), end.saturating_sub(hinted));
    }

    /// Makes the packet `len` bytes long. The bytes after the first `headers` of them begin at a
    /// cache line if there is room for that, since they are copied and summed line by line. The
    /// content is undefined.
    ///
    /// # Errors
    ///
    /// [`MbufTooSmall`] if `len` does not fit behind the usual headroom; the packet is empty then.
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

    /// Sets the length of the packet; its start does not move. The content of added bytes is
    /// undefined.
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
        // SAFETY: a live mbuf; its only owner is `self`, which is not used after this.
        unsafe { dpdk_sys::uroce_mbuf_free(&mut raw, 1) }
    }
}
