//! Layout of the memory of a link: for each ring two lines of positions, then the rings.
//!
//! ```text
//!   0        positions of ring 0: written by its sender │ by its receiver     64 bytes each
//!   128      positions of ring 1 …
//!   4096·k   ring 0 │ ring 1 │ …          from the member with the lower number first
//! ```
//!
//! Both ends compute the layout from the numbers of queues, so no offset is ever exchanged.

use crate::FRAME_MAX;

/// Bytes of a cache line, and the alignment of everything that two processes write.
pub(crate) const LINE: usize = 64;
/// Alignment of the rings.
const PAGE: usize = 4096;
/// Largest number of bytes of a link's memory.
pub(crate) const LINK_MAX: usize = 4 << 20;
/// Largest number of bytes of a ring. From 256 KiB on, its length makes no difference that can be
/// measured (`ring::speed`), so it is as long as a link's memory allows with few queues: 250 frames
/// of 4 KiB, which is what a sender can hand over while the receiver does not run.
pub(crate) const RING_MAX: usize = 1 << 20;
/// Fewest bytes of a ring: two of the longest frames with their headers.
const RING_MIN: usize = 1 << 15;

const _: () = assert!(2 * (FRAME_MAX + LINE) <= RING_MIN);

/// Layout of a link between members with these numbers of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Queues of the member with the lower number, and of the other one. A member has a ring to its
    /// peer for each of its queues.
    queues: [u16; 2],
    /// Bytes of each ring, a power of two.
    ring_len: usize,
}

/// Place of one ring in a link's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Offset of the position that the sender writes.
    pub(crate) tail_at: usize,
    /// Offset of the position that the receiver writes.
    pub(crate) head_at: usize,
    /// Offset of the ring.
    pub(crate) ring_at: usize,
    /// Bytes of the ring, a power of two.
    pub(crate) ring_len: usize,
}

impl Layout {
    /// Returns the layout for members with `lower` and `higher` queues.
    pub(crate) fn new(lower: u16, higher: u16) -> Layout {
        let rings = usize::from(lower) + usize::from(higher);
        let mut ring_len = RING_MAX;
        while ring_len > RING_MIN && positions_len(rings) + rings * ring_len > LINK_MAX {
            ring_len /= 2;
        }
        Layout { queues: [lower, higher], ring_len }
    }

    fn rings(&self) -> usize {
        self.queues.iter().map(|&queues| usize::from(queues)).sum()
    }

    /// Returns the bytes of the link's memory.
    pub(crate) fn len(&self) -> usize {
        positions_len(self.rings()) + self.rings() * self.ring_len
    }

    /// Returns the ring of queue `queue` of the member with the lower number, or of the other one.
    pub(crate) fn ring(&self, from_higher: bool, queue: u16) -> Place {
        let before = if from_higher { self.queues[0] } else { 0 };
        let index = usize::from(before) + usize::from(queue);
        let tail_at = index * 2 * LINE;
        Place {
            tail_at,
            head_at: tail_at + LINE,
            ring_at: positions_len(self.rings()) + index * self.ring_len,
            ring_len: self.ring_len,
        }
    }
}

fn positions_len(rings: usize) -> usize {
    (rings * 2 * LINE).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QUEUES_MAX;

    #[test]
    fn no_two_parts_overlap_and_a_link_is_at_most_four_mebibytes() {
        for lower in 1..=QUEUES_MAX {
            for higher in 1..=QUEUES_MAX {
                let layout = Layout::new(lower, higher);
                assert!(layout.len() <= LINK_MAX, "{layout:?}");
                let lower = (0..lower).map(|queue| layout.ring(false, queue));
                let places: Vec<_> =
                    lower.chain((0..higher).map(|queue| layout.ring(true, queue))).collect();
                let mut parts: Vec<(usize, usize)> = Vec::new();
                for place in &places {
                    assert!(place.ring_len.is_power_of_two() && place.ring_len >= RING_MIN);
                    parts.push((place.tail_at, LINE));
                    parts.push((place.head_at, LINE));
                    parts.push((place.ring_at, place.ring_len));
                }
                parts.sort_unstable();
                assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
                let &(at, len) = parts.last().unwrap();
                assert!(at + len <= layout.len());
            }
        }
    }

    #[test]
    fn a_link_of_one_queue_each_has_rings_of_full_size() {
        assert_eq!(Layout::new(1, 1).ring_len, RING_MAX);
        assert_eq!(Layout::new(2, 2).ring_len, RING_MAX / 2);
    }
}
