//! Memory of a pair.

use super::{FILL, Pair};
use crate::world::memory::Mr;

impl Pair {
    /// Offset in the local region at which READ data and ATOMIC results are written.
    pub fn landing(&self) -> u32 {
        self.terms.region / 2
    }

    /// Offset in the local region at which SENDs are received.
    pub fn inbox(&self) -> u32 {
        self.terms.region / 4 * 3
    }

    /// Region that an end sends from (first half) and receives into (second half).
    pub fn local(&self, end: usize) -> Mr {
        self.local[end]
    }

    /// Region of an end that its peer may access.
    pub fn remote(&self, end: usize) -> Mr {
        self.remote[end]
    }

    /// Bytes of a region of an end.
    pub fn bytes(&self, end: usize, mr: Mr) -> &[u8] {
        self.node(end).memory.bytes(mr)
    }

    /// Bytes of a region of an end, for the application to change.
    pub fn bytes_mut(&mut self, end: usize, mr: Mr) -> &mut [u8] {
        self.world.node_mut(end as u16).memory.bytes_mut(mr)
    }

    /// `len` bytes of a region of an end, from `offset` on.
    pub fn slice(&self, end: usize, mr: Mr, offset: u32, len: u32) -> &[u8] {
        &self.bytes(end, mr)[offset as usize..][..len as usize]
    }

    /// The first bytes of an end's local region, which [`Pair::write`] and [`Pair::send`] send.
    pub fn source(&self, end: usize, len: u32) -> &[u8] {
        self.slice(end, self.local[end], 0, len)
    }

    /// The first bytes of the region of an end that its peer may access.
    pub fn target(&self, end: usize, len: u32) -> &[u8] {
        self.slice(end, self.remote[end], 0, len)
    }

    /// The result that [`Pair::read`], [`Pair::fetch_add`] and similar calls wrote at an end.
    pub fn landed(&self, end: usize, len: u32) -> &[u8] {
        self.slice(end, self.local[end], self.landing(), len)
    }

    /// The result that an ATOMIC wrote at an end.
    pub fn landed_word(&self, end: usize) -> u64 {
        u64::from_ne_bytes(self.landed(end, 8).try_into().expect("eight bytes"))
    }

    /// The bytes that an end received last into a buffer of [`Pair::recv`].
    pub fn received_bytes(&self, end: usize, len: u32) -> &[u8] {
        self.slice(end, self.local[end], self.inbox(), len)
    }

    /// Returns whether the region that the peer may access is unchanged from `offset` on.
    pub fn is_untouched_from(&self, end: usize, offset: u32) -> bool {
        self.bytes(end, self.remote[end])[offset as usize..].iter().all(|byte| *byte == FILL)
    }

    /// Sets the first word of the region that the peer may access.
    pub fn set_word(&mut self, end: usize, word: u64) {
        let mr = self.remote[end];
        self.bytes_mut(end, mr)[..8].copy_from_slice(&word.to_ne_bytes());
    }

    /// The first word of the region that the peer may access.
    pub fn word(&self, end: usize) -> u64 {
        u64::from_ne_bytes(self.target(end, 8).try_into().expect("eight bytes"))
    }
}
