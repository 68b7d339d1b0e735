//! A scatter/gather list as the workload and the oracle use it: ranges of one region.

use fastrand::Rng;

use crate::world::memory::Mr;
use uroce_transport::Sge;

/// Number of elements of the longest list.
pub(crate) const MAX_PIECES: usize = 4;

/// Up to four ranges of a region, in order; some may be empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pieces {
    list: [(u32, u32); MAX_PIECES],
    count: usize,
}

impl Pieces {
    /// `len` bytes divided into `count` pieces, each at a random place within `room` bytes.
    pub(crate) fn anywhere(rng: &mut Rng, len: u32, count: usize, room: u32) -> Pieces {
        let mut pieces = Pieces::cut(rng, len, count);
        for (offset, len) in &mut pieces.list[..count] {
            *offset = rng.u32(..=room - *len);
        }
        pieces
    }

    /// `len` bytes divided into `count` pieces from `start` on, each followed by a gap of up to 16
    /// bytes; and the offset after the last gap.
    pub(crate) fn in_a_row(rng: &mut Rng, len: u32, count: usize, start: u32) -> (Pieces, u32) {
        let mut pieces = Pieces::cut(rng, len, count);
        let mut at = start;
        for (offset, len) in &mut pieces.list[..count] {
            *offset = at;
            at += *len + rng.u32(..=MAX_GAP);
        }
        (pieces, at)
    }

    fn cut(rng: &mut Rng, len: u32, count: usize) -> Pieces {
        let mut pieces = Pieces { count, ..Pieces::default() };
        let mut left = len;
        for index in 0..count {
            let is_last = index + 1 == count;
            let piece = if is_last { left } else { rng.u32(..=left) };
            pieces.list[index].1 = piece;
            left -= piece;
        }
        pieces
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.list[..self.count].iter().copied()
    }

    /// Writes the list to `out` in the form that a work request takes.
    pub(crate) fn sges(&self, mr: Mr, out: &mut Vec<Sge>) {
        out.clear();
        out.extend(self.iter().map(|(offset, len)| mr.sge(offset, len)));
    }

    /// The bytes of the pieces in a region.
    pub(crate) fn slices<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.iter().map(|(offset, len)| &bytes[offset as usize..(offset + len) as usize])
    }
}

/// Largest gap after a piece, in bytes.
pub(crate) const MAX_GAP: u32 = 16;

/// Returns whether two sequences of slices have the same first `len` bytes, and at least that many.
pub(crate) fn is_same<'a>(
    a: impl IntoIterator<Item = &'a [u8]>,
    b: impl IntoIterator<Item = &'a [u8]>,
    len: usize,
) -> bool {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let (mut left, mut right): (&[u8], &[u8]) = (&[], &[]);
    let mut todo = len;
    while todo > 0 {
        while left.is_empty() {
            let Some(next) = a.next() else { return false };
            left = next;
        }
        while right.is_empty() {
            let Some(next) = b.next() else { return false };
            right = next;
        }
        let step = left.len().min(right.len()).min(todo);
        if left[..step] != right[..step] {
            return false;
        }
        (left, right) = (&left[step..], &right[step..]);
        todo -= step;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_add_up_and_compare_across_their_cuts() {
        let mut rng = Rng::with_seed(1);
        let bytes: Vec<u8> = (0..=255).collect();
        for _ in 0..1000 {
            let len = rng.u32(..100);
            let count = rng.usize(1..=MAX_PIECES);
            let (row, end) = Pieces::in_a_row(&mut rng, len, count, 0);
            assert_eq!(row.iter().map(|(_, len)| len).sum::<u32>(), len);
            let mut copy = vec![0; end as usize];
            let scattered = Pieces::anywhere(&mut rng, len, 3, 256);
            let flat: Vec<u8> = scattered.slices(&bytes).flatten().copied().collect();
            let mut rest = &flat[..];
            for (offset, len) in row.iter() {
                let (piece, after) = rest.split_at(len as usize);
                copy[offset as usize..][..len as usize].copy_from_slice(piece);
                rest = after;
            }
            assert!(is_same(row.slices(&copy), scattered.slices(&bytes), len as usize));
            assert!(!is_same(row.slices(&copy), scattered.slices(&bytes), len as usize + 1));
        }
    }
}
