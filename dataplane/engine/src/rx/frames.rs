//! The frames of a burst and of the next one, and how far ahead their bytes are prefetched.

use crate::dpdk::mbuf::Mbuf;
use uroce_shared::copy::prefetch::prefetch_read;

/// How many frames ahead of the current frame a frame's headers are prefetched. The distance is
/// large because the headers may still be in the cache of the sender's core.
pub(super) const HEADERS_AHEAD: usize = 12;
/// Largest number of bytes at the beginning of a frame that are prefetched as its headers.
pub(super) const HEADERS: usize = 128;

/// Frames that wait to be handled, in their order: a burst, and the frames taken after it.
#[derive(Clone, Copy)]
pub(super) struct Frames<'a> {
    pub(super) burst: &'a [Mbuf],
    pub(super) next: &'a [Mbuf],
}

impl<'a> Frames<'a> {
    /// Returns the frame at place `at`, counted from the burst's first frame.
    #[inline]
    pub(super) fn get(self, at: usize) -> Option<&'a Mbuf> {
        self.burst.get(at).or_else(|| self.next.get(at - self.burst.len()))
    }

    /// Prefetches the headers of the frame at place `at`.
    #[inline]
    pub(super) fn prefetch_headers(self, at: usize) {
        if let Some(mbuf) = self.get(at) {
            prefetch_read(mbuf.as_slice().as_ptr(), HEADERS.min(mbuf.len()));
        }
    }
}

/// Returns the bytes of a frame after its headers.
#[inline]
pub(super) fn rest_of(mbuf: &Mbuf) -> &[u8] {
    mbuf.as_slice().get(HEADERS..).unwrap_or_default()
}
