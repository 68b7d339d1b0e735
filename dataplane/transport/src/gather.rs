//! Where a packet's payload lies: a slice of a scatter/gather list, or a range under an R_Key.

use crate::env::{Key, Region};
use crate::ring::Ring;
use crate::wqe::Sge;

/// The regions of one packet's payload, in order. Iterating does not consume the packet: clone.
#[derive(Clone, Debug)]
pub struct Gather<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Region(Option<Region>),
    Sges(Sges<'a>),
}

/// A walk over `remaining` bytes of an SGE list, beginning `skip` bytes into element `at`.
#[derive(Clone, Debug)]
struct Sges<'a> {
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

    /// `len` bytes of the list that begins at `first` in `ring`, from byte `offset` of the list.
    /// The list holds at least `offset + len` bytes.
    pub(crate) fn sges(ring: &'a Ring<Sge>, first: u32, offset: u32, len: u32) -> Gather<'a> {
        let (mut at, mut skip) = (first, offset);
        while len > 0 && skip >= ring[at].len {
            skip -= ring[at].len;
            at = at.wrapping_add(1);
        }
        Gather(Source::Sges(Sges { ring, at, skip, remaining: len }))
    }

    /// Bytes of all regions together.
    pub fn len(&self) -> u32 {
        match &self.0 {
            Source::Region(region) => region.map_or(0, |region| region.len),
            Source::Sges(sges) => sges.remaining,
        }
    }

    /// No bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Iterator for Gather<'_> {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        match &mut self.0 {
            Source::Region(region) => region.take(),
            Source::Sges(sges) => sges.next(),
        }
    }
}

impl Sges<'_> {
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
        gather
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
                assert!(gather.clone().all(|region| region.len > 0));
                assert_eq!(bytes(gather), all[offset..offset + len]);
            }
        }
    }
}
