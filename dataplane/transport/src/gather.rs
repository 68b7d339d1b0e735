//! Where a packet's payload lies: a slice of a scatter/gather list, a range under an R_Key, or
//! inline data.

use crate::env::{Key, Region};
use crate::ring::Ring;
use crate::wqe::Sge;

/// A piece of a packet's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Registered memory, to be read when the packet is built.
    Region(Region),
    /// Inline data.
    Bytes(&'a [u8]),
}

impl Piece<'_> {
    /// Bytes.
    pub fn len(&self) -> u32 {
        match self {
            Piece::Region(region) => region.len,
            Piece::Bytes(bytes) => bytes.len() as u32,
        }
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The pieces of one packet's payload, in order. Iterating does not consume the packet: clone.
#[derive(Clone, Debug)]
pub struct Gather<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Region(Option<Region>),
    Bytes(&'a [u8]),
    Sges(Sges<'a>),
}

/// The regions of a scatter/gather list: a walk over `remaining` bytes of an SGE list, beginning `skip` bytes into element `at`.
#[derive(Clone, Debug)]
pub(crate) struct Sges<'a> {
    ring: &'a Ring<Sge>,
    at: u32,
    skip: u32,
    remaining: u32,
}

impl<'a> Gather<'a> {
    /// No payload.
    pub const EMPTY: Gather<'static> = Gather(Source::Region(None));

    /// One region.
    pub fn region(region: Region) -> Gather<'static> {
        Gather(Source::Region((region.len > 0).then_some(region)))
    }

    /// Inline data.
    pub(crate) fn bytes(bytes: &'a [u8]) -> Gather<'a> {
        Gather(Source::Bytes(bytes))
    }

    /// `len` bytes of the list that begins at `first` in `ring`, from byte `offset` of the list.
    /// The list holds at least `offset + len` bytes.
    pub(crate) fn sges(ring: &'a Ring<Sge>, first: u32, offset: u32, len: u32) -> Gather<'a> {
        Gather(Source::Sges(Sges::new(ring, first, offset, len)))
    }

    /// Bytes of all regions together.
    pub fn len(&self) -> u32 {
        match &self.0 {
            Source::Region(region) => region.map_or(0, |region| region.len),
            Source::Bytes(bytes) => bytes.len() as u32,
            Source::Sges(sges) => sges.remaining,
        }
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> Iterator for Gather<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        match &mut self.0 {
            Source::Region(region) => region.take().map(Piece::Region),
            Source::Bytes(bytes) => {
                let bytes = core::mem::take(bytes);
                (!bytes.is_empty()).then_some(Piece::Bytes(bytes))
            }
            Source::Sges(sges) => sges.next().map(Piece::Region),
        }
    }
}

impl<'a> Sges<'a> {
    /// As [`Gather::sges`].
    pub(crate) fn new(ring: &'a Ring<Sge>, first: u32, offset: u32, len: u32) -> Sges<'a> {
        let (mut at, mut skip) = (first, offset);
        while len > 0 && skip >= ring[at].len {
            skip -= ring[at].len;
            at = at.wrapping_add(1);
        }
        Sges { ring, at, skip, remaining: len }
    }
}

impl Iterator for Sges<'_> {
    type Item = Region;

    #[inline]
    fn next(&mut self) -> Option<Region> {
        while self.remaining > 0 {
            let sge = self.ring[self.at];
            let len = (sge.len - self.skip).min(self.remaining);
            let va = uroce_wire::Va(sge.va.0.wrapping_add(u64::from(self.skip)));
            self.at = self.at.wrapping_add(1);
            self.skip = 0;
            self.remaining -= len;
            if len > 0 {
                return Some(Region { key: Key::Local(sge.lkey), va, len });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::{Lkey, Va};

    fn ring(lens: &[u32]) -> Ring<Sge> {
        let mut ring = Ring::new(lens.len() as u32);
        for (index, &len) in lens.iter().enumerate() {
            ring.push(Sge { va: Va(1000 * index as u64), len, lkey: Lkey(index as u32) });
        }
        ring
    }

    fn bytes(gather: Gather<'_>) -> Vec<u64> {
        let regions = gather.map(|piece| match piece {
            Piece::Region(region) => region,
            Piece::Bytes(_) => panic!("a list has regions only"),
        });
        regions
            .flat_map(|region| (0..u64::from(region.len)).map(move |byte| region.va.0 + byte))
            .collect()
    }

    #[test] //= check F14 test
    fn every_slice_of_a_list_is_gathered_exactly() {
        let ring = ring(&[0, 3, 0, 0, 5, 1, 0]);
        let all: Vec<u64> = [1000..1003, 4000..4005, 5000..5001].into_iter().flatten().collect();
        for offset in 0..=all.len() {
            for len in 0..=all.len() - offset {
                let gather = Gather::sges(&ring, 0, offset as u32, len as u32);
                assert_eq!(gather.len() as usize, len);
                assert!(gather.clone().all(|piece| !piece.is_empty()));
                assert_eq!(bytes(gather), all[offset..offset + len]);
            }
        }
    }
}
