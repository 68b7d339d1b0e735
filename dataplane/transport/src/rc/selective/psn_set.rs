//! A set of PSNs that lie close together.

use uroce_wire::Psn;

/// Number of PSNs that are told apart.
pub const SPAN: u32 = 8192;

const WORD: u32 = u64::BITS;

/// A set of PSNs, all within [`SPAN`] of one another.
#[derive(Debug)]
pub struct PsnSet {
    /// One bit per PSN, at the PSN modulo [`SPAN`].
    words: [u64; (SPAN / WORD) as usize],
    len: u32,
}

impl Default for PsnSet {
    fn default() -> PsnSet {
        PsnSet { words: [0; (SPAN / WORD) as usize], len: 0 }
    }
}

impl PsnSet {
    /// Number of PSNs in the set.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether no PSN is in the set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether a PSN is in the set.
    pub fn contains(&self, psn: Psn) -> bool {
        let (word, bit) = place(psn);
        self.words[word] & bit != 0
    }

    /// Adds a PSN. Returns whether it is new.
    pub fn insert(&mut self, psn: Psn) -> bool {
        let (word, bit) = place(psn);
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u32::from(is_new);
        is_new
    }

    /// Removes a PSN. Returns whether it was there.
    pub fn remove(&mut self, psn: Psn) -> bool {
        let (word, bit) = place(psn);
        let was_there = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.len -= u32::from(was_there);
        was_there
    }

    /// Removes all PSNs from `from` up to `end`.
    pub fn remove_range(&mut self, from: Psn, end: Psn) {
        if !end.is_before(from.plus(SPAN)) {
            return self.clear();
        }
        let mut psn = from;
        while self.len > 0 && psn.is_before(end) {
            self.remove(psn);
            psn = psn.next();
        }
    }

    /// Removes all PSNs.
    pub fn clear(&mut self) {
        if self.len > 0 {
            *self = PsnSet::default();
        }
    }

    /// The first PSN of the set from `from` up to `end`.
    pub fn first(&self, from: Psn, end: Psn) -> Option<Psn> {
        let mut psn = from;
        while psn.is_before(end) {
            let bits = self.bits_from(psn);
            if bits != 0 {
                return Some(psn.plus(bits.trailing_zeros())).filter(|psn| psn.is_before(end));
            }
            psn = psn.plus(WORD);
        }
        None
    }

    /// The 64 PSNs from `psn` on, one per bit; bit 0 is `psn`.
    pub fn bits_from(&self, psn: Psn) -> u64 {
        let (at, shift) = ((psn.value() % SPAN / WORD) as usize, psn.value() % WORD);
        let low = self.words[at] >> shift;
        if shift == 0 {
            return low;
        }
        low | self.words[(at + 1) % self.words.len()] << (WORD - shift)
    }
}

/// The word of a PSN and its bit in it.
fn place(psn: Psn) -> (usize, u64) {
    let at = psn.value() % SPAN;
    ((at / WORD) as usize, 1 << (at % WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psns_are_found_in_order_across_words_and_the_wrap() {
        let mut set = PsnSet::default();
        let first = Psn::new(0xff_ff00);
        let members = [3, 63, 64, 200, 256, 300, 8000].map(|at| first.plus(at));
        for psn in members {
            assert!(set.insert(psn));
            assert!(!set.insert(psn));
        }
        let mut found = Vec::new();
        let mut from = first;
        while let Some(psn) = set.first(from, first.plus(SPAN - 1)) {
            found.push(psn);
            from = psn.next();
        }
        assert_eq!(found, members);
        assert_eq!(set.bits_from(first.plus(3)), 1 | 1 << 60 | 1 << 61);
        set.remove_range(first, first.plus(257));
        assert_eq!((set.len(), set.first(first, first.plus(400))), (2, Some(first.plus(300))));
        assert!(set.remove(first.plus(300)) && !set.remove(first.plus(300)));
        set.remove_range(first, first.plus(SPAN));
        assert_eq!(set.len(), 0);
    }
}
