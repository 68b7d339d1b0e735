//! The responder's part: the PSNs of packets that came early.

use uroce_wire::Psn;

use super::psn_set::{PsnSet, SPAN};

/// Longest bitmap of a selective acknowledgement, in bytes.
const BITMAP: usize = (SPAN / 8) as usize;

/// Number of held packets that show the peer for certain what is missing before them.
const EVIDENCE: u32 = 16;

/// PSNs that the caller holds packets of.
#[derive(Debug, Default)]
pub(crate) struct Held {
    set: PsnSet,
    /// PSN after the newest in the set.
    end: Psn,
    /// A packet was turned away for lack of room, and the peer has not been told yet.
    pub(crate) has_no_room: bool,
}

/// Result of giving a packet that came early to the held ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Insertion {
    /// The packet is held; `opens_gap` is whether the packet before it is missing.
    Held { opens_gap: bool },
    /// A packet with this PSN is held already.
    Copy,
    /// There is no room for it beside those that are held.
    NoRoom,
    /// The packet lies too far ahead, or too few are held to show the peer the gap.
    TooFar,
}

/// The bitmap of a selective acknowledgement.
pub(crate) struct Bitmap {
    bytes: [u8; BITMAP],
    len: usize,
}

impl Bitmap {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Held {
    /// Returns whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Returns whether a packet with this PSN is held; `expected` is the PSN that is expected next.
    pub(crate) fn contains(&self, psn: Psn, expected: Psn) -> bool {
        let is_within = (0..SPAN as i32).contains(&psn.distance_from(expected));
        is_within && self.set.contains(psn)
    }

    /// Notes a packet that lies beyond `expected`.
    pub(crate) fn insert(&mut self, psn: Psn, expected: Psn) -> Insertion {
        if psn.distance_from(expected) as u32 >= SPAN {
            return Insertion::TooFar;
        }
        if self.is_empty() {
            self.end = expected.next();
        }
        if !self.set.insert(psn) {
            return Insertion::Copy;
        }
        let opens_gap = self.end.is_before(psn);
        if self.end.is_before(psn.next()) {
            self.end = psn.next();
        }
        Insertion::Held { opens_gap: opens_gap || self.set.len() == 1 }
    }

    /// Judges a packet that lies beyond `expected` and for which there is no room.
    pub(crate) fn turn_away(&mut self, psn: Psn, expected: Psn) -> Insertion {
        if self.contains(psn, expected) {
            Insertion::Copy
        } else if self.set.len() < EVIDENCE {
            Insertion::TooFar
        } else {
            self.has_no_room = true;
            Insertion::NoRoom
        }
    }

    /// Forgets a packet that the caller has given back.
    pub(crate) fn remove(&mut self, psn: Psn) {
        self.set.remove(psn);
    }

    /// Forgets packets from `from` up to `expected`, the PSN that is expected from now on.
    #[inline]
    pub(crate) fn advance(&mut self, from: Psn, expected: Psn) {
        if !self.is_empty() {
            self.set.remove_range(from, expected);
        }
    }

    pub(crate) fn clear(&mut self) {
        if seeded!(HeldAfterReset) {
            return;
        }
        self.set.clear();
        self.has_no_room = false;
    }

    /// The PSNs held, as a selective acknowledgement of at most `most` bytes lists them: bit n is
    /// the PSN n after `expected`.
    pub(crate) fn bitmap(&self, expected: Psn, most: usize) -> Bitmap {
        let mut bitmap = Bitmap { bytes: [0; BITMAP], len: 0 };
        let mut psn = expected;
        for word in bitmap.bytes[..most.min(BITMAP)].chunks_exact_mut(8) {
            if !psn.is_before(self.end) {
                break;
            }
            let first = if seeded!(BitmapShifted) { psn.next() } else { psn };
            word.copy_from_slice(&self.set.bits_from(first).to_le_bytes());
            psn = psn.plus(u64::BITS);
            bitmap.len += 8;
        }
        bitmap
    }
}
